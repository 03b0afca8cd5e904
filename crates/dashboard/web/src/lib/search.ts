// The server's search. The first one of a while begins to read every kind: until all are read its answers are partial, shown as
// such, and asked for again.

import { ask, query, type Refused } from './api';
import type { Found } from './types';

const AGAIN_MS = 500;

export interface Answer { took_ms: number; results: Found[]; total?: number; complete?: boolean }

/** Stops when what is returned is called. */
export function search(words: string, limit: number, hear: (answer: Answer) => void, fail: (error: Refused) => void = () => {}): () => void {
  let stopped = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  async function once() {
    try {
      const answer = await ask<Answer>(`/api/search${query({ q: words, limit })}`);
      if (stopped) return;
      hear(answer);
      if (answer.complete === false) timer = setTimeout(() => void once(), AGAIN_MS);
    } catch (error) {
      if (!stopped) fail(error as Refused);
    }
  }
  void once();
  return () => { stopped = true; clearTimeout(timer); };
}
