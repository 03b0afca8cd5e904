import { readdirSync, readFileSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

// The mock of dev/mock.mjs, or a real server: KNARR=https://127.0.0.1:6443 npm run dev.
const server = process.env.KNARR ?? 'http://127.0.0.1:8099';

/** The licences of everything that goes into the page, as they ask for. */
function licences(): Plugin {
  return {
    name: 'licences',
    generateBundle() {
      const lock = JSON.parse(readFileSync('package-lock.json', 'utf8')) as { packages: Record<string, { version: string; license?: string; dev?: boolean }> };
      const inside = Object.entries(lock.packages).filter(([path, own]) => path && (!own.dev || path.includes('@fontsource')));
      const texts = inside.map(([path, own]) => {
        const file = readdirSync(path).find((name) => /^licen[cs]e/i.test(name));
        return `${path.replace(/.*node_modules\//, '')} ${own.version} (${own.license ?? 'see below'})\n\n${file ? readFileSync(`${path}/${file}`, 'utf8').trim() : ''}`;
      });
      this.emitFile({ type: 'asset', fileName: 'assets/licences.txt', source: texts.join('\n\n----------\n\n') });
    },
  };
}

export default defineConfig({
  base: '/dashboard/',
  plugins: [svelte(), licences()],
  build: {
    target: 'es2022',
    // The server compresses what it embeds; test/size.test.ts says how much that is.
    reportCompressedSize: false,
    // Nothing becomes a data: address, so that fonts stay within font-src 'self'.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: {
      '/dashboard/api': { target: server, ws: true, secure: false, changeOrigin: true },
      '/dashboard/k8s': { target: server, ws: true, secure: false, changeOrigin: true },
    },
  },
});
