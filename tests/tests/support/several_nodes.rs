//! Pods on the nodes of a cluster of several machines, and what they see of each other.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Cluster, Kubectl};

pub const IMAGE: &str = "knarr.dev/demo";
/// Debug builds on a machine that runs other tests, too.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

/// A cluster whose nodes are ready for pods.
pub fn start(nodes: u8, links: u8, arguments: &[&str]) -> Cluster {
    let cluster = Cluster::start(nodes, links, arguments).unwrap();
    cluster.server.default_account("default").unwrap();
    let kubectl = cluster.server.kubectl();
    kubectl.ok(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=90s"]);
    eventually("all nodes are there", || {
        kubectl.ok(&["get", "nodes", "-o", "name"]).lines().count() == usize::from(nodes)
    });
    kubectl.ok(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=90s"]);
    cluster
}

/// A pod that serves on port 8080 and says who asked, under `app=<name>`.
pub fn server_pod(name: &str, node: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": format!("node-{node}"), "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
                "args": ["serve", "--port", "8080", "--port", "9090"],
                "ports": [{"name": "web", "containerPort": 8080}, {"name": "extra", "containerPort": 9090}],
            }],
        },
    })
}

/// Makes pods, and answers their addresses once all are ready.
pub fn run_pods(kubectl: &Kubectl, pods: &[Value]) -> BTreeMap<String, String> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    kubectl.ok_with(&["apply", "-f", "-"], &list.to_string());
    let names: Vec<String> = pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    for name in &names {
        kubectl.ok(&["wait", "--for=condition=Ready", &format!("pod/{name}"), "--timeout=90s"]);
    }
    let address = |name: &String| kubectl.ok(&["get", "pod", name, "-o", "jsonpath={.status.podIP}"]);
    names.iter().map(|name| (name.clone(), address(name))).collect()
}

/// Whom the server at an address saw when this pod asked; nothing where no answer came.
pub fn seen(kubectl: &Kubectl, from: &str, address: &str, port: u16) -> Option<String> {
    let url = format!("http://{address}:{port}/");
    let output = kubectl.run(&["exec", from, "--", "get", &url, "--timeout", "2"]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let remote = text.lines().find_map(|line| line.strip_prefix("remote: "))?;
    Some(remote.rsplit_once(':')?.0.to_owned())
}
