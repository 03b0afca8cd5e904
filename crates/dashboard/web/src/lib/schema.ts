// Completion from the API server's OpenAPI v3: which fields the kind has at the place of the cursor.

import { k8s } from './api';
import type { Obj, Resource } from './types';

export interface Field { name: string; type: string; description: string; required: boolean; values: string[] }

export class Schema {
  constructor(private readonly all: Record<string, Obj>, private readonly root: Obj) {}

  /** Fields below a path such as ['spec', 'containers', '*']. */
  fields(path: string[]): Field[] {
    let at: Obj | null = this.root;
    for (const step of path) at = at && this.step(this.resolve(at), step);
    const found = at && this.resolve(at);
    if (!found?.properties) return [];
    return Object.entries(found.properties as Record<string, Obj>).map(([name, property]) => {
      const full = this.resolve(property);
      return { name, type: typeName(full), description: property.description ?? full.description ?? '', required: (found.required ?? []).includes(name), values: full.enum ?? [] };
    });
  }

  private step(schema: Obj, step: string): Obj | null {
    if (step === '*') return schema.items ?? null;
    return schema.properties?.[step] ?? (typeof schema.additionalProperties === 'object' ? schema.additionalProperties : null);
  }

  private resolve(schema: Obj): Obj {
    let at = schema;
    // References may point at references; a circle is no schema.
    for (let hops = 0; hops < 8; hops++) {
      const name = (at.$ref ?? at.allOf?.[0]?.$ref) as string | undefined;
      if (!name) return at;
      at = this.all[name.slice(name.lastIndexOf('/') + 1)] ?? {};
    }
    return at;
  }
}

const typeName = (schema: Obj): string => (schema.properties ? 'object' : schema.type === 'array' ? 'list' : schema.type ?? 'any');

const known = new Map<string, Promise<Schema | null>>();

export function schemaOf(resource: Resource, kind: string): Promise<Schema | null> {
  const key = `${resource.group}/${resource.version}/${kind}`;
  if (!known.has(key)) known.set(key, load(resource, kind).catch(() => null));
  return known.get(key)!;
}

async function load(resource: Resource, kind: string): Promise<Schema | null> {
  const path = resource.group ? `apis/${resource.group}/${resource.version}` : `api/${resource.version}`;
  const document = await k8s(`/openapi/v3/${path}`);
  const all = (document.components?.schemas ?? {}) as Record<string, Obj>;
  const root = Object.values(all).find((schema) =>
    ((schema['x-kubernetes-group-version-kind'] ?? []) as Obj[]).some((id) => id.group === resource.group && id.version === resource.version && id.kind === kind));
  return root ? new Schema(all, root) : null;
}

/** The path of the cursor in YAML text, by indentation: good enough for text that is being typed. */
export function pathAt(lines: string[], row: number, column: number): string[] {
  const stack: { column: number; step: string }[] = [];
  // A list's dashes may stand at the column of the key that holds it; a key at that column ends the list.
  const close = (from: number, keepKey: boolean) => {
    while (stack.length) {
      const top = stack[stack.length - 1];
      if (top.column < from || (keepKey && top.column === from && top.step !== '*')) return;
      stack.pop();
    }
  };
  for (let at = 0; at <= row; at++) {
    const match = /^(\s*)((?:- +|-$)*)(?:([^\s#"'][^:#]*|"[^"]*"|'[^']*'):(?:\s|$))?/.exec(lines[at] ?? '');
    if (!match || (!match[2] && !match[3] && at < row)) continue;
    let own = match[1].length;
    for (const dash of match[2].match(/- *|-$/g) ?? []) {
      close(own, true);
      stack.push({ column: own, step: '*' });
      own += dash.length;
    }
    if (at === row) close(column, false);
    else if (match[3]) {
      close(own, false);
      stack.push({ column: own, step: match[3].replace(/^["']|["']$/g, '') });
    }
  }
  return stack.map((one) => one.step);
}
