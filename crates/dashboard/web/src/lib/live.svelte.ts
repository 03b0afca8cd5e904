// The page's one live connection. Subscriptions outlive it: when it comes back, all of them are asked for again.

import { ask, BASE, Refused } from './api';

const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 10_000;
/** The server closes with this code when it no longer knows the session. */
const SESSION_ENDED = 4401;

export type Message = Record<string, any>;
interface Subscription { id: number; op: Message; hear: (message: Message) => void }

export const live = $state<{ state: 'connecting' | 'open' | 'lost'; lostAt: number; retryAt: number }>({ state: 'connecting', lostAt: 0, retryAt: 0 });

const subscriptions = new Map<number, Subscription>();
let socket: WebSocket | null = null;
let next = 1;
let retry = RETRY_FIRST_MS;
let timer: ReturnType<typeof setTimeout> | undefined;
let wanted = false;

export function connect() {
  wanted = true;
  if (socket) return;
  clearTimeout(timer);
  const address = new URL(`${BASE}/api/live`, location.href);
  address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  const opened = new WebSocket(address);
  socket = opened;
  opened.onopen = () => {
    live.state = 'open';
    retry = RETRY_FIRST_MS;
    for (const subscription of subscriptions.values()) say(subscription.op);
  };
  opened.onmessage = (event) => {
    const message = JSON.parse(event.data) as Message;
    subscriptions.get(message.id)?.hear(message);
  };
  opened.onclose = (event) => {
    if (socket !== opened) return;
    socket = null;
    if (wanted && event.code === SESSION_ENDED) ended();
    else if (wanted) lost();
  };
}

function lost() {
  if (live.state !== 'lost') live.lostAt = Date.now();
  live.state = 'lost';
  live.retryAt = Date.now() + retry;
  timer = setTimeout(again, retry);
  retry = Math.min(retry * 2, RETRY_MAX_MS);
}

async function again() {
  // The connection does not say why it was refused; the session does. Without one, connecting again is no use.
  try {
    await ask('/api/session');
    if (wanted) connect();
  } catch (error) {
    if (error instanceof Refused && error.code === 401) ended();
    else if (wanted) lost();
  }
}

let ended: () => void = () => {};
export function onSessionEnd(then: () => void) { ended = then; }

export function retryNow() {
  clearTimeout(timer);
  retry = RETRY_FIRST_MS;
  void again();
}

export function disconnect() {
  wanted = false;
  clearTimeout(timer);
  socket?.close();
  socket = null;
  live.state = 'connecting';
}

function say(op: Message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(op));
}

export interface Handle { change(op: Message): void; close(): void }

export function subscribe(op: Message, hear: (message: Message) => void): Handle {
  const id = next++;
  const subscription: Subscription = { id, op: { ...op, id }, hear };
  subscriptions.set(id, subscription);
  say(subscription.op);
  return {
    change(changed) {
      subscription.op = { ...changed, id };
      say(subscription.op);
    },
    close() {
      subscriptions.delete(id);
      say({ id, op: 'close' });
    },
  };
}
