//! An API server for tests: objects in a map, lists, watches and tokens, behind a real client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The whole life of a token.
const TOKEN_SECONDS: i64 = 3600;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    revision: u64,
    objects: BTreeMap<String, Value>,
    /// Everything that happened: revision, path, type, object.
    history: Vec<(u64, String, &'static str, Value)>,
    watches: Vec<Watch>,
    requests: Vec<String>,
    tokens: u64,
    /// How long the tokens still live that are given out from now on.
    token_seconds: i64,
    tokens_refused: bool,
}

struct Watch {
    list: String,
    name: Option<String>,
    events: mpsc::UnboundedSender<Bytes>,
}

impl FakeApi {
    pub fn new() -> FakeApi {
        let api = FakeApi::default();
        api.state.lock().token_seconds = TOKEN_SECONDS;
        api
    }

    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request)) }
        });
        kube::Client::new(service, "default")
    }

    /// Writes the object at this path, such as `/api/v1/namespaces/default/configmaps/x`.
    pub fn set(&self, path: &str, mut object: Value) {
        let mut state = self.state.lock();
        state.revision += 1;
        let parts: Vec<&str> = path.rsplit('/').collect();
        object["metadata"]["name"] = parts[0].into();
        if parts.get(3) == Some(&"namespaces") {
            object["metadata"]["namespace"] = parts[2].into();
        }
        object["metadata"]["resourceVersion"] = state.revision.to_string().into();
        let known = state.objects.insert(path.to_owned(), object.clone()).is_some();
        state.tell(path, if known { "MODIFIED" } else { "ADDED" }, object);
    }

    pub fn delete(&self, path: &str) {
        let mut state = self.state.lock();
        state.revision += 1;
        if let Some(object) = state.objects.remove(path) {
            state.tell(path, "DELETED", object);
        }
    }

    pub(crate) fn set_tokens(&self, seconds: i64, refused: bool) {
        let mut state = self.state.lock();
        (state.token_seconds, state.tokens_refused) = (seconds, refused);
    }

    /// Requests so far, as `GET /path?query`.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    /// Watches whose reader is still there.
    pub fn watches(&self) -> usize {
        let mut state = self.state.lock();
        state.watches.retain(|watch| !watch.events.is_closed());
        state.watches.len()
    }

    fn answer(&self, request: Request<Body>) -> Answer {
        let mut state = self.state.lock();
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        state.requests.push(format!("{} {path}?{query}", request.method()));
        if request.method() == Method::POST && path.ends_with("/token") {
            return state.token();
        }
        if let Some(object) = state.objects.get(&path) {
            return answer(StatusCode::OK, object);
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        let lists = ["configmaps", "secrets", "services", "clustertrustbundles"];
        if !lists.contains(&last) {
            return answer(StatusCode::NOT_FOUND, &status(404, "NotFound", &format!("{last:?} not found")));
        }
        let parameter = |name: &str| {
            let found = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
            found.map(|value| value.replace("%3D", "="))
        };
        let selector = parameter("fieldSelector");
        let name = selector.as_deref().and_then(|selector| selector.strip_prefix("metadata.name=")).map(str::to_owned);
        match parameter("watch").as_deref() {
            Some("true" | "1") => {
                let since = parameter("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
                state.watch(path, name, since, parameter("sendInitialEvents").is_some())
            }
            _ => {
                let chosen = state.objects.iter().filter(|(place, _)| matches(&path, name.as_deref(), place));
                let items: Vec<_> = chosen.map(|(_, object)| object.clone()).collect();
                let metadata = json!({"resourceVersion": state.revision.to_string()});
                let list = json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items});
                answer(StatusCode::OK, &list)
            }
        }
    }
}

impl State {
    fn tell(&mut self, path: &str, kind: &'static str, object: Value) {
        self.history.push((self.revision, path.to_owned(), kind, object.clone()));
        for watch in self.watches.iter().filter(|watch| matches(&watch.list, watch.name.as_deref(), path)) {
            // A reader that has gone needs no events.
            drop(watch.events.send(event(kind, &object)));
        }
    }

    fn watch(&mut self, list: String, name: Option<String>, since: u64, from_all: bool) -> Answer {
        let (events, stream) = mpsc::unbounded_channel();
        if from_all {
            let all = self.objects.iter().filter(|(path, _)| matches(&list, name.as_deref(), path));
            all.for_each(|(_, object)| drop(events.send(event("ADDED", object))));
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            let metadata = json!({"resourceVersion": self.revision.to_string(), "annotations": annotations});
            drop(events.send(event("BOOKMARK", &json!({"metadata": metadata}))));
        }
        for (revision, path, kind, object) in self.history.iter().filter(|_| !from_all) {
            if *revision > since && matches(&list, name.as_deref(), path) {
                drop(events.send(event(kind, object)));
            }
        }
        self.watches.push(Watch { list, name, events });
        let stream =
            futures::stream::unfold(
                stream,
                |mut stream| async move { stream.recv().await.map(|bytes| (bytes, stream)) },
            );
        let frames = stream.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn token(&mut self) -> Answer {
        if self.tokens_refused {
            return answer(StatusCode::FORBIDDEN, &status(403, "Forbidden", "no tokens today"));
        }
        self.tokens += 1;
        let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(self.token_seconds);
        let object = json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
            "spec": {"audiences": [], "expirationSeconds": TOKEN_SECONDS},
            "status": {"token": format!("token-{}", self.tokens), "expirationTimestamp": expires.to_string()},
        });
        answer(StatusCode::CREATED, &object)
    }
}

/// Whether the object at `path` belongs to the list, of one namespace or of all.
fn matches(list: &str, name: Option<&str>, path: &str) -> bool {
    let Some((parent, own)) = path.rsplit_once('/') else { return false };
    let same = parent == list || {
        let (group, kind) = list.rsplit_once('/').unwrap_or_default();
        parent
            .strip_prefix(group)
            .is_some_and(|rest| rest.starts_with("/namespaces/") && rest.ends_with(&format!("/{kind}")))
    };
    same && name.is_none_or(|name| name == own)
}

fn event(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message, "metadata": {}})
}

fn answer(code: StatusCode, body: &Value) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = code;
    response
}
