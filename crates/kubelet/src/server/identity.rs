//! Authentication of requests: a client certificate of the cluster's CA, or a token that the API server knows (TokenReview).
//! Nobody is let in without either.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::crypto::ring as tls_ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::time::Instant;
use trust::UncheckedClientCertificate;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long the API server's word about a token counts, as upstream's default.
const TOKEN_LIFETIME: Duration = Duration::from_secs(120);
const TOKENS_MAX: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
    /// When the certificate ends that proved this, in seconds since 1970; connections may live longer.
    pub until: Option<i64>,
}

/// Why the client CA cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("read client CA: {0}")]
    Read(#[source] rustls::pki_types::pem::Error),
    #[error("load client CA: {0}")]
    Use(#[from] rustls::Error),
    #[error("load client CA: {0}")]
    Build(#[from] rustls::server::VerifierBuilderError),
}

/// Believes certificates of one authority.
#[derive(Debug)]
pub struct ClientAuthority {
    /// None where no certificates are believed.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl ClientAuthority {
    pub fn new(bundle_pem: &str) -> Result<ClientAuthority, AuthorityError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle_pem.as_bytes()) {
            let certificate = certificate.map_err(AuthorityError::Read)?;
            roots.add(certificate)?;
        }
        let provider = Arc::new(tls_ring::default_provider());
        if roots.is_empty() {
            return Ok(ClientAuthority { verifier: None });
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(ClientAuthority { verifier: Some(verifier) })
    }

    /// What takes part in the handshake; `identify` decides afterwards.
    pub(super) fn handshake(&self) -> Arc<dyn ClientCertVerifier> {
        let hints = self.verifier.as_ref().map_or(Vec::new(), |verifier| verifier.root_hint_subjects().to_vec());
        Arc::new(UncheckedClientCertificate::new(hints))
    }

    /// The user a connection's certificate stands for; nobody where there is none or it is not believed.
    pub fn identify(&self, chain: &[CertificateDer<'_>], now: jiff::Timestamp) -> Option<User> {
        let now = UnixTime::since_unix_epoch(now.duration_since(jiff::Timestamp::UNIX_EPOCH).try_into().ok()?);
        let (leaf, intermediates) = chain.split_first()?;
        self.verifier.as_ref()?.verify_client_cert(leaf, intermediates, now).ok()?;
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().last().and_then(|name| name.as_str().ok()).unwrap_or("");
        let mut groups: Vec<String> =
            subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_string).collect();
        groups.push("system:authenticated".into());
        let until = Some(certificate.validity().not_after.timestamp());
        (!name.is_empty()).then(|| User { name: name.into(), groups, until, ..User::default() })
    }
}

/// What the API server said about tokens lately. Kept by their hashes, never by themselves.
#[derive(Default)]
pub struct Tokens(Mutex<HashMap<[u8; 32], Known>>);

/// Until when, and who.
type Known = (Instant, Arc<User>);

impl Tokens {
    /// The user of the request's bearer token; nobody where there is none or the API server does not know it.
    pub async fn identify(&self, client: &kube::Client, headers: &HeaderMap) -> Result<Option<Arc<User>>, kube::Error> {
        let Some(token) = bearer(headers) else { return Ok(None) };
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some((until, user)) = self.0.lock().get(&key)
            && *until > Instant::now()
        {
            return Ok(Some(user.clone()));
        }
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_string(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let reviews = kube::Api::<TokenReview>::all(client.clone());
        let status = reviews.create(&Default::default(), &review).await?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else { return Ok(None) };
        let user = Arc::new(User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
            until: None,
        });
        let mut known = self.0.lock();
        if known.len() >= TOKENS_MAX {
            known.clear();
        }
        known.insert(key, (Instant::now() + TOKEN_LIFETIME, user.clone()));
        Ok(Some(user))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
