import { expect, it } from 'vitest';
import { changes, diffLines, hunks, merge3 } from '../src/lib/diff';

const short = (before: string, after: string) => diffLines(before, after).map((line) => ({ same: ' ', gone: '-', new: '+' })[line.kind] + line.text);

it('finds changed lines', () => expect(short('a\nb\nc\nd', 'a\nB\nc\nd\ne')).toEqual([' a', '-b', '+B', ' c', ' d', '+e']));
const changed = (before: string, after: string) => changes(before, after).reduceRight((text, one) => text.slice(0, one.from) + one.insert + text.slice(one.to), before);

it('leaves what is the same where it is', () => expect(changes('version: 1\nspec: x\nstatus: 1\n', 'version: 22\nspec: x\nstatus: 2\n')).toEqual([{ from: 0, to: 11, insert: 'version: 22\n' }, { from: 19, to: 29, insert: 'status: 2\n' }]));
it('finds nothing', () => expect(short('a\nb', 'a\nb')).toEqual([' a', ' b']));
it('gives both texts back', () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
  for (let round = 0; round < 200; round++) {
    const text = () => Array.from({ length: random(12) }, () => 'abcd'[random(4)]).join('\n');
    const before = text(), after = text();
    const lines = diffLines(before, after);
    expect(lines.filter((line) => line.kind !== 'new').map((line) => line.text).join('\n')).toBe(before);
    expect(lines.filter((line) => line.kind !== 'gone').map((line) => line.text).join('\n')).toBe(after);
    for (const [from, to] of [[before, after], [`${before}\n`, `${after}\n`]]) expect(changed(from, to)).toBe(to);
  }
});
it('survives texts that have nothing in common', () => {
  const before = Array.from({ length: 5000 }, (_, at) => `a${at}`).join('\n'), after = Array.from({ length: 5000 }, (_, at) => `b${at}`).join('\n');
  expect(diffLines(before, after).length).toBe(10_000);
});
it('leaves out what did not change', () => {
  const before = Array.from({ length: 30 }, (_, at) => `${at}`).join('\n');
  const shown = hunks(diffLines(before, before.replace('15', 'x')));
  expect(shown[0]).toBeNull();
  expect(shown.filter((line) => line && line.kind !== 'same').length).toBe(2);
  expect(shown.length).toBe(10);
});
it('merges changes of different fields', () => {
  const base = { spec: { replicas: 1, image: 'a' } };
  expect(merge3(base, { spec: { replicas: 2, image: 'a' } }, { spec: { replicas: 1, image: 'b' } }))
    .toEqual({ merged: { spec: { replicas: 2, image: 'b' } }, conflicts: [] });
});
it('names fields that both changed', () => {
  const base = { spec: { replicas: 1 } };
  expect(merge3(base, { spec: { replicas: 2 } }, { spec: { replicas: 3 } })).toEqual({ merged: { spec: { replicas: 2 } }, conflicts: ['.spec.replicas'] });
});
it('merges lists by name', () => {
  const list = (a: string, b: string) => ({ containers: [{ name: 'a', image: a }, { name: 'b', image: b }] });
  expect(merge3(list('1', '1'), list('2', '1'), list('1', '2'))).toEqual({ merged: list('2', '2'), conflicts: [] });
});
it('takes away what I took away', () => expect(merge3({ a: 1, b: 1 }, { b: 1 }, { a: 1, b: 2 }).merged).toEqual({ b: 2 }));
