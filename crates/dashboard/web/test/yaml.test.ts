import { expect, it } from 'vitest';
import { forDiff, onTopOf, parseYaml, toYaml, withoutManagedFields } from '../src/lib/yaml';

it('reads back what it writes', () => {
  const object = { a: '2026-01-01T00:00:00Z', b: 'yes', c: '0x10', d: '1e3', e: 'x\ny\n', f: '\u001b[2J', g: [{ h: null }], i: 1.5, j: '<script>', k: '08' };
  expect(parseYaml(toYaml(object))).toEqual(object);
});
it('refuses what is no object', () => expect(() => parseYaml('- a')).toThrow());
it('folds managed fields', () => expect(withoutManagedFields({ metadata: { name: 'x', managedFields: [{}] } })).toEqual({ metadata: { name: 'x' } }));
it('compares in one order, without what the server writes', () => {
  const one = { kind: 'A', apiVersion: 'v1', metadata: { name: 'x', resourceVersion: '1' }, spec: { b: 1, a: 2 }, status: {} };
  const other = { apiVersion: 'v1', spec: { a: 2, b: 1 }, kind: 'A', metadata: { resourceVersion: '2', name: 'x' } };
  expect(forDiff(one)).toBe(forDiff(other));
  expect(forDiff(one).startsWith('apiVersion: v1\nkind: A\n')).toBe(true);
});
it('puts a change on top of what the server wrote meanwhile', () => {
  const theirs = { kind: 'A', metadata: { name: 'x', labels: { a: '1' }, resourceVersion: '2', uid: 'u' }, data: {}, status: { ready: 3 } };
  const wanted = { kind: 'A', metadata: { name: 'x', resourceVersion: '1' }, spec: 1, status: { ready: 1 } };
  // What was taken away stays away; the status is nobody's wish.
  expect(onTopOf(theirs, wanted)).toEqual({ kind: 'A', metadata: { name: 'x', resourceVersion: '2', uid: 'u' }, spec: 1, status: { ready: 3 } });
});
