// Addresses of the page. Names may contain dots, which the server takes for files, so that all of it is in the query.

import { BASE, query } from './api';
import type { Ref, Resource } from './types';

export type View = 'overview' | 'list' | 'object' | 'logs' | 'map' | 'search' | 'traffic' | 'signin' | 'create';
const VIEWS: View[] = ['list', 'object', 'logs', 'map', 'search', 'traffic', 'signin', 'create'];

export interface Route { view: View; query: Record<string, string>; known: boolean }

function read(): Route {
  const path = location.pathname.slice(BASE.length).replace(/^\/+|\/+$/g, '');
  const view = path === '' ? 'overview' : VIEWS.find((known) => known === path);
  return { view: view ?? 'overview', query: Object.fromEntries(new URLSearchParams(location.search)), known: view !== undefined };
}

export const route = $state<{ now: Route }>({ now: read() });

export function go(address: string, replace = false) {
  if (replace) history.replaceState(null, '', address);
  else history.pushState(null, '', address);
  route.now = read();
}

/** Changes some of the query and keeps the rest. */
export function change(values: Record<string, string>, replace = true) {
  go(location.pathname + query({ ...route.now.query, ...values }), replace);
}

/** Links inside the page are followed by the page. */
export function followLinks() {
  addEventListener('popstate', () => { route.now = read(); });
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest?.('a');
    if (!link || link.target || link.origin !== location.origin || !link.pathname.startsWith(`${BASE}/`) || link.hasAttribute('download')) return;
    event.preventDefault();
    go(link.pathname + link.search + link.hash);
  });
}

const key = (resource: Resource) => `${resource.group}/${resource.version}/${resource.resource}`;
export function parseResource(text: string | undefined): Resource | null {
  const parts = (text ?? '').split('/');
  return parts.length === 3 && parts[1] && parts[2] ? { group: parts[0], version: parts[1], resource: parts[2] } : null;
}

export const to = {
  overview: () => `${BASE}/`,
  list: (resource: Resource, namespace = '', more: Record<string, string> = {}) => `${BASE}/list${query({ r: key(resource), ns: namespace, ...more })}`,
  object: (ref: Ref, tab = '') => `${BASE}/object${query({ r: key(ref), ns: ref.namespace, name: ref.name, tab })}`,
  map: (namespace = '') => `${BASE}/map${query({ ns: namespace })}`,
  search: (q: string) => `${BASE}/search${query({ q })}`,
  logs: (namespace: string, values: Record<string, string>) => `${BASE}/logs${query({ ns: namespace, ...values })}`,
  traffic: (from = '') => `${BASE}/traffic${query({ from })}`,
  create: (namespace = '') => `${BASE}/create${query({ ns: namespace })}`,
};
