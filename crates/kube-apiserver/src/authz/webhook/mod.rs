//! Asks somebody else what is allowed: one SubjectAccessReview, within its time. Answers are remembered for a while.

mod conditions;
mod review;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::metrics::{Metrics, Outcome};
use super::{Attributes, Decision};
use crate::outgoing::{Answer, Bounded, Client, Failed};

pub use conditions::Conditions;

/// As upstream.
const ENTRIES_MAX: usize = 8192;
/// Of what a client can choose freely; more is asked each time, so that nobody fills the memory.
const REMEMBERED_BYTES_MAX: usize = 10_000;
/// How long until a webhook that failed for a moment is asked again, within its time.
const RETRY_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V1beta1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    NoOpinion,
    Deny,
}

/// What the operator says of one webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub name: String,
    pub version: Version,
    pub timeout: Duration,
    /// Zero where nothing is remembered.
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    pub failure_policy: FailurePolicy,
}

#[derive(Debug)]
pub struct Webhook {
    settings: Settings,
    conditions: Conditions,
    client: Client,
    cache: Cache,
    metrics: Arc<Metrics>,
}

struct Cache(Bounded<[u8; 32], Status>);

/// What it said.
#[derive(Clone, Debug, Default, PartialEq)]
struct Status {
    allowed: bool,
    denied: bool,
    reason: String,
}

/// Why it said nothing.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("Post \"{url}\": {source}")]
    Unreachable { url: String, source: Failed },
    #[error("webhook {url} answered with code {code}")]
    Code { url: String, code: u16 },
    #[error("webhook {url} did not return a SubjectAccessReview")]
    Answer { url: String },
}

impl Webhook {
    pub fn new(settings: Settings, conditions: Conditions, client: Client, metrics: Arc<Metrics>) -> Webhook {
        Webhook { settings, conditions, client, cache: Cache(Bounded::new(ENTRIES_MAX)), metrics }
    }

    pub async fn authorize(&self, a: &Attributes<'_>) -> Decision {
        let name = &self.settings.name;
        if !self.conditions.is_empty() {
            let began = Instant::now();
            let held = self.conditions.hold(&review::for_conditions(a));
            self.metrics.conditions(name, began.elapsed(), held.as_ref().ok().copied());
            match held {
                Ok(true) => {}
                Ok(false) => return Decision::NoOpinion(String::new()),
                Err(error) => return self.failed(error.to_string()),
            }
        }
        let spec = review::spec(a, self.settings.version);
        let key: [u8; 32] =
            digest(&SHA256, spec.to_string().as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes");
        if let Some(status) = self.cache.0.get(&key) {
            return status.into_decision();
        }
        match self.ask(spec).await {
            Ok(status) => {
                if review::chosen_bytes(a) < REMEMBERED_BYTES_MAX {
                    let Settings { authorized_ttl, unauthorized_ttl, .. } = self.settings;
                    let lifetime = if status.allowed { authorized_ttl } else { unauthorized_ttl };
                    self.cache.0.put(key, status.clone(), lifetime);
                }
                status.into_decision()
            }
            Err(error) => {
                tracing::error!(webhook = name, %error, "cannot call authorization webhook");
                if self.settings.failure_policy == FailurePolicy::NoOpinion {
                    self.metrics.failed_open(name, error.outcome());
                }
                self.failed(error.to_string())
            }
        }
    }

    fn failed(&self, error: String) -> Decision {
        let denied = self.settings.failure_policy == FailurePolicy::Deny;
        Decision::Failed { denied, reason: String::new(), error }
    }

    /// Asks, and asks again where it fails for a moment, within the time.
    async fn ask(&self, spec: Value) -> Result<Status, AskError> {
        let version = match self.settings.version {
            Version::V1 => "authorization.k8s.io/v1",
            Version::V1beta1 => "authorization.k8s.io/v1beta1",
        };
        let review = json!({
            "kind": "SubjectAccessReview", "apiVersion": version, "metadata": {}, "spec": spec,
            "status": {"allowed": false},
        });
        let body = Bytes::from(review.to_string());
        let until = Instant::now() + self.settings.timeout;
        loop {
            let began = Instant::now();
            let answered = self.client.post(body.clone(), until.saturating_duration_since(began)).await;
            let read = self.read(answered);
            let outcome = read.as_ref().map_or_else(AskError::outcome, |_| Outcome::Success);
            self.metrics.asked(&self.settings.name, outcome, began.elapsed());
            match read {
                Err(error) if error.may_pass() && Instant::now() + RETRY_AFTER < until => {
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                read => return read,
            }
        }
    }

    fn read(&self, answered: Result<Answer, Failed>) -> Result<Status, AskError> {
        let url = || self.client.url();
        let answer = answered.map_err(|source| AskError::Unreachable { url: url(), source })?;
        if !(200..300).contains(&answer.code) {
            return Err(AskError::Code { url: url(), code: answer.code });
        }
        let review: Value = serde_json::from_slice(&answer.body).map_err(|_| AskError::Answer { url: url() })?;
        review::status(&review).ok_or_else(|| AskError::Answer { url: url() })
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Cache")
    }
}

impl Status {
    fn into_decision(self) -> Decision {
        match (self.denied, self.allowed) {
            (true, true) => {
                let error = "webhook subject access review returned both allow and deny response".to_owned();
                Decision::Failed { denied: true, reason: self.reason, error }
            }
            (true, false) => Decision::Deny(self.reason),
            (false, true) => Decision::Allow(self.reason),
            (false, false) => Decision::NoOpinion(self.reason),
        }
    }
}

impl AskError {
    fn outcome(&self) -> Outcome {
        match self {
            AskError::Unreachable { source: Failed::Timeout, .. } | AskError::Code { code: 504, .. } => {
                Outcome::Timeout
            }
            _ => Outcome::Error,
        }
    }

    /// As upstream: what the other side says of its own trouble may be over soon.
    fn may_pass(&self) -> bool {
        match self {
            AskError::Code { code, .. } => matches!(code, 429 | 500 | 502 | 503 | 504),
            AskError::Unreachable { source, .. } => matches!(source, Failed::Exchange(_)),
            AskError::Answer { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_decisions() {
        let check = |allowed: bool, denied: bool, expected: &str| {
            let status = Status { allowed, denied, reason: "r".into() };
            assert!(format!("{:?}", status.into_decision()).starts_with(expected), "{expected}");
        };
        check(true, false, "Allow(\"r\")");
        check(false, true, "Deny(\"r\")");
        check(false, false, "NoOpinion(\"r\")");
        check(true, true, "Failed { denied: true");
    }

    #[test]
    fn a_failure_for_a_moment_is_worth_another_try() {
        let code = |code: u16| AskError::Code { url: String::new(), code };
        assert!(code(503).may_pass() && code(429).may_pass() && !code(403).may_pass());
        let timeout = AskError::Unreachable { url: String::new(), source: Failed::Timeout };
        assert!(!timeout.may_pass());
        assert_eq!(timeout.outcome(), Outcome::Timeout);
    }
}
