import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The mock of dev/mock.mjs, or a real server: KNARR=https://127.0.0.1:6443 npm run dev.
const server = process.env.KNARR ?? 'http://127.0.0.1:8099';

export default defineConfig({
  base: '/dashboard/',
  plugins: [svelte()],
  build: {
    target: 'es2022',
    // The server compresses what it embeds; what vite says about sizes is said by the tests.
    reportCompressedSize: false,
    // Nothing becomes a data: address, so that fonts stay within font-src 'self'.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: {
      '/dashboard/api': { target: server, ws: true, secure: false },
      '/dashboard/k8s': { target: server, ws: true, secure: false },
    },
  },
});
