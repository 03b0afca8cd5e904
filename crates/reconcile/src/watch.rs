//! A watch over one kind that never ends. The lines of its stream are taken apart here, once for all kinds; objects are handed on
//! as text, and only who takes them knows their type. That keeps the code of some sixty kinds small and decodes each object once.

use std::io;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use kube::Client;
use kube::api::WatchParams;
use kube::core::Status;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The server ends a watch after this time, and it begins again where it was.
const WATCH_SECONDS: u32 = 290;
/// A stream that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(295);
/// Whoever ends a watch at once may do so again.
const SHORT: Duration = Duration::from_secs(1);

/// What is watched: the path of a kind's list, and the selectors of those that count; empty for all.
#[derive(Default)]
pub struct Watched {
    pub kind: String,
    pub path: String,
    pub fields: String,
    pub labels: String,
}

pub enum Change<'a> {
    /// All objects follow, because the watch begins.
    Listing,
    Listed(&'a str),
    /// There are no others.
    Complete,
    Put(&'a str),
    Gone(&'a str),
}

pub trait Taker: Send {
    /// Takes a change and answers the object's revision. An object that it cannot read is left out.
    fn take(&mut self, change: Change<'_>) -> serde_json::Result<u64>;

    /// Hears why a watch ended that is tried again.
    fn failed(&mut self, watched: &Watched, error: &str) {
        tracing::warn!(kind = watched.kind, error, "a watch failed and is tried again");
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Refused(#[from] kube::Error),
    #[error("{}", .0.message)]
    Ended(Box<Status>),
    #[error(transparent)]
    Broken(#[from] io::Error),
    #[error("the stream is silent")]
    Silent,
    #[error("a line that is no event: {0}")]
    Unreadable(serde_json::Error),
    #[error("the stream ended at once")]
    Short,
}

impl Failure {
    /// Whether the server does not know where the watch was, no longer or not yet.
    fn is_expired(&self) -> bool {
        match self {
            Failure::Refused(kube::Error::Api(status)) | Failure::Ended(status) => {
                status.code == 410 || is_too_large(status)
            }
            _ => false,
        }
    }
}

/// Whether a watch wants to go on behind what the API server knows, as after a snapshot was restored. Waiting would be in vain.
fn is_too_large(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 504 && causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
}

/// Follows the kind until it is dropped.
pub async fn follow(client: Client, watched: Watched, taker: &mut dyn Taker) {
    let mut backoff = DefaultBackoff::default();
    let mut position = None;
    loop {
        let began = tokio::time::Instant::now();
        let mut heard = false;
        let failure = match watch(&client, &watched, &mut position, taker, &mut heard).await {
            Ok(()) if heard || began.elapsed() >= SHORT => None,
            Ok(()) => Some(Failure::Short),
            // The server went away; another may be there already.
            Err(Failure::Broken(_)) if heard => None,
            Err(failure) => Some(failure),
        };
        if heard {
            backoff.reset();
        }
        let Some(failure) = failure else { continue };
        if failure.is_expired() {
            position = None;
        }
        taker.failed(&watched, &failure.to_string());
        tokio::time::sleep(backoff.next().unwrap_or(SHORT)).await;
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: kube::core::watch::BookmarkMeta,
}

const INITIAL_END: &str = "k8s.io/initial-events-end";

/// One watch until its end: from its beginning with all objects, or from a position.
async fn watch(
    client: &Client,
    watched: &Watched,
    position: &mut Option<u64>,
    taker: &mut dyn Taker,
    heard: &mut bool,
) -> Result<(), Failure> {
    let mut stream = Box::pin(client.request_stream(request(watched, *position)?).await?);
    let mut listing = position.is_none();
    if listing {
        _ = taker.take(Change::Listing);
    }
    let mut line = Vec::new();
    while next_line(stream.as_mut(), &mut line).await? {
        *heard = true;
        let event: Line = match serde_json::from_slice(&line) {
            Ok(event) => event,
            Err(error) => match serde_json::from_slice::<Status>(&line) {
                Ok(status) if status.code != 0 => return Err(Failure::Ended(Box::new(status))),
                _ => return Err(Failure::Unreadable(error)),
            },
        };
        let object = event.object.get();
        let change = match event.kind {
            "ADDED" | "MODIFIED" if listing => Change::Listed(object),
            "ADDED" | "MODIFIED" => Change::Put(object),
            "DELETED" => Change::Gone(object),
            "BOOKMARK" => {
                let Bookmark { metadata } = serde_json::from_str(object).map_err(Failure::Unreadable)?;
                if listing && metadata.annotations.contains_key(INITIAL_END) {
                    listing = false;
                    _ = taker.take(Change::Complete);
                }
                if !listing {
                    *position = metadata.resource_version.parse().ok().or(*position);
                }
                continue;
            }
            _ => return Err(Failure::Ended(serde_json::from_str(object).map_err(Failure::Unreadable)?)),
        };
        match taker.take(change) {
            Ok(revision) if !listing && revision > 0 => *position = Some(revision),
            Ok(_) => {}
            Err(error) => tracing::warn!(kind = watched.kind, %error, "an object cannot be read and is left out"),
        }
    }
    Ok(())
}

fn request(watched: &Watched, position: Option<u64>) -> Result<http::Request<Vec<u8>>, kube::Error> {
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    if !watched.fields.is_empty() {
        params = params.fields(&watched.fields);
    }
    if !watched.labels.is_empty() {
        params = params.labels(&watched.labels);
    }
    let from = match position {
        Some(revision) => revision.to_string(),
        None => {
            params = params.initial_events();
            "0".to_owned()
        }
    };
    let mut request =
        kube::core::Request::new(watched.path.as_str()).watch(&params, &from).map_err(kube::Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(request)
}

/// The next line into the buffer; false at the end. Half a line at the end is none.
async fn next_line(mut stream: impl AsyncBufRead + Unpin, line: &mut Vec<u8>) -> Result<bool, Failure> {
    line.clear();
    match tokio::time::timeout(SILENCE, stream.read_until(b'\n', line)).await {
        Err(_) => Err(Failure::Silent),
        Ok(Ok(_)) => Ok(line.ends_with(b"\n")),
        Ok(Err(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// What each request is answered with, and what was asked.
    #[derive(Clone, Default)]
    struct Server {
        answers: Arc<Mutex<VecDeque<(u16, String)>>>,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let answer = move |request: http::Request<Body>| {
                let server = server.clone();
                async move {
                    server.asked.lock().push(request.uri().query().unwrap_or_default().to_owned());
                    let next = server.answers.lock().pop_front();
                    // The last watch stays open.
                    let Some((code, body)) = next else { return std::future::pending().await };
                    http::Response::builder().status(code).body(Body::from(body.into_bytes()))
                }
            };
            Client::new(tower::service_fn(answer), "default")
        }
    }

    #[derive(Default)]
    struct Names(Arc<Mutex<Vec<String>>>);

    impl Taker for Names {
        fn take(&mut self, change: Change<'_>) -> serde_json::Result<u64> {
            let (what, text) = match change {
                Change::Listing => ("listing", None),
                Change::Listed(text) => ("listed", Some(text)),
                Change::Complete => ("complete", None),
                Change::Put(text) => ("put", Some(text)),
                Change::Gone(text) => ("gone", Some(text)),
            };
            let Some(text) = text else {
                self.0.lock().push(what.to_owned());
                return Ok(0);
            };
            let object: k8s_openapi::api::core::v1::ConfigMap = serde_json::from_str(text)?;
            self.0.lock().push(format!("{what} {}", object.metadata.name.unwrap_or_default()));
            Ok(object.metadata.resource_version.and_then(|version| version.parse().ok()).unwrap_or(0))
        }
    }

    fn line(kind: &str, name: &str, version: u64) -> String {
        let metadata = json!({"name": name, "resourceVersion": version.to_string()});
        format!(
            "{}\n",
            json!({"type": kind, "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}})
        )
    }

    fn end_of_list(version: u64) -> String {
        let metadata = json!({"resourceVersion": version.to_string(), "annotations": {INITIAL_END: "true"}});
        format!(
            "{}\n",
            json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}})
        )
    }

    /// What is taken, and what the server is asked, with these answers.
    async fn play(answers: &[(u16, String)]) -> (Vec<String>, Vec<String>) {
        let server = Server::default();
        server.answers.lock().extend(answers.iter().cloned());
        let path = "/api/v1/configmaps".into();
        let watched =
            Watched { kind: "ConfigMap".into(), path, fields: "metadata.name!=x".into(), labels: "a=b".into() };
        let mut names = Names::default();
        let taken = names.0.clone();
        let all = follow(server.client(), watched, &mut names);
        _ = tokio::time::timeout(Duration::from_secs(200), all).await;
        (taken.lock().clone(), server.asked.lock().clone())
    }

    #[tokio::test(start_paused = true)]
    async fn it_lists_follows_and_goes_on_where_it_was() {
        let first = [line("ADDED", "a", 3), end_of_list(7), line("MODIFIED", "a", 8), line("DELETED", "a", 9)].concat();
        let cut = format!("{}{{\"type\":\"ADDED\",\"obj", line("ADDED", "b", 12));
        let (taken, asked) = play(&[(200, first), (200, cut)]).await;
        assert_eq!(taken, ["listing", "listed a", "complete", "put a", "gone a", "put b"]);
        let from =
            |query: &str| query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).map(str::to_owned);
        assert_eq!(asked.iter().filter_map(|query| from(query)).collect::<Vec<_>>(), ["0", "9", "12"]);
        assert!(asked[0].contains("sendInitialEvents=true") && !asked[1].contains("sendInitialEvents"), "{asked:?}");
        assert!(asked.iter().all(|query| query.contains("fieldSelector=metadata.name%21%3Dx")), "{asked:?}");
        assert!(asked.iter().all(|query| query.contains("labelSelector=a%3Db")), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_came_too_late_lists_again() {
        let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
        let told = format!("{}\n", json!({"type": "ERROR", "object": gone}));
        let list = |name: &str| [line("ADDED", name, 3), end_of_list(7)].concat();
        // A server that was set back to an older state is behind where the watch was.
        let behind = json!({"kind": "Status", "status": "Failure", "code": 504, "message": "Too large resource version",
            "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "", "field": ""}]}});
        let (first, late) = ([(200, list("a")), (200, told)], [(200, list("b")), (410, gone.to_string())]);
        let ahead = [(200, list("c")), (504, behind.to_string()), (200, list("d"))];
        let (taken, asked) = play(&[&first[..], &late, &ahead].concat()).await;
        let expected =
            ["a", "b", "c", "d"].map(|name| ["listing".to_owned(), format!("listed {name}"), "complete".to_owned()]);
        assert_eq!(taken, expected.concat());
        assert_eq!(asked.len(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_cannot_be_read_breaks_nothing() {
        let broken = format!("{}\n", json!({"type": "ADDED", "object": {"metadata": 5}}));
        let (taken, asked) = play(&[(200, [line("ADDED", "a", 3), broken, end_of_list(7)].concat())]).await;
        assert_eq!(taken, ["listing", "listed a", "complete"]);
        assert_eq!(asked.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_always_ends_at_once_is_asked_slowly() {
        let nothing: Vec<(u16, String)> = (0..100).map(|_| (200, String::new())).collect();
        let (taken, asked) = play(&nothing).await;
        assert!(taken.iter().all(|what| what == "listing"), "{taken:?}");
        assert!(asked.len() < 15, "{}", asked.len());
    }
}
