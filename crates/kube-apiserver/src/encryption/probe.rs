//! Whether a KMS v2 plugin is well, and the seed that this server writes with. A plugin says by its status which key it uses now; when
//! that changes, a new seed is made. A seed that can no longer be confirmed is used for three more minutes.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use component_base::clock::{Clock, stamp};
use kms::Plugin;
use kms::v2::{EncryptResponse, EncryptedDekSourceType, EncryptedObject, StatusResponse};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cipher::{self, SEED_BYTES, Seed};
use super::envelope::{EnvelopeError, InvalidKeyId, State, check, check_key_id, hash};
use super::metrics::Metrics;

/// How often a plugin that is well is asked, and one that is not.
const WELL_INTERVAL: Duration = Duration::from_secs(60);
const UNWELL_INTERVAL: Duration = Duration::from_secs(10);
/// How long a seed is written with that the plugin has not confirmed.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(180);
/// How long an answer serves whoever asks for health.
const WELL_TTL: Duration = Duration::from_secs(20);
const UNWELL_TTL: Duration = Duration::from_secs(3);
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwell {
    #[error("failed to perform status section of the healthz check for KMS Provider {name}, error: {error}")]
    Status { name: String, error: kms::Error },
    #[error("kmsv2 Provider {name} is not healthy, error: {why}")]
    Wrong { name: String, why: String },
}

pub struct Probe {
    name: String,
    plugin: Plugin,
    state: ArcSwapOption<State>,
    last: Mutex<Last>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

#[derive(Default)]
struct Last {
    answer: Option<(Instant, Result<(), Unwell>)>,
    /// What the first answer said.
    version: String,
}

/// Why the seed stays what it was, in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error(
    "failed to rotate DEK uid={uid:?}, useSeed=true, errState={state_error}, errGen={error}, statusKeyIDHash={status:?}, \
     encryptKeyIDHash={encrypted:?}, stateKeyIDHash={known:?}, expirationTimestamp={until}"
)]
struct NotRotated {
    uid: String,
    state_error: &'static str,
    error: String,
    /// Hashes of the keys that the plugin names, used and is known for.
    status: String,
    encrypted: String,
    known: String,
    until: String,
}

impl Probe {
    pub fn new(name: &str, plugin: Plugin, metrics: Arc<Metrics>, clock: Clock) -> Probe {
        Probe { name: name.to_owned(), plugin, state: ArcSwapOption::empty(), last: Mutex::default(), metrics, clock }
    }

    /// None until the plugin has encrypted a seed.
    pub fn state(&self) -> Option<Arc<State>> {
        self.state.load_full()
    }

    #[cfg(test)]
    pub fn set(&self, state: State) {
        self.state.store(Some(Arc::new(state)));
    }

    /// Asks the plugin, unless it was asked a moment ago.
    pub async fn check(&self) -> Result<(), Unwell> {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &last.answer
            && at.elapsed() < if answer.is_ok() { WELL_TTL } else { UNWELL_TTL }
        {
            return answer.clone();
        }
        let answer = self.ask(&mut last.version).await;
        last.answer = Some((Instant::now(), answer.clone()));
        answer
    }

    /// Until the shutdown.
    pub async fn keep(&self, shutdown: CancellationToken) {
        loop {
            let wait = match self.check().await {
                Ok(()) => WELL_INTERVAL,
                Err(error) => {
                    tracing::error!(provider = %self.name, %error, "KMS plugin failed health check");
                    UNWELL_INTERVAL
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    async fn ask(&self, version: &mut String) -> Result<(), Unwell> {
        let began = Instant::now();
        let answer = self.plugin.status().await;
        self.metrics.called(&self.name, "Status", began.elapsed(), answer.as_ref().err());
        let status = answer.map_err(|error| Unwell::Status { name: self.name.clone(), error })?;
        let mut problems = problems(&status, version);
        match check_key_id(&status.key_id) {
            Err(error) => {
                let code = match error {
                    InvalidKeyId::Empty => "empty",
                    InvalidKeyId::TooLong(_) => "too_long",
                };
                self.metrics.invalid_key_id(&self.name, code);
                problems.push(format!("got invalid KMSv2 KeyID hash {:?}: {error}", hash(&status.key_id)));
            }
            Ok(()) => {
                self.metrics.key_told(&self.name, &status.key_id, self.clock.now());
                problems.extend(self.rotate(&status.key_id).await.err().map(|error| error.to_string()));
            }
        }
        match problems.len() {
            0 => Ok(()),
            1 => Err(Unwell::Wrong { name: self.name.clone(), why: problems.remove(0) }),
            _ => Err(Unwell::Wrong { name: self.name.clone(), why: format!("[{}]", problems.join(", ")) }),
        }
    }

    /// Confirms the seed in use, or makes another where the plugin uses another key now. Where that fails the old one stays.
    async fn rotate(&self, key_id: &str) -> Result<(), NotRotated> {
        let expires = self.clock.now() + UNCONFIRMED_MAX;
        let current = self.state();
        if let Some(state) = current.as_ref().filter(|state| state.key_id == key_id) {
            let (source, annotations) = (state.source.clone(), state.annotations.clone());
            let confirmed = State { seed: state.seed.clone(), key_id: key_id.to_owned(), source, annotations, expires };
            self.state.store(Some(Arc::new(confirmed)));
            return Ok(());
        }
        let uid = uid();
        let (error, encrypted) = match self.make(&uid).await {
            Ok((seed, response)) if response.key_id == key_id => {
                let EncryptResponse { ciphertext: source, key_id, annotations } = response;
                let annotations = annotations.into_iter().collect();
                self.state.store(Some(Arc::new(State { seed: Arc::new(seed), key_id, source, annotations, expires })));
                tracing::info!(provider = %self.name, "KMS plugin uses a new key; rotated the data encryption key");
                return Ok(());
            }
            Ok((_, response)) => ("<nil>".to_owned(), response.key_id),
            Err(error) => (error.to_string(), String::new()),
        };
        let (known, until) = current.map_or_else(Default::default, |state| (hash(&state.key_id), stamp(state.expires)));
        let state_error = if known.is_empty() { "got unexpected nil transformer" } else { "<nil>" };
        let until = if until.is_empty() { "0001-01-01T00:00:00Z".to_owned() } else { until };
        let (status, encrypted) = (hash(key_id), hash(&encrypted));
        Err(NotRotated { uid, state_error, error, status, encrypted, known, until })
    }

    /// A new seed, and the plugin's form of it.
    async fn make(&self, uid: &str) -> Result<(Seed, EncryptResponse), EnvelopeError> {
        let began = Instant::now();
        let made = cipher::random::<SEED_BYTES>();
        self.metrics.key_made(began.elapsed(), made.is_ok());
        let bytes = made?;
        let began = Instant::now();
        let answer = self.plugin.encrypt(&bytes, uid).await;
        self.metrics.called(&self.name, "Encrypt", began.elapsed(), answer.as_ref().err());
        let response = answer.map_err(EnvelopeError::Encrypt)?;
        check(&EncryptedObject {
            // Whatever it will be.
            encrypted_data: vec![0],
            key_id: response.key_id.clone(),
            encrypted_dek_source: response.ciphertext.clone(),
            annotations: response.annotations.clone().into_iter().collect(),
            encrypted_dek_source_type: EncryptedDekSourceType::HkdfSha256XnonceAesGcmSeed.into(),
        })?;
        Ok((Seed::new(&bytes)?, response))
    }
}

fn problems(status: &StatusResponse, version: &mut String) -> Vec<String> {
    let mut problems = Vec::new();
    if status.healthz != "ok" {
        problems.push(format!("got unexpected healthz status: {}", status.healthz));
    }
    if !VERSIONS.contains(&status.version.as_str()) {
        problems.push(format!("expected KMSv2 API version v2, got {}", status.version));
        return problems;
    }
    if version.is_empty() {
        version.clone_from(&status.version);
    }
    if *version != status.version {
        problems.push(format!(
            "KMSv2 API version should not change after the initial status response version {version}, got {}",
            status.version
        ));
    }
    problems
}

/// By which a plugin's log and this server's tell the same call.
pub fn uid() -> String {
    crate::names::uid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_judged_as_upstream_judges_it() {
        let status = |version: &str, healthz: &str| StatusResponse {
            version: version.into(),
            healthz: healthz.into(),
            key_id: "k".into(),
        };
        let mut version = String::new();
        assert!(problems(&status("v2", "ok"), &mut version).is_empty());
        assert_eq!(problems(&status("v2", "tired"), &mut version), ["got unexpected healthz status: tired"]);
        assert_eq!(
            problems(&status("v2beta1", "ok"), &mut version),
            ["KMSv2 API version should not change after the initial status response version v2, got v2beta1"]
        );
        assert_eq!(problems(&status("v1", "ok"), &mut version), ["expected KMSv2 API version v2, got v1"]);
    }

    #[tokio::test]
    async fn a_plugin_that_is_not_there_is_not_well_and_is_not_asked_too_often() {
        let plugin = Plugin::new(std::path::Path::new("/nonexistent/kms.sock"), Duration::from_millis(20));
        let probe = Probe::new("p", plugin, Arc::default(), Clock::system());
        let error = probe.check().await.unwrap_err().to_string();
        let expected = "failed to perform status section of the healthz check for KMS Provider p, error: rpc error: code = DeadlineExceeded";
        assert!(error.starts_with(expected), "{error}");
        let began = Instant::now();
        assert!(probe.check().await.is_err());
        assert!(began.elapsed() < Duration::from_millis(15), "the answer is kept");
        assert!(probe.state().is_none());
    }
}
