// Numbers, quantities and times in the words of the page.

const UNITS: [string, number][] = [
  ['Ei', 2 ** 60], ['Pi', 2 ** 50], ['Ti', 2 ** 40], ['Gi', 2 ** 30], ['Mi', 2 ** 20], ['Ki', 2 ** 10],
  ['E', 1e18], ['P', 1e15], ['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e3], ['m', 1e-3], ['u', 1e-6], ['n', 1e-9],
];

export function quantity(text: unknown): number {
  if (typeof text === 'number') return text;
  if (typeof text !== 'string') return 0;
  for (const [suffix, factor] of UNITS) if (text.endsWith(suffix)) return Number(text.slice(0, -suffix.length)) * factor || 0;
  return Number(text) || 0;
}

export function bytes(value: number): string {
  if (!Number.isFinite(value)) return '–';
  for (const [unit, size] of [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]] as const)
    if (Math.abs(value) >= size) return `${trim(value / size)} ${unit}`;
  return `${Math.round(value)} B`;
}

export function cores(value: number): string {
  if (!Number.isFinite(value)) return '–';
  return value !== 0 && Math.abs(value) < 1 ? `${Math.round(value * 1000)}m` : trim(value);
}

function trim(value: number): string {
  return value >= 100 ? String(Math.round(value)) : String(Math.round(value * 10) / 10);
}

export function count(value: number): string {
  return value.toLocaleString('en-US').replace(/,/g, '\u202f');
}

/** As kubectl says ages: two units at most, one when large. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 8) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  if (h < 48) return `${h}h`;
  const d = Math.floor(h / 24);
  if (d < 8) return h % 24 ? `${d}d${h % 24}h` : `${d}d`;
  return d < 730 ? `${d}d` : `${Math.floor(d / 365)}y`;
}

export function age(time: string | null | undefined, now = Date.now()): string {
  const at = time ? Date.parse(time) : NaN;
  return Number.isNaN(at) ? '–' : duration((now - at) / 1000);
}

export function until(time: string | null | undefined, now = Date.now()): string {
  const at = time ? Date.parse(time) : NaN;
  if (Number.isNaN(at)) return '–';
  return at < now ? `expired ${duration((now - at) / 1000)} ago` : `in ${duration((at - now) / 1000)}`;
}

export function clock(time: string | number | null | undefined): string {
  if (time === null || time === undefined || time === '') return '–';
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? '–' : at.toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC');
}

export const plural = (n: number, one: string, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
