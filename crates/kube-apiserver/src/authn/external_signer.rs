//! `--service-account-signing-endpoint`: another program holds the keys of service accounts' tokens. It signs them, and says with
//! which keys they are verified; those are asked for again as often as it wants, and when a token names an unknown one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use component_base::clock::Clock;
use component_base::metrics::{Bounds, Histogram, Metric, Page};
use jiff::Timestamp;
use kms::externaljwt::{FetchKeysResponse, SignJwtResponse};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::jwt::{KeyError, PublicKeyEntry};

/// How long keys may take, at the start and later, as upstream.
const KEYS_TIMEOUT: Duration = Duration::from_secs(60);
const METADATA_TIMEOUT: Duration = Duration::from_secs(10);
/// A request for a token waits for no longer than any request may take.
const SIGN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long until keys that could not be fetched are tried again.
const RETRY: Duration = Duration::from_secs(10);
/// Unknown keys are asked for no more often: anyone can make tokens with names of keys.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(1);
/// Upstream's: no token may be asked for less.
const LIFETIME_SECONDS_MIN: i64 = 600;
const KEY_ID_LENGTH_MAX: usize = 1024;
const KEYS_MAX: usize = 1000;
const ALGORITHMS: [&str; 4] = ["RS256", "ES256", "ES384", "ES512"];
const SECONDS: Bounds = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    #[error("while setting up external-jwt-signer: while fetching token verification keys: {0}")]
    Keys(#[source] FetchError),
    #[error("while setting up external-jwt-signer: {0}")]
    Metadata(#[source] kms::Error),
    #[error(
        "max token life supported by external-jwt-signer ({0}s) is less than acceptable (min {LIFETIME_SECONDS_MIN}s)"
    )]
    Lifetime(i64),
    #[error(
        "service-account-max-token-expiration cannot be set longer than the token expiration supported by \
         service-account-signing-endpoint: {asked} > {most}"
    )]
    AskedLifetime { asked: String, most: String },
}

/// Why keys are not taken over.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("while getting externally supported jwt signing keys: {0}")]
    Call(#[from] kms::Error),
    #[error("found invalid refresh hint ({0}s)")]
    RefreshHint(i64),
    #[error("found no keys")]
    None,
    #[error("found more than {KEYS_MAX} keys")]
    TooMany,
    #[error("invalid data timestamp")]
    Timestamp,
    #[error("found invalid public key id {0:?}")]
    KeyId(String),
    #[error("found empty public key")]
    Empty,
    #[error("while parsing external public keys: {0}")]
    Key(#[from] KeyError),
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("while signing jwt: {0}")]
    Call(#[from] kms::Error),
    #[error("while validating header: {0}")]
    Header(#[from] HeaderError),
    #[error("empty signature returned")]
    NoSignature,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("while unwrapping header: not URL-safe base64")]
    Encoding,
    #[error("while parsing header JSON: not an object with alg, kid and typ alone")]
    Fields,
    #[error("bad type")]
    Type,
    #[error("key id missing")]
    NoKeyId,
    #[error("key id longer than 1 kb")]
    KeyIdLength,
    #[error("bad signing algorithm {0:?}")]
    Algorithm(String),
    #[error("key used for signing JWT (kid: {0}) is excluded from OIDC discovery docs")]
    Excluded(String),
}

pub struct ExternalSigner {
    plugin: kms::Signer,
    keys: ArcSwap<Keys>,
    /// One question for keys at a time, and when the last one was about an unknown key.
    asking: tokio::sync::Mutex<Option<Instant>>,
    lifetime_max: Duration,
    counted: Mutex<Counted>,
    clock: Clock,
}

/// What tokens are verified with.
pub struct Keys {
    pub entries: Vec<PublicKeyEntry>,
    /// Those that `/openid/v1/jwks` does not show.
    excluded: Vec<String>,
    data_time: Timestamp,
    refresh_after: Duration,
}

#[derive(Default)]
struct Counted {
    fetches: [u64; 2],
    signatures: [u64; 2],
    fetched_at: Option<Timestamp>,
    times: std::collections::BTreeMap<(&'static str, &'static str), Histogram>,
}

impl ExternalSigner {
    /// Waits until the signer has said which keys there are and how long tokens may live.
    pub async fn connect(socket: &Path, clock: Clock) -> Result<Arc<ExternalSigner>, SignerError> {
        let plugin = kms::Signer::new(socket);
        let keys = plugin.fetch_keys(KEYS_TIMEOUT).await.map_err(FetchError::Call);
        let keys = keys.and_then(Keys::read).map_err(SignerError::Keys)?;
        let metadata = plugin.metadata(METADATA_TIMEOUT).await.map_err(SignerError::Metadata)?;
        let seconds = metadata.max_token_expiration_seconds;
        if seconds < LIFETIME_SECONDS_MIN {
            return Err(SignerError::Lifetime(seconds));
        }
        let counted = Counted { fetches: [1, 0], fetched_at: Some(clock.now()), ..Counted::default() };
        Ok(Arc::new(ExternalSigner {
            plugin,
            keys: ArcSwap::from_pointee(keys),
            asking: tokio::sync::Mutex::default(),
            lifetime_max: Duration::from_secs(seconds.unsigned_abs()),
            counted: Mutex::new(counted),
            clock,
        }))
    }

    /// How long tokens live at most, where the operator wants `asked`.
    pub fn lifetime_max(&self, asked: Option<Duration>) -> Result<Duration, SignerError> {
        match asked.filter(|asked| !asked.is_zero()) {
            Some(asked) if asked > self.lifetime_max => Err(SignerError::AskedLifetime {
                asked: machinery::duration::written_positive(asked),
                most: machinery::duration::written_positive(self.lifetime_max),
            }),
            asked => Ok(asked.unwrap_or(self.lifetime_max)),
        }
    }

    pub fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// A whole token with these claims.
    pub async fn sign(&self, claims: &Value) -> Result<String, SignError> {
        let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
        let began = Instant::now();
        let signed = self.plugin.sign(&claims, SIGN_TIMEOUT).await;
        self.timed("Sign", signed.as_ref().err(), began);
        let token = match signed {
            Err(error) => Err(SignError::Call(error)),
            Ok(signed) => self.assemble(signed, &claims).await,
        };
        self.counted.lock().signatures[usize::from(token.is_err())] += 1;
        token
    }

    async fn assemble(&self, signed: SignJwtResponse, claims: &str) -> Result<String, SignError> {
        let key_id = key_id(&signed.header)?;
        self.find(&key_id).await;
        if self.keys.load().excluded.contains(&key_id) {
            return Err(HeaderError::Excluded(key_id).into());
        }
        if signed.signature.is_empty() {
            return Err(SignError::NoSignature);
        }
        Ok(format!("{}.{claims}.{}", signed.header, signed.signature))
    }

    /// Asks for keys where this one is not known.
    pub async fn find(&self, key_id: &str) {
        let is_known = || self.keys.load().entries.iter().any(|key| key.id() == key_id);
        if is_known() {
            return;
        }
        let mut asking = self.asking.lock().await;
        // Who waited here may find what the one before has fetched.
        if is_known() || asking.is_some_and(|last| last.elapsed() < UNKNOWN_KEY_INTERVAL) {
            return;
        }
        let fetched = self.fetch().await;
        // From its end on: a signer that hangs is not asked again by each of those who waited.
        *asking = Some(Instant::now());
        if let Err(error) = fetched {
            tracing::warn!(%error, "cannot fetch keys of external-jwt-signer");
        } else if !is_known() {
            tracing::warn!(key_id, "external-jwt-signer does not know the key of a token");
        }
    }

    async fn fetch(&self) -> Result<(), FetchError> {
        let began = Instant::now();
        let answered = self.plugin.fetch_keys(KEYS_TIMEOUT).await;
        self.timed("FetchKeys", answered.as_ref().err(), began);
        let read = answered.map_err(FetchError::Call).and_then(Keys::read);
        let mut counted = self.counted.lock();
        counted.fetches[usize::from(read.is_err())] += 1;
        self.keys.store(Arc::new(read?));
        counted.fetched_at = Some(self.clock.now());
        Ok(())
    }

    /// Fetches keys as often as the signer wants it.
    pub async fn follow(self: Arc<ExternalSigner>, shutdown: CancellationToken) {
        let mut pause = self.keys.load().refresh_after;
        while shutdown.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            let _asking = self.asking.lock().await;
            pause = match self.fetch().await {
                Ok(()) => self.keys.load().refresh_after,
                Err(error) => {
                    tracing::warn!(%error, "cannot fetch keys of external-jwt-signer; those known stay");
                    RETRY
                }
            };
        }
    }

    fn timed(&self, method: &'static str, error: Option<&kms::Error>, began: Instant) {
        let code = if error.is_some() { "error" } else { "OK" };
        let mut counted = self.counted.lock();
        counted.times.entry((method, code)).or_insert_with(|| Histogram::new(SECONDS)).observe_time(began.elapsed());
    }

    pub fn render(&self, page: &mut Page) {
        let counted = self.counted.lock();
        let data_time = self.keys.load().data_time;
        page.value(&DATA_TIME, data_time.as_second());
        for (code, count) in ["success", "failure"].iter().zip(counted.fetches) {
            page.family(&FETCHES).sample(&[("code", code)], count);
        }
        if let Some(time) = counted.fetched_at {
            page.value(&FETCHED_AT, time.as_second());
        }
        let mut family = page.family(&TIMES);
        for ((method, code), times) in &counted.times {
            family.histogram(&[("code", code), ("method", method)], times);
        }
        for (code, count) in ["success", "failure"].iter().zip(counted.signatures) {
            page.family(&SIGNATURES).sample(&[("code", code)], count);
        }
    }
}

impl Keys {
    fn read(response: FetchKeysResponse) -> Result<Keys, FetchError> {
        let hint = response.refresh_hint_seconds;
        let refresh_after = u64::try_from(hint).ok().filter(|seconds| *seconds > 0);
        let refresh_after = Duration::from_secs(refresh_after.ok_or(FetchError::RefreshHint(hint))?);
        if response.keys.is_empty() {
            return Err(FetchError::None);
        }
        if response.keys.len() > KEYS_MAX {
            return Err(FetchError::TooMany);
        }
        let time = response.data_timestamp.ok_or(FetchError::Timestamp)?;
        let data_time = Timestamp::new(time.seconds, time.nanos).map_err(|_| FetchError::Timestamp)?;
        let (mut entries, mut excluded) = (Vec::new(), Vec::new());
        for key in response.keys {
            if key.key_id.is_empty() || key.key_id.len() > KEY_ID_LENGTH_MAX {
                return Err(FetchError::KeyId(key.key_id));
            }
            if key.key.is_empty() {
                return Err(FetchError::Empty);
            }
            entries.push(PublicKeyEntry::named(&key.key_id, &key.key)?);
            if key.exclude_from_oidc_discovery {
                excluded.push(key.key_id);
            }
        }
        Ok(Keys { entries, excluded, data_time, refresh_after })
    }

    /// Those that others may know of.
    pub fn shown(&self) -> impl Iterator<Item = &PublicKeyEntry> {
        self.entries.iter().filter(|key| !self.excluded.iter().any(|id| id == key.id()))
    }
}

/// The key that a header names, if the header is one that this server would write.
fn key_id(header: &str) -> Result<String, HeaderError> {
    let bytes = URL_SAFE_NO_PAD.decode(header).map_err(|_| HeaderError::Encoding)?;
    let header: Value = serde_json::from_slice(&bytes).map_err(|_| HeaderError::Fields)?;
    let fields = header.as_object().ok_or(HeaderError::Fields)?;
    let is_known = |(name, value): (&String, &Value)| matches!(&**name, "alg" | "kid" | "typ") && value.is_string();
    if !fields.iter().all(is_known) {
        return Err(HeaderError::Fields);
    }
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("typ"), text("kid"), text("alg")) {
        (kind, ..) if kind != "JWT" => Err(HeaderError::Type),
        (_, "", _) => Err(HeaderError::NoKeyId),
        (_, id, _) if id.len() > KEY_ID_LENGTH_MAX => Err(HeaderError::KeyIdLength),
        (.., algorithm) if !ALGORITHMS.contains(&algorithm) => Err(HeaderError::Algorithm(algorithm.to_owned())),
        (_, id, _) => Ok(id.to_owned()),
    }
}

const DATA_TIME: Metric = Metric::gauge(
    "apiserver_externaljwt_fetch_keys_data_timestamp",
    "Unix Timestamp in seconds of the last successful FetchKeys data_timestamp value returned by the external signer",
);
const FETCHES: Metric =
    Metric::counter("apiserver_externaljwt_fetch_keys_request_total", "Total attempts at syncing supported JWKs");
const FETCHED_AT: Metric = Metric::gauge(
    "apiserver_externaljwt_fetch_keys_success_timestamp",
    "Unix Timestamp in seconds of the last successful FetchKeys request",
);
const TIMES: Metric = Metric::histogram(
    "apiserver_externaljwt_request_duration_seconds",
    "Request duration and time for calls to external-jwt-signer",
);
const SIGNATURES: Metric = Metric::counter("apiserver_externaljwt_sign_request_total", "Total attempts at signing JWT");

#[cfg(test)]
#[path = "external_signer/tests.rs"]
mod tests;
