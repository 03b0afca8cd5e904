// Signs somebody in as a browser does: follows the provider's pages from the given one on, fills in their forms, keeps their
// cookies, and goes wherever they lead, back to kubectl's plugin too.
//
//   node sign-in.mjs --authority authority.pem --login ada URL

import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { parseArgs } from "node:util";

const { values: flags, positionals } = parseArgs({
  options: { authority: { type: "string" }, login: { type: "string" } },
  allowPositionals: true,
});
const ca = readFileSync(flags.authority);
const STEPS_MAX = 20;
const cookies = new Map();

function ask(url, form) {
  const { request } = url.protocol === "https:" ? https : http;
  const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") };
  if (form) headers["content-type"] = "application/x-www-form-urlencoded";
  return new Promise((done, failed) => {
    const sent = request(url, { method: form ? "POST" : "GET", headers, ca, agent: false }, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("end", () => done({ response, text: Buffer.concat(parts).toString() }));
    });
    sent.on("error", failed);
    sent.end(form?.toString());
  });
}

function keep(response) {
  for (const line of response.headers["set-cookie"] ?? []) {
    const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
    if (value) cookies.set(name, value);
    else cookies.delete(name);
  }
}

// The page's first form with everything that it holds already.
function form(text) {
  const found = text.match(/<form[^>]*action="([^"]+)"[^>]*>([\s\S]*?)<\/form>/);
  if (!found) return undefined;
  const values = new URLSearchParams();
  for (const [tag] of found[2].matchAll(/<input[^>]*>/g)) {
    const [name, value] = ["name", "value"].map((key) => tag.match(new RegExp(`\\b${key}="([^"]*)"`))?.[1]);
    if (name === "login" || name === "password") values.set(name, flags.login);
    else if (name) values.set(name, value ?? "");
  }
  if (/name="confirm"/.test(text)) values.set("confirm", "yes");
  return { action: found[1], values };
}

let url = new URL(positionals[0]);
let values;
for (let step = 0; step < STEPS_MAX; step++) {
  const { response, text } = await ask(url, values);
  keep(response);
  values = undefined;
  if (response.headers.location) {
    url = new URL(response.headers.location, url);
    continue;
  }
  const next = response.statusCode === 200 ? form(text) : undefined;
  if (!next) {
    console.log(`${response.statusCode} ${text.replace(/<style>[\s\S]*?<\/style>|<[^>]*>/g, " ").replace(/\s+/g, " ").trim()}`);
    process.exit(response.statusCode === 200 ? 0 : 1);
  }
  url = new URL(next.action.replaceAll("&amp;", "&"), url);
  values = next.values;
}
console.error(`still not signed in after ${STEPS_MAX} pages, at ${url}`);
process.exit(1);
