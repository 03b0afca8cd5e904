import { expect, it } from 'vitest';
import { HEIGHT_MAX, view, wanted } from '../src/lib/window';

it('draws what is seen', () => {
  expect(view(30_000, 30, 0, 600)).toEqual({ height: 900_000, first: 0, seen: 21, top: 0 });
  expect(view(30_000, 30, 45, 600)).toMatchObject({ first: 1, top: 30 });
});
it('reaches the last row', () => {
  const last = view(30_000, 30, 900_000 - 600, 600);
  expect(last.first + last.seen).toBe(30_000);
});
it('draws few rows whole', () => expect(view(3, 30, 0, 600)).toEqual({ height: 90, first: 0, seen: 3, top: 0 }));
it('draws nothing of nothing', () => expect(view(0, 30, 100, 600)).toEqual({ height: 0, first: 0, seen: 0, top: 0 }));
it('scrolls a million rows in proportion', () => {
  const rows = 1_000_000;
  expect(view(rows, 30, 0, 600).height).toBe(HEIGHT_MAX);
  const last = view(rows, 30, HEIGHT_MAX, 600);
  expect(last.first + last.seen).toBe(rows);
  const middle = view(rows, 30, HEIGHT_MAX / 2, 600);
  expect(Math.abs(middle.first - rows / 2)).toBeLessThan(100);
  expect(middle.top).toBeLessThanOrEqual(HEIGHT_MAX / 2);
});
it('asks for rows around what is seen, once', () => {
  const seen = view(30_000, 30, 30_000, 600);
  const window = wanted(null, seen)!;
  expect(window.from).toBeLessThan(seen.first);
  expect(window.count).toBeLessThanOrEqual(200);
  expect(wanted(window, seen)).toBeNull();
  expect(wanted(window, view(30_000, 30, 90_000, 600))).not.toBeNull();
});
