// A server of the dashboard's interface with made-up data, for working on the page without a cluster. Not part of the program.
//   npm run build && npm run mock     then http://127.0.0.1:8099/dashboard/  (any token; "viewer" may only look)

import { createServer } from 'node:http';
import { readFileSync, existsSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { WebSocketServer } from 'ws';
import { world, table, healthOf, hostile } from './world.mjs';

const PORT = Number(process.env.PORT ?? 8099);
const dist = new URL('../dist/', import.meta.url);
const sessions = new Map();
const { kinds, store, put, drop, listeners, history } = world(Number(process.env.PODS ?? 30_000));
const status = (code, reason, message, more = {}) => ({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code, reason, message, ...more });
const types = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml', woff2: 'font/woff2', html: 'text/html; charset=utf-8' };

const session = (request) => sessions.get(/session=([\w-]+)/.exec(request.headers.cookie ?? '')?.[1]);
const user = (found) => ({ user: found.user, groups: found.admin ? ['system:masters', 'system:authenticated'] : ['system:authenticated'], csrf: found.csrf, expires: new Date(Date.now() + 8 * 36e5).toISOString(), server: { version: 'v1.36.4-knarr0.1', name: 'knarr.example' }, features: { history: true, revisions: true, search: true, policy: true }, clientCertificate: false });
const allowed = (found, check) => found.admin || (['get', 'list', 'watch'].includes(check.verb) && check.resource !== 'secrets' && check.resource !== 'nodes');

function headers(nonce = '') {
  return {
    'Content-Security-Policy': `default-src 'none'; script-src 'self'; style-src 'self'${nonce && ` 'nonce-${nonce}'`}; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'`,
    'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer', 'Cross-Origin-Opener-Policy': 'same-origin',
  };
}
const json = (response, code, body, more = {}) => { response.writeHead(code, { ...headers(), 'Content-Type': 'application/json', 'Cache-Control': 'no-store', ...more }); response.end(body === undefined ? '' : JSON.stringify(body)); };

async function bodyOf(request) {
  let text = '';
  for await (const part of request) text += part;
  return text ? JSON.parse(text) : null;
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, 'http://x');
  try { await answer(request, response, url, url.searchParams); } catch (error) { console.error(error); json(response, 500, status(500, 'InternalError', String(error))); }
});

async function answer(request, response, url, query) {
  const path = url.pathname;
  if (path.startsWith('/dashboard/assets/')) {
    const file = new URL(path.slice('/dashboard/'.length), dist);
    if (!existsSync(file)) return json(response, 404, status(404, 'NotFound', 'no such asset'));
    response.writeHead(200, { ...headers(), 'Content-Type': types[path.split('.').pop()] ?? 'application/octet-stream', 'Cache-Control': 'public, max-age=31536000, immutable' });
    return response.end(readFileSync(file));
  }
  if (path === '/dashboard/api/session' && request.method === 'POST') {
    const { token, code } = await bodyOf(request);
    if (!token && code !== 'open-sesame') return json(response, 401, status(401, 'Unauthorized', 'the token or code is not accepted'));
    const id = randomUUID();
    sessions.set(id, { user: code ? 'kubernetes-admin' : token, admin: token !== 'viewer', csrf: randomUUID() });
    return json(response, 201, user(sessions.get(id)), { 'Set-Cookie': `session=${id}; HttpOnly; SameSite=Strict; Path=/` });
  }
  const found = session(request);
  if (path.startsWith('/dashboard/api/') || path.startsWith('/dashboard/k8s/')) {
    if (!found) return json(response, 401, status(401, 'Unauthorized', 'not signed in'));
    if (request.method !== 'GET' && request.headers['x-knarr-csrf'] !== found.csrf) return json(response, 403, status(403, 'Forbidden', 'the request has no valid X-Knarr-Csrf'));
    return path.startsWith('/dashboard/k8s/') ? api(request, response, url, found) : questions(request, response, url, query, found);
  }
  const nonce = randomUUID().replace(/-/g, '');
  response.writeHead(200, { ...headers(nonce), 'Content-Type': types.html, 'Cache-Control': 'no-cache' });
  response.end(readFileSync(new URL('index.html', dist), 'utf8').replaceAll('__CSP_NONCE__', nonce));
}

const wave = (n, base, swing) => Array.from({ length: n }, (_, at) => (at < 20 ? null : base + swing * Math.sin(at / 17) + (swing / 3) * Math.sin(at / 3)));
async function questions(request, response, url, query, found) {
  const get = (name) => query.get(name) ?? '';
  switch (url.pathname.slice('/dashboard/api/'.length)) {
    case 'session': if (request.method === 'DELETE') { sessions.delete(/session=([\w-]+)/.exec(request.headers.cookie)?.[1]); return json(response, 204); } return json(response, 200, user(found));
    case 'resources': return json(response, 200, kinds);
    case 'may': return json(response, 200, { allowed: (await bodyOf(request)).checks.map((check) => allowed(found, check)) });
    case 'search': {
      const word = get('q').toLowerCase(), results = [];
      for (const kind of kinds) for (const object of store.get(kind.resource)?.values() ?? []) {
        if (results.length >= Number(get('limit') || 50)) break;
        const label = Object.entries(object.metadata.labels ?? {}).map(([k, v]) => `${k}=${v}`).find((one) => one.toLowerCase().includes(word));
        const image = object.spec?.containers?.[0]?.image;
        const field = object.metadata.name.toLowerCase().includes(word) ? 'name' : label ? 'label' : image?.includes(word) ? 'image' : '';
        if (field) results.push({ ...kind, namespace: object.metadata.namespace ?? '', name: object.metadata.name, field, match: field === 'label' ? label : field === 'image' ? image : object.metadata.name });
      }
      return json(response, 200, { took_ms: 3.2, results });
    }
    case 'why': return json(response, 200, why(get('resource'), store.get(get('resource'))?.get(`${get('namespace')}/${get('name')}`)));
    case 'why/write': return json(response, 200, { allowed: false, by: 'rbac', reason: 'no role of viewer allows update of deployments in the namespace shop', rules: ['RoleBinding shop/viewers → ClusterRole view: get, list, watch'] });
    case 'why/traffic': return json(response, 200, { allowed: false, egress: { allowed: true, by: [], sentence: 'No policy of the namespace selects the pod for egress: everything is allowed.' }, ingress: { allowed: false, by: [{ policy: 'shop/only-frontend', rule: 0 }], sentence: `shop/only-frontend selects ${get('to')} and none of its rules lets ${get('from')} in on port ${get('port')}.` } });
    case 'history': { const n = Number(get('hours') || 24) * 60; return json(response, 200, { step_seconds: 60, start: Math.floor(Date.now() / 1000) - n * 60, series: { cpu: wave(n, 0.4, 0.25), memory: wave(n, 5e8, 1e8), rx: wave(n, 2e5, 1.5e5), tx: wave(n, 9e4, 8e4), restarts: wave(n, 2, 0) } }); }
    case 'revisions': {
      const object = store.get(get('resource'))?.get(`${get('namespace')}/${get('name')}`);
      if (!object) return json(response, 404, status(404, 'NotFound', 'no such object'));
      return json(response, 200, { complete: false, revisions: history.get(`${get('resource')} ${get('namespace')}/${get('name')}`) ?? [{ revision: object.metadata.resourceVersion, time: null, manager: '', object }] });
    }
    default: return json(response, 404, status(404, 'NotFound', 'no such path'));
  }
}

function why(resource, object) {
  if (!object) return { verdict: 'There is no such object.', severity: 'failing', findings: [], tables: [] };
  if (resource === 'pods' && object.status.phase === 'Pending') return {
    verdict: 'No node can take this pod: it asks for 64 CPU and the largest node has 16.', severity: 'failing',
    findings: [{ title: 'The pod asks for more than any node has', detail: 'requests: cpu 64, memory 2Gi', evidence: ['0/6 nodes are available: 6 Insufficient cpu.'], resource: null, suggestion: 'Ask for less CPU, or add a larger node.' }],
    tables: [{ title: 'Verdict of every node', columns: ['Node', 'Plugin', 'Reason'], rows: [...store.get('nodes').values()].map((node) => [node.metadata.name, 'NodeResourcesFit', 'asks for 64 CPU, 11.2 of 16 are free']) }],
  };
  if (resource === 'pods' && healthOf('pods', object) === 'failing') return {
    verdict: 'The container app ends with exit code 137 soon after it starts: it was killed because it used more memory than its limit.', severity: 'failing',
    findings: [{ title: 'Out of memory', detail: 'limit 128Mi, 9 restarts in 24 minutes', evidence: ['loading model…', hostile.escape, 'allocating 512 MiB'], resource: { group: '', version: 'v1', resource: 'nodes', namespace: '', name: 'harbor-1' }, suggestion: 'Raise the memory limit of app above 512Mi.' }], tables: [],
  };
  return { verdict: `${object.metadata.name} is as it should be.`, severity: 'ok', findings: [], tables: [] };
}

// The Kubernetes API, as far as the page asks.

function merge(into, patch) {
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete into[key];
    else if (typeof value === 'object' && !Array.isArray(value) && typeof into[key] === 'object') merge(into[key], value);
    else into[key] = value;
  }
  return into;
}
const matches = (labels = {}, selector) => !selector || selector.split(',').every((part) => { const [key, value] = part.split('='); return value === undefined ? key in labels : labels[key] === value; });

async function api(request, response, url, found) {
  const path = url.pathname.slice('/dashboard/k8s'.length), query = url.searchParams;
  if (path.startsWith('/openapi/v3/')) return json(response, 200, openapi());
  const parts = path.split('/').filter(Boolean);
  const rest = parts.slice(parts[0] === 'api' ? 2 : 3).map(decodeURIComponent);
  let namespace = '';
  if (rest[0] === 'namespaces' && rest.length > 2) { namespace = rest[1]; rest.splice(0, 2); }
  const [resource, name, sub] = rest;
  const all = store.get(resource);
  if (!all) return json(response, 404, status(404, 'NotFound', 'the server could not find the requested resource'));
  const verb = { GET: name ? 'get' : 'list', POST: 'create', PUT: 'update', PATCH: 'patch', DELETE: 'delete' }[request.method];
  if (!allowed(found, { verb, resource })) return json(response, 403, status(403, 'Forbidden', `${resource} is forbidden: User "${found.user}" cannot ${verb} resource "${resource}" in API group ""`));
  if (!name && request.method === 'GET') {
    const node = /spec\.nodeName=(.*)/.exec(query.get('fieldSelector') ?? '')?.[1];
    const items = [...all.values()].filter((item) => (!namespace || item.metadata.namespace === namespace) && matches(item.metadata.labels, query.get('labelSelector')) && (!node || item.spec.nodeName === node)).slice(0, Number(query.get('limit') ?? 1000));
    return json(response, 200, { kind: 'List', apiVersion: 'v1', metadata: {}, items });
  }
  const key = `${namespace}/${name}`, object = all.get(key);
  const dry = query.get('dryRun') === 'All';
  if (!object && request.method !== 'POST') return json(response, 404, status(404, 'NotFound', `${resource} "${name}" not found`));
  if (sub === 'log') return log(request, response, query, name);
  const body = request.method === 'GET' ? null : await bodyOf(request);
  if (sub === 'eviction') { setTimeout(() => drop(resource, object), 500); return json(response, 201, status(201, '', '')); }
  if (request.method === 'GET') return json(response, 200, object);
  if (request.method === 'PUT') {
    if (body.metadata.resourceVersion && body.metadata.resourceVersion !== object.metadata.resourceVersion) return json(response, 409, status(409, 'Conflict', `Operation cannot be fulfilled on ${resource} "${name}": the object has been modified; please apply your changes to the latest version and try again`));
    if (typeof body.spec?.replicas === 'string') return json(response, 422, status(422, 'Invalid', 'Deployment in version "v1" cannot be handled: spec.replicas must be a number', { details: { causes: [{ field: 'spec.replicas', message: 'must be a number' }] } }));
    return json(response, 200, dry ? { ...body, metadata: { ...object.metadata, ...body.metadata } } : put(resource, { ...body, metadata: { ...body.metadata, managedFields: object.metadata.managedFields } }));
  }
  if (request.method === 'PATCH') {
    if (Array.isArray(body)) return json(response, 200, put(resource, { ...structuredClone(object), spec: { ...object.spec, template: body[0].value } }));
    const changed = put(resource, merge(structuredClone(object), body));
    if (resource === 'deployments') { changed.status.readyReplicas = changed.status.availableReplicas = changed.status.updatedReplicas = changed.spec.replicas; put(resource, changed); }
    return json(response, 200, changed);
  }
  if (request.method === 'DELETE') { drop(resource, object); return json(response, 200, status(200, '', '')); }
  return json(response, 201, dry ? body : put(resource, { ...body, metadata: { ...body.metadata, namespace: namespace || undefined } }));
}

function openapi() {
  const scalar = (type, description) => ({ type, description });
  return { components: { schemas: {
    D: { 'x-kubernetes-group-version-kind': [{ group: 'apps', version: 'v1', kind: 'Deployment' }], properties: { apiVersion: scalar('string'), kind: scalar('string'), metadata: { type: 'object' }, spec: { allOf: [{ $ref: '#/components/schemas/S' }] } } },
    S: { required: ['selector'], properties: { replicas: scalar('integer', 'How many pods are wanted.'), paused: scalar('boolean', 'Whether the rollout waits.'), selector: { type: 'object', properties: {} }, minReadySeconds: scalar('integer') } },
  } } };
}

function log(request, response, query, name) {
  response.writeHead(200, { ...headers(), 'Content-Type': 'text/plain' });
  let n = 0;
  const line = (text, at = new Date()) => response.write(`${at.toISOString()} ${text}\n`);
  const tail = 400;
  for (let at = 0; at < tail; at++) line(`level=info msg="served GET /cart/${at}" status=200 took=${(at * 7) % 31}ms pod=${name}`, new Date(Date.now() - (tail - at) * 900 - name.length * 37));
  line(hostile.markup); line(hostile.escape); line(hostile.bidi); line('x'.repeat(1 << 20)); line('\u001b[31mERROR\u001b[0m payment refused, trying again');
  if (query.get('follow') !== 'true') return response.end();
  const timer = setInterval(() => line(`level=info msg="heartbeat ${n++}" pod=${name}`), 700);
  request.on('close', () => clearInterval(timer));
}

// The live connection and shells.

const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => 'v5.channel.k8s.io' });
server.on('upgrade', (request, socket, head) => {
  const found = session(request);
  if (!found) { socket.write('HTTP/1.1 401 Unauthorized\r\n\r\n'); return socket.destroy(); }
  sockets.handleUpgrade(request, socket, head, (open) => (request.url.startsWith('/dashboard/api/live') ? live(open, found) : shell(open)));
});

function live(socket, found) {
  const ops = new Map();
  const send = (message) => socket.readyState === 1 && socket.send(JSON.stringify(message));
  const tell = (op, first) => {
    if (op.op === 'list') return list(op, first);
    if (op.op === 'object') { const object = store.get(op.resource.resource)?.get(`${op.namespace}/${op.name}`); return object ? send({ id: op.id, object, type: 'MODIFIED' }) : send(op.seen ? { id: op.id, object: null, type: 'DELETED' } : { id: op.id, error: status(404, 'NotFound', `${op.resource.resource} "${op.name}" not found`) }); }
    if (op.op === 'events') return send({ id: op.id, events: [...store.get('events').values()].slice(0, 6) });
    if (op.op === 'overview') return found.admin ? send({ id: op.id, ...overview() }) : send({ id: op.id, error: status(403, 'Forbidden', 'nodes is forbidden: User "viewer" cannot list resource "nodes" in API group "" at the cluster scope') });
    if (op.op === 'map') return send({ id: op.id, ...map(op.namespace) });
  };
  const list = (op, first) => {
    const { resource } = op.resource;
    if (!allowed(found, { verb: 'list', resource })) return send({ id: op.id, error: status(403, 'Forbidden', `${resource} is forbidden: User "${found.user}" cannot list resource "${resource}" in API group "" at the cluster scope`) });
    const kind = kinds.find((one) => one.resource === resource);
    if (!kind) return send({ id: op.id, error: status(404, 'NotFound', 'the server could not find the requested resource') });
    const node = /spec\.nodeName=(.*)/.exec(op.fields ?? '')?.[1];
    const all = [...store.get(resource).values()].filter((item) => !op.namespace || item.metadata.namespace === op.namespace);
    let some = all.filter((item) => matches(item.metadata.labels, op.labels) && (!op.text || item.metadata.name.includes(op.text)) && (!node || item.spec?.nodeName === node));
    const { columns, cells } = table(kind);
    if (op.sort) { const at = columns.findIndex((column) => column.name === op.sort.column); some = some.map((item) => [cells(item)[at], item]).sort((a, b) => (a[0] < b[0] ? -1 : 1) * (op.sort.descending ? -1 : 1)).map(([, item]) => item); }
    send({ id: op.id, ...(first ? { columns } : {}), total: all.length, matching: some.length, from: op.from, rows: some.slice(op.from, op.from + op.count).map((item) => ({ uid: item.metadata.uid, namespace: item.metadata.namespace ?? '', name: item.metadata.name, cells: cells(item), labels: item.metadata.labels ?? {}, created: item.metadata.creationTimestamp, deleted: false, health: healthOf(resource, item), usage: resource === 'pods' ? { cpu: 0.012, memory: 4.2e7 } : resource === 'nodes' ? { cpu: 3.1, memory: 9e9 } : null })) });
  };
  socket.on('message', (text) => {
    const op = JSON.parse(text);
    if (op.op === 'close') return ops.delete(op.id);
    const first = !ops.has(op.id);
    ops.set(op.id, { ...op, seen: true });
    tell(op, first);
  });
  let dirty = false;
  const changed = () => { dirty = true; };
  listeners.add(changed);
  const timer = setInterval(() => { if (dirty) { dirty = false; for (const op of ops.values()) tell(op, false); } }, 250);
  socket.on('close', () => { clearInterval(timer); listeners.delete(changed); });
}

const ref = (resource, object) => { const { group, version, kind } = kinds.find((one) => one.resource === resource); return { group, version, resource, kind, namespace: object.metadata.namespace ?? '', name: object.metadata.name }; };
function overview() {
  const nodes = [...store.get('nodes').values()];
  const amounts = (capacity, at) => ({ capacity, allocatable: capacity * 0.95, requests: capacity * (0.3 + 0.1 * at), usage: capacity * (0.15 + 0.13 * at) });
  const bad = [...store.get('pods').values()].slice(0, 400).filter((pod) => ['failing', 'warning'].includes(healthOf('pods', pod)));
  return {
    nodes: nodes.map((node, at) => ({ name: node.metadata.name, ready: at !== 5, roles: at ? [] : ['control-plane'], cpu: amounts(16, at), memory: amounts(64 * 2 ** 30, at), pods: { allocatable: 10_000, running: 5_000 }, pressure: at === 4 ? ['MemoryPressure'] : [], version: 'v1.36.4' })),
    unhealthy: bad.map((pod) => ({ ...ref('pods', pod), reason: pod.status.phase === 'Pending' ? 'Unschedulable' : 'CrashLoopBackOff', message: pod.status.phase === 'Pending' ? '0/6 nodes are available: 6 Insufficient cpu.' : 'back-off 5m0s restarting failed container=app', since: new Date(Date.now() - 14e5).toISOString() })),
    warnings: [...store.get('events').values()].filter((event) => event.type === 'Warning'), certificates: [{ name: 'serving certificate', expires: new Date(Date.now() + 300 * 864e5).toISOString() }, { name: 'admin client', expires: new Date(Date.now() + 20 * 864e5).toISOString() }],
    counts: Object.fromEntries([...store].map(([resource, all]) => [resource, all.size])), version: 'v1.36.4-knarr0.1',
  };
}
function map(namespace) {
  const nodes = [], edges = [], known = new Set();
  const add = (resource, object, summary) => { const id = `${resource}/${object.metadata.namespace ?? ''}/${object.metadata.name}`; if (!known.has(id)) { known.add(id); nodes.push({ id, ...ref(resource, object), health: healthOf(resource, object), summary }); } return id; };
  for (const service of store.get('services').values()) {
    if (namespace && service.metadata.namespace !== namespace) continue;
    const from = add('services', service, 'ClusterIP');
    for (const ingress of store.get('ingresses').values()) if (ingress.metadata.namespace === service.metadata.namespace) edges.push({ from: add('ingresses', ingress, 'shop.example'), to: from, label: '' });
    let n = 0;
    for (const pod of store.get('pods').values()) if (n < 5 && pod.metadata.namespace === service.metadata.namespace && pod.metadata.labels.app === service.spec.selector.app) {
      n++;
      const id = add('pods', pod, pod.status.phase);
      edges.push({ from, to: id, label: '' });
      const node = store.get('nodes').get(`/${pod.spec.nodeName}`);
      if (node) edges.push({ from: id, to: add('nodes', node, 'Ready'), label: '' });
    }
  }
  return { nodes, edges, truncated: false };
}

function shell(socket) {
  const say = (text) => socket.send(Buffer.concat([Buffer.from([1]), Buffer.from(text)]));
  let line = '', size = '';
  say('$ ');
  socket.on('message', (data) => {
    if (data[0] === 4) { size = data.subarray(1).toString(); return; }
    for (const character of data.subarray(1).toString()) {
      if (character === '\r' || character === '\n') {
        say(`\r\n`);
        if (line === 'exit') { socket.send(Buffer.concat([Buffer.from([3]), Buffer.from('{"status":"Success"}')])); return socket.close(); }
        say(line === 'size' ? `${size}\r\n$ ` : line ? `you said ${line}\r\n$ ` : '$ ');
        line = '';
      } else { line += character; say(character); }
    }
  });
}

server.listen(PORT, '127.0.0.1', () => console.log(`http://127.0.0.1:${PORT}/dashboard/`));
