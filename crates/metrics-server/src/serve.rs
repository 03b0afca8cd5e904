//! Answers requests of metrics.k8s.io/v1beta1. Which nodes and pods there are, and which of them are selected, the API
//! server says; only their usage comes from here.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client};
use machinery::duration::written;
use machinery::quantity::Quantity;
use machinery::status::{GroupResource, Status};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::scrape::Scraper;
use crate::window::Usage;

const API_VERSION: &str = "metrics.k8s.io/v1beta1";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Resources,
    Nodes { name: Option<String> },
    Pods { namespace: Option<String>, name: Option<String> },
}

pub async fn answer(client: &Client, scraper: &Arc<Scraper>, request: &Request<Bytes>) -> Response<Bytes> {
    match answered(client, scraper, request).await {
        Ok(value) => response(StatusCode::OK, &value),
        Err(status) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response(code, &status.to_value())
        }
    }
}

fn response(code: StatusCode, value: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{value}\n")));
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

async fn answered(client: &Client, scraper: &Arc<Scraper>, request: &Request<Bytes>) -> Result<Value, Status> {
    let Some(asked) = asked(request.uri().path()) else { return Err(Status::no_such_resource()) };
    let query: Vec<(String, String)> =
        form_urlencoded::parse(request.uri().query().unwrap_or("").as_bytes()).into_owned().collect();
    let parameter = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let watches = matches!(parameter("watch"), Some("true" | "1"));
    if !matches!(*request.method(), Method::GET | Method::HEAD) || watches {
        return Err(Status::method_not_allowed());
    }
    let view = view(request.headers());
    let mut selected = ListParams::default();
    if let Some(labels) = parameter("labelSelector").filter(|text| !text.is_empty()) {
        selected = selected.labels(labels);
    }
    let fields = narrowed(&asked, parameter("fieldSelector").unwrap_or_default());
    if !fields.is_empty() {
        selected = selected.fields(&fields);
    }
    let (kind, items) = match asked {
        Asked::Resources => return Ok(resources()),
        Asked::Nodes { name } => {
            let nodes: Api<Node> = Api::all(client.clone());
            let metadata = match &name {
                Some(name) => {
                    vec![nodes.get_metadata(name).await.map_err(|error| refused(error, "nodes", name))?.metadata]
                }
                None => listed(nodes.list_metadata(&selected).await)?,
            };
            scraper.ready().await;
            let found = metadata.iter().filter_map(|it| {
                let usage = scraper.node(it.name.as_deref()?)?;
                Some((
                    object("NodeMetrics", it, &usage, json!({"usage": used(&usage)}), scraper.now()),
                    usage,
                    vec![usage],
                ))
            });
            let found: Vec<_> = found.collect();
            ("NodeMetrics", one_or_all(found, name, "nodes", view)?)
        }
        Asked::Pods { namespace, name } => {
            let pods: Api<Pod> = match &namespace {
                Some(namespace) => Api::namespaced(client.clone(), namespace),
                None => Api::all(client.clone()),
            };
            let metadata = match &name {
                Some(name) => {
                    vec![pods.get_metadata(name).await.map_err(|error| refused(error, "pods", name))?.metadata]
                }
                None => listed(pods.list_metadata(&selected).await)?,
            };
            scraper.ready().await;
            let found = metadata.iter().filter_map(|it| {
                let containers = scraper.pod(it.namespace.as_deref()?, it.name.as_deref()?)?;
                // The pod as a whole is as old as the oldest of what it is made of.
                let first = containers.values().min_by_key(|usage| usage.at).copied()?;
                let shown: Vec<Value> =
                    containers.iter().map(|(name, usage)| json!({"name": name, "usage": used(usage)})).collect();
                let all = containers.values().copied().collect();
                Some((object("PodMetrics", it, &first, json!({"containers": shown}), scraper.now()), first, all))
            });
            let found: Vec<_> = found.collect();
            ("PodMetrics", one_or_all(found, name, "pods", view)?)
        }
    };
    match items {
        Shown::One(object) => Ok(object),
        Shown::All(items) => {
            Ok(json!({"kind": format!("{kind}List"), "apiVersion": API_VERSION, "metadata": {}, "items": items}))
        }
        Shown::Table(rows) => Ok(json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns(), "rows": rows,
        })),
        Shown::Partial(items) => Ok(json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items,
        })),
    }
}

/// Only pods that run use anything, as upstream's server sees it, too. Of the others there can be very many, and a page that shows
/// usage asks again and again.
fn narrowed(asked: &Asked, fields: &str) -> String {
    match asked {
        Asked::Pods { .. } if fields.is_empty() => "status.phase=Running".into(),
        Asked::Pods { .. } => format!("{fields},status.phase=Running"),
        Asked::Resources | Asked::Nodes { .. } => fields.into(),
    }
}

/// An object, the usage its time comes from, and what its row is the sum of.
type Found = (Value, Usage, Vec<Usage>);

enum Shown {
    One(Value),
    All(Vec<Value>),
    Table(Vec<Value>),
    Partial(Vec<Value>),
}

/// How a client wants to see objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum View {
    Whole,
    Table,
    Metadata,
}

fn one_or_all(found: Vec<Found>, name: Option<String>, plural: &str, view: View) -> Result<Shown, Status> {
    if let Some(name) = &name
        && found.is_empty()
    {
        // It is there, but nothing is known of it yet.
        return Err(Status::not_found(GroupResource { group: "metrics.k8s.io", resource: plural }, name));
    }
    match (view, &name) {
        (View::Table, _) => return Ok(Shown::Table(found.iter().map(row).collect())),
        (View::Metadata, Some(_)) => return Ok(Shown::One(metadata_only(&found[0].0))),
        (View::Metadata, None) => {
            return Ok(Shown::Partial(found.iter().map(|(object, ..)| metadata_only(object)).collect()));
        }
        (View::Whole, _) => {}
    }
    let mut objects: Vec<Value> = found.into_iter().map(|(object, _, _)| object).collect();
    match name {
        Some(_) => Ok(Shown::One(objects.swap_remove(0))),
        None => Ok(Shown::All(objects)),
    }
}

fn asked(path: &str) -> Option<Asked> {
    let rest = path.strip_prefix("/apis/metrics.k8s.io/v1beta1")?;
    let decoded = rest.split('/').filter(|part| !part.is_empty()).map(|part| percent_decode_str(part).decode_utf8());
    let parts = decoded.collect::<Result<Vec<_>, _>>().ok()?;
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let owned = |text: &&str| Some(text.to_string());
    match parts.as_slice() {
        [] => Some(Asked::Resources),
        ["nodes"] => Some(Asked::Nodes { name: None }),
        ["nodes", name] => Some(Asked::Nodes { name: owned(name) }),
        ["pods"] => Some(Asked::Pods { namespace: None, name: None }),
        ["namespaces", namespace, "pods"] => Some(Asked::Pods { namespace: owned(namespace), name: None }),
        ["namespaces", namespace, "pods", name] => Some(Asked::Pods { namespace: owned(namespace), name: owned(name) }),
        _ => None,
    }
}

fn resources() -> Value {
    let resource = |name: &str, namespaced: bool, kind: &str| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION,
        "resources": [resource("nodes", false, "NodeMetrics"), resource("pods", true, "PodMetrics")],
    })
}

/// What the client prefers; it says so first.
fn view(headers: &http::HeaderMap) -> View {
    let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let first = accept.split(',').next().unwrap_or("");
    let asks = |kind: &str| first.split(';').any(|parameter| parameter.trim().strip_prefix("as=") == Some(kind));
    if !first.contains("g=meta.k8s.io") {
        View::Whole
    } else if asks("Table") {
        View::Table
    } else if asks("PartialObjectMetadata") || asks("PartialObjectMetadataList") {
        View::Metadata
    } else {
        View::Whole
    }
}

fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn columns() -> Value {
    let column = |name: &str, format: &str, description: &str| json!({"name": name, "type": "string", "format": format, "description": description, "priority": 0});
    json!([
        column("Name", "name", "Name of the resource"),
        column("cpu", "quantity", ""),
        column("memory", "quantity", ""),
        column("Window", "duration", ""),
    ])
}

fn row((object, first, all): &Found) -> Value {
    let sum = Usage {
        cpu_nanos: all.iter().map(|usage| usage.cpu_nanos).sum(),
        memory_bytes: all.iter().map(|usage| usage.memory_bytes).sum(),
        ..*first
    };
    let total = used(&sum);
    let cells = json!([object["metadata"]["name"], total["cpu"], total["memory"], object["window"]]);
    json!({"cells": cells, "object": metadata_only(object)})
}

fn object(kind: &str, of: &ObjectMeta, usage: &Usage, content: Value, now: Timestamp) -> Value {
    let mut metadata = json!({"name": of.name, "creationTimestamp": stamp(now.as_millisecond())});
    if let Some(namespace) = &of.namespace {
        metadata["namespace"] = namespace.as_str().into();
    }
    if let Some(labels) = of.labels.as_ref().filter(|labels| !labels.is_empty()) {
        metadata["labels"] = json!(labels);
    }
    let mut object = json!({
        "kind": kind, "apiVersion": API_VERSION, "metadata": metadata,
        "timestamp": stamp(usage.at), "window": written(SignedDuration::from_millis(usage.window_millis)),
    });
    for (field, value) in content.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

fn used(usage: &Usage) -> Value {
    let canonical = |text: String| Quantity::parse(&text).map(|quantity| quantity.canonical()).unwrap_or(text);
    json!({
        "cpu": canonical(format!("{}n", usage.cpu_nanos)),
        "memory": canonical(format!("{}Ki", usage.memory_bytes / 1024)),
    })
}

fn stamp(millis: i64) -> String {
    let time = Timestamp::from_millisecond(millis).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn listed<K: Clone>(
    list: Result<kube::core::ObjectList<kube::core::PartialObjectMeta<K>>, kube::Error>,
) -> Result<Vec<ObjectMeta>, Status> {
    match list {
        Ok(list) => Ok(list.items.into_iter().map(|item| item.metadata).collect()),
        Err(kube::Error::Api(said)) if said.code == 400 => Err(Status::bad_request(said.message.clone())),
        Err(error) => Err(Status::internal(error.to_string())),
    }
}

fn refused(error: kube::Error, plural: &str, name: &str) -> Status {
    match error {
        kube::Error::Api(said) if said.code == 404 => {
            Status::not_found(GroupResource { group: "metrics.k8s.io", resource: plural }, name)
        }
        error => Status::internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_that_run_are_asked_for() {
        let pods = Asked::Pods { namespace: None, name: None };
        assert_eq!(narrowed(&pods, ""), "status.phase=Running");
        assert_eq!(narrowed(&pods, "metadata.name=a"), "metadata.name=a,status.phase=Running");
        assert_eq!(narrowed(&Asked::Nodes { name: None }, ""), "");
    }

    #[test]
    fn paths() {
        let check =
            |rest: &str, expected: Option<Asked>| assert_eq!(asked(&format!("/apis/{API_VERSION}{rest}")), expected);
        let text = |text: &str| Some(text.to_string());
        check("", Some(Asked::Resources));
        check("/", Some(Asked::Resources));
        check("/nodes", Some(Asked::Nodes { name: None }));
        check("/nodes/a%2Eb", Some(Asked::Nodes { name: text("a.b") }));
        check("/pods", Some(Asked::Pods { namespace: None, name: None }));
        check("/namespaces/n/pods/p", Some(Asked::Pods { namespace: text("n"), name: text("p") }));
        check("/namespaces/n", None);
        check("/pods/p", None);
    }

    #[test]
    fn clients_choose_what_they_see() {
        let check = |accept: &str, expected: View| {
            let headers = [(http::header::ACCEPT, accept.parse().unwrap())].into_iter().collect();
            assert_eq!(view(&headers), expected, "{accept}");
        };
        check("application/json", View::Whole);
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", View::Table);
        check("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", View::Metadata);
        check("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", View::Metadata);
        check("application/json,application/json;as=Table;v=v1;g=meta.k8s.io", View::Whole);
    }

    #[test]
    fn numbers_as_go_writes_them() {
        for (millis, expected) in [(2_000, "2s"), (15_120, "15.12s"), (60_000, "1m0s"), (75_005, "1m15.005s")] {
            assert_eq!(written(SignedDuration::from_millis(millis)), expected);
        }
        let usage = Usage { at: 0, window_millis: 1, cpu_nanos: 1_234_567, memory_bytes: 3 * 1024 * 1024 + 4096 };
        assert_eq!(used(&usage), json!({"cpu": "1234567n", "memory": "3076Ki"}));
        let usage = Usage { cpu_nanos: 250_000_000, memory_bytes: 5 << 20, ..usage };
        assert_eq!(used(&usage), json!({"cpu": "250m", "memory": "5Mi"}));
    }
}
