//! The plan of a controller: writes, in order, and when to reconcile again.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kube::Client;
use serde_json::Value;

use crate::Error;
use crate::cache::slim::is_slimmed;
use crate::cache::{Caches, Kind};
use crate::events::{EventType, Recorder, reference};
use crate::key::Key;

#[derive(Debug, Default)]
pub struct Plan {
    /// What users are told though nothing is written for it.
    pub events: Vec<Event>,
    pub writes: Vec<Write>,
    /// Done when one of the writes fails, usually a condition that says so: `{error}` in its texts stands for what the server
    /// said. The key is tried again all the same.
    pub if_refused: Option<Write>,
    /// Come back after this time even if nothing changes.
    pub again: Option<Duration>,
}

impl Plan {
    pub fn nothing() -> Plan {
        Plan::default()
    }

    pub fn one(write: Write) -> Plan {
        Plan { writes: vec![write], ..Plan::default() }
    }

    pub fn after(delay: Duration) -> Plan {
        Plan { again: Some(delay), ..Plan::default() }
    }

    /// Comes back after that time, or earlier if an earlier one was asked for.
    pub fn come_back(&mut self, delay: Duration) {
        self.again = Some(self.again.map_or(delay, |earlier| earlier.min(delay)));
    }
}

/// What users are told about an object.
#[derive(Clone, Debug)]
pub struct Event {
    pub about: ObjectReference,
    pub kind: EventType,
    pub reason: &'static str,
    pub message: String,
}

impl Event {
    pub fn normal<K: Kind>(about: &K, reason: &'static str, message: impl Into<String>) -> Event {
        Event { about: reference(about), kind: EventType::Normal, reason, message: message.into() }
    }

    pub fn warning<K: Kind>(about: &K, reason: &'static str, message: impl Into<String>) -> Event {
        Event { about: reference(about), kind: EventType::Warning, reason, message: message.into() }
    }
}

/// What users are told about a write, once it is known how it went.
#[derive(Clone, Debug)]
struct Told {
    about: ObjectReference,
    /// Of the event when the write was done; a failure is always a warning.
    kind: EventType,
    /// Reason and message; `{name}` stands for the name of the object that was written.
    done: Option<(&'static str, String)>,
    /// `{error}` stands for what the server said.
    failed: Option<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Create,
    Update,
    Apply,
    MergePatch,
    StrategicPatch,
    Delete,
}

/// One write of one object.
pub struct Write {
    verb: Verb,
    path: String,
    body: Value,
    kind: TypeId,
    key: Key,
    told: Option<Told>,
    /// Reasons, or causes, of failures that are as good as success.
    accepted: &'static [&'static str],
    /// Waits until the cache of the kind, if there is one, has seen what was written.
    seen: for<'a> fn(&'a Caches, &'a Key, &'a Value, Verb) -> BoxFuture<'a, ()>,
}

impl Write {
    pub fn create<K: Kind>(object: &K) -> Write {
        let key = Key::of(object.metadata());
        Write::new::<K>(Verb::Create, collection::<K>(&key.namespace), key, encoded(object))
    }

    pub fn update<K: Kind>(object: &K) -> Write {
        assert!(
            !is_slimmed::<K>(),
            "{} is kept without some of its fields; writing it back would remove them",
            K::KIND
        );
        let key = Key::of(object.metadata());
        Write::new::<K>(Verb::Update, item::<K>(&key), key, encoded(object))
    }

    /// Through a subresource such as `status`.
    pub fn update_sub<K: Kind>(object: &K, subresource: &str) -> Write {
        let mut write = Write::update(object);
        write.path = format!("{}/{subresource}", write.path);
        write
    }

    /// Server-side apply; the fields become the manager's, whoever had them.
    pub fn apply<K: Kind>(key: &Key, manager: &str, body: Value) -> Write {
        let path = format!("{}?fieldManager={manager}&force=true", item::<K>(key));
        Write::new::<K>(Verb::Apply, path, key.clone(), body)
    }

    pub fn merge_patch<K: Kind>(key: &Key, patch: Value) -> Write {
        Write::new::<K>(Verb::MergePatch, item::<K>(key), key.clone(), patch)
    }

    /// Through a subresource such as `status`.
    pub fn merge_patch_sub<K: Kind>(key: &Key, subresource: &str, patch: Value) -> Write {
        let mut write = Write::merge_patch::<K>(key, patch);
        write.path = format!("{}/{subresource}", write.path);
        write
    }

    /// A patch with strategic directives, for lists that others change too.
    pub fn strategic_patch<K: Kind>(key: &Key, patch: Value) -> Write {
        Write::new::<K>(Verb::StrategicPatch, item::<K>(key), key.clone(), patch)
    }

    /// The same through a subresource such as `status`.
    pub fn strategic_patch_sub<K: Kind>(key: &Key, subresource: &str, patch: Value) -> Write {
        let mut write = Write::strategic_patch::<K>(key, patch);
        write.path = format!("{}/{subresource}", write.path);
        write
    }

    /// That object and no later one of the same name. It may be gone already.
    pub fn delete<K: Kind>(object: &K, mut options: DeleteOptions) -> Write {
        let key = Key::of(object.metadata());
        options.preconditions.get_or_insert_default().uid = object.metadata().uid.clone();
        Write::new::<K>(Verb::Delete, item::<K>(&key), key, encoded(&options)).accept(&["NotFound"])
    }

    /// Failures with one of these reasons, or causes, are as good as success.
    pub fn accept(mut self, reasons: &'static [&'static str]) -> Write {
        self.accepted = reasons;
        self
    }

    /// Tells users of an object, usually the owner, how the write went. In the messages `{name}` stands for the name of what was
    /// written, `{error}` for what the server said.
    pub fn tells<K: Kind>(mut self, about: &K, reason: &'static str, message: impl Into<String>) -> Write {
        let done = Some((reason, message.into()));
        self.told = Some(Told { about: reference(about), kind: EventType::Normal, done, failed: None });
        self
    }

    /// The same where the write itself is bad news, such as a status that says that a Job has failed.
    pub fn warns<K: Kind>(mut self, about: &K, reason: &'static str, message: impl Into<String>) -> Write {
        let done = Some((reason, message.into()));
        self.told = Some(Told { about: reference(about), kind: EventType::Warning, done, failed: None });
        self
    }

    /// Tells users of an object only when the write fails.
    pub fn tells_only_failure<K: Kind>(mut self, about: &K, reason: &'static str, message: impl Into<String>) -> Write {
        let failed = Some((reason, message.into()));
        self.told = Some(Told { about: reference(about), kind: EventType::Normal, done: None, failed });
        self
    }

    pub fn tells_failure(mut self, reason: &'static str, message: impl Into<String>) -> Write {
        if let Some(told) = &mut self.told {
            told.failed = Some((reason, message.into()));
        }
        self
    }

    /// The same with what the server said about another write.
    pub(crate) fn knowing(mut self, error: &Error) -> Write {
        let said = match error {
            Error::Api { source, .. } => match &**source {
                kube::Error::Api(status) => status.message.clone(),
                other => other.to_string(),
            },
            Error::Other(text) => text.clone(),
        };
        fill_in(&mut self.body, &said);
        self
    }

    pub fn is_create(&self) -> bool {
        self.verb == Verb::Create
    }

    pub fn is_delete(&self) -> bool {
        self.verb == Verb::Delete
    }

    pub fn body(&self) -> &Value {
        &self.body
    }

    fn new<K: Kind>(verb: Verb, path: String, key: Key, body: Value) -> Write {
        Write { verb, path, body, kind: TypeId::of::<K>(), key, told: None, accepted: &[], seen: seen::<K> }
    }

    /// Whether the other may be done at the same time: more of the same.
    pub(crate) fn is_like(&self, other: &Write) -> bool {
        self.verb == other.verb && self.kind == other.kind
    }

    /// Writes, tells, and waits until the caches know.
    pub(crate) async fn perform(&self, client: &Client, caches: &Arc<Caches>, events: &Recorder) -> Result<(), Error> {
        match client.request::<Value>(self.request()?).await {
            Ok(answer) => {
                if let Some(Told { about, kind, done: Some((reason, message)), .. }) = &self.told {
                    let name = answer.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(&self.key.name);
                    events.event(about, *kind, reason, message.replace("{name}", name));
                }
                (self.seen)(caches, &self.key, &answer, self.verb).await;
                Ok(())
            }
            Err(error) if self.accepted.iter().any(|why| is_because(&error, why)) => Ok(()),
            Err(error) => {
                if let Some(Told { about, failed: Some((reason, message)), .. }) = &self.told {
                    let said = match &error {
                        kube::Error::Api(status) => status.message.clone(),
                        other => other.to_string(),
                    };
                    let message = message.replace("{name}", &self.key.name).replace("{error}", &said);
                    events.event(about, EventType::Warning, reason, message);
                }
                Err(Error::api(self.to_string(), error))
            }
        }
    }

    fn request(&self) -> Result<http::Request<Vec<u8>>, Error> {
        let (method, content_type) = match self.verb {
            Verb::Create => ("POST", "application/json"),
            Verb::Update => ("PUT", "application/json"),
            Verb::Apply => ("PATCH", "application/apply-patch+yaml"),
            Verb::MergePatch => ("PATCH", "application/merge-patch+json"),
            Verb::StrategicPatch => ("PATCH", "application/strategic-merge-patch+json"),
            Verb::Delete => ("DELETE", "application/json"),
        };
        let request = http::Request::builder().method(method).uri(&self.path).header("content-type", content_type);
        request.body(self.body.to_string().into_bytes()).map_err(|error| Error::Other(format!("{self}: {error}")))
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Apply => "apply",
            Verb::MergePatch | Verb::StrategicPatch => "patch",
            Verb::Delete => "delete",
        };
        write!(f, "{verb} {}", self.path)
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {}", self.body)
    }
}

fn fill_in(value: &mut Value, said: &str) {
    match value {
        Value::String(text) if text.contains("{error}") => *text = text.replace("{error}", said),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, said)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill_in(field, said)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether that is the reason the server gave, or one of the causes.
fn is_because(error: &kube::Error, why: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.reason == why || causes.any(|cause| cause.reason == why)
}

fn encoded(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).expect("an API object has text keys and can be written as JSON")
}

fn collection<K: Kind>(namespace: &str) -> String {
    let root = if <K as k8s_openapi::Resource>::GROUP.is_empty() { "/api" } else { "/apis" };
    let (version, plural) = (<K as k8s_openapi::Resource>::API_VERSION, <K as k8s_openapi::Resource>::URL_PATH_SEGMENT);
    if namespace.is_empty() {
        format!("{root}/{version}/{plural}")
    } else {
        format!("{root}/{version}/namespaces/{namespace}/{plural}")
    }
}

fn item<K: Kind>(key: &Key) -> String {
    format!("{}/{}", collection::<K>(&key.namespace), key.name)
}

fn seen<'a, K: Kind>(caches: &'a Caches, key: &'a Key, answer: &'a Value, verb: Verb) -> BoxFuture<'a, ()> {
    async move {
        let Some(cache) = caches.get::<K>("") else { return };
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str);
        if verb == Verb::Delete {
            // The answer is the object, or a Status that names its uid.
            let uid = text("/metadata/uid").or_else(|| text("/details/uid"));
            cache.seen_deletion(key, uid.unwrap_or("")).await;
        } else if let Some(revision) = text("/metadata/resourceVersion").and_then(|version| version.parse().ok()) {
            cache.seen_revision(revision).await;
        }
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Namespace, Pod};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn metadata(namespace: Option<&str>) -> ObjectMeta {
        let name = Some("x".to_string());
        ObjectMeta { namespace: namespace.map(Into::into), name, uid: Some("1".into()), ..ObjectMeta::default() }
    }

    #[test]
    fn writes_go_to_the_paths_of_their_kinds() {
        let check = |write: Write, expected: &str| assert_eq!(format!("{write:?}"), expected);
        let pod = Pod { metadata: metadata(Some("a")), ..Pod::default() };
        let namespace = Namespace { metadata: metadata(None), ..Namespace::default() };
        let deployment = Key::new("a", "x");
        check(
            Write::create(&pod),
            r#"create /api/v1/namespaces/a/pods {"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"a","uid":"1"}}"#,
        );
        check(
            Write::update_sub(&namespace, "finalize"),
            r#"update /api/v1/namespaces/x/finalize {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","uid":"1"}}"#,
        );
        check(
            Write::delete(&pod, DeleteOptions::default()),
            r#"delete /api/v1/namespaces/a/pods/x {"preconditions":{"uid":"1"}}"#,
        );
        check(
            Write::merge_patch::<Deployment>(&deployment, serde_json::json!({})),
            "patch /apis/apps/v1/namespaces/a/deployments/x {}",
        );
    }
}
