// Objects as YAML text and back. Managed fields are folded away: nobody edits them by hand, and a PUT without them keeps them.

import { CORE_SCHEMA, dump, load } from 'js-yaml';

type Obj = Record<string, any>;

export function toYaml(object: unknown): string {
  return dump(object, { schema: CORE_SCHEMA, lineWidth: -1, noRefs: true, sortKeys: false });
}

export function parseYaml(text: string): Obj {
  const value = load(text, { schema: CORE_SCHEMA });
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('an object is a map with apiVersion, kind and metadata');
  return value as Obj;
}

export interface YamlProblem { message: string; line: number }

export function problem(error: unknown): YamlProblem {
  const mark = (error as { mark?: { line: number } }).mark;
  const reason = (error as { reason?: string }).reason;
  return { message: reason ?? (error as Error).message, line: mark?.line ?? 0 };
}

export function withoutManagedFields(object: Obj): Obj {
  if (!object?.metadata?.managedFields) return object;
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}

/** What a person may change: without status, managed fields, and what the server writes by itself. For comparing. */
export function intent(object: Obj): Obj {
  const { status: _, ...rest } = object;
  const { managedFields: _1, resourceVersion: _2, generation: _3, uid: _4, creationTimestamp: _5, selfLink: _6, ...metadata } = rest.metadata ?? {};
  return { ...rest, metadata };
}

const BY_SERVER = ['resourceVersion', 'generation', 'uid', 'creationTimestamp', 'selfLink'];
/** What somebody wants, with what the server writes by itself as it is in `theirs`: what a PUT after theirs sends. */
export function onTopOf(theirs: Obj, wanted: Obj): Obj {
  const own = intent(wanted);
  const byServer = Object.fromEntries(BY_SERVER.filter((key) => theirs.metadata?.[key] !== undefined).map((key) => [key, theirs.metadata[key]]));
  return { ...own, metadata: { ...own.metadata, ...byServer }, ...(theirs.status === undefined ? {} : { status: theirs.status }) };
}

const FIRST = ['apiVersion', 'kind', 'metadata'];
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

/** YAML for comparing two states: keys in one order, without the copy that kubectl keeps of what it applied. */
export function forDiff(object: Obj, status = false): string {
  const own = status ? withoutManagedFields(object) : intent(object);
  const { [LAST_APPLIED]: _, ...annotations } = own.metadata?.annotations ?? {};
  const metadata = { ...own.metadata };
  if (Object.keys(annotations).length) metadata.annotations = annotations;
  else delete metadata.annotations;
  return toYaml(ordered({ ...own, metadata }, FIRST));
}

function ordered(value: unknown, first: string[] = ['name']): unknown {
  if (Array.isArray(value)) return value.map((item) => ordered(item));
  if (typeof value !== 'object' || value === null) return value;
  const rank = (key: string) => (first.includes(key) ? first.indexOf(key) : first.length);
  const keys = Object.keys(value).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  return Object.fromEntries(keys.map((key) => [key, ordered((value as Obj)[key])]));
}
