//! Decisions told as small texts, one file of `testdata` per theme.
//!
//! ```text
//! node n1 cpu=4 memory=8Gi zone=a          # labels, or cpu, memory, pods, taint=key=value:effect, cordoned
//! pod a on n1 cpu=1 app=web priority=5     # a pod that is there; labels, or cpu, memory, priority, hostPort
//! spec {"tolerations": [...]}              # more of the spec of the pods after it; `spec {}` ends that
//! try b cpu=2 app=web                      # a pod that wants a node
//! = n1                                     # where it goes; it is there from now on
//! ! 0/1 nodes are available: ...           # or why it goes nowhere
//! - a c                                    # and which pods would be preempted, if any
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use crate::cycle::{Decision, decide};
use crate::framework::View;
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::preempt::{Outcome, preempt};
use crate::profile::Profile;
use crate::snapshot::Snapshot;

fn node(name: &str, words: &[&str]) -> Node {
    let mut labels = json!({"kubernetes.io/hostname": name});
    let mut allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let (mut taints, mut cordoned) = (Vec::new(), false);
    for word in words {
        match word.split_once('=') {
            None => cordoned = *word == "cordoned",
            Some((key @ ("cpu" | "memory" | "pods"), value)) => allocatable[key] = value.into(),
            Some(("taint", taint)) => {
                let (rest, effect) = taint.rsplit_once(':').expect("a taint has an effect");
                let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
                taints.push(json!({"key": key, "value": value, "effect": effect}));
            }
            Some((key, value)) => labels[key] = value.into(),
        }
    }
    let object = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": cordoned},
        "status": {"allocatable": allocatable},
    });
    serde_json::from_value(object).expect("a node")
}

fn pod(name: &str, words: &[&str], spec: &Value) -> Pod {
    let mut labels = BTreeMap::new();
    let mut requests = json!({});
    let mut ports = json!([]);
    let mut made = json!({});
    for (key, value) in words.iter().filter_map(|word| word.split_once('=')) {
        match key {
            "cpu" | "memory" => requests[key] = value.into(),
            "priority" => made["priority"] = value.parse::<i32>().expect("a priority").into(),
            "hostPort" => ports = json!([{"containerPort": 1, "hostPort": value.parse::<i32>().expect("a port")}]),
            _ => _ = labels.insert(key, value),
        }
    }
    made["containers"] = json!([{"name": "c", "image": "x", "resources": {"requests": requests}, "ports": ports}]);
    for (key, value) in spec.as_object().into_iter().flatten() {
        made[key] = value.clone();
    }
    let metadata = json!({"name": name, "namespace": "default", "uid": name, "labels": labels});
    serde_json::from_value(json!({"metadata": metadata, "spec": made})).expect("a pod")
}

/// Tells the text again with the outcomes that the scheduler really has.
fn played(text: &str) -> String {
    let (profile, objects) = (Profile::standard(), Objects::empty());
    let mut snapshot = Snapshot::default();
    let mut random = SmallRng::seed_from_u64(1);
    let mut start = 0;
    let mut spec = json!({});
    let mut told = String::new();
    for line in text.lines().filter(|line| !line.starts_with(['=', '!', '-'])) {
        told.push_str(line);
        told.push('\n');
        if let Some(more) = line.strip_prefix("spec ") {
            spec = serde_json::from_str(more).expect("the spec is JSON");
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["node", name, ref rest @ ..] => snapshot.set_node(Arc::new(node(name, rest))),
            ["pod", name, "on", node, ref rest @ ..] => {
                snapshot.add_pod(Arc::new(PodInfo::new(Arc::new(pod(name, rest, &spec)))), node);
            }
            ["try", name, ref rest @ ..] => {
                let pod = Arc::new(PodInfo::new(Arc::new(pod(name, rest, &spec))));
                snapshot.freeze();
                let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
                match decide(&profile, view, &pod, &mut start, &mut random) {
                    Decision::Node(index) => {
                        let node = snapshot.node(index).name.clone();
                        told.push_str(&format!("= {node}\n"));
                        snapshot.add_pod(pod, &node);
                    }
                    Decision::Error(why) => told.push_str(&format!("!! {why}\n")),
                    Decision::Unschedulable(failure) => {
                        told.push_str(&format!("! {}\n", failure.message()));
                        if let Outcome::Victims { victims, .. } = preempt(&profile, view, &pod, &failure, &mut random) {
                            let mut names: Vec<&str> = victims.iter().map(|pod| pod.key.name.as_str()).collect();
                            names.sort_unstable();
                            told.push_str(&format!("- {}\n", names.join(" ")));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    told
}

fn check(theme: &str) {
    let file = format!("{}/src/testdata/{theme}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).expect("the file is there");
    let told = played(&text);
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(&file, told).expect("the file can be written");
    }
    for (number, (expected, told)) in text.lines().zip(told.lines()).enumerate() {
        assert_eq!(told, expected, "{file}:{}", number + 1);
    }
    assert_eq!(told.lines().count(), text.lines().count(), "{file}");
}

macro_rules! themes {
    ($($theme:ident)*) => { $(#[test] fn $theme() { check(stringify!($theme)); })* };
}

themes! {
    resources
    taints
    node_affinity
    host_ports
    pod_affinity
    spread
    preemption
}

#[test]
fn large_clusters_are_not_looked_at_whole() {
    let wanted = |nodes, percentage| crate::cycle::feasible_nodes_wanted(nodes, percentage);
    assert_eq!(wanted(80, 0), 80);
    assert_eq!(wanted(1000, 0), 420);
    assert_eq!(wanted(5000, 0), 500);
    assert_eq!(wanted(6000, 0), 300);
    assert_eq!(wanted(1000, 1), 100);
    assert_eq!(wanted(1000, 100), 1000);
}
