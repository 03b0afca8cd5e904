//! How long one decision takes in a large cluster: `cargo test --release -p kube-scheduler -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use crate::cycle::{Decision, decide};
use crate::framework::View;
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::profile::Profile;
use crate::snapshot::Snapshot;

const NODES: usize = 5000;
const DECISIONS: usize = 2000;

fn cluster() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for index in 0..NODES {
        let name = format!("node-{index}");
        let labels =
            json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", index % 3)});
        let amounts = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}});
        snapshot.set_node(Arc::new(serde_json::from_value(node).expect("a node")));
    }
    snapshot
}

fn pod(index: usize, spec: &Value) -> Arc<PodInfo> {
    let name = format!("pod-{index}");
    let mut made =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]});
    for (key, value) in spec.as_object().into_iter().flatten() {
        made[key] = value.clone();
    }
    let object =
        json!({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "web"}}, "spec": made});
    Arc::new(PodInfo::new(Arc::new(serde_json::from_value(object).expect("a pod"))))
}

fn measure(shape: &str, spec: &Value) {
    let (mut snapshot, profile, objects) = (cluster(), Profile::standard(), Objects::empty());
    let (mut start, mut random) = (0, SmallRng::seed_from_u64(1));
    let pods: Vec<Arc<PodInfo>> = (0..DECISIONS).map(|index| pod(index, spec)).collect();
    let began = Instant::now();
    for pod in &pods {
        snapshot.freeze();
        let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
        if let Decision::Node(index) = decide(&profile, view, pod, &mut start, &mut random) {
            let node = snapshot.node(index).name.clone();
            snapshot.add_pod(pod.clone(), &node);
        }
    }
    println!("{shape}: {:?} a decision on {NODES} nodes", began.elapsed() / DECISIONS as u32);
}

#[test]
#[ignore = "measures, and wants a release build"]
fn decisions() {
    let selector = json!({"matchLabels": {"app": "web"}});
    measure("basic", &json!({}));
    measure(
        "spread",
        &json!({"topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]}),
    );
    measure("no room", &json!({"nodeSelector": {"is": "nowhere"}}));
}
