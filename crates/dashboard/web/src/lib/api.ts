// Requests to our server: JSON in, JSON out, refusals as errors that carry the server's Status.

import type { Obj, Ref, Resource } from './types';

export const BASE = '/dashboard';
const REQUEST_TIMEOUT_MS = 30_000;
const GET_TRIES = 3;
const RETRY_MS = 400;

export class Refused extends Error {
  constructor(readonly code: number, readonly reason: string, message: string, readonly status: Obj | null = null) {
    super(message);
  }
}

let csrf = '';
export function useCsrf(value: string) { csrf = value; }

let signedOut: () => void = () => {};
/** Who is told when the server no longer knows the session. */
export function onSignedOut(then: () => void) { signedOut = then; }

export interface Request { method?: string; body?: unknown; type?: string; signal?: AbortSignal; headers?: Record<string, string> }

export async function send(path: string, request: Request = {}): Promise<Response> {
  const method = request.method ?? 'GET';
  const headers: Record<string, string> = { Accept: 'application/json', ...request.headers };
  if (method !== 'GET') headers['X-Knarr-Csrf'] = csrf;
  if (request.body !== undefined) headers['Content-Type'] = request.type ?? 'application/json';
  const body = request.body === undefined ? undefined : typeof request.body === 'string' ? request.body : JSON.stringify(request.body);
  const response = await fetched(BASE + path, { method, headers, body, credentials: 'same-origin', signal: request.signal ?? AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
  if (!response.ok) throw await refusal(response, path);
  return response;
}

/** Who changes networks loses what is under way; what only reads is asked again. */
async function fetched(address: string, init: RequestInit): Promise<Response> {
  for (let tries = init.method === 'GET' ? GET_TRIES : 1; ; tries--) {
    try {
      return await fetch(address, init);
    } catch (error) {
      if (['AbortError', 'TimeoutError'].includes((error as Error).name) && init.signal?.aborted) throw error;
      if (tries <= 1) throw new Refused(0, 'Unreachable', 'the server cannot be reached');
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }
}

async function refusal(response: Response, path: string): Promise<Refused> {
  const text = await response.text().catch(() => '');
  let status: Obj | null = null;
  try { status = JSON.parse(text); } catch { /* Some answers are no Status: their text is shown. */ }
  const message = (status?.message as string) || text.slice(0, 500) || `the server answered ${response.status}`;
  if (response.status === 401 && path !== '/api/session') signedOut();
  return new Refused(response.status, (status?.reason as string) ?? '', message, status);
}

export async function ask<T = any>(path: string, request: Request = {}): Promise<T> {
  const response = await send(path, request);
  return response.status === 204 ? (undefined as T) : ((await response.json()) as T);
}

export function query(values: Record<string, string | number | boolean | undefined | null>): string {
  const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false);
  return pairs.length ? '?' + pairs.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join('&') : '';
}

/** The API server's path of a collection or an object. */
export function pathOf(resource: Resource, namespace = '', name = '', subresource = ''): string {
  const root = resource.group ? `/apis/${resource.group}/${resource.version}` : `/api/${resource.version}`;
  const parts = [namespace && `namespaces/${encodeURIComponent(namespace)}`, resource.resource, name && encodeURIComponent(name), subresource];
  return `${root}/${parts.filter(Boolean).join('/')}`;
}

/** Through our server, with the user's own rights. */
export const k8s = <T = Obj>(path: string, request: Request = {}) => ask<T>(`/k8s${path}`, request);
export const refPath = (ref: Ref, subresource = '') => pathOf(ref, ref.namespace, ref.name, subresource);
