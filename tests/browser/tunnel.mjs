// Carries connections from one network to another by a socket in the file system. Chromium gives up what it is loading whenever an
// interface of its network comes or goes, and on a node they do with every pod: the browser has a network of its own.
//
//   node tunnel.mjs SOCKET HOST PORT

import { connect, createServer } from 'node:net';
import { pipeline } from 'node:stream';
import { fileURLToPath } from 'node:url';

export function tunnel(from, to) {
  // An end that says no more may still be told the rest: each direction ends for itself, and only a broken one ends both.
  const server = createServer({ allowHalfOpen: true }, (one) => {
    const other = connect({ ...to, allowHalfOpen: true });
    const broken = (error) => { if (error) { one.destroy(); other.destroy(); } };
    pipeline(one, other, broken);
    pipeline(other, one, broken);
  });
  return new Promise((ready) => server.listen(from, ready));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [path, host, port] = process.argv.slice(2);
  await tunnel({ path }, { host, port: Number(port) });
}
