// Which logs are followed together.

import type { Source } from './follow';
import type { Obj } from './types';

/** Browsers open six connections to one server over HTTP/1.1; over HTTP/2 streams are cheap, but not free. */
const STREAMS_MAX = 20;
const STREAMS_MAX_HTTP1 = 4;

export const containersOf = (pod: Obj): string[] =>
  [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? []), ...(pod.spec?.ephemeralContainers ?? [])].map((one: Obj) => one.name as string);

export function choose(pods: Obj[], container: string): { sources: Source[]; left: number } {
  const entry = performance.getEntriesByType('navigation')[0] as PerformanceNavigationTiming | undefined;
  const max = entry?.nextHopProtocol === 'h2' || entry?.nextHopProtocol === 'h3' ? STREAMS_MAX : STREAMS_MAX_HTTP1;
  const all = pods.flatMap((pod) => containersOf(pod).filter((name) => !container || name === container).map((name, order) => ({ order, source: { namespace: pod.metadata.namespace as string, pod: pod.metadata.name as string, container: name } })))
    // Every pod is heard before any is heard twice.
    .sort((a, b) => a.order - b.order).map((one) => one.source);
  return { sources: all.slice(0, max), left: Math.max(0, all.length - max) };
}
