import { expect, it } from 'vitest';
import { LINES_MAX, Merger, Splitter, stamped, timeKey } from '../src/lib/logs';
import { LINE_MAX, logLine } from '../src/lib/text';

it('cuts a stream into lines', () => {
  const splitter = new Splitter();
  expect(splitter.push('a\nb')).toEqual(['a']);
  expect(splitter.push('c\n\n')).toEqual(['bc', '']);
  expect(splitter.push('end')).toEqual([]);
  expect(splitter.end()).toEqual(['end']);
});
it('keeps a bounded part of an endless line', () => {
  const splitter = new Splitter();
  for (let at = 0; at < 64; at++) splitter.push('z'.repeat(1 << 14));
  const [line] = splitter.push('\n');
  expect(line.length).toBeLessThan(20_000);
  // What is shown says how much is not.
  expect(logLine(line).slice(LINE_MAX)).toBe(`… (+${(1 << 20) - LINE_MAX} characters)`);
});
it('reads times', () => {
  expect(stamped('2026-01-02T03:04:05.6Z hello')).toEqual({ time: '2026-01-02T03:04:05.6Z', text: 'hello' });
  expect(stamped('no time here')).toEqual({ time: '', text: 'no time here' });
  expect(timeKey('2026-01-02T03:04:05Z') < timeKey('2026-01-02T03:04:05.1Z')).toBe(true);
  expect(timeKey('2026-01-02T03:04:05.123456789Z') > timeKey('2026-01-02T03:04:05.12Z')).toBe(true);
});
it('merges by time and keeps the order of each stream', () => {
  const merger = new Merger();
  for (const [source, line] of [[0, '2026-01-01T00:00:01Z a1'], [0, '2026-01-01T00:00:03Z a2'], [0, ' of a2'], [1, '2026-01-01T00:00:02Z b1'], [1, '2026-01-01T00:00:03Z b2']] as [number, string][]) merger.add(source, line);
  expect(merger.lines.map((line) => line.text)).toEqual(['a1', 'b1', 'a2', ' of a2', 'b2']);
});
it('drops the oldest', () => {
  const merger = new Merger();
  for (let at = 0; at < LINES_MAX + 2_000; at++) merger.add(0, `line ${at}`);
  expect(merger.lines.length).toBeLessThanOrEqual(LINES_MAX + 1_000);
  expect(merger.dropped).toBeGreaterThan(0);
});
