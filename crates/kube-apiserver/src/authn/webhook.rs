//! Asks somebody else whose a token is: one TokenReview, within its time. Answers are remembered for a while, and requests
//! with the same token at the same time share one question.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::User;
use crate::outgoing::{Bounded, Client, Failed};

/// What a question may take, tries together, as upstream's kube-apiserver gives a lookup that is shared.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long until a webhook that failed for a moment is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(500);
const ENTRIES_MAX: usize = 32_768;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V1beta1,
}

/// What flags say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub config_file: PathBuf,
    pub version: Version,
    /// Zero where nothing is remembered.
    pub cache_ttl: Duration,
}

pub struct Webhook {
    client: Client,
    version: Version,
    cache_ttl: Duration,
    /// Keyed by a hash, so that the process does not collect other people's secrets.
    cache: Bounded<Key, Review>,
    asking: Mutex<HashMap<Key, Arc<Asked>>>,
}

type Key = [u8; 32];
/// A question that several wait for.
type Asked = OnceCell<Result<Review, AskError>>;

/// What it said of a token.
#[derive(Clone, Debug, PartialEq)]
pub enum Review {
    User(User, Vec<String>),
    /// Not one that it knows.
    Unknown,
    Refused(String),
}

/// Why it said nothing. No text holds the token.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    #[error("Post \"{url}\": {source}")]
    Unreachable { url: String, source: Failed },
    #[error("webhook {url} answered with code {code}")]
    Code { url: String, code: u16 },
    #[error("webhook {url} did not return a TokenReview")]
    Answer { url: String },
}

impl Webhook {
    pub fn new(client: Client, flags: &Flags) -> Webhook {
        let Flags { version, cache_ttl, .. } = *flags;
        Webhook { client, version, cache_ttl, cache: Bounded::new(ENTRIES_MAX), asking: Mutex::default() }
    }

    /// Whose the token is, and which of the wanted audiences it is for; `own` are those of this server.
    pub async fn review(&self, token: &str, wanted: &[String], own: &[String]) -> Result<Review, AskError> {
        let key = key(token, wanted);
        if let Some(review) = self.cache.get(&key) {
            return Ok(review);
        }
        // Whoever came first asks; where it gives up, the next one does.
        let shared = self.asking.lock().entry(key).or_default().clone();
        let review = shared.get_or_init(|| self.ask(token, wanted, own)).await.clone();
        let mut asking = self.asking.lock();
        if asking.get(&key).is_some_and(|current| Arc::ptr_eq(current, &shared)) {
            asking.remove(&key);
        }
        drop(asking);
        if let Ok(review) = &review {
            self.cache.put(key, review.clone(), self.cache_ttl);
        }
        review
    }

    async fn ask(&self, token: &str, wanted: &[String], own: &[String]) -> Result<Review, AskError> {
        let version = match self.version {
            Version::V1 => "authentication.k8s.io/v1",
            Version::V1beta1 => "authentication.k8s.io/v1beta1",
        };
        let mut spec = json!({"token": token});
        if !wanted.is_empty() {
            spec["audiences"] = wanted.into();
        }
        let review = json!({
            "kind": "TokenReview", "apiVersion": version, "metadata": {}, "spec": spec, "status": {"user": {}},
        });
        let body = Bytes::from(review.to_string());
        let until = Instant::now() + TIMEOUT;
        loop {
            match self.post(body.clone(), until.saturating_duration_since(Instant::now())).await {
                Ok(review) => {
                    let url = || self.client.url();
                    return read(&review, wanted, own).ok_or_else(|| AskError::Answer { url: url() });
                }
                Err(error) if error.may_pass() && Instant::now() + RETRY_AFTER < until => {
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot call authentication webhook");
                    return Err(error);
                }
            }
        }
    }

    async fn post(&self, body: Bytes, timeout: Duration) -> Result<Value, AskError> {
        let url = || self.client.url();
        let answered = self.client.post(body, timeout).await;
        let answer = answered.map_err(|source| AskError::Unreachable { url: url(), source })?;
        match answer.code {
            200..=299 => serde_json::from_slice(&answer.body).map_err(|_| AskError::Answer { url: url() }),
            code => Err(AskError::Code { url: url(), code }),
        }
    }
}

impl AskError {
    fn may_pass(&self) -> bool {
        match self {
            AskError::Code { code, .. } => matches!(code, 429 | 500 | 502 | 503 | 504),
            AskError::Unreachable { source, .. } => matches!(source, Failed::Exchange(_)),
            AskError::Answer { .. } => false,
        }
    }
}

/// `None` for what is no answer.
fn read(review: &Value, wanted: &[String], own: &[String]) -> Option<Review> {
    let status = review.get("status").filter(|_| review["kind"] == "TokenReview")?;
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut audiences = texts(&status["audiences"]);
    if audiences.is_empty() {
        audiences = own.to_vec();
    }
    let good: Vec<String> = wanted.iter().filter(|one| audiences.contains(one)).cloned().collect();
    let error = status["error"].as_str().unwrap_or_default();
    if !status["authenticated"].as_bool().unwrap_or(false) {
        return Some(if error.is_empty() { Review::Unknown } else { Review::Refused(error.to_owned()) });
    }
    if good.is_empty() {
        return Some(Review::Unknown);
    }
    let user = &status["user"];
    let text = |field: &str| user[field].as_str().unwrap_or_default().to_owned();
    let extra = user["extra"].as_object().into_iter().flatten();
    let extra: BTreeMap<_, _> = extra.map(|(key, values)| (key.clone(), texts(values))).collect();
    let user = User { name: text("username"), uid: text("uid"), groups: texts(&user["groups"]), extra };
    Some(Review::User(user, good))
}

fn key(token: &str, wanted: &[String]) -> Key {
    let mut context = Context::new(&SHA256);
    for text in wanted.iter().map(String::as_str).chain([token]) {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text.as_bytes());
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_upstream_does() {
        let api = ["api".to_owned()];
        let check = |status: Value, expected: Option<Review>| {
            let review = json!({"kind": "TokenReview", "status": status});
            assert_eq!(read(&review, &api, &api), expected, "{review}");
        };
        let ada = User { name: "ada".into(), groups: vec!["dev".into()], ..User::default() };
        let user = json!({"username": "ada", "groups": ["dev"]});
        check(json!({"authenticated": true, "user": user}), Some(Review::User(ada.clone(), api.to_vec())));
        check(
            json!({"authenticated": true, "user": user, "audiences": ["api", "x"]}),
            Some(Review::User(ada, api.to_vec())),
        );
        check(json!({"authenticated": true, "user": user, "audiences": ["x"]}), Some(Review::Unknown));
        check(json!({"authenticated": false}), Some(Review::Unknown));
        check(json!({"error": "no"}), Some(Review::Refused("no".into())));
        assert_eq!(read(&json!({"status": {"authenticated": true}}), &api, &api), None);
        assert_eq!(read(&json!({"kind": "TokenReview"}), &api, &api), None);
    }
}
