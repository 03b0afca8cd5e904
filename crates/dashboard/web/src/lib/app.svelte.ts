// What the whole page knows: who is signed in, which kinds there are, which namespace and theme are chosen, what was said.

import { ask, k8s, onSignedOut, Refused, useCsrf } from './api';
import { connect, disconnect, onSessionEnd } from './live.svelte';
import type { Kind, Obj, Ref, Resource, Session } from './types';

export const app = $state<{
  session: Session | null; phase: 'starting' | 'signed-out' | 'ready' | 'unreachable'; notice: string;
  kinds: Kind[]; namespaces: string[] | null; namespace: string;
}>({ session: null, phase: 'starting', notice: '', kinds: [], namespaces: [], namespace: '' });

export async function start() {
  try {
    await enter(await ask<Session>('/api/session'));
  } catch (error) {
    if (error instanceof Refused && error.code === 401) app.phase = 'signed-out';
    else if (error instanceof Refused && error.code === 0) { app.phase = 'unreachable'; setTimeout(start, 3000); }
    else { app.phase = 'signed-out'; app.notice = (error as Error).message; }
  }
}

export async function enter(session: Session) {
  app.session = session;
  useCsrf(session.csrf);
  app.kinds = (await ask<Kind[]>('/api/resources')).sort((a, b) => a.kind.localeCompare(b.kind));
  app.phase = 'ready';
  app.notice = '';
  answers.clear();
  connect();
  void loadNamespaces();
}

export async function signIn(body: Obj) {
  await enter(await ask<Session>('/api/session', { method: 'POST', body }));
}

export async function signOut() {
  await ask('/api/session', { method: 'DELETE' }).catch(() => {});
  leave('You are signed out.');
}

function leave(notice: string) {
  if (app.phase === 'signed-out') return;
  disconnect();
  app.session = null;
  app.phase = 'signed-out';
  app.notice = notice;
}
onSignedOut(() => leave('Your session has ended. Sign in again to go on where you were.'));
onSessionEnd(() => leave('Your session has ended. Sign in again to go on where you were.'));

export async function loadNamespaces() {
  try {
    const list = await k8s('/api/v1/namespaces?limit=2000');
    app.namespaces = (list.items as Obj[]).map((item) => item.metadata.name as string).sort();
  } catch {
    // Who may not list namespaces types one.
    app.namespaces = null;
  }
}

export const kindOf = (resource: Resource | null): Kind | undefined =>
  resource ? app.kinds.find((kind) => kind.resource === resource.resource && kind.group === resource.group) : undefined;

/** The resource of an owner or an involved object, which are named by kind. */
export function refOf(apiVersion: string | undefined, kind: string, namespace: string, name: string): Ref | null {
  const [group, version] = (apiVersion ?? 'v1').includes('/') ? (apiVersion as string).split('/') : ['', apiVersion ?? 'v1'];
  const found = app.kinds.find((known) => known.kind === kind && known.group === group) ?? (apiVersion ? undefined : app.kinds.find((known) => known.kind === kind));
  return found ? { group: found.group, version: found.version || version, resource: found.resource, kind, namespace: found.namespaced ? namespace : '', name } : null;
}

export const core = (resource: string): Resource => ({ group: '', version: 'v1', resource });
export const apps = (resource: string): Resource => ({ group: 'apps', version: 'v1', resource });

// Rights.

export interface Check { verb: string; group?: string; resource: string; subresource?: string; namespace?: string; name?: string }
const answers = new Map<string, boolean>();
const CHECKS_MAX = 64;

export async function may(checks: Check[]): Promise<boolean[]> {
  const full = checks.map((check) => ({ group: '', subresource: '', namespace: '', name: '', ...check }));
  const keys = full.map((check) => JSON.stringify(check));
  const open = full.filter((_, at) => !answers.has(keys[at]));
  for (let from = 0; from < open.length; from += CHECKS_MAX) {
    const part = open.slice(from, from + CHECKS_MAX);
    const { allowed } = await ask<{ allowed: boolean[] }>('/api/may', { method: 'POST', body: { checks: part } });
    part.forEach((check, at) => answers.set(JSON.stringify(check), allowed[at] === true));
  }
  return keys.map((key) => answers.get(key) === true);
}

// Sentences at the edge of the page.

export interface Toast { id: number; kind: 'ok' | 'failing' | 'info'; text: string }
export const toasts = $state<{ all: Toast[] }>({ all: [] });
let toast = 0;
export function say(kind: Toast['kind'], text: string) {
  const id = ++toast;
  toasts.all = [...toasts.all.slice(-4), { id, kind, text }];
  setTimeout(() => unsay(id), kind === 'failing' ? 12_000 : 5_000);
}
export function unsay(id: number) { toasts.all = toasts.all.filter((one) => one.id !== id); }

// The theme: the system's unless chosen.

type Theme = 'system' | 'light' | 'dark';
const kept = (key: string) => { try { return localStorage.getItem(key); } catch { return null; } };
export const theme = $state<{ chosen: Theme; dark: boolean }>({ chosen: (kept('knarr-theme') as Theme) ?? 'system', dark: false });
const system = matchMedia('(prefers-color-scheme: dark)');
export function useTheme(chosen: Theme = theme.chosen) {
  theme.chosen = chosen;
  theme.dark = chosen === 'dark' || (chosen === 'system' && system.matches);
  document.documentElement.dataset.theme = theme.dark ? 'dark' : 'light';
  try { localStorage.setItem('knarr-theme', chosen); } catch { /* Private windows keep nothing: the choice lasts as long as the page. */ }
}
system.addEventListener('change', () => useTheme());

/** Ticks once a second while somebody looks: ages are drawn from it. */
export const clockTick = $state({ now: Date.now() });
setInterval(() => { if (!document.hidden) clockTick.now = Date.now(); }, 1000);
