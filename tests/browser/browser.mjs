// A browser that tells what no page of ours may do: errors, requests to other hosts, serious violations of accessibility.

import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';
import { FOREIGN } from './attack.mjs';

const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-default-apps', '--disable-features=Translate,OptimizationHints,MediaRouter'];
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What is not there by then never comes; an unoptimised program on a busy machine is slow. */
export const PATIENCE_MS = 90_000;

/** What has no bound of its own gets one, and says what it was. */
export async function within(what, promise, ms = PATIENCE_MS) {
  let timer;
  const late = new Promise((_, refuse) => { timer = setTimeout(() => refuse(new Error(`${what}: no end within ${ms / 1000} s`)), ms); });
  try { return await Promise.race([promise, late]); } finally { clearTimeout(timer); }
}

export async function start(options) {
  const resolver = `--host-resolver-rules=MAP ${FOREIGN} ${new URL(options.url).hostname}`;
  const browser = await chromium.launch({ executablePath: options.chromium ?? '/usr/bin/chromium', args: [...FLAGS, resolver] });
  const faults = [];
  /** Where the walk is, for who reads of a fault. */
  let place = '';
  const fault = (text) => { faults.push(text); console.error(`  fault in ${place}: ${text}`); };
  if (options.shots) mkdirSync(options.shots, { recursive: true });

  /** `known` are lines of the console that belong to what is done to this one. */
  async function visitor(more = {}, known = null) {
    // The cluster's certificate is signed by its own authority, which no browser knows.
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ignoreHTTPSErrors: true, colorScheme: 'light', reducedMotion: 'reduce', ...more });
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    const host = new URL(options.url).host;
    // Chromium writes a line for every answer of 4xx; that some requests are refused is part of the walk. So is that pods, with
    // their interfaces, come and go on the machine that the browser runs on.
    const expected = /^Failed to load resource: (the server responded with a status of (400|401|403|404|409|422|429)|net::ERR_NETWORK_CHANGED)|WebSocket connection to .* failed.*(ERR_NETWORK_CHANGED|ERR_INTERNET_DISCONNECTED)/;
    page.on('console', (message) => { if (message.type() === 'error' && !expected.test(message.text()) && !known?.test(message.text())) fault(`console: ${message.text()} (${message.location().url}, at ${page.url()})`); });
    page.on('pageerror', (error) => fault(`script: ${error.message} ${error.stack?.split('\n')[1] ?? ''} (at ${page.url()})`));
    page.on('crash', () => fault(`the page crashed (at ${page.url()})`));
    page.on('dialog', (dialog) => { fault(`a dialog opened: ${dialog.message()}`); void dialog.dismiss(); });
    // Why the server failed stands in its answer, which the console does not show.
    page.on('response', (response) => { if (response.status() >= 500) response.text().catch(() => '').then((text) => console.error(`  ${response.status()} of ${response.request().method()} ${response.url()}: ${text.slice(0, 300)}`)); });
    context.on('request', (request) => { const to = new URL(request.url()); if (!['data:', 'blob:'].includes(to.protocol) && to.host !== host) fault(`request to another host: ${request.url()}`); });
    page.on('websocket', (socket) => { if (new URL(socket.url()).host !== host) fault(`socket to another host: ${socket.url()}`); });
    return page;
  }

  async function shot(page, name) {
    if (options.shots) await page.screenshot({ path: `${options.shots}/${name}.png`, timeout: PATIENCE_MS });
  }

  /** Runs axe in a world of its own: the page's policy forbids foreign scripts, and stays as it is. */
  async function accessible(page, name) {
    await within(`axe in ${name}`, axe(page, name));
  }

  async function axe(page, name) {
    const session = await page.context().newCDPSession(page);
    const { frameTree } = await session.send('Page.getFrameTree');
    const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id, worldName: 'axe' });
    await session.send('Runtime.evaluate', { expression: axeSource, contextId: executionContextId });
    const { result, exceptionDetails } = await session.send('Runtime.evaluate', {
      expression: `axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }).then((found) => JSON.stringify(found.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => one.id + ': ' + one.help + ' ' + one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + ' ' + (node.any[0]?.message ?? '').slice(0, 200)).join(' | '))))`,
      contextId: executionContextId, awaitPromise: true, returnByValue: true,
    });
    if (exceptionDetails) fault(`axe in ${name}: ${exceptionDetails.text} ${exceptionDetails.exception?.description?.slice(0, 200) ?? ''}`);
    else for (const violation of JSON.parse(result.value)) fault(`axe in ${name}: ${violation}`);
    await session.detach();
  }

  return { browser, faults, visitor, shot, accessible, at: (name) => { place = name; } };
}
