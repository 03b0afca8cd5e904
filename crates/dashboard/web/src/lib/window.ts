// Which rows of a long list are drawn. Browsers do not draw elements of any height, so that very long lists are scrolled
// in proportion: a pixel of the scroll bar then stands for several rows.

/** Above this, browsers start to round positions. */
export const HEIGHT_MAX = 8_000_000;
/** What the server gives at once. */
export const COUNT_MAX = 200;

export interface View {
  /** Height of the scrolled element. */
  height: number;
  /** The first row that is at least partly seen, and how many are. */
  first: number;
  seen: number;
  /** Where the first seen row is drawn, within the scrolled element. */
  top: number;
}

export function view(rows: number, rowHeight: number, scrollTop: number, viewport: number): View {
  const real = rows * rowHeight;
  const height = Math.min(real, HEIGHT_MAX);
  const seen = Math.min(rows, Math.ceil(viewport / rowHeight) + 1);
  const scrollMax = Math.max(0, height - viewport);
  const scrolled = Math.min(Math.max(0, scrollTop), scrollMax);
  if (real <= HEIGHT_MAX) {
    const first = Math.max(0, Math.min(Math.floor(scrolled / rowHeight), rows - seen));
    return { height, first, seen, top: first * rowHeight };
  }
  const share = scrollMax === 0 ? 0 : scrolled / scrollMax;
  const offset = share * (real - viewport);
  const first = Math.max(0, Math.min(Math.floor(offset / rowHeight), rows - seen));
  return { height, first, seen, top: scrolled - (offset - first * rowHeight) };
}

/** Whether the window that is held still covers what is seen, and otherwise which one to ask for. */
export function wanted(held: { from: number; count: number } | null, seen: View): { from: number; count: number } | null {
  const last = seen.first + seen.seen;
  if (held && seen.first >= held.from && last <= held.from + held.count) return null;
  const count = Math.min(COUNT_MAX, Math.max(60, seen.seen * 3));
  return { from: Math.max(0, seen.first - Math.floor((count - seen.seen) / 2)), count };
}
