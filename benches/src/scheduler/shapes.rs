//! The shapes of scheduler_perf: what is there before, and the pods that are measured.

use serde_json::{Value, json};

pub struct Shape {
    pub name: &'static str,
    /// Pods that are there before, of which none is measured.
    pub before: Option<fn(usize) -> Value>,
    /// How many of them, for so many nodes.
    pub before_count: fn(usize) -> usize,
    /// Whether those find nodes.
    pub before_bound: bool,
    pub measured: fn(usize) -> Value,
    pub measured_count: usize,
}

pub static SHAPES: &[Shape] = &[
    Shape { name: "basic", measured: basic, ..PLAIN },
    Shape { name: "node affinity", measured: node_affinity, ..PLAIN },
    Shape { name: "pod affinity", measured: pod_affinity, measured_count: 1000, ..PLAIN },
    Shape { name: "pod anti-affinity", measured: pod_anti_affinity, measured_count: 1000, ..PLAIN },
    Shape { name: "topology spread", measured: spread, ..PLAIN },
    Shape {
        name: "preemption",
        before: Some(low),
        before_count: |nodes| nodes,
        measured: high,
        measured_count: 500,
        ..PLAIN
    },
    Shape {
        name: "unschedulable mix",
        before: Some(too_large),
        before_count: |_| 200,
        before_bound: false,
        measured: basic,
        ..PLAIN
    },
];

const PLAIN: Shape =
    Shape { name: "", before: None, before_count: |_| 0, before_bound: true, measured: basic, measured_count: 2000 };

fn pod(name: String, labels: Value, cpu: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "100Mi"}}}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name, "labels": labels}, "spec": spec})
}

fn basic(number: usize) -> Value {
    pod(format!("basic-{number}"), json!({"app": "basic"}), "100m", json!({}))
}

fn node_affinity(number: usize) -> Value {
    let zones = json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-0", "zone-1"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}});
    pod(format!("near-{number}"), json!({"app": "near"}), "100m", json!({"affinity": affinity}))
}

fn pod_affinity(number: usize) -> Value {
    let term =
        json!([{"labelSelector": {"matchLabels": {"color": "blue"}}, "topologyKey": "topology.kubernetes.io/zone"}]);
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    pod(format!("blue-{number}"), json!({"color": "blue"}), "100m", json!({"affinity": affinity}))
}

fn pod_anti_affinity(number: usize) -> Value {
    let term = json!([{"labelSelector": {"matchLabels": {"color": "green"}}, "topologyKey": "kubernetes.io/hostname"}]);
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    pod(format!("green-{number}"), json!({"color": "green"}), "100m", json!({"affinity": affinity}))
}

fn spread(number: usize) -> Value {
    let constraint = json!([{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"color": "blue"}}}]);
    pod(format!("spread-{number}"), json!({"color": "blue"}), "100m", json!({"topologySpreadConstraints": constraint}))
}

/// One of these fills a node.
fn low(number: usize) -> Value {
    pod(
        format!("low-{number}"),
        json!({"app": "low"}),
        "3500m",
        json!({"priority": 0, "terminationGracePeriodSeconds": 0}),
    )
}

fn high(number: usize) -> Value {
    pod(
        format!("high-{number}"),
        json!({"app": "high"}),
        "3000m",
        json!({"priorityClassName": "high", "priority": 1000}),
    )
}

fn too_large(number: usize) -> Value {
    pod(format!("large-{number}"), json!({"app": "large"}), "9", json!({}))
}
