// Carries connections from one network to another by a socket in the file system. Chromium gives up what it is loading whenever an
// interface of its network comes or goes, and on a node they do with every pod: the browser has a network of its own.
//
//   node tunnel.mjs SOCKET HOST PORT

import { connect, createServer } from 'node:net';
import { fileURLToPath } from 'node:url';

export function tunnel(from, to) {
  const server = createServer((one) => {
    const other = connect(to);
    for (const [end, far] of [[one, other], [other, one]]) {
      end.pipe(far);
      end.on('error', () => far.destroy());
      end.on('close', () => far.destroy());
    }
  });
  return new Promise((ready) => server.listen(from, ready));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [path, host, port] = process.argv.slice(2);
  await tunnel({ path }, { host, port: Number(port) });
}
