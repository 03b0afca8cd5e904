import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';

const PAGE_MAX = 700_000;
/** What is loaded before anything is seen: the first script, its style, the document. */
const FIRST_MAX = 80_000;
const packed = (file: string) => gzipSync(readFileSync(file), { level: 9 }).length;

it.skipIf(!existsSync('dist/index.html'))('the page is small', () => {
  const files = readdirSync('dist/assets').map((name) => `dist/assets/${name}`);
  const all = files.reduce((sum, file) => sum + packed(file), packed('dist/index.html'));
  const first = files.filter((file) => /index-.*\.(js|css)$/.test(file)).reduce((sum, file) => sum + packed(file), packed('dist/index.html'));
  console.log(`the whole page: ${all} bytes compressed, the first paint: ${first}`);
  expect(all).toBeLessThan(PAGE_MAX);
  expect(first).toBeLessThan(FIRST_MAX);
});
it.skipIf(!existsSync('dist/index.html'))('the page names no other host', () => {
  expect(readFileSync('dist/index.html', 'utf8')).not.toMatch(/https?:\/\//);
  expect(readFileSync('dist/index.html', 'utf8')).not.toMatch(/<style|<script(?![^>]*src=)/);
});
