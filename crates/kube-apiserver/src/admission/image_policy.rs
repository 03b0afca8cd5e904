//! ImagePolicyWebhook: somebody else says by an ImageReview whether the images of a pod may run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use machinery::field::{Errors, FieldError, Problem};
use machinery::kind::Kind;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::{Value, json};

use super::configuration::Part;
use super::{Operation, Plugin, Request};
use crate::app::App;
use crate::audit::kubeconfig::{self, KubeconfigError};
use crate::configuration::{self, Shape};
use crate::outgoing::{Bounded, Client, Failed};

const SHAPE: Shape = Shape::Object(&[(
    "imagePolicy",
    Shape::Object(&[
        ("kubeConfigFile", Shape::Text),
        ("allowTTL", Shape::Number),
        ("denyTTL", Shape::Number),
        ("retryBackoff", Shape::Number),
        ("defaultAllow", Shape::Flag),
    ]),
)]);
const ANNOTATIONS: &str = ".image-policy.k8s.io/";
const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// What one question may take, and how often a webhook that does not answer is asked.
const TIMEOUT: Duration = Duration::from_secs(30);
const TRIES: u32 = 5;
const RETRY_FACTOR: f64 = 1.5;
const ANSWERS_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    kubeconfig: PathBuf,
    allow_ttl: Duration,
    deny_ttl: Duration,
    retry_after: Duration,
    default_allow: bool,
}

/// Why a pod's images were not reviewed.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("{0}")]
    Kubeconfig(Arc<KubeconfigError>),
    #[error("the webhook did not return an ImageReview")]
    NoReview,
    #[error("Error contacting webhook: {0}")]
    Code(u16),
    #[error("Post {url:?}: {error}")]
    Post { url: String, error: Failed },
}

pub struct ImagePolicyWebhook {
    /// A server does not start with the plugin and without them.
    settings: Option<Settings>,
    client: OnceLock<Result<Client, Arc<KubeconfigError>>>,
    answers: Bounded<String, Answer>,
}

#[derive(Clone, Debug, PartialEq)]
struct Answer {
    allowed: bool,
    reason: String,
    annotations: BTreeMap<String, String>,
}

impl ImagePolicyWebhook {
    pub fn new(settings: Option<Settings>) -> ImagePolicyWebhook {
        ImagePolicyWebhook { settings, client: OnceLock::new(), answers: Bounded::new(ANSWERS_MAX) }
    }

    async fn ask(&self, settings: &Settings, spec: &Value) -> Result<Answer, ReviewError> {
        let key = spec.to_string();
        if let Some(answer) = self.answers.get(&key) {
            return Ok(answer);
        }
        let read = || kubeconfig::read(&settings.kubeconfig).map(Client::new).map_err(Arc::new);
        let client = self.client.get_or_init(read).as_ref().map_err(|error| ReviewError::Kubeconfig(error.clone()))?;
        let review = json!({
            "kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "metadata": {}, "spec": spec,
            "status": {"allowed": false},
        });
        let body = post(settings, client, Bytes::from(review.to_string())).await?;
        let answer = read_answer(&body).ok_or(ReviewError::NoReview)?;
        let lifetime = if answer.allowed { settings.allow_ttl } else { settings.deny_ttl };
        self.answers.put(key, answer.clone(), lifetime);
        Ok(answer)
    }
}

async fn post(settings: &Settings, client: &Client, body: Bytes) -> Result<Bytes, ReviewError> {
    let mut pause = settings.retry_after;
    for attempt in 1.. {
        let why = match client.post(body.clone(), TIMEOUT).await {
            Ok(answer) if (200..300).contains(&answer.code) => return Ok(answer.body),
            Ok(answer) if answer.code < 500 && answer.code != 429 => {
                return Err(ReviewError::Code(answer.code));
            }
            Ok(answer) => ReviewError::Code(answer.code),
            Err(error) => ReviewError::Post { url: client.url(), error },
        };
        if attempt == TRIES {
            return Err(why);
        }
        tokio::time::sleep(pause).await;
        pause = pause.mul_f64(RETRY_FACTOR);
    }
    unreachable!("the loop ends with its last try")
}

#[async_trait::async_trait]
impl Plugin for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        "ImagePolicyWebhook"
    }

    fn asks_others(&self, _app: &App, kind: &Kind) -> bool {
        kind.group.is_empty() && kind.plural == "pods"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let is_asked = matches!(request.subresource, "" | "ephemeralcontainers") && request.is_for("", "pods");
        let (Some(pod), Some(settings)) = (object.filter(|_| writes && is_asked), &self.settings) else {
            return Ok(());
        };
        match self.ask(settings, &spec(pod, request.namespace, request.subresource)).await {
            Ok(answer) => {
                for (name, value) in &answer.annotations {
                    request.call.annotate(format!("{AUDIT_PREFIX}{name}"), value);
                }
                refusal(&answer).map_or(Ok(()), |why| Err(request.forbidden(Some(pod), &why)))
            }
            Err(why) if settings.default_allow => {
                tracing::warn!(error = %why, "image policy webhook failed; allowing pod without image review");
                request.call.annotate(format!("{AUDIT_PREFIX}failed-open"), "true");
                Ok(())
            }
            Err(why) => Err(request.forbidden(Some(pod), &why)),
        }
    }
}

/// What the webhook is told of a pod.
fn spec(pod: &Value, namespace: &str, subresource: &str) -> Value {
    let lists: &[&str] =
        if subresource.is_empty() { &["containers", "initContainers"] } else { &["ephemeralContainers"] };
    let containers = lists.iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
    let images: Vec<Value> = containers.map(|container| json!({"image": container["image"]})).collect();
    let annotations = pod.meta("annotations").and_then(Value::as_object).into_iter().flatten();
    let told: serde_json::Map<String, Value> = annotations
        .filter(|(name, _)| name.contains(ANNOTATIONS))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut spec = json!({"containers": images, "namespace": namespace});
    if !told.is_empty() {
        spec["annotations"] = told.into();
    }
    spec
}

fn read_answer(body: &Bytes) -> Option<Answer> {
    let review: Value = serde_json::from_slice(body).ok()?;
    let status = review.get("status").filter(|_| review["kind"] == "ImageReview")?;
    let annotations = status["auditAnnotations"].as_object().into_iter().flatten();
    Some(Answer {
        allowed: status["allowed"].as_bool().unwrap_or(false),
        reason: status["reason"].as_str().unwrap_or_default().to_owned(),
        annotations: annotations.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect(),
    })
}

fn refusal(answer: &Answer) -> Option<String> {
    match (answer.allowed, answer.reason.as_str()) {
        (true, _) => None,
        (false, "") => Some("one or more images rejected by webhook backend".into()),
        (false, reason) => Some(format!("image policy webhook backend denied one or more images: {reason}")),
    }
}

pub fn read(part: &Part<'_>) -> Result<Settings, configuration::Error> {
    let value = &part.read(&[], &SHAPE)?["imagePolicy"];
    let mut errors = Errors::default();
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let second = Duration::from_secs(1);
    let retry_after =
        duration(value, "retryBackoff", Duration::from_millis(1), minutes(5), Duration::from_millis(500), &mut errors);
    let allow_ttl = duration(value, "allowTTL", second, minutes(30), minutes(5), &mut errors);
    let deny_ttl = duration(value, "denyTTL", second, minutes(30), Duration::from_secs(30), &mut errors);
    let kubeconfig = part.folder.join(value["kubeConfigFile"].as_str().unwrap_or_default());
    if let Err(why) = kubeconfig::read(&kubeconfig) {
        let shown = format!("{:?}", kubeconfig.display().to_string());
        errors.push(FieldError::new(Problem::Invalid, "imagePolicy.kubeConfigFile", shown, why.to_string()));
    }
    part.refuse(&errors)?;
    let default_allow = value["defaultAllow"].as_bool().unwrap_or(false);
    Ok(Settings { kubeconfig, allow_ttl, deny_ttl, retry_after, default_allow })
}

/// A number of units: 0 is the default, -1 means none.
fn duration(
    value: &Value,
    field: &str,
    unit: Duration,
    most: Duration,
    default: Duration,
    errors: &mut Errors,
) -> Duration {
    let number = value[field].as_i64().unwrap_or(0);
    match number {
        -1 => Duration::ZERO,
        0 => default,
        _ => {
            let asked = u32::try_from(number).ok().and_then(|number| unit.checked_mul(number));
            let Some(asked) = asked.filter(|asked| *asked <= most) else {
                let why = format!("valid value is between {unit:?} and {most:?}");
                errors.push(FieldError::new(Problem::Invalid, format!("imagePolicy.{field}"), number.to_string(), why));
                return default;
            };
            asked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_told_by_its_images_and_the_annotations_meant_for_it() {
        let pod = json!({
            "metadata": {"annotations": {"a": "b", "x.image-policy.k8s.io/ticket": "7"}},
            "spec": {"initContainers": [{"image": "i"}], "containers": [{"image": "c"}], "ephemeralContainers": [{"image": "e"}]},
        });
        assert_eq!(
            spec(&pod, "n", ""),
            json!({"containers": [{"image": "c"}, {"image": "i"}], "namespace": "n", "annotations": {"x.image-policy.k8s.io/ticket": "7"}})
        );
        assert_eq!(spec(&pod, "n", "ephemeralcontainers")["containers"], json!([{"image": "e"}]));
    }

    #[test]
    fn answers_are_read_and_shown() {
        let answer =
            |status: Value| read_answer(&Bytes::from(json!({"kind": "ImageReview", "status": status}).to_string()));
        assert_eq!(answer(json!({"allowed": true})).as_ref().and_then(refusal), None);
        let denied = answer(json!({"allowed": false, "reason": "old", "auditAnnotations": {"k": "v"}})).unwrap();
        assert_eq!(refusal(&denied).as_deref(), Some("image policy webhook backend denied one or more images: old"));
        assert_eq!(denied.annotations["k"], "v");
        assert_eq!(
            answer(json!({})).as_ref().and_then(refusal).as_deref(),
            Some("one or more images rejected by webhook backend")
        );
        assert_eq!(read_answer(&Bytes::from_static(b"[]")), None);
    }

    #[test]
    fn durations_have_defaults_and_bounds() {
        let check = |number: i64, expected: Duration, problems: usize| {
            let mut errors = Errors::default();
            let second = Duration::from_secs(1);
            let found = duration(&json!({"t": number}), "t", second, second * 60, second * 5, &mut errors);
            assert_eq!((found, errors.0.len()), (expected, problems), "{number}");
        };
        check(0, Duration::from_secs(5), 0);
        check(-1, Duration::ZERO, 0);
        check(7, Duration::from_secs(7), 0);
        check(61, Duration::from_secs(5), 1);
        check(-2, Duration::from_secs(5), 1);
    }
}
