//! An API server of a few maps, for loops that are tested under paused time: objects by their paths, conflicts by resource
//! versions, watches, and connections that fail as a test wants. It has no rules of any kind: those belong to the real one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Clone)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<Arc<Change>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    revision: u64,
    requests: Vec<String>,
}

struct Change {
    verb: &'static str,
    path: String,
    object: Value,
}

/// How one client's connection behaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Fault {
    #[default]
    None,
    /// Nobody listens.
    Refused,
    /// No request arrives, and no answer comes.
    Silent,
    /// Requests are done, their answers are lost.
    AnswersLost,
    /// Every answer takes this long.
    Slow(Duration),
    /// Every request is answered with this status.
    Status(u16),
}

/// The connection of one client.
#[derive(Clone, Default)]
pub struct Link(Arc<Mutex<Fault>>);

impl Link {
    pub fn set(&self, fault: Fault) {
        *self.0.lock() = fault;
    }
}

impl Default for FakeApi {
    fn default() -> FakeApi {
        // As in a real one, an empty list already has a revision.
        let state = State { revision: 1, ..State::default() };
        FakeApi { state: Arc::new(Mutex::new(state)), changes: broadcast::channel(1024).0 }
    }
}

impl FakeApi {
    /// A client with a connection of its own.
    pub fn client(&self) -> (kube::Client, Link) {
        let (api, link) = (self.clone(), Link::default());
        let faults = link.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (api, fault) = (api.clone(), faults.0.lock().clone());
            async move { api.serve(request, fault).await }.boxed()
        });
        (kube::Client::new(service, "default"), link)
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().objects.get(path).cloned()
    }

    pub fn put(&self, path: &str, object: Value) {
        let mut state = self.state.lock();
        let verb = if state.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        self.store(&mut state, verb, path, object);
    }

    pub fn remove(&self, path: &str) {
        let mut state = self.state.lock();
        state.revision += 1;
        if let Some(object) = state.objects.remove(path) {
            let _ = self.changes.send(Arc::new(Change { verb: "DELETED", path: path.to_owned(), object }));
        }
    }

    /// The paths of all objects, in order.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().objects.keys().cloned().collect()
    }

    /// What was asked since the last call, `<method> <path>` each.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().requests)
    }

    async fn serve(
        &self,
        request: Request<kube::client::Body>,
        fault: Fault,
    ) -> Result<Response<Body>, std::io::Error> {
        match fault {
            Fault::Refused => return Err(std::io::ErrorKind::ConnectionRefused.into()),
            Fault::Silent => return std::future::pending().await,
            Fault::Slow(time) => tokio::time::sleep(time).await,
            Fault::Status(code) => return Ok(failure(code, "ServiceUnavailable", "told to fail")),
            Fault::None | Fault::AnswersLost => {}
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let answer = self.answer(&parts, &body);
        match fault {
            Fault::AnswersLost => std::future::pending().await,
            _ => Ok(answer),
        }
    }

    fn answer(&self, parts: &http::request::Parts, body: &[u8]) -> Response<Body> {
        let path = parts.uri.path().to_owned();
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(parts.uri.query().unwrap_or("").as_bytes()).into_owned().collect();
        let mut state = self.state.lock();
        state.requests.push(format!("{} {path}", parts.method));
        let (object_path, status_only) = match path.strip_suffix("/status") {
            Some(path) => (path.to_owned(), true),
            None => (path.clone(), false),
        };
        let sent: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        match parts.method {
            Method::GET if query.get("watch").is_some_and(|watch| watch != "false" && watch != "0") => {
                drop(state);
                self.watch(&path, &query)
            }
            Method::GET => match state.objects.get(&path) {
                Some(object) => reply(200, object),
                None if is_collection(&path) => reply(200, &list(&state, &path, &query)),
                None => not_found(&path),
            },
            Method::POST => {
                let name = sent.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("").to_owned();
                let path = format!("{path}/{name}");
                match state.objects.contains_key(&path) {
                    true => failure(409, "AlreadyExists", &format!("{path} already exists")),
                    false => reply(201, &self.store(&mut state, "ADDED", &path, sent)),
                }
            }
            Method::PUT | Method::PATCH => {
                let Some(old) = state.objects.get(&object_path).cloned() else { return not_found(&path) };
                let version = |object: &Value| object.pointer("/metadata/resourceVersion").cloned();
                if version(&sent).is_some_and(|sent| sent != "" && Some(sent) != version(&old)) {
                    return failure(409, "Conflict", "the object has been modified");
                }
                let mut new = old.clone();
                match parts.method {
                    Method::PATCH => merge(&mut new, &sent),
                    _ => new = sent,
                }
                if status_only {
                    let status = new["status"].take();
                    new = old;
                    new["status"] = status;
                }
                reply(200, &self.store(&mut state, "MODIFIED", &object_path, new))
            }
            Method::DELETE => match state.objects.get(&path).cloned() {
                Some(object) => {
                    drop(state);
                    let uid = sent.pointer("/preconditions/uid").and_then(Value::as_str);
                    if uid.is_some() && uid != object.pointer("/metadata/uid").and_then(Value::as_str) {
                        return failure(409, "Conflict", "the UID in the precondition does not match");
                    }
                    self.remove(&path);
                    reply(200, &object)
                }
                None => not_found(&path),
            },
            _ => failure(405, "MethodNotAllowed", "no such verb"),
        }
    }

    fn store(&self, state: &mut State, verb: &'static str, path: &str, mut object: Value) -> Value {
        state.revision += 1;
        let kept =
            |field: &str| state.objects.get(path).and_then(|old| old.pointer(&format!("/metadata/{field}"))).cloned();
        let uid = kept("uid").unwrap_or_else(|| match object.pointer("/metadata/uid") {
            Some(uid) => uid.clone(),
            None => json!(format!("uid-{}", state.revision)),
        });
        let created = kept("creationTimestamp").unwrap_or_else(|| json!("2026-01-01T00:00:00Z"));
        object["metadata"]["uid"] = uid;
        object["metadata"]["creationTimestamp"] = created;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        state.objects.insert(path.to_owned(), object.clone());
        let _ = self.changes.send(Arc::new(Change { verb, path: path.to_owned(), object: object.clone() }));
        object
    }

    /// Changes from now on; what lies between a list and its watch is sent again, as an older revision was asked for.
    fn watch(&self, path: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        let (path, query) = (path.to_owned(), query.clone());
        let asked: u64 = query.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
        let changes = self.changes.subscribe();
        let streamed = query.get("sendInitialEvents").is_some_and(|send| send == "true");
        let mut missed: Vec<Bytes> = {
            let state = self.state.lock();
            let newer = state.objects.iter().filter(|(at, object)| {
                let revision = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                let revision: u64 = revision.and_then(|text| text.parse().ok()).unwrap_or(0);
                (streamed || revision > asked) && selected(&path, &query, at, object)
            });
            newer.map(|(_, object)| line(if streamed { "ADDED" } else { "MODIFIED" }, object)).collect()
        };
        if streamed {
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            let metadata =
                json!({ "resourceVersion": self.state.lock().revision.to_string(), "annotations": annotations });
            missed.push(line("BOOKMARK", &json!({ "apiVersion": "v1", "kind": "Bookmark", "metadata": metadata })));
        }
        let later = stream::unfold(changes, move |mut changes| {
            let (path, query) = (path.clone(), query.clone());
            async move {
                loop {
                    // A watcher that is too slow ends, and lists again.
                    let change = changes.recv().await.ok()?;
                    if selected(&path, &query, &change.path, &change.object) {
                        return Some((line(change.verb, &change.object), changes));
                    }
                }
            }
        });
        let lines = stream::iter(missed).chain(later).map(|line| Ok(Frame::data(line)));
        Response::new(BodyExt::boxed_unsync(StreamBody::new(lines)))
    }
}

fn line(verb: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({ "type": verb, "object": object })).into()
}

/// Whether the last part of a path is a resource's name, not an object's.
fn is_collection(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let after_version = if parts[0] == "api" { 2 } else { 3 };
    let rest = &parts[after_version.min(parts.len())..];
    match rest {
        ["namespaces", _, _] => true,
        ["namespaces", ..] => rest.len() == 1,
        _ => rest.len() == 1,
    }
}

fn selected(collection: &str, query: &BTreeMap<String, String>, path: &str, object: &Value) -> bool {
    let Some((group, resource)) = collection.rsplit_once('/') else { return false };
    let Some((parent, _)) = path.rsplit_once('/') else { return false };
    let inside = parent == collection || (parent.starts_with(group) && parent.rsplit('/').next() == Some(resource));
    let fields = query.get("fieldSelector").map(String::as_str).unwrap_or("");
    inside
        && fields.split(',').filter(|term| !term.is_empty()).all(|term| {
            let (field, value) = term.split_once('=').unwrap_or((term, ""));
            let (field, equal) = field.strip_suffix('!').map_or((field, true), |field| (field, false));
            let pointer = format!("/{}", field.replace('.', "/"));
            (object.pointer(&pointer).and_then(Value::as_str).unwrap_or("") == value) == equal
        })
}

fn list(state: &State, path: &str, query: &BTreeMap<String, String>) -> Value {
    let items: Vec<&Value> = state
        .objects
        .iter()
        .filter(|(at, object)| selected(path, query, at, object))
        .map(|(_, object)| object)
        .collect();
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": state.revision.to_string() }, "items": items })
}

/// A merge patch, with the two things of strategic ones that the node's loops use: conditions are merged by their type, and
/// a list that begins with `$patch: replace` takes the old one's place.
fn merge(document: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *document = patch.clone();
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    for (key, value) in patch {
        match value {
            Value::Null => {
                document.as_object_mut().expect("made an object above").remove(key);
            }
            Value::Array(items) if key == "conditions" => merge_by_type(&mut document[key], items),
            Value::Array(items) if items.first().is_some_and(|first| first["$patch"] == "replace") => {
                document[key] = Value::Array(items[1..].to_vec());
            }
            _ => merge(&mut document[key], value),
        }
    }
}

fn merge_by_type(document: &mut Value, items: &[Value]) {
    let mut old = document.as_array().cloned().unwrap_or_default();
    for item in items {
        match old.iter_mut().find(|old| old["type"] == item["type"]) {
            Some(old) => merge(old, item),
            None => old.push(item.clone()),
        }
    }
    *document = Value::Array(old);
}

fn reply(code: u16, object: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(object.to_string())).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("codes here are valid");
    response
}

fn failure(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code,
    });
    reply(code, &status)
}

fn not_found(path: &str) -> Response<Body> {
    failure(404, "NotFound", &format!("{path} not found"))
}
