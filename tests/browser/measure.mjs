// What the page costs in a real browser, for `make bench`. Each line of input is a step, each is answered by a line of JSON.
//
//   node measure.mjs --url https://host:6443 --code CODE

import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { PATIENCE_MS, start } from './browser.mjs';

const { values: options } = parseArgs({ options: { url: { type: 'string' }, code: { type: 'string' }, chromium: { type: 'string' } } });
const base = `${options.url.replace(/\/$/, '')}/dashboard/`;
const LIST = `${base}list?r=/v1/pods`;
const { browser, faults, visitor } = await start(options);
const page = await visitor();
/** Pages beside the first one; they share its session. */
const more = [];

async function listed(page, rows) {
  await page.waitForFunction((rows) => Number(document.querySelector('[role=table]')?.getAttribute('aria-rowcount')) > rows && document.querySelector('.body .row a') !== null, rows, { timeout: PATIENCE_MS, polling: 'raf' });
}

/** Frames while the list runs from its first row to its last. */
function frames(ms) {
  return page.evaluate(async (ms) => {
    const box = document.querySelector('.table');
    const times = [];
    const began = performance.now(), end = box.scrollHeight - box.clientHeight;
    for (let last = began; last - began < ms;) {
      const now = await new Promise(requestAnimationFrame);
      times.push(now - last);
      last = now;
      box.scrollTop = end * Math.min(1, (now - began) / ms);
    }
    times.sort((a, b) => a - b);
    const at = (share) => times[Math.floor((times.length - 1) * share)];
    return { fps: (times.length * 1000) / ms, median_ms: at(0.5), p95_ms: at(0.95), worst_ms: at(1) };
  }, ms);
}

const steps = {
  async 'sign-in'() {
    await page.goto(`${base}signin#code=${options.code}`);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    return {};
  },

  /** The overview in a browser that has nothing of it yet. */
  async paint() {
    const fresh = await visitor({ storageState: await page.context().storageState() });
    const network = await fresh.context().newCDPSession(fresh);
    await network.send('Network.enable');
    let bytes = 0, requests = 0;
    network.on('Network.loadingFinished', (one) => { bytes += one.encodedDataLength; requests++; });
    network.on('Network.webSocketFrameReceived', (one) => { bytes += one.response.payloadData.length; });
    const began = Date.now();
    await fresh.goto(base);
    await fresh.getByText('Not healthy now').first().waitFor();
    const usable_ms = Date.now() - began;
    const paint_ms = await fresh.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null);
    await fresh.context().close();
    return { paint_ms, usable_ms, bytes, requests };
  },

  async list(rows) {
    await page.goto('about:blank');
    const began = Date.now();
    await page.goto(LIST);
    await listed(page, Number(rows));
    return { ms: Date.now() - began };
  },

  async scroll(ms) {
    return frames(Number(ms));
  },

  /** How long the server says it searched, and how long the page waited. */
  async search(words) {
    const once = () => page.evaluate(async (words) => {
      const began = performance.now();
      const answer = await (await fetch(`/dashboard/api/search?q=${encodeURIComponent(words)}&limit=50`)).json();
      return { server_ms: answer.took_ms, ms: performance.now() - began, total: answer.total, complete: answer.complete };
    }, words);
    while (!(await once()).complete);
    return once();
  },

  async viewers(count) {
    for (let n = 0; n < Number(count); n++) {
      const other = await page.context().newPage();
      await other.goto(LIST);
      await listed(other, 1);
      more.push(other);
    }
    return { viewers: more.length };
  },

  async leave() {
    for (const other of more.splice(0)) await other.close();
    await page.goto('about:blank');
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...words] = line.trim().split(' ');
  const answer = await steps[name](...words).catch((error) => ({ error: error.message }));
  console.log(JSON.stringify({ ...answer, faults }));
}
await browser.close();
