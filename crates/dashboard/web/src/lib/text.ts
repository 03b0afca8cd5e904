// Text that others wrote: names, labels, messages, logs. Svelte renders it as text; this file makes visible what would
// change how the text around it reads, and bounds what would be too long to draw.

/** What a cell, a message, a log line shows at most; the rest is counted. */
export const CELL_MAX = 300;
export const MESSAGE_MAX = 4_000;
export const LINE_MAX = 8_000;

const NAMES: Record<number, string> = {
  0x061c: 'ALM', 0x200e: 'LRM', 0x200f: 'RLM', 0x202a: 'LRE', 0x202b: 'RLE', 0x202c: 'PDF', 0x202d: 'LRO', 0x202e: 'RLO',
  0x2066: 'LRI', 0x2067: 'RLI', 0x2068: 'FSI', 0x2069: 'PDI', 0x200b: 'ZWSP', 0x2060: 'WJ', 0xfeff: 'BOM',
  0x2028: 'LS', 0x2029: 'PS', 0x00ad: 'SHY', 0x7f: 'DEL',
};
// Few fonts have the pictures of U+2400, so that these are named, too.
const C0 = 'NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US'.split(' ');
// C0 (but tab and newline), DEL, C1, and what changes direction or is invisible.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/g;

function symbol(character: string): string {
  const code = character.charCodeAt(0);
  return `\u27e8${C0[code] ?? NAMES[code] ?? 'U+' + code.toString(16).toUpperCase().padStart(4, '0')}\u27e9`;
}

/** Control characters and direction marks become their names, the rest stays as it is. */
export function reveal(text: string): string {
  return text.replace(ODD, symbol);
}

function bounded(text: string, max: number): string {
  if (text.length <= max) return text;
  // Half of a surrogate pair is not shown.
  const end = text.charCodeAt(max - 1) >>> 10 === 0x36 ? max - 1 : max;
  return `${text.slice(0, end)}… (+${text.length - end} characters)`;
}

/** Any value as text that fits. */
export function t(value: unknown, max = MESSAGE_MAX): string {
  if (value === null || value === undefined) return '';
  const text = typeof value === 'string' ? value : typeof value === 'object' ? JSON.stringify(value) : String(value);
  return reveal(bounded(text, max));
}

/** The same on one line, for cells. */
export function cell(value: unknown): string {
  return t(value, CELL_MAX).replace(/[\n\t]/g, ' ');
}

// Colours and cursor moves of terminals say nothing in a log; what else looks like an escape is shown.
const ANSI = /\u001b\[[0-9;:]*[mK]/g;

/** Room for how much was cut off already: a line that is cut twice would say only how much the second time. */
const COUNT_MAX = 64;

/** One line of a log: colours away, everything else visible, bounded. */
export function logLine(text: string): string {
  return t(text.replace(ANSI, '').replace(/\r$/, ''), LINE_MAX + COUNT_MAX);
}
