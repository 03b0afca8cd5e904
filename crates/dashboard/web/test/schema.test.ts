import { expect, it } from 'vitest';
import { pathAt, Schema } from '../src/lib/schema';
import { duration, quantity } from '../src/lib/format';
import { drainPlan, selectorText } from '../src/lib/actions';

const text = `apiVersion: v1
kind: Pod
metadata:
  name: x
spec:
  containers:
  - name: a
    image: b
    ports:
      - containerPort: 80

  volumes:
    - name: v
      `.split('\n');

it('finds the path of the cursor', () => {
  expect(pathAt(text, 3, 2)).toEqual(['metadata']);
  expect(pathAt(text, 7, 4)).toEqual(['spec', 'containers', '*']);
  expect(pathAt(text, 6, 4)).toEqual(['spec', 'containers', '*']);
  expect(pathAt(text, 9, 8)).toEqual(['spec', 'containers', '*', 'ports', '*']);
  expect(pathAt(text, 11, 2)).toEqual(['spec']);
  expect(pathAt(text, 13, 6)).toEqual(['spec', 'volumes', '*']);
  expect(pathAt(text, 1, 0)).toEqual([]);
});
it('lists fields through references', () => {
  const schema = new Schema({ Spec: { properties: { list: { type: 'array', items: { allOf: [{ $ref: '#/x/Item' }] } } } }, Item: { properties: { port: { type: 'integer' } }, required: ['port'] } }, { properties: { spec: { $ref: '#/x/Spec' } } });
  expect(schema.fields(['spec', 'list', '*'])).toEqual([{ name: 'port', type: 'integer', description: '', required: true, values: [] }]);
  expect(schema.fields(['nothing', 'here'])).toEqual([]);
});
it('says durations as kubectl does', () => expect([5, 119, 300, 605, 7200, 11_000, 100_000, 1e6].map(duration)).toEqual(['5s', '119s', '5m', '10m', '120m', '3h3m', '27h', '11d']));
it('reads quantities', () => expect(['100m', '2', '1Gi', '1500M', 'x'].map(quantity)).toEqual([0.1, 2, 2 ** 30, 1.5e9, 0]));
it('says selectors', () => expect(selectorText({ matchLabels: { a: 'b' }, matchExpressions: [{ key: 'c', operator: 'In', values: ['d', 'e'] }, { key: 'f', operator: 'DoesNotExist' }] })).toBe('a=b,c in (d,e),!f'));
it('keeps pods of DaemonSets when draining', () => {
  const pod = (name: string, more: object) => ({ metadata: { namespace: 'n', name, ...more }, status: { phase: 'Running' } });
  expect(drainPlan([pod('a', {}), pod('b', { ownerReferences: [{ kind: 'DaemonSet', controller: true }] }), pod('c', { annotations: { 'kubernetes.io/config.mirror': 'x' } })]).map((one) => one.state)).toEqual(['waiting', 'kept', 'kept']);
});
