import { vitePreprocess } from '@sveltejs/vite-plugin-svelte';

export default {
  preprocess: vitePreprocess(),
  // An object's page and its parts are made anew for another object: what they read at first stays true.
  compilerOptions: { warningFilter: (warning) => warning.code !== 'state_referenced_locally' },
};
