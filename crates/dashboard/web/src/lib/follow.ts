// One container's log as a stream of lines, begun again after it breaks.

import { pathOf, query, send, type Refused } from './api';
import { Splitter, stamped, timeKey } from './logs';

export interface Source { namespace: string; pod: string; container: string }
export interface Options { follow: boolean; previous: boolean; since: number; tail: number }

const RETRY_MS = 2_000;
const wait = (ms: number, signal: AbortSignal) => new Promise<void>((done) => { const timer = setTimeout(done, ms); signal.addEventListener('abort', () => { clearTimeout(timer); done(); }); });

export async function follow(source: Source, options: Options, line: (text: string) => void, state: (text: string) => void, signal: AbortSignal) {
  let last = '';
  let sameTime = 0;
  for (;;) {
    try {
      const path = pathOf({ group: '', version: 'v1', resource: 'pods' }, source.namespace, source.pod, 'log');
      const response = await send(`/k8s${path}${query({
        container: source.container, timestamps: true, follow: options.follow && !options.previous, previous: options.previous,
        ...(last ? { sinceTime: last } : { sinceSeconds: options.since || undefined, tailLines: options.since ? undefined : options.tail }),
      })}`, { signal, headers: { Accept: '*/*' } });
      state('');
      // After a break, lines of the last second are sent again: as many as were shown are left out.
      let skip = last ? sameTime : 0;
      const from = last;
      const hear = (text: string) => {
        const { time } = stamped(text);
        if (from && skip > 0 && time && timeKey(time) <= timeKey(from)) { if (time === from) skip--; return; }
        if (time) { sameTime = time === last ? sameTime + 1 : 1; last = time; }
        line(text);
      };
      const splitter = new Splitter();
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) splitter.push(part.value).forEach(hear);
      splitter.end().forEach(hear);
      if (!options.follow || options.previous) return state('');
      state('ended');
      // The container may start again; the server answers with what is new, or nothing.
      await wait(RETRY_MS * 2, signal);
    } catch (error) {
      if (signal.aborted) return;
      const refused = error as Refused;
      state(refused.message);
      // A container that waits to start has no log yet; what is forbidden or missing stays so.
      if (refused.code === 403 || refused.code === 404 || !options.follow || options.previous) return;
      await wait(RETRY_MS, signal);
    }
    if (signal.aborted) return;
  }
}
