// What hostile objects and foreign pages try. Whatever script of theirs runs opens a dialog, and every dialog is a fault.

import assert from 'node:assert/strict';

/** Every text of theirs has this in it. */
const MARK = /onerror=/;
/** What their markup would make; the editor has images of its own, without a source. */
const MADE = 'main img:not(.cm-widgetBuffer), main script, main iframe, main svg[onload], main [onerror], dialog img, dialog script, dialog [onerror]';
/** A name that points to this server without being one of its names; browser.mjs lets it. */
export const FOREIGN = 'evil.example';

export function attacks({ page, browser, base, open, see, until, object, api, shot }) {
  async function harmless(path, text = MARK) {
    await open(path);
    // What is folded is looked at, too.
    await page.getByText(text).first().waitFor({ state: 'attached' }).catch((error) => { throw new Error(`${path} does not show it: ${error.message}`); });
    await page.evaluate(() => document.querySelectorAll('main details').forEach((one) => { one.open = true; }));
    assert.equal(await page.locator(MADE).count(), 0, `markup stays text in ${path}`);
  }

  return {
    async 'hostile text'() {
      await open(object('/v1/configmaps', 'settings'));
      await see('Data');
      await see('⟨ESC⟩');
      await see('⟨RLO⟩');
      await see(/\(\+\d+ characters\)/);
      const pages = [
        object('/v1/configmaps', 'settings'), object('/v1/configmaps', 'settings', 'yaml'), object('/v1/configmaps', 'settings', 'revisions'),
        'list?r=/v1/events&ns=shop&q=onerror', 'list?r=example.com/v1/hostiles&ns=shop',
        object('example.com/v1/hostiles', 'one'), object('example.com/v1/hostiles', 'one', 'yaml'), object('example.com/v1/hostiles', 'one', 'why'),
        object('/v1/pods', 'hostile'), object('/v1/pods', 'hostile', 'yaml'), object('/v1/pods', 'hostile-image'), object('/v1/pods', 'hostile-image', 'why'),
        object('/v1/pods', 'hostile-status'),
        object('rbac.authorization.k8s.io/v1/rolebindings', 'hostile'), object('apps/v1/deployments', 'frontend'), 'search?q=onerror', '',
      ];
      for (const path of pages) await harmless(path);
      await open('map?ns=shop');
      await page.locator('.node').first().waitFor();
      assert.equal(await page.locator(MADE).count(), 0, 'markup stays text in the map');
    },

    async 'hostile output'() {
      await harmless(object('/v1/pods', 'hostile', 'logs'));
      await see('⟨RLO⟩');
      await see('⟨ESC⟩');
      await see(/\(\+\d{6} characters\)/);
      await shot(page, 'hostile-log');
      // A terminal does what it is told; the page around it stays what it was.
      await open(object('/v1/pods', 'hostile', 'terminal'));
      await see('connected');
      const title = await page.title();
      await page.locator('.xterm').click();
      await page.keyboard.type('cat /text/lines\r');
      const screen = async () => (await page.locator('.xterm-rows').textContent()) ?? '';
      await until('the file is shown', async () => /x{60}/.test(await screen()));
      // What is typed while the file runs by is seen in the middle of it: only what the shell says itself tells that it goes on.
      await page.keyboard.type('GOES=on; echo the-shell-goes-$GOES\r');
      await until('the shell goes on', async () => (await screen()).includes('the-shell-goes-on'));
      assert.equal(await page.title(), title, 'a program in a terminal does not name the page');
      assert.equal(await page.locator('.xterm img, .xterm script, .xterm a[href]').count(), 0);
    },

    async 'foreign pages'() {
      const { host, port } = new URL(base);
      // The same browser, where somebody is signed in.
      const context = await browser.newContext({ ignoreHTTPSErrors: true, storageState: await page.context().storageState() });
      const evil = await context.newPage();
      const rebound = await evil.goto(`https://${FOREIGN}:${port}/dashboard/`);
      assert.equal(rebound.status(), 421, 'a name that only points here is not answered');
      await context.route(`https://${FOREIGN}/**`, (route) => route.fulfill({ contentType: 'text/html', body: `<iframe src="${base}"></iframe>` }));
      await evil.goto(`https://${FOREIGN}/`);
      await until('the frame is refused', async () => evil.frames().some((frame) => frame.url().startsWith('chrome-error:')));
      assert(!evil.frames().some((frame) => frame.url().includes(host)), 'the dashboard is in no frame');
      const forged = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'forged' } };
      const outcome = await evil.evaluate(async ([base, forged]) => {
        const write = (path, body) => fetch(base + path, { method: 'POST', mode: 'no-cors', credentials: 'include', headers: { 'Content-Type': 'text/plain' }, body: JSON.stringify(body) }).then((answer) => answer.type, () => 'refused');
        const socket = () => new Promise((done) => {
          const opened = new WebSocket(`${base.replace('https', 'wss')}api/live`);
          opened.onopen = () => done('open');
          opened.onerror = () => done('refused');
        });
        return {
          read: await fetch(`${base}api/session`, { credentials: 'include' }).then((answer) => answer.status, () => 'refused'),
          write: await write('k8s/api/v1/namespaces/shop/configmaps', forged),
          signIn: await write('api/session', { token: 'theirs' }),
          socket: await socket(),
        };
      }, [base, forged]);
      // Not even what a page may send without asking tells it anything: the answers are kept from it.
      assert.deepEqual(outcome, { read: 'refused', write: 'refused', signIn: 'refused', socket: 'refused' });
      assert.equal((await api('/api/v1/namespaces/shop/configmaps/forged')).code, 404, 'a foreign page wrote nothing');
      await context.close();
      await open('');
      await see('Not healthy now');
    },
  };
}
