//! A small provider of OpenID Connect with real keys, over HTTPS with an authority of its own: it publishes its keys, signs
//! tokens, changes its keys, and can be made to hang.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256,
    RSA_PSS_SHA512, RsaKeyPair,
};
use serde_json::{Value, json};

use crate::webhook::{Answer, Webhook};

/// What a key signs with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    Es256,
    Es384,
    Rs256,
    Ps512,
}

enum Secret {
    Ec(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

struct Key {
    id: String,
    algorithm: Algorithm,
    secret: Secret,
}

#[derive(Default)]
struct State {
    keys: Mutex<Vec<Arc<Key>>>,
    hangs: AtomicBool,
    fetches: AtomicUsize,
    made: AtomicUsize,
}

pub struct Provider {
    server: Webhook,
    state: Arc<State>,
}

impl Provider {
    pub fn start() -> Provider {
        let state = Arc::new(State::default());
        let (shared, issuer) = (state.clone(), Arc::new(OnceLock::<String>::new()));
        let own = issuer.clone();
        let server = Webhook::start(move |path, _| {
            if shared.hangs.load(Ordering::SeqCst) {
                return Answer::Hang;
            }
            let issuer = own.get().cloned().unwrap_or_default();
            match path {
                "/.well-known/openid-configuration" | "/elsewhere" => {
                    json_answer(json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}))
                }
                "/keys" => {
                    shared.fetches.fetch_add(1, Ordering::SeqCst);
                    let keys: Vec<Value> = shared.keys.lock().unwrap().iter().map(|key| key.published()).collect();
                    json_answer(json!({"keys": keys}))
                }
                _ => Answer::Raw(404, Bytes::new()),
            }
        });
        issuer.set(format!("https://127.0.0.1:{}", server.port)).unwrap();
        let provider = Provider { server, state };
        provider.add_key(Algorithm::Es256);
        provider
    }

    pub fn issuer(&self) -> String {
        format!("https://127.0.0.1:{}", self.server.port)
    }

    /// The authority of its certificate, as PEM.
    pub fn authority(&self) -> String {
        String::from_utf8(STANDARD.decode(&self.server.bundle).unwrap()).unwrap()
    }

    /// How often its keys were asked for.
    pub fn fetches(&self) -> usize {
        self.state.fetches.load(Ordering::SeqCst)
    }

    pub fn hang(&self, hangs: bool) {
        self.state.hangs.store(hangs, Ordering::SeqCst);
    }

    /// One more key, which signs from now on.
    pub fn add_key(&self, algorithm: Algorithm) {
        let id = format!("key-{}", self.state.made.fetch_add(1, Ordering::SeqCst));
        self.state.keys.lock().unwrap().push(Arc::new(Key::new(id, algorithm)));
    }

    /// Only the newest key is left.
    pub fn forget_old_keys(&self) {
        let mut keys = self.state.keys.lock().unwrap();
        let newest = keys.pop();
        *keys = newest.into_iter().collect();
    }

    /// A token for `kubernetes` that lives for an hour, with these claims besides.
    pub fn token(&self, claims: Value) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let mut all = json!({"iss": self.issuer(), "aud": "kubernetes", "iat": now, "exp": now + 3600});
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        let key = self.state.keys.lock().unwrap().last().unwrap().clone();
        key.sign(&all)
    }
}

fn json_answer(value: Value) -> Answer {
    Answer::Raw(200, value.to_string().into())
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    fn new(id: String, algorithm: Algorithm) -> Key {
        let random = SystemRandom::new();
        let ec = |parameters| {
            let der = EcdsaKeyPair::generate_pkcs8(parameters, &random).unwrap();
            Secret::Ec(Box::new(EcdsaKeyPair::from_pkcs8(parameters, der.as_ref(), &random).unwrap()))
        };
        let secret = match algorithm {
            Algorithm::Es256 => ec(&ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::Es384 => ec(&ECDSA_P384_SHA384_FIXED_SIGNING),
            Algorithm::Rs256 | Algorithm::Ps512 => {
                let arguments = "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048";
                let made = Command::new("openssl").args(arguments.split(' ')).output().expect("there is an openssl");
                let pem = String::from_utf8(made.stdout).unwrap();
                let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
                Secret::Rsa(Box::new(RsaKeyPair::from_pkcs8(&STANDARD.decode(body).unwrap()).unwrap()))
            }
        };
        Key { id, algorithm, secret }
    }

    fn name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Rs256 => "RS256",
            Algorithm::Ps512 => "PS512",
        }
    }

    fn published(&self) -> Value {
        match &self.secret {
            Secret::Ec(key) => {
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if self.algorithm == Algorithm::Es256 { "P-256" } else { "P-384" };
                json!({"kid": self.id, "kty": "EC", "use": "sig", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Secret::Rsa(key) => {
                let public = key.public();
                let number = |bytes: &[u8]| encode(&bytes[bytes.iter().take_while(|byte| **byte == 0).count()..]);
                let components: ring::rsa::PublicKeyComponents<Vec<u8>> = public.into();
                json!({"kid": self.id, "kty": "RSA", "use": "sig", "n": number(&components.n), "e": number(&components.e)})
            }
        }
    }

    fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": self.name(), "kid": self.id, "typ": "JWT"});
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match &self.secret {
            Secret::Ec(key) => key.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            Secret::Rsa(key) => {
                let mut out = vec![0; key.public().modulus_len()];
                let padding: &dyn ring::signature::RsaEncoding = match self.algorithm {
                    Algorithm::Ps512 => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                key.sign(padding, &random, signed.as_bytes(), &mut out).unwrap();
                out
            }
        };
        format!("{signed}.{}", encode(signature))
    }
}
