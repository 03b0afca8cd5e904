// Walks every view of the dashboard with a real browser.
//
//   node walk.mjs --url https://host:6443 (--code CODE | --token TOKEN) [--viewer TOKEN] [--pods N] [--shots FOLDER] [--only WORDS] [--tunnel SOCKET]
//
// The cluster has, in the namespace shop: the Deployment frontend (three replicas, its second revision) with a Service and an
// Ingress, objects with hostile text (attack.mjs names them), the pod train-model-0 that fits no node, the NetworkPolicy only-frontend;
// and, with --pods, that many pods of any kind. tests/tests/dashboard_browser.rs makes them, dev/mock.mjs makes them up.

import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';
import { attacks } from './attack.mjs';
import { PATIENCE_MS, start, within } from './browser.mjs';
import { tunnel } from './tunnel.mjs';

const { values: options } = parseArgs({ options: { url: { type: 'string' }, code: { type: 'string' }, token: { type: 'string' }, viewer: { type: 'string' }, pods: { type: 'string', default: '0' }, shots: { type: 'string' }, tunnel: { type: 'string' }, chromium: { type: 'string' }, only: { type: 'string' } } });
assert(options.url && (options.code || options.token), 'walk.mjs needs --url and --code or --token');

if (options.tunnel) await tunnel({ host: new URL(options.url).hostname, port: Number(new URL(options.url).port) }, { path: options.tunnel });

/** An unoptimised server reads 10,000 pods for the first time, beside whatever else the machine does. */
const LIST_PATIENCE_MS = 180_000;
const WALK_MS = 900_000;
const CLOSE_MS = 15_000;

const base = `${options.url.replace(/\/$/, '')}/dashboard/`;
const { browser, faults, visitor, shot, accessible, at } = await within('start the browser', start(options));
const page = await visitor();
const began = Date.now();

// Pods come and go on the browser's own machine, and chromium gives up what it was loading when an interface does.
async function steadily(act) {
  for (let tries = 5; ; tries--) {
    try { return await act(); } catch (error) {
      if (tries === 0 || !/ERR_NETWORK_CHANGED|Failed to fetch/.test(error.message)) throw error;
      await new Promise((done) => setTimeout(done, 500));
    }
  }
}
const visit = (where, address) => steadily(() => where.goto(address, { timeout: PATIENCE_MS }));
const see = (text, where = page) => where.getByText(text).first().waitFor();
const open = (path) => visit(page, base + path);
const object = (resource, name, tab = '', namespace = 'shop') => `object?r=${resource}&${namespace ? `ns=${namespace}&` : ''}name=${name}${tab && `&tab=${tab}`}`;
const FRONTEND = ['apps/v1/deployments', 'frontend'];
const button = (name, where = page) => where.getByRole('button', { name, exact: true }).first();

/** A request as the page itself makes it. */
async function api(path, init = {}) {
  return steadily(() => within(`${init.method ?? 'GET'} ${path}`, page.evaluate(async ([path, init]) => {
    const session = await (await fetch('/dashboard/api/session')).json();
    const response = await fetch(`/dashboard/k8s${path}`, { ...init, headers: { 'Content-Type': 'application/merge-patch+json', 'X-Knarr-Csrf': session.csrf, ...init.headers } });
    return response.json();
  }, [path, init])));
}
const DEPLOYMENT = '/apis/apps/v1/namespaces/shop/deployments/frontend';
async function until(what, check, patience = PATIENCE_MS) {
  for (const end = Date.now() + patience; Date.now() < end; await page.waitForTimeout(250)) if (await within(what, check())) return;
  throw new Error(`never: ${what}`);
}

const steps = {
  async 'sign in'() {
    await visit(page, `${base}signin`);
    await see('See the whole cluster');
    await accessible(page, 'sign in');
    await shot(page, 'signin');
    if (options.code) {
      // Another part of the same address loads nothing: the page is opened anew.
      await page.goto('about:blank');
      await page.goto(`${base}signin#code=${options.code}`);
    } else {
      await page.fill('input[name=token]', options.token);
      await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    }
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    assert(!page.url().includes('code='), 'the code is taken from the address');
  },

  async overview() {
    await open('');
    await see('Not healthy now');
    await see('train-model-0');
    await accessible(page, 'overview');
    await shot(page, 'overview');
    await page.setViewportSize({ width: 390, height: 844 });
    await accessible(page, 'overview narrow');
    await shot(page, 'overview-narrow');
    assert(await page.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth), 'the overview does not scroll sideways at 390 pixels');
    await page.setViewportSize({ width: 1280, height: 800 });
  },

  async 'list of pods'() {
    const from = Date.now();
    await open('list?r=/v1/pods');
    const table = page.getByRole('table');
    await table.waitFor();
    await page.locator('.body .row a').first().waitFor();
    const listed = async () => Number(await table.getAttribute('aria-rowcount')) - 1;
    await until(`${options.pods} pods are listed`, async () => (await listed()) >= Number(options.pods), LIST_PATIENCE_MS);
    console.log(`  all pods are listed after ${Date.now() - from} ms`);
    await accessible(page, 'pods');
    await shot(page, 'pods');
    assert((await page.locator('.body .row').count()) < 120, 'only rows that are seen exist');
    await scroll();
    await page.keyboard.press('/');
    await page.keyboard.type('frontend');
    await until('the search leaves out the rest', () => page.evaluate(() => {
      const names = [...document.querySelectorAll('.body .row a')].map((link) => link.textContent);
      return location.search.includes('q=frontend') && names.length > 0 && names.every((name) => name.includes('frontend'));
    }));
    await page.keyboard.press('Escape');
    await page.keyboard.press('j');
    await page.locator('.row.cursor').waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('tab', { name: 'Summary' }).waitFor();
    await page.setViewportSize({ width: 390, height: 844 });
    await open('list?r=/v1/pods');
    await page.locator('.body .row a').first().waitFor();
    await accessible(page, 'pods narrow');
    await shot(page, 'pods-narrow');
    await page.setViewportSize({ width: 1280, height: 800 });
  },

  async 'lists of other kinds'() {
    for (const resource of ['apps/v1/deployments', '/v1/nodes', '/v1/services', '/v1/configmaps', '/v1/events', 'rbac.authorization.k8s.io/v1/clusterroles', 'networking.k8s.io/v1/networkpolicies']) {
      await open(`list?r=${resource}`);
      await page.locator('.body .row').first().waitFor();
    }
    await open('list?r=batch/v1/jobs&ns=shop');
    await see('Nothing here');
    await open('list?r=example.com/v1/nothings');
    await page.locator('.state.missing, .state.failing, .state.forbidden').first().waitFor();
  },

  async 'objects of many kinds'() {
    const pod = (await api('/api/v1/namespaces/shop/pods?labelSelector=app%3Dfrontend')).items[0].metadata.name;
    const node = (await api('/api/v1/nodes')).items[0].metadata.name;
    const all = [['/v1/pods', pod], FRONTEND, ['/v1/services', 'frontend'], ['networking.k8s.io/v1/ingresses', 'shop'], ['networking.k8s.io/v1/networkpolicies', 'only-frontend'], ['/v1/nodes', node, '', ''], ['rbac.authorization.k8s.io/v1/clusterroles', 'view', '', ''], ['/v1/serviceaccounts', 'default']];
    for (const [resource, name, tab, namespace] of all) {
      await open(object(resource, name, tab, namespace));
      await see('About');
      await see('Events');
      await page.waitForTimeout(300);
      await accessible(page, `${resource} ${name}`);
    }
    await open(object(...FRONTEND));
    await see('Rollout history');
    await page.locator('.body .row a').first().waitFor();
    await shot(page, 'deployment');
    await open(object('/v1/pods', pod));
    await see('About');
    await shot(page, 'pod');
    await page.setViewportSize({ width: 390, height: 844 });
    await page.waitForTimeout(200);
    await shot(page, 'pod-narrow');
    await page.setViewportSize({ width: 1280, height: 800 });
  },

  // The mock, which signs in by a token, has no hostile objects and no server to attack.
  ...(options.code ? attacks({ page, browser, base, open, see, until, object, api, shot }) : {}),

  async scale() {
    await open(object(...FRONTEND));
    await button('Scale').click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Replicas').fill('4');
    await accessible(page, 'scale');
    await button('Scale', dialog).click();
    await until('four replicas are wanted', async () => (await api(DEPLOYMENT)).spec.replicas === 4);
    await see(/^\d\/4 ready$/);
  },

  async 'edit with conflict'() {
    await open(object(...FRONTEND, 'yaml'));
    const editor = page.locator('.cm-content');
    await editor.waitFor();
    await see('as it is on the server');
    await accessible(page, 'yaml');
    const type = async (from, to) => {
      // The line is found and written anew as a person would: search, select, type.
      const at = await page.evaluate((from) => [...document.querySelectorAll('.cm-line')].findIndex((line) => line.textContent.trim().startsWith(from)), from);
      assert(at >= 0, `${from} is in the editor`);
      await page.locator('.cm-line').nth(at).click();
      await page.keyboard.press('End');
      for (let n = (await page.locator('.cm-line').nth(at).textContent()).trim().length; n > 0; n--) await page.keyboard.press('Backspace');
      await page.keyboard.type(to);
    };
    await type('replicas:', 'replicas: "many"');
    await page.locator('.bar .tag.failing').waitFor();
    await button('Discard').click();
    await type('replicas:', 'replicas: 2');
    await see('The server accepts this');
    await shot(page, 'yaml');
    const other = `somebody else at ${Date.now()}`;
    await api(DEPLOYMENT, { method: 'PATCH', body: JSON.stringify({ metadata: { annotations: { 'example.com/owner': other } } }) });
    await see('Somebody changed this object');
    await button('Review Ctrl S').click();
    const dialog = page.getByRole('dialog');
    await see('replicas: 2', dialog);
    await accessible(page, 'review');
    await shot(page, 'diff');
    await button('Apply', dialog).click();
    await see('Somebody else was faster');
    await see(other, page.getByRole('dialog'));
    await accessible(page, 'conflict');
    await shot(page, 'conflict');
    await button('Apply mine on top', page.getByRole('dialog')).click();
    await until('both changes are made', async () => { const now = await api(DEPLOYMENT); return now.spec.replicas === 2 && now.metadata.annotations['example.com/owner'] === other; });
    await api(DEPLOYMENT, { method: 'PATCH', body: JSON.stringify({ spec: { replicas: 3 } }) });
  },

  async 'actions on many'() {
    const names = ['spare-1', 'spare-2'];
    for (const name of names) await api('/api/v1/namespaces/shop/configmaps', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } }) });
    await open('list?r=/v1/configmaps&ns=shop&q=spare');
    for (const name of names) await page.getByLabel(`Choose ${name}`).check();
    await see('2 chosen');
    await accessible(page, 'chosen');
    await button('Delete', page.getByRole('toolbar')).click();
    await see('shop/spare-2', page.getByRole('dialog'));
    await button('Delete', page.getByRole('dialog')).click();
    await see('Nothing matches');
    for (const name of names) await until(`${name} is deleted`, async () => (await api(`/api/v1/namespaces/shop/configmaps/${name}`)).code === 404);
    await open('list?r=apps/v1/deployments&ns=shop');
    await page.getByLabel('Choose frontend').check();
    await button('Restart', page.getByRole('toolbar')).click();
    await until('the pods are started anew', async () => 'kubectl.kubernetes.io/restartedAt' in ((await api(DEPLOYMENT)).spec.template.metadata.annotations ?? {}));
  },

  async rollback() {
    await open(object(...FRONTEND));
    await button('Roll back').click();
    const dialog = page.getByRole('dialog');
    await dialog.locator('.diff').waitFor();
    const before = JSON.stringify((await api(DEPLOYMENT)).spec.template);
    await button('Roll back', dialog).click();
    await until('the template is another', async () => JSON.stringify((await api(DEPLOYMENT)).spec.template) !== before);
    await until('three pods of the template are left', async () => {
      const { metadata, spec, status } = await api(DEPLOYMENT);
      return spec.replicas === 3 && status.observedGeneration === metadata.generation && [status.replicas, status.updatedReplicas, status.readyReplicas].every((count) => count === 3);
    });
  },

  async logs() {
    await open(object(...FRONTEND, 'logs'));
    await until('lines of three pods', async () => (await page.evaluate(() => new Set([...document.querySelectorAll('.source')].map((one) => one.textContent)).size)) >= 3);
    await page.waitForTimeout(500);
    await accessible(page, 'logs');
    await shot(page, 'logs');
    await page.keyboard.press('Escape');
    await page.getByLabel('Search in the log').fill('zzz-not-there');
    await see('No line matches.');
    await page.getByLabel('Search in the log').fill('');
    await page.getByLabel('Wrap').check();
    await page.getByLabel('Times').check();
    const [download] = await Promise.all([page.waitForEvent('download'), button('Download').click()]);
    assert(download.suggestedFilename().endsWith('.log'));
  },

  async terminal() {
    const pods = (await api('/api/v1/namespaces/shop/pods?labelSelector=app%3Dfrontend')).items.filter((pod) => !pod.metadata.deletionTimestamp && pod.status.phase === 'Running');
    await open(object('/v1/pods', pods[pods.length - 1].metadata.name, 'terminal'));
    await see('connected');
    await page.locator('.xterm').click();
    await page.keyboard.type('echo walk-works\r');
    await until('the shell answers', async () => ((await page.locator('.xterm-rows').textContent()) ?? '').split('walk-works').length > 2);
    const size = await page.locator('.terminal .num').textContent();
    await shot(page, 'terminal');
    await page.setViewportSize({ width: 900, height: 600 });
    await until('the terminal is smaller', async () => (await page.locator('.terminal .num').textContent()) !== size);
    await page.setViewportSize({ width: 1280, height: 800 });
    await accessible(page, 'terminal');
    await button('Reconnect').click();
    await see('connected');
  },

  async debug() {
    const pods = (await api('/api/v1/namespaces/shop/pods?labelSelector=app%3Dfrontend')).items.filter((pod) => !pod.metadata.deletionTimestamp && pod.status.phase === 'Running');
    await open(object('/v1/pods', pods[0].metadata.name));
    await button('Debug').click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Image').fill(pods[0].spec.containers[0].image);
    await accessible(page, 'debug');
    await button('Add and open', dialog).click();
    await until('the debug container is attached to', async () => (await page.locator('.terminal .tag').textContent()) === 'connected');
    await open(object('/v1/pods', pods[0].metadata.name));
    await see('debugger-');
  },

  async map() {
    await open('map?ns=shop');
    await page.locator('.node').first().waitFor();
    assert((await page.locator('.node').count()) >= 5, 'Ingress, Service, pods and a node are drawn');
    await page.mouse.move(700, 130);
    await page.waitForTimeout(300);
    await accessible(page, 'map');
    await shot(page, 'map');
  },

  async why() {
    await open(object('/v1/pods', 'train-model-0', 'why'));
    await page.locator('.verdict').waitFor();
    await page.locator('table.plain').first().waitFor();
    await accessible(page, 'why');
    await shot(page, 'why');
    await open(object('/v1/services', 'frontend', 'why'));
    await page.locator('.verdict').waitFor();
  },

  async traffic() {
    const pods = (await api('/api/v1/namespaces/shop/pods?labelSelector=app%3Dfrontend')).items.filter((pod) => pod.status.phase === 'Running');
    await open(`traffic?from=shop/${pods[0].metadata.name}`);
    await page.getByLabel('To', { exact: true }).fill(`shop/${pods[1].metadata.name}`);
    await button('Ask').click();
    await page.locator('.verdict').waitFor();
    await accessible(page, 'traffic');
    await shot(page, 'traffic');
  },

  async history() {
    const node = (await api('/api/v1/nodes')).items[0].metadata.name;
    await open(object('/v1/nodes', node, 'history', ''));
    await page.locator('.uplot, .state.empty').first().waitFor();
    await accessible(page, 'history');
    await shot(page, 'history');
    const step = (text) => api(DEPLOYMENT, { method: 'PATCH', body: JSON.stringify({ metadata: { annotations: { 'example.com/step': text } } }) });
    await step('none');
    await step('one');
    await step('two');
    await open(object(...FRONTEND, 'revisions'));
    const revisions = page.getByLabel('Revisions', { exact: true }).getByRole('button');
    await revisions.first().waitFor();
    for (let at = 0; !(await page.locator('.diff .new', { hasText: 'step: one' }).count()); at++) {
      assert(at < (await revisions.count()), 'the first step is among the revisions');
      await revisions.nth(at).click();
    }
    await accessible(page, 'revisions');
    await shot(page, 'revisions');
    await button('Put this back').click();
    await until('an earlier state is put back', async () => (await api(DEPLOYMENT)).metadata.annotations['example.com/step'] === 'one');
  },

  async search() {
    await page.keyboard.press('Control+k');
    await page.keyboard.type('deployments');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Deployments' }).waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type('frontend');
    await see('Search everything for');
    await page.locator('li[role=option]', { hasText: 'Service' }).first().waitFor();
    await accessible(page, 'palette');
    await shot(page, 'palette');
    await page.keyboard.press('Escape');
    // A key that is pressed while the dialog closes is still the dialog's.
    await page.locator('dialog[open]').waitFor({ state: 'detached' });
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press('?');
    await see('These keys');
    await page.keyboard.press('Escape');
    await open('search?q=frontend');
    await page.locator('main li a').first().waitFor();
    await accessible(page, 'search');
    await shot(page, 'search');
  },

  async dark() {
    await open('');
    await see('Not healthy now');
    await button('Dark theme').click();
    await accessible(page, 'overview dark');
    await shot(page, 'overview-dark');
    for (const [name, path] of [['pods-dark', 'list?r=/v1/pods'], ['deployment-dark', object(...FRONTEND)], ['yaml-dark', object(...FRONTEND, 'yaml')], ['map-dark', 'map?ns=shop']]) {
      await open(path);
      await page.locator('.body .row, .cm-content, .node').first().waitFor();
      await page.waitForTimeout(400);
      await accessible(page, name);
      await shot(page, name);
    }
    await button('Light theme').click();
  },

  async 'lost connection'() {
    const other = await visitor({ storageState: await page.context().storageState() });
    let end = null;
    // While the line is down, nothing gets through.
    let down = false;
    await other.routeWebSocket(/api\/live/, (socket) => { if (down) socket.close(); else { socket.connectToServer(); end = () => socket.close(); } });
    await visit(other, `${base}list?r=apps/v1/deployments&ns=shop`);
    await other.locator('.body .row a').first().waitFor();
    down = true;
    await end();
    await see('Connection lost', other);
    await shot(other, 'disconnected');
    await accessible(other, 'disconnected');
    down = false;
    // Whoever is faster: the page also tries by itself, and then there is no button any more.
    const found = other.getByText('Connection lost').waitFor({ state: 'detached' });
    await Promise.race([button('Try now', other).click(), found]);
    await found;
    await other.locator('.body .row a').first().waitFor();
    await other.context().close();
  },

  async drain() {
    const node = (await api('/api/v1/nodes')).items[0].metadata.name;
    await open(object('/v1/nodes', node, '', ''));
    await button('Drain').click();
    const dialog = page.getByRole('dialog');
    await dialog.locator('tbody tr').first().waitFor();
    await accessible(page, 'drain');
    await button('Drain', dialog).click();
    await dialog.locator('.tag.ok').first().waitFor();
    await shot(page, 'drain');
    await button(/^(Stop|Close)$/, dialog).click();
    await page.keyboard.press('Escape');
    await until('the node is cordoned', async () => (await api(`/api/v1/nodes/${node}`)).spec.unschedulable === true);
    await open(object('/v1/nodes', node, '', ''));
    await button('Uncordon').click();
    await until('the node takes pods again', async () => !(await api(`/api/v1/nodes/${node}`)).spec.unschedulable);
  },

  async 'who may only look'() {
    if (!options.viewer) return;
    const other = await visitor();
    await visit(other, `${base}signin`);
    await other.fill('input[name=token]', 'not a token');
    await other.getByRole('button', { name: 'Sign in', exact: true }).click();
    // The mock takes any token.
    if (options.viewer !== 'viewer') { await other.getByRole('alert').waitFor(); } else { await other.context().clearCookies(); await other.goto(`${base}signin`); }
    await other.fill('input[name=token]', options.viewer);
    await other.getByRole('button', { name: 'Sign in', exact: true }).click();
    await other.getByRole('navigation').first().waitFor();
    await visit(other, `${base}list?r=/v1/secrets&ns=shop`);
    await see('You may not see this', other);
    await accessible(other, 'forbidden');
    await shot(other, 'forbidden');
    // What somebody may do is asked; the buttons are there, or not, once it is answered.
    const asked = other.waitForResponse((response) => response.url().endsWith('/dashboard/api/may'));
    await visit(other, base + object(...FRONTEND));
    await see('Rollout', other);
    await asked;
    await other.waitForTimeout(500);
    for (const name of ['Scale', 'Restart', 'Delete', 'Roll back']) assert.equal(await other.getByRole('button', { name, exact: true }).count(), 0, `who may only look has no button ${name}`);
    await visit(other, base + object(...FRONTEND, 'yaml'));
    await see('read only', other);
    await other.locator('.who button').first().click();
    await button('Sign out', other).click();
    await see('You are signed out', other);
    await other.context().close();
  },

  async 'a session that ends'() {
    // The mock knows no accounts.
    if (!options.code || !options.viewer) return;
    const other = await visitor();
    await visit(other, `${base}signin`);
    await other.fill('input[name=token]', options.viewer);
    await other.getByRole('button', { name: 'Sign in', exact: true }).click();
    await other.getByRole('navigation').first().waitFor();
    await api('/api/v1/namespaces/shop/serviceaccounts/viewer', { method: 'DELETE' });
    // By itself within half a minute, or with the next request.
    await see('Your session has ended', other);
    await accessible(other, 'session ended');
    await other.context().close();
  },

  async 'a server that restarts'() {
    // Nobody is there who could restart the mock.
    if (!options.code) return;
    // What a browser says by itself of connections that nobody takes.
    const other = await visitor({ storageState: await page.context().storageState() }, /net::ERR_|WebSocket connection to/);
    await visit(other, `${base}list?r=apps/v1/deployments&ns=shop`);
    await other.locator('.body .row a').first().waitFor();
    await page.goto('about:blank');
    // tests/tests/dashboard_browser.rs waits for these words.
    console.log('restart the server');
    await see('Connection lost', other);
    await shot(other, 'restarting');
    await other.getByText('Connection lost').waitFor({ state: 'detached', timeout: LIST_PATIENCE_MS });
    await open('');
    await see('Not healthy now');
    const step = `restarted at ${Date.now()}`;
    await api(DEPLOYMENT, { method: 'PATCH', body: JSON.stringify({ metadata: { labels: { step: step.replace(/\W/g, '-') } } }) });
    // The list that was looked at all the time goes on: what is found by its labels is there.
    await other.getByLabel('Labels').fill(`step=${step.replace(/\W/g, '-')}`);
    await other.getByLabel('Labels').press('Enter');
    await until('the list is live again', async () => (await other.locator('.body .row a').count()) === 1 && other.url().includes('labels='));
    await other.context().close();
  },
};

async function scroll() {
  // Frames are counted while the list runs as fast as a wheel turns; then it jumps to its end.
  const took = await within('scroll the list', page.evaluate(async () => {
    const box = document.querySelector('.table');
    let frames = 0, worst = 0, last = performance.now();
    const began = last, end = Math.min(6000, box.scrollHeight - box.clientHeight);
    while (performance.now() - began < 1000) {
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      worst = Math.max(worst, now - last);
      last = now;
      frames++;
      box.scrollTop = end * Math.min(1, (now - began) / 900);
    }
    box.scrollTop = box.scrollHeight;
    return { frames, worst: Math.round(worst) };
  }));
  console.log(`  ${took.frames} frames a second while scrolling, the longest took ${took.worst} ms`);
  // Pods come and go meanwhile: which row is the last one is asked anew.
  await until('the last row is drawn', () => page.evaluate(() => {
    const box = document.querySelector('.table');
    box.scrollTop = box.scrollHeight;
    return document.querySelector(`.body .row[aria-rowindex="${box.getAttribute('aria-rowcount')}"] a`) !== null;
  }));
}

let failed = 0;
let under = '';

/** Whatever hangs: the walk ends, says where it was, and takes its browser with it. */
async function end() {
  // A browser that does not close ends with its pipe when this program does.
  await within('close the browser', browser.close(), CLOSE_MS).catch((error) => console.log(`  ${error.message}`));
  const unique = [...new Set(faults)];
  for (const fault of unique) console.log(`FAULT ${fault}`);
  console.log(`${failed} steps failed, ${unique.length} faults, ${Math.round((Date.now() - began) / 1000)} s`);
  process.exit(failed || unique.length ? 1 : 0);
}
setTimeout(() => {
  failed++;
  console.log(`FAILED ${under}: the walk did not end within ${WALK_MS / 1000} s`);
  void end();
}, WALK_MS);

for (const [name, step] of Object.entries(steps)) {
  if (options.only && name !== 'sign in' && !options.only.split(',').includes(name)) continue;
  const from = Date.now();
  under = name;
  at(name);
  try {
    await step();
    console.log(`ok ${name} (${Date.now() - from} ms)`);
  } catch (error) {
    failed++;
    console.log(`FAILED ${name}: ${error.message}\n${error.stack?.split('\n').filter((line) => line.includes('.mjs')).slice(0, 3).join('\n')}`);
    await shot(page, `failed-${name.replace(/\W/g, '-')}`).catch(() => {});
    if (name === 'sign in') break;
    await page.setViewportSize({ width: 1280, height: 800 });
  }
}
await end();
