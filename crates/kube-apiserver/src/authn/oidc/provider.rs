//! One provider of OpenID Connect: where its keys are, and the keys themselves, fetched again when a token names a key that
//! is not known. Nobody but the bearers of such tokens waits for a provider that is slow.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ClientConfig;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::keys::{Keys, KeysError};
use super::metrics::Metrics;
use crate::audit::kubeconfig::Place;
use crate::outgoing::{Client, Failed};

/// What one answer of the provider may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long until a provider that does not answer at the start is asked again, as upstream.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Keys are not fetched more often than this, whatever tokens name: anybody can make up a name.
const FETCH_EVERY: Duration = Duration::from_secs(1);
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("oidc: authenticator not initialized")]
    NotReady,
    #[error("Get \"{url}\": {source}")]
    Unreachable { url: String, source: Failed },
    #[error("{url} answered with code {code}")]
    Code { url: String, code: u16 },
    #[error("{url} did not return an OIDC discovery document")]
    Document { url: String },
    #[error("oidc: issuer did not match the issuer returned by provider, expected {wanted:?} got {found:?}")]
    Issuer { wanted: String, found: String },
    #[error("jwks_uri {url:?} is not a valid URL")]
    Address { url: String },
    #[error("fetch keys: {0}")]
    Keys(Arc<KeysError>),
}

#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

pub struct Provider {
    issuer: String,
    discovery_url: String,
    tls: Arc<ClientConfig>,
    ready: ArcSwapOption<Ready>,
    metrics: Arc<Metrics>,
}

/// What is known once the provider has answered.
struct Ready {
    client: Client,
    keys: ArcSwap<Keys>,
    attempt: Mutex<Option<Attempt>>,
}

/// The last fetch of keys: whoever waited since before it began has its outcome too.
struct Attempt {
    began: Instant,
    outcome: Result<(), ProviderError>,
}

impl Provider {
    /// `discovery_url` is empty where the issuer says it.
    pub fn new(issuer: &str, discovery_url: &str, tls: Arc<ClientConfig>, metrics: Arc<Metrics>) -> Provider {
        let discovery_url = match discovery_url {
            "" => format!("{}{WELL_KNOWN}", issuer.trim_end_matches('/')),
            given => given.to_owned(),
        };
        Provider { issuer: issuer.to_owned(), discovery_url, tls, ready: ArcSwapOption::empty(), metrics }
    }

    pub fn is_ready(&self) -> bool {
        self.ready.load().is_some()
    }

    /// Until the provider has said where its keys are.
    pub(crate) async fn initialize(&self) {
        while let Err(error) = self.discover().await {
            tracing::error!(issuer = self.issuer, %error, "cannot initialize OIDC provider; retrying");
            tokio::time::sleep(RETRY_AFTER).await;
        }
        tracing::info!(issuer = self.issuer, "OIDC provider is ready");
    }

    async fn discover(&self) -> Result<(), ProviderError> {
        let client = self.client(&self.discovery_url)?;
        let body = get(&client).await?;
        let found: Discovered =
            serde_json::from_slice(&body).map_err(|_| ProviderError::Document { url: self.discovery_url.clone() })?;
        if found.issuer != self.issuer {
            return Err(ProviderError::Issuer { wanted: self.issuer.clone(), found: found.issuer });
        }
        let ready =
            Ready { client: self.client(&found.jwks_uri)?, keys: ArcSwap::default(), attempt: Mutex::new(None) };
        // The first token should not wait; without keys now, it asks for them itself.
        if let Err(error) = self.fetch(&ready).await {
            tracing::warn!(issuer = self.issuer, %error, "cannot fetch signing keys of OIDC provider; retrying");
        }
        self.ready.store(Some(Arc::new(ready)));
        Ok(())
    }

    /// Whether `holds` is true of the keys that are known, or of those that the provider has now.
    pub async fn verify(&self, holds: impl Fn(&Keys) -> bool) -> Result<bool, ProviderError> {
        let ready = self.ready.load_full().ok_or(ProviderError::NotReady)?;
        if holds(&ready.keys.load()) {
            return Ok(true);
        }
        self.refresh(&ready, Instant::now()).await?;
        Ok(holds(&ready.keys.load()))
    }

    /// Fetches the keys once for all who ask at the same time.
    async fn refresh(&self, ready: &Ready, asked: Instant) -> Result<(), ProviderError> {
        let mut last = ready.attempt.lock().await;
        if let Some(attempt) = &*last {
            if attempt.began >= asked {
                return attempt.outcome.clone();
            }
            tokio::time::sleep(FETCH_EVERY.saturating_sub(attempt.began.elapsed())).await;
        }
        let began = Instant::now();
        let outcome = self.fetch(ready).await;
        *last = Some(Attempt { began, outcome: outcome.clone() });
        outcome
    }

    async fn fetch(&self, ready: &Ready) -> Result<(), ProviderError> {
        let fetched = match get(&ready.client).await {
            Ok(body) => Keys::parse(&body).map(|keys| (keys, body)).map_err(|error| ProviderError::Keys(error.into())),
            Err(error) => Err(error),
        };
        self.metrics.fetched(&self.issuer, fetched.as_ref().ok().map(|(_, body)| &body[..]));
        fetched.map(|(keys, _)| ready.keys.store(Arc::new(keys)))
    }

    fn client(&self, url: &str) -> Result<Client, ProviderError> {
        let wrong = || ProviderError::Address { url: url.to_owned() };
        let uri: http::Uri = url.parse().map_err(|_| wrong())?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let place = Place {
            host: uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            tls: secure.then(|| self.tls.clone()),
            authorization: None,
        };
        Ok(Client::new(place))
    }
}

async fn get(client: &Client) -> Result<bytes::Bytes, ProviderError> {
    let answered = client.get(TIMEOUT).await;
    let answer = answered.map_err(|source| ProviderError::Unreachable { url: client.url(), source })?;
    match answer.code {
        200 => Ok(answer.body),
        code => Err(ProviderError::Code { url: client.url(), code }),
    }
}
