use std::path::PathBuf;

use kms::externaljwt::external_jwt_signer_server::{ExternalJwtSigner, ExternalJwtSignerServer};
use kms::externaljwt::{FetchKeysRequest, Key, MetadataRequest, MetadataResponse, SignJwtRequest, SignJwtResponse};
use serde_json::json;
use tokio::net::UnixListener;

use super::*;
use crate::authn::jwt::{SigningKey, Unverified};

/// A signer with real keys; each is known by its place.
#[derive(Default)]
struct Plugin {
    keys: Mutex<Vec<(String, rcgen::KeyPair, bool)>>,
    /// What it puts into headers instead of what belongs there.
    header: Mutex<Option<Value>>,
    lifetime_seconds: i64,
    fetches: Mutex<usize>,
}

impl Plugin {
    fn new(lifetime_seconds: i64) -> Arc<Plugin> {
        let plugin = Arc::new(Plugin { lifetime_seconds, ..Plugin::default() });
        plugin.add("key-1", false);
        plugin
    }

    /// The last one signs.
    fn add(&self, id: &str, excluded: bool) {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        self.keys.lock().push((id.to_owned(), pair, excluded));
    }

    async fn listen(self: &Arc<Plugin>, folder: &tempfile::TempDir) -> PathBuf {
        let socket = folder.path().join("signer.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let incoming = futures::stream::unfold(listener, |listener| async {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        let service = ExternalJwtSignerServer::new(Service(self.clone()));
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        socket
    }
}

struct Service(Arc<Plugin>);

#[tonic::async_trait]
impl ExternalJwtSigner for Service {
    async fn sign(
        &self,
        request: tonic::Request<SignJwtRequest>,
    ) -> Result<tonic::Response<SignJwtResponse>, tonic::Status> {
        let keys = self.0.keys.lock();
        let (id, pair, _) = keys.last().unwrap();
        let header = self.0.header.lock().clone().unwrap_or(json!({"alg": "ES256", "kid": id, "typ": "JWT"}));
        let header = URL_SAFE_NO_PAD.encode(header.to_string());
        let signed = format!("{header}.{}", request.into_inner().claims);
        let signature = SigningKey::from_pem(&pair.serialize_pem()).unwrap().signature(&signed);
        Ok(tonic::Response::new(SignJwtResponse { header, signature: URL_SAFE_NO_PAD.encode(signature) }))
    }

    async fn fetch_keys(
        &self,
        _: tonic::Request<FetchKeysRequest>,
    ) -> Result<tonic::Response<FetchKeysResponse>, tonic::Status> {
        *self.0.fetches.lock() += 1;
        let keys = self.0.keys.lock();
        let key = |(id, pair, excluded): &(String, rcgen::KeyPair, bool)| Key {
            key_id: id.clone(),
            key: rcgen::PublicKeyData::subject_public_key_info(pair),
            exclude_from_oidc_discovery: *excluded,
        };
        let response = FetchKeysResponse { keys: keys.iter().map(key).collect(), ..fetched() };
        Ok(tonic::Response::new(response))
    }

    async fn metadata(
        &self,
        _: tonic::Request<MetadataRequest>,
    ) -> Result<tonic::Response<MetadataResponse>, tonic::Status> {
        let max_token_expiration_seconds = self.0.lifetime_seconds;
        Ok(tonic::Response::new(MetadataResponse { max_token_expiration_seconds }))
    }
}

fn fetched() -> FetchKeysResponse {
    let data_timestamp = Some(kms::timestamp(1_800_000_000));
    FetchKeysResponse { keys: Vec::new(), data_timestamp, refresh_hint_seconds: 3600 }
}

fn is_believed(signer: &ExternalSigner, token: &str) -> bool {
    Unverified::parse(token).unwrap().is_signed_by(&signer.keys().entries)
}

#[tokio::test]
async fn tokens_are_signed_elsewhere_and_new_keys_are_found() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), Plugin::new(7200));
    let signer = ExternalSigner::connect(&plugin.listen(&folder).await, Clock::system()).await.unwrap();
    let token = signer.sign(&json!({"sub": "a"})).await.unwrap();
    assert!(is_believed(&signer, &token));
    assert_eq!(*plugin.fetches.lock(), 1);

    // A key that the signer uses from now on is asked for with the first token of it.
    plugin.add("key-2", false);
    let token = signer.sign(&json!({"sub": "b"})).await.unwrap();
    assert!(is_believed(&signer, &token));
    assert_eq!((*plugin.fetches.lock(), signer.keys().shown().count()), (2, 2));
    // Names that nobody knows do not become a flood of questions.
    for _ in 0..10 {
        signer.find("made-up").await;
    }
    assert_eq!(*plugin.fetches.lock(), 2);

    let mut page = Page::default();
    signer.render(&mut page);
    let text = page.text();
    for line in [
        "apiserver_externaljwt_fetch_keys_data_timestamp 1800000000",
        "apiserver_externaljwt_fetch_keys_request_total{code=\"success\"} 2",
        "apiserver_externaljwt_sign_request_total{code=\"success\"} 2",
        "apiserver_externaljwt_sign_request_total{code=\"failure\"} 0",
        "apiserver_externaljwt_request_duration_seconds_count{code=\"OK\",method=\"Sign\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn headers_that_the_server_would_not_write_are_refused() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), Plugin::new(7200));
    let signer = ExternalSigner::connect(&plugin.listen(&folder).await, Clock::system()).await.unwrap();
    for (header, why) in [
        (json!({"alg": "ES256", "kid": "key-1", "typ": "JWT", "x": "y"}), "alg, kid and typ alone"),
        (json!({"alg": "ES256", "kid": "key-1"}), "bad type"),
        (json!({"alg": "ES256", "typ": "JWT"}), "key id missing"),
        (json!({"alg": "ES256", "typ": "JWT", "kid": "k".repeat(1025)}), "key id longer than 1 kb"),
        (json!({"alg": "none", "typ": "JWT", "kid": "key-1"}), "bad signing algorithm \"none\""),
        (json!("ES256"), "alg, kid and typ alone"),
    ] {
        *plugin.header.lock() = Some(header.clone());
        let error = signer.sign(&json!({})).await.unwrap_err().to_string();
        assert!(error.starts_with("while validating header: ") && error.contains(why), "{header}: {error}");
    }
    *plugin.header.lock() = None;
    tokio::time::sleep(UNKNOWN_KEY_INTERVAL).await;
    plugin.add("old", true);
    let error = signer.sign(&json!({})).await.unwrap_err().to_string();
    assert!(error.ends_with("key used for signing JWT (kid: old) is excluded from OIDC discovery docs"), "{error}");
    assert_eq!((signer.keys().entries.len(), signer.keys().shown().count()), (2, 1));
}

#[test]
fn keys_that_cannot_be_used_are_refused() {
    let key = Key { key_id: "k".into(), key: b"nonsense".to_vec(), exclude_from_oidc_discovery: false };
    let check = |response: FetchKeysResponse, expected: &str| {
        let error = Keys::read(response).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expected), "{error:?} is not {expected:?}");
    };
    check(FetchKeysResponse { refresh_hint_seconds: 0, ..fetched() }, "found invalid refresh hint (0s)");
    check(fetched(), "found no keys");
    let with = |key: Key| FetchKeysResponse { keys: vec![key], ..fetched() };
    check(FetchKeysResponse { data_timestamp: None, ..with(key.clone()) }, "invalid data timestamp");
    check(with(Key { key_id: String::new(), ..key.clone() }), "found invalid public key id \"\"");
    check(with(Key { key: Vec::new(), ..key.clone() }), "found empty public key");
    check(with(key), "while parsing external public keys: the public key is neither P-256 nor RSA");
}

#[tokio::test]
async fn the_signer_bounds_how_long_tokens_live() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), Plugin::new(7200));
    let signer = ExternalSigner::connect(&plugin.listen(&folder).await, Clock::system()).await.unwrap();
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    assert_eq!(signer.lifetime_max(None).unwrap(), hours(2));
    assert_eq!(signer.lifetime_max(Some(hours(1))).unwrap(), hours(1));
    let error = signer.lifetime_max(Some(hours(3))).unwrap_err().to_string();
    assert!(error.ends_with("3h0m0s > 2h0m0s"), "{error}");
    let (folder, short) = (tempfile::tempdir().unwrap(), Plugin::new(599));
    let refused = ExternalSigner::connect(&short.listen(&folder).await, Clock::system()).await;
    let expected = "max token life supported by external-jwt-signer (599s) is less than acceptable (min 600s)";
    assert_eq!(refused.err().unwrap().to_string(), expected);
}
