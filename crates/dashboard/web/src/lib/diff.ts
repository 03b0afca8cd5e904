// Line differences (Myers, bounded) and three-way merging of objects.

export interface Line { kind: 'same' | 'gone' | 'new'; text: string; left?: number; right?: number }

/** More edits than this are not searched for: the middle is then shown as replaced. */
const EDITS_MAX = 1_000;

export function diffLines(before: string, after: string): Line[] {
  const a = before.split('\n'), b = after.split('\n');
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let enda = a.length, endb = b.length;
  while (enda > start && endb > start && a[enda - 1] === b[endb - 1]) { enda--; endb--; }
  const lines: Line[] = [];
  for (let i = 0; i < start; i++) lines.push({ kind: 'same', text: a[i] });
  lines.push(...middle(a.slice(start, enda), b.slice(start, endb)));
  for (let i = enda; i < a.length; i++) lines.push({ kind: 'same', text: a[i] });
  return numbered(lines);
}

function numbered(lines: Line[]): Line[] {
  let left = 0, right = 0;
  for (const line of lines) {
    if (line.kind !== 'new') line.left = ++left;
    if (line.kind !== 'gone') line.right = ++right;
  }
  return lines;
}

function middle(a: string[], b: string[]): Line[] {
  const trace = edits(a, b);
  if (!trace) return [...a.map((text): Line => ({ kind: 'gone', text })), ...b.map((text): Line => ({ kind: 'new', text }))];
  const lines: Line[] = [];
  let x = a.length, y = b.length;
  for (let d = trace.length - 1; d >= 0 && (x > 0 || y > 0); d--) {
    const v = trace[d], k = x - y;
    const down = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1));
    const previous = down ? k + 1 : k - 1;
    const px = d === 0 ? 0 : v.get(previous) ?? 0, py = d === 0 ? 0 : px - previous;
    while (x > px && y > py && x > 0 && y > 0 && a[x - 1] === b[y - 1]) { lines.push({ kind: 'same', text: a[--x] }); y--; }
    if (d > 0) {
      if (down) lines.push({ kind: 'new', text: b[--y] });
      else lines.push({ kind: 'gone', text: a[--x] });
    }
  }
  return lines.reverse();
}

function edits(a: string[], b: string[]): Map<number, number>[] | null {
  const trace: Map<number, number>[] = [];
  let v = new Map<number, number>([[1, 0]]);
  for (let d = 0; d <= Math.min(EDITS_MAX, a.length + b.length); d++) {
    trace.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1));
      let x = down ? v.get(k + 1) ?? 0 : (v.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x++; y++; }
      v.set(k, x);
      if (x >= a.length && y >= b.length) return trace;
    }
  }
  return null;
}

export interface Change { from: number; to: number; insert: string }

/** The places of a text that must change to make the other one of it: whatever points into the rest stays where it is. */
export function changes(before: string, after: string): Change[] {
  // Where every line ends with a break, lines that change are followed by one that does not.
  if (!before.endsWith('\n') || !after.endsWith('\n')) return before === after ? [] : [{ from: 0, to: before.length, insert: after }];
  const all: Change[] = [];
  let at = 0, open: Change | null = null;
  for (const line of diffLines(before, after)) {
    if (line.kind !== 'same' && !open) all.push((open = { from: at, to: at, insert: '' }));
    if (line.kind === 'new') open!.insert += `${line.text}\n`;
    else at += line.text.length + 1;
    if (line.kind === 'gone') open!.to = at;
    else if (line.kind === 'same') open = null;
  }
  return all;
}

/** Changed lines with a few around them; `null` stands for what is left out. */
export function hunks(lines: Line[], around = 3): (Line | null)[] {
  const near = new Array<boolean>(lines.length).fill(false);
  lines.forEach((line, at) => {
    if (line.kind !== 'same') for (let i = Math.max(0, at - around); i <= Math.min(lines.length - 1, at + around); i++) near[i] = true;
  });
  const shown: (Line | null)[] = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.length === 0 || shown[shown.length - 1] !== null) shown.push(null);
  });
  return shown;
}

type Json = unknown;
const isMap = (value: Json): value is Record<string, Json> => typeof value === 'object' && value !== null && !Array.isArray(value);
export const equal = (a: Json, b: Json): boolean => {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, at) => equal(item, b[at]));
  if (!isMap(a) || !isMap(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => key in b && equal(a[key], b[key]));
};

/** My changes since `base`, laid over `theirs`. Fields that both changed differently are named, and mine are taken. */
export function merge3(base: Json, mine: Json, theirs: Json): { merged: Json; conflicts: string[] } {
  const conflicts: string[] = [];
  return { merged: mergeAt(base, mine, theirs, '', conflicts), conflicts };
}

function mergeAt(base: Json, mine: Json, theirs: Json, path: string, conflicts: string[]): Json {
  if (equal(mine, base)) return theirs;
  if (equal(theirs, base) || equal(mine, theirs)) return mine;
  if (isMap(base) && isMap(mine) && isMap(theirs)) return mergeMaps(base, mine, theirs, path, conflicts);
  const items = namedItems(base, mine, theirs);
  if (items) {
    const [b, m, o] = items;
    return Object.values(mergeMaps(b, m, o, path, conflicts));
  }
  conflicts.push(path || '.');
  return mine;
}

function mergeMaps(base: Record<string, Json>, mine: Record<string, Json>, theirs: Record<string, Json>, path: string, conflicts: string[]) {
  const merged: Record<string, Json> = {};
  for (const key of new Set([...Object.keys(theirs), ...Object.keys(mine)])) {
    const value = mergeAt(base[key], mine[key], theirs[key], `${path}.${key}`, conflicts);
    if (value !== undefined) merged[key] = value;
  }
  return merged;
}

// Lists whose items have names (containers, volumes, env) are merged item by item.
function namedItems(...lists: Json[]): Record<string, Json>[] | null {
  const maps: Record<string, Json>[] = [];
  for (const list of lists) {
    if (!Array.isArray(list) || !list.every((item) => isMap(item) && typeof item.name === 'string')) return null;
    const map = Object.fromEntries(list.map((item) => [`n:${(item as { name: string }).name}`, item]));
    if (Object.keys(map).length !== list.length) return null;
    maps.push(map);
  }
  return maps;
}
