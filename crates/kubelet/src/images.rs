//! Getting images: pull policy, back-off, bounded parallel pulls, and what users are told.

mod credentials;
mod pulled;
mod pull_times;
pub mod providers;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use reconcile::events::EventType;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Kubelet;
use crate::pod::backoff::Backoffs;
use crate::pod::memory::Waiting;
use crate::pod::spec;

pub use pull_times::PullTimes;
pub(crate) use pulled::Pulled;

use providers::Providers;
use pulled::{SecretUse, Use};

/// Tells about one container's image, as an event.
pub type Tell<'a> = &'a (dyn Fn(EventType, &str, String) + Send + Sync);

/// Why a container waits for its image, and when to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotThere {
    pub waiting: Waiting,
    pub retry_at: Timestamp,
}

pub struct Images {
    kubelet: Arc<Kubelet>,
    pulls: Semaphore,
    providers: Option<Providers>,
    /// Who may have what is here.
    pulled: Pulled,
    /// One pull of an image at a time: the second finds it there.
    turns: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    backoffs: Mutex<Backoffs>,
    /// The last failure of each pod's image, shown while it waits.
    failures: Mutex<HashMap<String, Failure>>,
}

#[derive(Clone, Debug)]
struct Failure {
    at: Timestamp,
    message: String,
}

/// Credentials, and whose they are; nobody's in particular where the node has them.
struct Credential {
    auth: v1::AuthConfig,
    source: Option<Use>,
}

/// Why an image was not pulled; users read it in events and in the container's message.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error("failed to record image pull intent: {0}")]
    Record(#[source] std::io::Error),
    #[error("{}", .0.message)]
    Runtime(#[from] cri::Error),
    #[error("image {0} vanished after it was pulled")]
    Vanished(String),
}

#[derive(Debug, thiserror::Error)]
enum InvalidImage {
    #[error("couldn't parse image name \"{0}\": invalid reference format")]
    Format(String),
    #[error(
        "couldn't parse image name \"{image}\": invalid reference format: repository name ({repository}) must be lowercase"
    )]
    Case { image: String, repository: String },
}

impl Images {
    pub fn new(kubelet: Arc<Kubelet>) -> Images {
        let pulls = Semaphore::new(kubelet.config.image_pulls_max.max(1));
        let config = &kubelet.config;
        let providers = config.credential_providers.as_ref();
        Images {
            providers: providers.map(|set| Providers::new(set, kubelet.client.clone(), config.clock.clone())),
            pulled: Pulled::new(&kubelet.config.root_dir),
            kubelet,
            pulls,
            turns: Mutex::default(),
            backoffs: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Sees to it that the image is there as the policy wishes, and gives what the runtime knows about it.
    pub async fn ensure(
        &self,
        pod: &Pod,
        image: &str,
        policy: Option<&str>,
        sandbox: Option<v1::PodSandboxConfig>,
        tell: Tell<'_>,
    ) -> Result<v1::Image, NotThere> {
        let now = self.kubelet.now();
        let later = now + jiff::SignedDuration::from_secs(crate::pod::plan::RETRY_SECONDS);
        let reference = match with_default_tag(image) {
            Ok(reference) => reference,
            Err(error) => {
                let message = format!("Failed to apply default image tag \"{image}\": {error}");
                tell(EventType::Warning, "InspectFailed", message.clone());
                return Err(not_there("InvalidImageName", message, later));
            }
        };
        let present = match self.kubelet.runtime.image_status(&reference).await {
            Ok(present) => present,
            Err(error) => {
                let message = format!("Failed to inspect image \"{image}\": {error}");
                tell(EventType::Warning, "InspectFailed", message.clone());
                return Err(not_there("ImageInspectError", message, later));
            }
        };
        let policy = policy.unwrap_or_else(|| default_policy(&reference));
        if let Some(present) = present.filter(|_| policy != "Always")
            && self.may_have(pod, &reference, &present.id).await
        {
            let message =
                format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
            tell(EventType::Normal, "Pulled", message);
            return Ok(present);
        }
        if policy == "Never" {
            // Also of one that is here, and that the pod's credentials do not open.
            let message = format!("Container image \"{image}\" is not present with pull policy of Never");
            tell(EventType::Warning, "ErrImageNeverPull", message.clone());
            return Err(not_there("ErrImageNeverPull", message, later));
        }
        self.pull(pod, image, &reference, sandbox, tell).await
    }

    /// The pod is gone: its failures need not be remembered.
    pub fn forget(&self, uid: &str) {
        let prefix = format!("{uid}/");
        let mut failures = self.failures.lock();
        let mut backoffs = self.backoffs.lock();
        failures.retain(|key, _| {
            let gone = key.starts_with(&prefix);
            if gone {
                backoffs.forget(key);
            }
            !gone
        });
    }

    async fn pull(
        &self,
        pod: &Pod,
        image: &str,
        reference: &str,
        sandbox: Option<v1::PodSandboxConfig>,
        tell: Tell<'_>,
    ) -> Result<v1::Image, NotThere> {
        let key = format!("{}/{image}", spec::uid(pod));
        let now = self.kubelet.now();
        let failure = self.failures.lock().get(&key).cloned();
        if let Some(failure) = failure
            && let Some((until, _)) = self.backoffs.lock().wait(&key, failure.at, now)
        {
            tell(EventType::Normal, "BackOff", format!("Back-off pulling image \"{image}\""));
            let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {}", failure.message);
            return Err(not_there("ImagePullBackOff", message, until));
        }
        tell(EventType::Normal, "Pulling", format!("Pulling image \"{image}\""));
        let asked_at = Instant::now();
        let turn = self.turn(reference);
        let _turn = turn.lock().await;
        // The semaphore is never closed, so a permit always comes.
        let _permit = self.pulls.acquire().await.expect("the pulls' semaphore stays open");
        let began_at = Instant::now();
        match self.try_pull(pod, reference, sandbox).await {
            Ok(found) => {
                self.kubelet.pull_times.pulled(found.size, asked_at.elapsed());
                let message = format!(
                    "Successfully pulled image \"{image}\" in {} ({} including waiting). Image size: {} bytes.",
                    took(began_at.elapsed()),
                    took(asked_at.elapsed()),
                    found.size
                );
                tell(EventType::Normal, "Pulled", message);
                self.failures.lock().remove(&key);
                self.backoffs.lock().forget(&key);
                Ok(found)
            }
            Err(error) => {
                let text = error.to_string();
                tell(EventType::Warning, "Failed", format!("Failed to pull image \"{image}\": {text}"));
                let now = self.kubelet.now();
                self.backoffs.lock().next(&key, now, now);
                self.failures.lock().insert(key, Failure { at: now, message: text.clone() });
                // Looked at again soon, only to say that it is waiting.
                Err(not_there("ErrImagePull", text, now + jiff::SignedDuration::from_secs(1)))
            }
        }
    }

    async fn try_pull(
        &self,
        pod: &Pod,
        reference: &str,
        sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<v1::Image, PullError> {
        let mut candidates: Vec<Option<Credential>> =
            self.credentials(pod, reference).await.into_iter().map(Some).collect();
        if candidates.is_empty() {
            candidates.push(None);
        }
        self.pulled.begin(reference).map_err(PullError::Record)?;
        let mut failure = None;
        for credential in candidates {
            let auth = credential.as_ref().map(|credential| credential.auth.clone());
            match self.found_by_pull(reference, auth, sandbox.clone()).await {
                Ok(found) => {
                    self.remember(reference, Some((&found.id, credential.and_then(|credential| credential.source))));
                    return Ok(found);
                }
                Err(error) => failure = Some(error),
            }
        }
        self.remember(reference, None);
        Err(failure.expect("there is at least one candidate"))
    }

    async fn found_by_pull(
        &self,
        reference: &str,
        auth: Option<v1::AuthConfig>,
        sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<v1::Image, PullError> {
        let runtime = &self.kubelet.runtime;
        let id = runtime.pull_image(reference, auth, sandbox).await?;
        let found = match runtime.image_status(&id).await? {
            Some(found) => Some(found),
            None => runtime.image_status(reference).await?,
        };
        found.ok_or_else(|| PullError::Vanished(reference.to_owned()))
    }

    /// What is not written down is asked of the registry again, which is slower and nothing worse.
    fn remember(&self, reference: &str, pulled: Option<(&str, Option<Use>)>) {
        if let Err(error) = self.pulled.end(reference, pulled, &self.kubelet.now().to_string()) {
            tracing::warn!(image = reference, %error, "cannot record image pull credentials");
        }
    }

    /// Whether the pod may have an image that is here: its credentials once opened it, or none were needed.
    async fn may_have(&self, pod: &Pod, reference: &str, id: &str) -> bool {
        if self.pulled.is_anybodys(reference, id) {
            return true;
        }
        let own = self.credentials(pod, reference).await;
        let own: Vec<Use> = own.into_iter().filter_map(|credential| credential.source).collect();
        !self.pulled.must_pull(reference, id, &own)
    }

    /// What the pod's secrets hold for this image, and what credential providers give for it.
    async fn credentials(&self, pod: &Pod, reference: &str) -> Vec<Credential> {
        let mut all = Vec::new();
        for secret in spec::wishes(pod).image_pull_secrets.iter().flatten() {
            match self.kubelet.objects.secret(spec::namespace(pod), &secret.name).await {
                Ok(found) => all.extend(credentials::matching(&found, reference).into_iter().map(|auth| Credential {
                    source: Some(Use::Secret(SecretUse {
                        uid: found.metadata.uid.clone().unwrap_or_default(),
                        namespace: spec::namespace(pod).to_owned(),
                        name: secret.name.clone(),
                        credential_hash: credentials::hash(&auth),
                    })),
                    auth,
                })),
                // A missing pull secret is no error by itself: the registry may not need it.
                Err(error) => tracing::warn!(secret = secret.name, %error, "cannot use image pull secret"),
            }
        }
        if let Some(providers) = &self.providers {
            let given = providers.credentials(pod, reference).await.into_iter();
            all.extend(given.map(|one| Credential { auth: one.auth, source: one.account.map(Use::Account) }));
        }
        all
    }

    fn turn(&self, reference: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(reference).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        turns.insert(reference.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

fn not_there(reason: &str, message: String, retry_at: Timestamp) -> NotThere {
    NotThere { waiting: Waiting { reason: reason.to_owned(), message: Some(message) }, retry_at }
}

/// `:latest` is looked for anew each time, all else only when missing.
fn default_policy(reference: &str) -> &'static str {
    if reference.ends_with(":latest") { "Always" } else { "IfNotPresent" }
}

/// The image with `:latest` where it names neither tag nor digest.
fn with_default_tag(image: &str) -> Result<String, InvalidImage> {
    let invalid = || InvalidImage::Format(image.to_owned());
    if image.is_empty() || image.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(invalid());
    }
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rsplit('/').next().unwrap_or(name);
    let (path, tag) = match last.split_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
        None => (name, None),
    };
    let good_tag = tag.is_none_or(|tag| {
        !tag.is_empty() && tag.len() <= 128 && tag.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    });
    let good_digest = digest.is_none_or(|digest| {
        digest.split_once(':').is_some_and(|(_, hex)| hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit()))
    });
    // Only the first part, a registry's host, may have capital letters and a port.
    let mut parts: Vec<&str> = path.split('/').collect();
    let is_upper = |part: &str| part.contains(|c: char| c.is_ascii_uppercase());
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost" || is_upper(part);
    if parts.len() > 1 && is_host(parts[0]) {
        parts.remove(0);
    } else if parts.len() == 1 {
        parts.insert(0, "library");
    }
    if parts.iter().any(|part| is_upper(part)) {
        return Err(InvalidImage::Case { image: image.to_owned(), repository: parts.join("/") });
    }
    let good_part = |part: &&str| {
        let inner = part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c));
        !part.is_empty() && inner && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    if !good_tag || !good_digest || !parts.iter().all(good_part) {
        return Err(invalid());
    }
    Ok(if tag.is_none() && digest.is_none() { format!("{image}:latest") } else { image.to_owned() })
}

/// As Go writes a duration cut to milliseconds.
fn took(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1000 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let fraction = format!("{:03}", millis % 1000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let (minutes, seconds) = (millis / 60_000, millis / 1000 % 60);
    if minutes > 0 { format!("{minutes}m{seconds}{point}{fraction}s") } else { format!("{seconds}{point}{fraction}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_their_tag_or_are_refused() {
        let check = |image: &str, expected: Option<&str>| {
            assert_eq!(with_default_tag(image).ok().as_deref(), expected, "{image}");
        };
        check("busybox", Some("busybox:latest"));
        check("a.example:5000/b/c", Some("a.example:5000/b/c:latest"));
        check("a/b:1", Some("a/b:1"));
        check("a@sha256:0123456789abcdef0123456789abcdef", Some("a@sha256:0123456789abcdef0123456789abcdef"));
        check("Busybox", None);
        check("a b", None);
        check("", None);
        check("a:b:c", None);
        check("a//b", None);
    }

    #[test]
    fn durations_of_pulls() {
        let text = [0, 850, 1200, 3000, 62_500].map(|millis| took(Duration::from_millis(millis)));
        assert_eq!(text, ["0s", "850ms", "1.2s", "3s", "1m2.5s"]);
    }
}
