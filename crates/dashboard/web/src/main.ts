import { mount } from 'svelte';
import './app.css';
import App from './App.svelte';
import { start, useTheme } from './lib/app.svelte';
import { markStyles } from './lib/nonce';
import { followLinks } from './lib/router.svelte';

markStyles();
useTheme();
followLinks();
const root = document.getElementById('app')!;
root.replaceChildren();
mount(App, { target: root });
void start();
