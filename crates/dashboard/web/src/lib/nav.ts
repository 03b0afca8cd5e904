// Where kinds stand in the side bar. What is named nowhere is under "More"; custom kinds have their own part.

import type { Kind } from './types';

const PARTS: [string, string[]][] = [
  ['Workloads', ['pods', 'deployments.apps', 'statefulsets.apps', 'daemonsets.apps', 'jobs.batch', 'cronjobs.batch', 'replicasets.apps', 'horizontalpodautoscalers.autoscaling', 'poddisruptionbudgets.policy']],
  ['Network', ['services', 'ingresses.networking.k8s.io', 'endpointslices.discovery.k8s.io', 'networkpolicies.networking.k8s.io', 'ingressclasses.networking.k8s.io']],
  ['Storage', ['persistentvolumeclaims', 'persistentvolumes', 'storageclasses.storage.k8s.io']],
  ['Configuration', ['configmaps', 'secrets', 'resourcequotas', 'limitranges', 'priorityclasses.scheduling.k8s.io']],
  ['Access', ['serviceaccounts', 'roles.rbac.authorization.k8s.io', 'rolebindings.rbac.authorization.k8s.io', 'clusterroles.rbac.authorization.k8s.io', 'clusterrolebindings.rbac.authorization.k8s.io']],
];
const TOP = ['nodes', 'namespaces', 'events'];

export const nameOf = (kind: { group: string; resource: string }) => (kind.group ? `${kind.resource}.${kind.group}` : kind.resource);

/** `ReplicaSet` → `Replica Sets`. */
export function title(kind: { kind: string }): string {
  const words = kind.kind.replace(/([a-z])([A-Z])/g, '$1 $2').replace(/([A-Z]+)([A-Z][a-z])/g, '$1 $2');
  if (/(s|x|ch|sh)$/.test(words)) return /(ss|x|ch|sh)$/.test(words) ? `${words}es` : words;
  return /[^aeiou]y$/.test(words) ? `${words.slice(0, -1)}ies` : `${words}s`;
}

export function parts(kinds: Kind[]): { top: Kind[]; parts: { title: string; kinds: Kind[]; folded: boolean }[] } {
  const listed = kinds.filter((kind) => kind.verbs.includes('list') && !(kind.group === 'events.k8s.io'));
  const by = new Map(listed.map((kind) => [nameOf(kind), kind]));
  const take = (names: string[]) => names.map((name) => by.get(name)).filter((kind): kind is Kind => kind !== undefined);
  const named = new Set([...TOP, ...PARTS.flatMap(([, names]) => names)]);
  const rest = listed.filter((kind) => !named.has(nameOf(kind)));
  const all = PARTS.map(([title, names]) => ({ title, kinds: take(names), folded: false }));
  all.push({ title: 'Custom', kinds: rest.filter((kind) => kind.custom), folded: true });
  all.push({ title: 'More', kinds: rest.filter((kind) => !kind.custom), folded: true });
  return { top: take(TOP), parts: all.filter((part) => part.kinds.length > 0) };
}
