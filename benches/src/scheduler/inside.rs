//! Decisions alone: a plain loop over the scheduler's cycle, with the snapshot in memory and nothing written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube_scheduler::cycle::{Decision, decide};
use kube_scheduler::framework::View;
use kube_scheduler::objects::Objects;
use kube_scheduler::pod_info::PodInfo;
use kube_scheduler::preempt::preempt;
use kube_scheduler::profile::Profile;
use kube_scheduler::snapshot::Snapshot;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::shapes::Shape;

const TIME_MAX: Duration = Duration::from_secs(10);

pub fn decisions_per_second(shape: &Shape, nodes: usize) -> f64 {
    let (profile, objects) = (Profile::standard(), Objects::empty());
    let (mut random, mut start) = (SmallRng::seed_from_u64(1), 0);
    let mut snapshot = Snapshot::default();
    for number in 0..nodes {
        snapshot.set_node(Arc::new(node(number)));
    }
    if let Some(before) = shape.before.filter(|_| shape.before_bound) {
        for number in 0..(shape.before_count)(nodes) {
            snapshot.add_pod(info(before(number)), &format!("hollow-{}", number % nodes));
        }
    }
    let pods: Vec<Arc<PodInfo>> =
        (0..shape.measured_count(nodes)).map(|number| info((shape.measured)(number))).collect();
    let began = Instant::now();
    let mut decided = 0;
    for pod in pods {
        snapshot.freeze();
        let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
        match decide(&profile, view, &pod, &mut start, &mut random) {
            Decision::Node(index) => {
                let node = snapshot.node(index).name.clone();
                snapshot.add_pod(pod, &node);
            }
            Decision::Unschedulable(failure) => {
                // Choosing whom to preempt is the decision here.
                std::hint::black_box(preempt(&profile, view, &pod, &failure, &mut random));
            }
            Decision::Error(why) => panic!("cannot decide about pod: {why}"),
        }
        decided += 1;
        if began.elapsed() > TIME_MAX {
            break;
        }
    }
    f64::from(decided) / began.elapsed().as_secs_f64()
}

fn node(number: usize) -> Node {
    let name = format!("hollow-{number}");
    let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", number % 3)});
    let node = json!({"metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}}});
    serde_json::from_value(node).expect("a node")
}

fn info(mut pod: Value) -> Arc<PodInfo> {
    pod["metadata"]["namespace"] = json!("default");
    pod["metadata"]["uid"] = pod["metadata"]["name"].clone();
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    Arc::new(PodInfo::new(Arc::new(pod)))
}
