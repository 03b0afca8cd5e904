//! An external signer of service account tokens (ExternalJWTSigner) for tests: real gRPC over a unix socket, real keys. The
//! newest key signs; those that are published verify.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kms::externaljwt::external_jwt_signer_server::{ExternalJwtSigner, ExternalJwtSignerServer};
use kms::externaljwt::{
    FetchKeysRequest, FetchKeysResponse, Key, MetadataRequest, MetadataResponse, SignJwtRequest, SignJwtResponse,
};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::socket::Serving;

/// What stands before the point of a P-256 key in its SubjectPublicKeyInfo.
const P256: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
const LIFETIME_SECONDS: i64 = 7200;
const REFRESH_SECONDS: i64 = 1;

#[derive(Default)]
struct State {
    keys: Mutex<Vec<(String, EcdsaKeyPair)>>,
    fetches: Mutex<usize>,
}

pub struct Signer {
    state: Arc<State>,
    _serving: Serving,
}

impl Signer {
    pub fn start(socket: &Path) -> anyhow::Result<Signer> {
        let state = Arc::new(State::default());
        let service = ExternalJwtSignerServer::from_arc(Arc::new(Service(state.clone())));
        let signer = Signer { state, _serving: Serving::start(socket, Server::builder().add_service(service))? };
        signer.add_key("key-1");
        Ok(signer)
    }

    /// One more key, which signs from now on.
    pub fn add_key(&self, id: &str) {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random);
        self.state.keys.lock().push((id.to_owned(), pair.expect("the key is whole")));
    }

    /// Only the newest key is left.
    pub fn forget_old_keys(&self) {
        let mut keys = self.state.keys.lock();
        let newest = keys.pop();
        *keys = newest.into_iter().collect();
    }

    /// How often its keys were asked for.
    pub fn fetches(&self) -> usize {
        *self.state.fetches.lock()
    }
}

struct Service(Arc<State>);

#[tonic::async_trait]
impl ExternalJwtSigner for Service {
    async fn sign(&self, request: Request<SignJwtRequest>) -> Result<Response<SignJwtResponse>, Status> {
        let keys = self.0.keys.lock();
        let (id, pair) = keys.last().ok_or_else(|| Status::internal("no key"))?;
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": "ES256", "kid": id, "typ": "JWT"}).to_string());
        let signed = format!("{header}.{}", request.into_inner().claims);
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.map_err(|_| Status::internal("cannot sign"))?;
        Ok(Response::new(SignJwtResponse { header, signature: URL_SAFE_NO_PAD.encode(signature) }))
    }

    async fn fetch_keys(&self, _: Request<FetchKeysRequest>) -> Result<Response<FetchKeysResponse>, Status> {
        let published = |(id, pair): &(String, EcdsaKeyPair)| Key {
            key_id: id.clone(),
            key: [P256, pair.public_key().as_ref()].concat(),
            exclude_from_oidc_discovery: false,
        };
        let keys = self.0.keys.lock().iter().map(published).collect();
        *self.0.fetches.lock() += 1;
        let data_timestamp = Some(kms::timestamp(1_800_000_000));
        Ok(Response::new(FetchKeysResponse { keys, data_timestamp, refresh_hint_seconds: REFRESH_SECONDS }))
    }

    async fn metadata(&self, _: Request<MetadataRequest>) -> Result<Response<MetadataResponse>, Status> {
        Ok(Response::new(MetadataResponse { max_token_expiration_seconds: LIFETIME_SECONDS }))
    }
}
