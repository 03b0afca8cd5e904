// Lines of several log streams in the order of their times, bounded.

import { LINE_MAX } from './text';

export interface LogLine { source: number; time: string; text: string; order: number }

export const LINES_MAX = 50_000;
/** How much of a line without an end is kept while the rest of it passes by. */
const TAIL_MAX = LINE_MAX;

/** Cuts a stream into lines; what a line has beyond the bound is counted, not kept. */
export class Splitter {
  private rest = '';
  private lost = 0;

  push(chunk: string): string[] {
    const lines: string[] = [];
    let from = 0;
    for (let at = chunk.indexOf('\n'); at >= 0; at = chunk.indexOf('\n', from)) {
      this.keep(chunk.slice(from, at));
      lines.push(this.take());
      from = at + 1;
    }
    this.keep(chunk.slice(from));
    return lines;
  }

  end(): string[] {
    return this.rest ? [this.take()] : [];
  }

  private keep(part: string) {
    const room = TAIL_MAX - this.rest.length;
    this.rest += part.slice(0, Math.max(0, room));
    this.lost += Math.max(0, part.length - Math.max(0, room));
  }

  private take(): string {
    const line = this.lost > 0 ? `${this.rest}… (+${this.lost} characters)` : this.rest;
    this.rest = '';
    this.lost = 0;
    return line;
  }
}

/** `2026-01-02T03:04:05.6Z text` as the API server's `timestamps=true` gives it. */
export function stamped(line: string): { time: string; text: string } {
  const space = line.indexOf(' ');
  const time = space > 0 ? line.slice(0, space) : line;
  return /^\d{4}-\d\d-\d\dT/.test(time) ? { time, text: space > 0 ? line.slice(space + 1) : '' } : { time: '', text: line };
}

// Times have as many digits as they need: `05Z` and `05.1Z` compare as numbers of a second, not as text.
export function timeKey(time: string): string {
  const match = /^(.{19})(?:\.(\d+))?/.exec(time);
  return match ? `${match[1]}.${(match[2] ?? '').padEnd(9, '0')}` : '';
}

export class Merger {
  lines: (LogLine & { key: string })[] = [];
  dropped = 0;
  private order = 0;
  private last = new Map<number, string>();

  /** A line without a time stands right after the one before it of its own stream. */
  add(source: number, raw: string) {
    const { time, text } = stamped(raw);
    const key = timeKey(time) || this.last.get(source) || '';
    this.last.set(source, key);
    const line = { source, time, text, key, order: this.order++ };
    let at = this.lines.length;
    while (at > 0 && this.lines[at - 1].key > key) at--;
    if (at === this.lines.length) this.lines.push(line);
    else this.lines.splice(at, 0, line);
    if (this.lines.length > LINES_MAX + 1_000) this.dropped += this.lines.splice(0, this.lines.length - LINES_MAX).length;
  }
}
