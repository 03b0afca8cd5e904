// A published provider of OpenID Connect (oidc-provider) for the tests: over HTTPS on a port of its own, with real keys.
//
//   node provider.mjs --key key.pem --certificate certificate.pem
//
// Says its issuer on the first line of its output. Takes orders as lines of its input, and answers each with a line:
//   rotate      sign with a new key, and go on publishing the old ones
//   forget      publish only the newest key
//   ttl SECONDS how long id tokens are good from now on
// Ends with its input.

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

import Provider from "oidc-provider";

// The library has notices for its operators; here the output is for answers.
console.log = console.info = console.error;
const say = (line) => process.stdout.write(`${line}\n`);

const { values: flags } = parseArgs({ options: { key: { type: "string" }, certificate: { type: "string" } } });

function newKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), alg: "RS256", use: "sig" };
}

let keys = [newKey()];
let seconds = 3600;
let answer;

const clients = ["kubernetes", "elsewhere"].map((client_id) => ({
  client_id,
  application_type: "native",
  token_endpoint_auth_method: "none",
  redirect_uris: ["http://127.0.0.1/"],
  response_types: ["code"],
  grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
}));

function begin(issuer) {
  const provider = new Provider(issuer, {
    clients,
    jwks: { keys },
    cookies: { keys: ["of the tests"] },
    scopes: ["openid", "offline_access", "groups"],
    claims: { openid: ["sub"], groups: ["groups"] },
    conformIdTokenClaims: false,
    features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
    pkce: { required: () => true },
    ttl: { IdToken: () => seconds, AccessToken: 60, Interaction: 600, Session: 600, Grant: 3600, RefreshToken: 3600, DeviceCode: 300 },
    findAccount: (_, accountId) => ({
      accountId,
      claims: () => ({ sub: accountId, groups: [`${accountId}s`, "staff"] }),
    }),
  });
  provider.on("server_error", (_, error) => console.error(error));
  answer = provider.callback();
}

const server = createServer({ key: readFileSync(flags.key), cert: readFileSync(flags.certificate) }, (request, response) =>
  answer(request, response),
);

server.listen(0, "127.0.0.1", () => {
  const issuer = `https://127.0.0.1:${server.address().port}`;
  begin(issuer);
  say(issuer);
  const orders = {
    rotate: () => keys.unshift(newKey()),
    forget: () => keys.splice(1),
    ttl: (text) => (seconds = Number(text)),
  };
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    const [order, argument] = line.split(" ");
    orders[order](argument);
    begin(issuer);
    say(keys[0].kid);
  });
  lines.on("close", () => process.exit(0));
});
