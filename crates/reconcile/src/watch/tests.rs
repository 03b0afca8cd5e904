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
    format!("{}\n", json!({"type": kind, "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}}))
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
    let watched = Watched { kind: "ConfigMap".into(), path, fields: "metadata.name!=x".into(), labels: "a=b".into() };
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
    let from = |query: &str| query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).map(str::to_owned);
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

/// What v1.36 answers without its feature WatchList.
const FORBIDDEN: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","field":"sendInitialEvents"}]},"code":422}"#;

/// What v1.36 writes into the stream on an etcd that cannot report its progress.
const NO_PROGRESS: &str = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled","reason":"InternalError","details":{"causes":[{"message":"a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"}]},"code":500}}"#;

const EXPIRED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"The provided continue parameter is too old to display a consistent list result.","reason":"Expired","code":410}"#;

fn page(names: &[&str], version: u64, next: &str) -> String {
    // Items of lists do not say what they are.
    let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name, "resourceVersion": "3"}})).collect();
    let items = if items.is_empty() { serde_json::Value::Null } else { items.into() };
    let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
    format!("{}\n", json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}))
}

/// What was asked, without what is the same in all: `stream`, `list <limit> <token>` and `watch <revision>`.
fn shown(asked: &[String]) -> Vec<String> {
    let show = |query: &String| {
        let all: std::collections::HashMap<String, String> =
            query.split('&').filter_map(|part| part.split_once('=')).map(|(a, b)| (a.into(), b.into())).collect();
        let get = |name: &str| all.get(name).map(String::as_str).unwrap_or("-");
        match (get("watch"), get("sendInitialEvents")) {
            ("true", "true") => "stream".to_owned(),
            ("true", _) => format!("watch {}", get("resourceVersion")),
            _ => format!("list {} {}", get("limit"), get("continue")),
        }
    };
    asked.iter().map(show).collect()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_all_objects_is_asked_for_lists() {
    let event = line("ADDED", "c", 12);
    let pages = [(200, page(&["a"], 10, "next")), (200, page(&["b"], 10, ""))];
    let again = [(200, page(&[], 20, ""))];
    let gone = (410, EXPIRED.to_owned());
    let mut answers = vec![(422, FORBIDDEN.to_owned())];
    answers.extend(pages);
    answers.extend([(200, event), gone]);
    answers.extend(again);
    let (taken, asked) = play(&answers).await;
    assert_eq!(taken, ["listing", "listed a", "listed b", "complete", "put c", "listing", "complete"]);
    // It remembers: the second time there is no question about the stream.
    let expected = ["stream", "list 500 -", "list 500 next", "watch 10", "watch 12", "list 500 -", "watch 20"];
    assert_eq!(shown(&asked), expected);
    assert!(asked.iter().all(|query| query.contains("labelSelector=a%3Db")), "{asked:?}");
    assert!(asked.iter().all(|query| query.contains("fieldSelector=metadata.name%21%3Dx")), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn every_way_to_refuse_the_stream_ends_in_a_list() {
    let bad = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"sendInitialEvents is forbidden","reason":"BadRequest","code":400}"#;
    // A server that does not know the parameter sends what is there, and later a bookmark like any other.
    let metadata = json!({"resourceVersion": "9", "creationTimestamp": null});
    let plain = format!(
        "{}\n",
        json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}})
    );
    let old = line("ADDED", "z", 5) + &plain;
    let cut = line("ADDED", "z", 5);
    for (code, refusal) in
        [(400, bad.to_owned()), (200, format!("{NO_PROGRESS}\n")), (200, old), (200, cut), (500, "broken".into())]
    {
        let (taken, asked) = play(&[(code, refusal.clone()), (200, page(&["a"], 10, ""))]).await;
        let taken: Vec<&String> = taken.iter().filter(|what| *what != "listed z").collect();
        assert_eq!(taken[taken.len() - 3..], ["listing", "listed a", "complete"], "{refusal}");
        assert_eq!(shown(&asked), ["stream", "list 500 -", "watch 10"], "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_too_is_asked_for_slowly() {
    let refused = || (403, FORBIDDEN.replace("422", "403").replace("Invalid", "Forbidden"));
    let answers: Vec<(u16, String)> = (0..100).map(|_| refused()).collect();
    let (taken, asked) = play(&answers).await;
    assert!(!taken.contains(&"complete".to_owned()), "{taken:?}");
    assert!(asked.len() < 30, "{}", asked.len());
    assert_eq!(shown(&asked)[..4], ["stream", "list 500 -", "stream", "list 500 -"]);
    // Who is not there, or has no time, is not asked for a list besides.
    let answers: Vec<(u16, String)> = (0..100).map(|_| (503, "not now".to_owned())).collect();
    let (_, asked) = play(&answers).await;
    assert!(shown(&asked).iter().all(|what| what == "stream"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_its_pages_is_asked_for_as_a_whole() {
    let answers = [
        (422, FORBIDDEN.to_owned()),
        (200, page(&["a"], 10, "next")),
        (410, EXPIRED.to_owned()),
        (200, page(&["a", "b"], 20, "")),
    ];
    let (taken, asked) = play(&answers).await;
    assert_eq!(taken, ["listing", "listed a", "listing", "listed a", "listed b", "complete"]);
    assert_eq!(shown(&asked), ["stream", "list 500 -", "list 500 next", "list - -", "watch 20"]);
}

#[tokio::test(start_paused = true)]
async fn white_space_and_length_of_events_do_not_matter() {
    let inside = line("ADDED", "a", 3).replace("\"type\"", "\n\n  \"type\"");
    let two = line("ADDED", "b", 4).trim_end().to_owned() + &line("ADDED", "c", 5);
    let long = line("ADDED", "d", 6)
        .replace("\"ConfigMap\"", &format!("\"ConfigMap\",\"data\":{{\"x\":\"{}\"}}", "y".repeat(5 << 20)));
    let end = end_of_list(7).trim_end().to_owned();
    let body = ["\n \n", &inside, "\r\n", &two, "\n\n", &long, "\n", &end].concat();
    let (taken, asked) = play(&[(200, body)]).await;
    assert_eq!(taken, ["listing", "listed a", "listed b", "listed c", "listed d", "complete"]);
    assert_eq!(shown(&asked), ["stream", "watch 7"]);
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
