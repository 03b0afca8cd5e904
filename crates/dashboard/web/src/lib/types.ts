// What the server says, as far as the page reads it.

export type Obj = Record<string, any>;
export type Health = 'ok' | 'progressing' | 'warning' | 'failing' | 'unknown';

export interface Resource { group: string; version: string; resource: string }
export interface Kind extends Resource {
  kind: string; namespaced: boolean; verbs: string[]; shortNames: string[]; categories: string[]; custom: boolean;
}
export interface Ref extends Resource { kind?: string; namespace: string; name: string }

export interface Session {
  user: string; groups: string[]; csrf: string; expires: string | null;
  server: { version: string; name: string };
  features: { history: boolean; revisions: boolean; search: boolean; policy: boolean };
  clientCertificate: boolean;
}

export interface Column { name: string; type: string; priority: number; description: string }
export interface Row {
  uid: string; namespace: string; name: string; cells: unknown[]; labels: Record<string, string>; created: string; deleted: boolean;
  health: Health; usage: { cpu: number; memory: number } | null; seen?: string | null;
}
export interface ListOp {
  resource: Resource; namespace?: string; labels?: string; fields?: string; text?: string;
  sort?: { column: string; descending: boolean } | null; from: number; count: number;
}

export interface Amounts { capacity: number; allocatable: number; requests: number; usage: number | null }
export interface OverviewNode {
  name: string; ready: boolean; roles: string[]; cpu: Amounts; memory: Amounts;
  pods: { allocatable: number; running: number }; pressure: string[]; version: string; unschedulable?: boolean;
}
export interface Unhealthy extends Ref { reason: string; message: string; since: string | null; health?: Health }
export interface Overview {
  nodes: OverviewNode[]; unhealthy: Unhealthy[]; warnings: Obj[]; certificates: { name: string; expires: string }[];
  counts: Record<string, number>; version: string; forbidden?: string[];
}

export interface MapNode extends Ref { id: string; kind: string; health: Health; summary: string }
export interface MapData { nodes: MapNode[]; edges: { from: string; to: string; label: string }[]; truncated: boolean }

export interface WhyAnswer {
  verdict: string; severity: 'ok' | 'info' | 'warning' | 'failing';
  findings: { title: string; detail: string; evidence: string[]; resource: Ref | null; suggestion: string | null }[];
  tables: { title: string; columns: string[]; rows: string[][] }[];
}
export interface Found extends Ref { kind: string; field: string; match: string }
