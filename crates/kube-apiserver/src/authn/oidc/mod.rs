//! Tokens of OpenID Connect: each issuer has its provider (`provider.rs`), whose keys verify signatures (`keys.rs`), and a
//! mapping from claims to users (`claims.rs`). `config.rs` and `validate.rs` read what operators say.

mod claims;
pub mod config;
mod keys;
mod metrics;
mod provider;
#[cfg(test)]
mod tests;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::User;
use super::jwt::Unverified;
use super::token_cache::TokenCache;
use claims::ClaimsError;
pub use config::{Configuration, Error, Flags};
pub use keys::Algorithm;
pub use metrics::Metrics;
use provider::{Provider, ProviderError};
use tokio::time::Instant;

/// Clocks differ: a token may be from a little later than now.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 300;
/// How long a new configuration waits for its providers before it is given up, as upstream.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("oidc: verify token: {0}")]
    Provider(ProviderError),
    #[error("oidc: verify token: oidc: id token signed with unsupported algorithm, expected {wanted:?} got {found:?}")]
    Algorithm { wanted: Vec<&'static str>, found: String },
    #[error("oidc: verify token: failed to verify signature: failed to verify id token signature")]
    Signature,
    #[error("oidc: verify token: oidc: expected audience in {wanted:?} got {found:?}")]
    Audience { wanted: Vec<String>, found: Vec<String> },
    #[error("oidc: verify token: oidc: token is expired (Token Expiry: {0})")]
    Expired(Timestamp),
    #[error("oidc: verify token: oidc: current time before the nbf (not before) time: {0}")]
    NotYet(Timestamp),
    #[error(transparent)]
    Claims(#[from] ClaimsError),
}

/// One issuer that is believed.
pub struct Issuer {
    config: config::Issuer,
    provider: Arc<Provider>,
    cache: TokenCache,
    metrics: Arc<Metrics>,
    /// Ends what asks the provider when the issuer is no more.
    _running: DropGuard,
}

/// All of them; replaced as a whole when the configuration changes.
#[derive(Default)]
pub struct Issuers(Vec<Arc<Issuer>>);

impl Issuers {
    /// Those of `before` that were not changed go on with what they know.
    pub fn new(configs: Vec<config::Issuer>, before: &Issuers, metrics: &Arc<Metrics>) -> Result<Issuers, Error> {
        let mut issuers = Vec::new();
        for config in configs {
            let known = before.0.iter().find(|issuer| issuer.config.written == config.written);
            issuers.push(match known {
                Some(issuer) => issuer.clone(),
                None => Arc::new(Issuer::start(config, metrics.clone())?),
            });
        }
        Ok(Issuers(issuers))
    }

    /// Whether all providers have answered once, in time.
    pub(crate) async fn become_ready(&self) -> Result<(), Vec<String>> {
        let waiting = || self.0.iter().filter(|issuer| !issuer.provider.is_ready());
        let began = Instant::now();
        while waiting().next().is_some() {
            if began.elapsed() >= READY_TIMEOUT {
                return Err(waiting().map(|issuer| issuer.config.url.clone()).collect());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    pub fn urls(&self) -> Vec<&str> {
        self.0.iter().map(|issuer| issuer.config.url.as_str()).collect()
    }

    /// Who bears the token; `None` where it is of no issuer here.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Option<Result<User, TokenError>> {
        if self.0.is_empty() {
            return None;
        }
        let unverified = Unverified::parse(token)?;
        let said = unverified.claims.get("iss").and_then(Value::as_str)?;
        // Google once left the scheme out.
        let said = if said == "accounts.google.com" { "https://accounts.google.com" } else { said };
        let issuer = self.0.iter().find(|issuer| issuer.config.url == said)?;
        if let Some((user, _)) = issuer.cache.get(token, &[], now) {
            return Some(Ok(user));
        }
        let began = Instant::now();
        let verified = issuer.verify(&unverified, now).await;
        issuer.metrics.verified(&issuer.config.url, verified.is_ok(), began.elapsed());
        if let Ok(user) = &verified {
            let end = time(&unverified.claims, "exp").map(Timestamp::as_second);
            issuer.cache.put(token, &[], user, &[], end, now);
        }
        Some(verified)
    }
}

impl Issuer {
    fn start(config: config::Issuer, metrics: Arc<Metrics>) -> Result<Issuer, Error> {
        let wrong = |why| Error::Tls { issuer: config.url.clone(), why };
        let trusted = if config.authority.is_empty() {
            trust::system()
        } else {
            trust::bundle(config.authority.as_bytes()).map_err(wrong)?
        };
        let tls = Arc::new(trust::client(trusted).map_err(wrong)?.with_no_client_auth());
        let provider = Arc::new(Provider::new(&config.url, &config.discovery_url, tls, metrics.clone()));
        let running = CancellationToken::new();
        let (asked, stop) = (provider.clone(), running.clone());
        tasks::spawn(async move {
            tokio::select! {
                () = asked.initialize() => {}
                () = stop.cancelled() => {}
            }
        });
        Ok(Issuer { config, provider, cache: TokenCache::default(), metrics, _running: running.drop_guard() })
    }

    async fn verify(&self, token: &Unverified<'_>, now: Timestamp) -> Result<User, TokenError> {
        let algorithm = self.algorithm(token)?;
        self.check_claims(&token.claims, now)?;
        let (signed, signature, id) = (token.signed(), token.signature(), token.key_id());
        let verified = self.provider.verify(|keys| keys.verify(algorithm, id, signed, signature)).await;
        if !verified.map_err(TokenError::Provider)? {
            return Err(TokenError::Signature);
        }
        Ok(self.config.mapping.user(&token.claims)?)
    }

    fn algorithm(&self, token: &Unverified<'_>) -> Result<Algorithm, TokenError> {
        let said = token.algorithm().unwrap_or_default();
        let known = self.config.algorithms.iter().find(|algorithm| algorithm.name() == said);
        known.copied().ok_or_else(|| TokenError::Algorithm {
            wanted: self.config.algorithms.iter().map(|algorithm| algorithm.name()).collect(),
            found: said.to_owned(),
        })
    }

    /// What costs nothing to know is looked at before the signature: a token that is over makes nobody fetch keys.
    fn check_claims(&self, claims: &Value, now: Timestamp) -> Result<(), TokenError> {
        let found: Vec<String> = match &claims["aud"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        if !found.iter().any(|audience| self.config.audiences.contains(audience)) {
            return Err(TokenError::Audience { wanted: self.config.audiences.clone(), found });
        }
        let end = time(claims, "exp").unwrap_or(Timestamp::UNIX_EPOCH);
        if end < now {
            return Err(TokenError::Expired(end));
        }
        match time(claims, "nbf") {
            Some(start) if now.as_second() + NOT_BEFORE_LEEWAY_SECONDS < start.as_second() => {
                Err(TokenError::NotYet(start))
            }
            _ => Ok(()),
        }
    }
}

/// Some providers write times with a fraction.
fn time(claims: &Value, field: &str) -> Option<Timestamp> {
    let second = claims[field].as_i64().or_else(|| claims[field].as_f64().map(|second| second as i64));
    second.and_then(|second| Timestamp::from_second(second).ok())
}
