// exec and attach over a WebSocket in the API server's v5 channels: the first byte of a message names the stream.

import { BASE } from './api';

const STDIN = 0, STDOUT = 1, STDERR = 2, ERROR = 3, RESIZE = 4;

export interface Terminal { write(text: string): void; resize(columns: number, rows: number): void; close(): void }
export interface Listener { opened(): void; output(bytes: Uint8Array): void; ended(how: { normal: boolean; text: string }): void }

export function open(path: string, listener: Listener): Terminal {
  const address = new URL(`${BASE}/k8s${path}`, location.href);
  address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  const socket = new WebSocket(address, 'v5.channel.k8s.io');
  socket.binaryType = 'arraybuffer';
  const encoder = new TextEncoder();
  let status: { status?: string; message?: string } | null = null;
  let closed = false;

  const send = (channel: number, body: Uint8Array) => {
    if (socket.readyState !== WebSocket.OPEN) return;
    const message = new Uint8Array(body.length + 1);
    message[0] = channel;
    message.set(body, 1);
    socket.send(message);
  };
  socket.onopen = () => listener.opened();
  socket.onmessage = (event) => {
    const message = typeof event.data === 'string' ? encoder.encode(event.data) : new Uint8Array(event.data as ArrayBuffer);
    if (message[0] === STDOUT || message[0] === STDERR) listener.output(message.subarray(1));
    else if (message[0] === ERROR) { try { status = JSON.parse(new TextDecoder().decode(message.subarray(1))); } catch { /* What is no Status says nothing. */ } }
  };
  socket.onclose = () => {
    if (closed) return;
    closed = true;
    if (status) listener.ended({ normal: true, text: status.status === 'Success' ? 'The shell has ended.' : (status.message ?? 'The shell has ended.') });
    else listener.ended({ normal: false, text: 'The connection was lost or refused.' });
  };
  return {
    write: (text) => send(STDIN, encoder.encode(text)),
    resize: (columns, rows) => send(RESIZE, encoder.encode(JSON.stringify({ Width: columns, Height: rows }))),
    close: () => { closed = true; socket.close(); },
  };
}
