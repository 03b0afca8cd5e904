//! EventRateLimit: who floods the server with events is told to wait, by server, namespace, user, or source and object.

use std::collections::HashMap;

use jiff::Timestamp;
use machinery::field::{Errors, FieldError, Problem};
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;

use super::configuration::Part;
use super::{Operation, Plugin, Request};
use crate::configuration::{self, Header, Shape};

const HEADERS: [Header; 1] =
    [Header { kind: "Configuration", group: "eventratelimit.admission.k8s.io", versions: &["v1alpha1"] }];
const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    (
        "limits",
        Shape::List(&Shape::Object(&[
            ("type", Shape::Text),
            ("qps", Shape::Number),
            ("burst", Shape::Number),
            ("cacheSize", Shape::Number),
        ])),
    ),
]);
const KEYS_DEFAULT: usize = 4096;
/// How long clients that know this answer wait before they try again.
const RETRY_SECONDS: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    per: Per,
    qps: f64,
    burst: f64,
    /// How many namespaces, users or objects are told apart.
    keys_max: usize,
}

pub struct EventRateLimit {
    limits: Vec<(Limit, Mutex<Buckets>)>,
}

impl EventRateLimit {
    pub fn new(limits: &[Limit]) -> EventRateLimit {
        EventRateLimit { limits: limits.iter().map(|limit| (limit.clone(), Mutex::default())).collect() }
    }
}

#[async_trait::async_trait]
impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update) && !request.dry_run;
        let Some(event) = object.filter(|_| writes && request.is_for("", "events")) else { return Ok(()) };
        let now = request.app.clock.now();
        let reached: Vec<String> = self
            .limits
            .iter()
            .filter_map(|(limit, buckets)| {
                let key = limit.per.key(request.namespace, &request.user.name, event);
                let taken = buckets.lock().take(limit, &key, now);
                (!taken).then(|| format!("limit reached on type {} for key {key}", limit.per.name()))
            })
            .collect();
        match &reached[..] {
            [] => Ok(()),
            [one] => Err(too_many(one)),
            several => Err(too_many(&format!("[{}]", several.join(", ")))),
        }
    }
}

fn too_many(why: &str) -> Status {
    let mut status = Status::new(429, "TooManyRequests", why);
    status.details.get_or_insert_default().retry_after_seconds = Some(RETRY_SECONDS);
    status
}

impl Per {
    fn name(self) -> &'static str {
        match self {
            Per::Server => "Server",
            Per::Namespace => "Namespace",
            Per::User => "User",
            Per::SourceAndObject => "SourceAndObject",
        }
    }

    fn parse(text: &str) -> Option<Per> {
        [Per::Server, Per::Namespace, Per::User, Per::SourceAndObject].into_iter().find(|per| per.name() == text)
    }

    fn key(self, namespace: &str, user: &str, event: &Value) -> String {
        match self {
            Per::Server => String::new(),
            Per::Namespace => namespace.to_owned(),
            Per::User => user.to_owned(),
            Per::SourceAndObject => [
                "/source/component",
                "/source/host",
                "/involvedObject/kind",
                "/involvedObject/namespace",
                "/involvedObject/name",
                "/involvedObject/uid",
                "/involvedObject/apiVersion",
            ]
            .into_iter()
            .map(|path| event.pointer(path).and_then(Value::as_str).unwrap_or(""))
            .collect(),
        }
    }
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

/// Two generations of buckets: those in use move to the young one, and the old one is forgotten when that is full, so
/// that as many keys as the limit says are known at most.
#[derive(Default)]
struct Buckets {
    young: HashMap<String, Bucket>,
    old: HashMap<String, Bucket>,
}

impl Buckets {
    fn take(&mut self, limit: &Limit, key: &str, now: Timestamp) -> bool {
        let full = Bucket { tokens: limit.burst, at: now };
        let known = self.young.get(key).copied().or_else(|| self.old.remove(key));
        let mut bucket = known.unwrap_or(full);
        let passed = now.duration_since(bucket.at).as_secs_f64().max(0.0);
        bucket.tokens = (bucket.tokens + passed * limit.qps).min(limit.burst);
        bucket.at = now;
        let enough = bucket.tokens >= 1.0;
        if enough {
            bucket.tokens -= 1.0;
        }
        if self.young.len() >= (limit.keys_max / 2).max(1) && !self.young.contains_key(key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key.to_owned(), bucket);
        enough
    }
}

pub fn read(part: &Part<'_>) -> Result<Vec<Limit>, configuration::Error> {
    let value = part.read(&HEADERS, &SHAPE)?;
    let mut errors = Errors::default();
    let mut limits = Vec::new();
    for (index, entry) in value["limits"].as_array().into_iter().flatten().enumerate() {
        limits.extend(read_limit(entry, &format!("limits[{index}]"), &mut errors));
    }
    if limits.is_empty() && errors.is_empty() {
        errors.push(FieldError::new(Problem::Invalid, "limits", "null", "must not be empty"));
    }
    part.refuse(&errors)?;
    Ok(limits)
}

fn read_limit(entry: &Value, at: &str, errors: &mut Errors) -> Option<Limit> {
    let text = entry["type"].as_str().unwrap_or_default();
    let per = Per::parse(text);
    if per.is_none() {
        let detail = "supported values: \"Namespace\", \"Server\", \"SourceAndObject\", \"User\"";
        errors.push(FieldError::new(Problem::NotSupported, format!("{at}.type"), format!("{text:?}"), detail));
    }
    let mut number = |field: &str, least: i64, why: &str| {
        let number = entry[field].as_i64().unwrap_or(0);
        if number < least {
            errors.push(FieldError::new(Problem::Invalid, format!("{at}.{field}"), number.to_string(), why));
        }
        number
    };
    let burst = number("burst", 1, "must be positive");
    let qps = number("qps", 1, "must be positive");
    let keys = number("cacheSize", 0, "must not be negative");
    let keys_max = usize::try_from(keys).ok().filter(|keys| *keys > 0).unwrap_or(KEYS_DEFAULT);
    Some(Limit { per: per?, qps: qps as f64, burst: burst as f64, keys_max })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let limit = Limit { per: Per::Namespace, qps: 2.0, burst: 3.0, keys_max: 8 };
        let mut buckets = Buckets::default();
        let start = Timestamp::from_second(1_000).unwrap();
        let mut at = |millis: i64, key: &str| buckets.take(&limit, key, start + SignedDuration::from_millis(millis));
        assert_eq!([at(0, "a"), at(0, "a"), at(0, "a"), at(0, "a")], [true, true, true, false]);
        assert!(at(0, "b"), "another key has a bucket of its own");
        assert!(!at(400, "a"));
        assert!(at(600, "a"));
        assert_eq!([at(9_000, "a"), at(9_000, "a"), at(9_000, "a"), at(9_000, "a")], [true, true, true, false]);
    }

    #[test]
    fn keys_are_bounded() {
        let limit = Limit { per: Per::User, qps: 1.0, burst: 1.0, keys_max: 10 };
        let mut buckets = Buckets::default();
        let now = Timestamp::from_second(1_000).unwrap();
        for number in 0..1_000 {
            buckets.take(&limit, &number.to_string(), now);
            assert!(!buckets.take(&limit, "always", now) || number == 0, "what is in use is not forgotten");
        }
        assert!(buckets.young.len() + buckets.old.len() <= 10);
    }

    #[test]
    fn an_object_and_its_source_are_one_key() {
        let event =
            json!({"source": {"component": "kubelet", "host": "n"}, "involvedObject": {"kind": "Pod", "name": "p"}});
        assert_eq!(Per::SourceAndObject.key("ns", "u", &event), "kubeletnPodp");
        assert_eq!(Per::User.key("ns", "u", &event), "u");
        assert_eq!(Per::Server.key("ns", "u", &event), "");
    }

    #[test]
    fn wrong_limits_are_named() {
        let mut errors = Errors::default();
        read_limit(&json!({"type": "Node", "qps": 0, "burst": 1, "cacheSize": -1}), "limits[0]", &mut errors);
        let fields: Vec<&str> = errors.0.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["limits[0].type", "limits[0].qps", "limits[0].cacheSize"]);
    }
}
