//! Whole commands against an API of fixed answers: what they ask, what they print and how they end. Texts are upstream's v1.36.

mod create;
mod create_config;
mod create_rbac;
mod make;
mod get;
mod change;
mod set;
mod nodes;
mod delete;
mod apply;
mod rollout;
mod wait;
mod describe;
mod describe_upstream;
mod look;
mod auth;
mod config;
mod local;
mod refused;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fake::{Fake, Ran};

/// Runs a line that asks no server, and holds what it prints against a text. The first line end of the text is not part of it.
fn prints(line: &str, expected: &str) {
    let ran = Fake::new().run(line);
    assert_eq!((ran.err.as_str(), ran.code), ("", 0), "{line}");
    assert_eq!(ran.out, expected.strip_prefix('\n').unwrap_or(expected), "{line}");
    assert!(ran.requests.is_empty(), "{line}: {:?}", ran.lines());
}

/// The object that a line would send, as YAML.
fn makes(line: &str, expected: &str) {
    let (command, rest) = match line.split_once(" -- ") {
        Some((command, rest)) => (command, format!(" -- {rest}")),
        None => (line, String::new()),
    };
    prints(&format!("{command} --dry-run=client -o yaml{rest}"), expected);
}

/// A line that is refused before any server is asked, with these words behind `error: `.
fn refuses(line: &str, expected: &str) {
    let ran = Fake::new().run(line);
    assert_eq!((ran.out.as_str(), ran.code), ("", 1), "{line}: {}", ran.err);
    assert_eq!(ran.err, format!("error: {expected}\n"), "{line}");
    assert!(ran.requests.is_empty(), "{line}: {:?}", ran.lines());
}

/// The same with the hint at the command's help.
fn misused(line: &str, command: &str, expected: &str) {
    refuses(line, &format!("{expected}\nSee 'kubectl {command} -h' for help and examples"));
}

fn ended_well(ran: &Ran, out: &str) {
    assert_eq!((ran.err.as_str(), ran.out.as_str(), ran.code), ("", out, 0), "{:?}", ran.lines());
}

fn ended_badly(ran: &Ran, err: &str) {
    assert_eq!((ran.err.as_str(), ran.code), (err, 1), "{:?}", ran.lines());
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "3"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "nginx"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "4",
            "generation": 1, "annotations": {"deployment.kubernetes.io/revision": "2"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "nginx:1", "ports": [{"containerPort": 80}]}]}}},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 2},
    })
}

#[test]
fn selectors_become_texts() {
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
        {"key": "c", "operator": "In", "values": ["x", "y"]},
        {"key": "d", "operator": "NotIn", "values": ["z"]},
        {"key": "e", "operator": "Exists"},
        {"key": "f", "operator": "DoesNotExist"},
        {"key": "g", "operator": "Near"},
    ]});
    assert_eq!(super::selector_text(&selector), "a=b,c in (x,y),d notin (z),e,!f");
    assert_eq!(super::selector_text(&json!({})), "");
}
