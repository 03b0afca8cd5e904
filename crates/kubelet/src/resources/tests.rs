//! The rules on small pods, and the groups on this machine.

use k8s_openapi::api::core::v1::Pod;
use linux::cgroup::Cgroups;
use serde_json::{Value, json};

use super::cgroups::{Allocatable, PodCgroups};
use super::node::Node;
use super::{CpuQuota, QosClass, container, cpu, pod};

fn make(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u-1"}, "spec": spec})).expect("a pod")
}

fn containers(resources: &[Value]) -> Value {
    let all: Vec<Value> = resources
        .iter()
        .enumerate()
        .map(|(index, own)| json!({"name": format!("c{index}"), "resources": own}))
        .collect();
    json!({"containers": all})
}

fn node() -> Node {
    Node { memory_capacity_bytes: 8 << 30, hugepage_sizes: Vec::new(), cgroup_v2: false, swap: Default::default() }
}

#[test]
fn classes() {
    let full = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1Gi"}});
    let cases = [
        (containers(&[json!({})]), QosClass::BestEffort),
        (containers(&[json!({"requests": {"cpu": "0"}})]), QosClass::BestEffort),
        (containers(&[json!({"requests": {"example.com/gpu": "1"}})]), QosClass::BestEffort),
        (containers(std::slice::from_ref(&full)), QosClass::Guaranteed),
        (containers(&[json!({"limits": {"cpu": "1", "memory": "1Gi"}})]), QosClass::Guaranteed),
        (containers(&[full.clone(), json!({})]), QosClass::Burstable),
        (containers(&[json!({"limits": {"memory": "1Gi"}})]), QosClass::Burstable),
        (containers(&[json!({"requests": {"cpu": "1m"}})]), QosClass::Burstable),
        (
            json!({"containers": [{"name": "c", "resources": full}], "initContainers": [{"name": "i"}]}),
            QosClass::Burstable,
        ),
        (json!({"containers": [{"name": "c"}], "resources": full}), QosClass::Guaranteed),
        (json!({"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "1"}}}), QosClass::Burstable),
    ];
    for (spec, expected) in cases {
        assert_eq!(QosClass::of(&make(spec.clone())), expected, "{spec}");
    }
}

#[test]
fn shares_and_quotas_have_upstreams_bounds() {
    assert_eq!([0, 1, 2, 100, 1000, 300_000].map(cpu::shares), [2, 2, 2, 102, 1024, 262_144]);
    assert_eq!([0, 1, 5, 10, 250, 2000].map(cpu::quota), [0, 1000, 1000, 1000, 25_000, 200_000]);
}

#[test]
fn limits_of_containers() {
    let pod = make(containers(&[
        json!({"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "2Gi"}}),
        json!({"limits": {"cpu": "2", "hugepages-2Mi": "4Mi"}}),
        json!({}),
    ]));
    let node = Node { hugepage_sizes: vec!["2MB".to_owned(), "1GB".to_owned()], ..node() };
    let made: Vec<_> =
        pod.spec.as_ref().unwrap().containers.iter().map(|one| container::linux(&pod, one, &node)).collect();
    let values: Vec<_> =
        made.iter().map(|one| (one.cpu_shares, one.cpu_quota, one.memory_limit_in_bytes, one.oom_score_adj)).collect();
    assert_eq!(values, [(256, 50_000, 2 << 30, 875), (2048, 200_000, 0, 999), (2, 0, 0, 999)]);
    let pages: Vec<_> = made[1].hugepage_limits.iter().map(|one| (one.page_size.as_str(), one.limit)).collect();
    assert_eq!(pages, [("2MB", 4 << 20), ("1GB", 0)]);
}

#[test]
fn a_container_runs_out_of_memory_as_a_whole() {
    let pod = make(containers(&[json!({})]));
    let unified = |node: &Node| container::linux(&pod, &pod.spec.as_ref().unwrap().containers[0], node).unified;
    assert!(unified(&node()).is_empty());
    assert_eq!(unified(&Node { cgroup_v2: true, ..node() })["memory.oom.group"], "1");
}

#[test]
fn a_pods_own_limits_hold_its_containers() {
    let pod = make(json!({
        "containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}, {"name": "b"}],
        "resources": {"requests": {"memory": "4Gi", "cpu": "2"}, "limits": {"memory": "4Gi", "cpu": "3"}},
    }));
    let made: Vec<_> =
        pod.spec.as_ref().unwrap().containers.iter().map(|one| container::linux(&pod, one, &node())).collect();
    assert_eq!(made.iter().map(|one| one.cpu_quota).collect::<Vec<_>>(), [100_000, 300_000]);
    assert_eq!(made.iter().map(|one| one.memory_limit_in_bytes).collect::<Vec<_>>(), [4 << 30, 4 << 30]);
    // Half of the pod's memory request each: a quarter of the node.
    assert_eq!(made.iter().map(|one| one.oom_score_adj).collect::<Vec<_>>(), [750, 750]);
    let limits = pod::limits(&pod, &node(), Some(100), CpuQuota::Limited);
    assert_eq!((limits.cpu_shares, limits.cpu_quota, limits.memory_max), (Some(2048), Some(300_000), Some(4 << 30)));
    assert_eq!(limits.pids_max, Some(100));
}

#[test]
fn oom_scores() {
    let score = |spec: Value| {
        let pod = make(spec);
        let spec = pod.spec.as_ref().unwrap();
        let first = spec.init_containers.as_ref().and_then(|all| all.first()).unwrap_or(&spec.containers[0]);
        container::oom_score_adj(&pod, first, 8 << 30)
    };
    assert_eq!(score(containers(&[json!({})])), 1000);
    assert_eq!(score(containers(&[json!({"limits": {"cpu": "1", "memory": "1Gi"}})])), -997);
    assert_eq!(score(containers(&[json!({"requests": {"memory": "4Gi"}})])), 500);
    assert_eq!(score(containers(&[json!({"requests": {"memory": "8Gi"}})])), 3);
    assert_eq!(score(containers(&[json!({"requests": {"memory": "1"}})])), 999);
    let mut critical = containers(&[json!({})]);
    critical["priorityClassName"] = json!("system-node-critical");
    assert_eq!(score(critical), -997);
    let mut sidecar = containers(&[json!({"requests": {"memory": "2Gi"}}), json!({"requests": {"memory": "4Gi"}})]);
    sidecar["initContainers"] = json!([{"name": "s", "restartPolicy": "Always"}]);
    assert_eq!(score(sidecar), 750);
}

#[test]
fn limits_of_pods() {
    let limits = |spec: Value| {
        let limits = pod::limits(&make(spec), &node(), None, CpuQuota::Limited);
        (limits.cpu_shares, limits.cpu_quota, limits.memory_max)
    };
    let limited = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(limits(containers(&[json!({})])), (Some(2), None, None));
    assert_eq!(limits(containers(&[limited.clone(), limited.clone()])), (Some(204), Some(200_000), Some(2 << 30)));
    assert_eq!(limits(containers(&[limited.clone(), json!({})])), (Some(102), Some(-1), Some(-1)));
    // The init container needs more than the others together, and the overhead comes on top.
    let mut spec = containers(&[limited]);
    spec["initContainers"] = json!([{"name": "i", "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}}]);
    spec["overhead"] = json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(limits(spec), (Some(5120), Some(500_000), Some(2 << 30)));
}

/// Removes what a test made, also when it fails.
struct Cleanup(String);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Ok(group) = Cgroups::detect().group(&self.0) {
            let _ = group.kill();
            let _ = group.remove();
        }
    }
}

#[test]
fn groups_are_made_changed_and_removed() {
    let root = format!("/knarr-test-kubelet-{}", std::process::id());
    let _cleanup = Cleanup(root.clone());
    let cgroups = Cgroups::detect();
    let groups = PodCgroups::new(cgroups.clone(), &root, Some(64), node());
    let burstable = make(containers(&[json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "64Mi"}})]));
    let allocatable = Allocatable { milli_cpu: 2000, memory_bytes: 1 << 30 };
    groups.ensure(allocatable, [&burstable, &burstable]).expect("the groups of the node");
    groups.create_or_update(&burstable, CpuQuota::Limited).expect("the pod's group");
    assert_eq!(groups.name(&burstable), format!("{root}/kubepods/burstable/podu-1"));
    assert!(groups.exists(&burstable).expect("to be looked for"));

    let stats = groups.group(&burstable).expect("a group").expect("not foreign").stats();
    assert_eq!(stats.memory.limit_bytes, Some(64 << 20));
    assert_eq!(stats.pids.limit, Some(64));
    if cgroups.hierarchy == linux::cgroup::Hierarchy::V1 {
        let read = |path: &str| {
            let text = std::fs::read_to_string(format!("/sys/fs/cgroup/cpu{root}/kubepods/{path}")).expect("a limit");
            text.trim().to_owned()
        };
        assert_eq!(read("cpu.shares"), "2048");
        assert_eq!(read("burstable/cpu.shares"), "1024");
        assert_eq!(read("besteffort/cpu.shares"), "2");
        assert_eq!(read("burstable/podu-1/cpu.shares"), "512");
        assert_eq!(read("burstable/podu-1/cpu.cfs_quota_us"), "100000");
    }

    // A resize takes the limit away.
    let mut resized = burstable.clone();
    let resources = resized.spec.as_mut().unwrap().containers[0].resources.as_mut().unwrap();
    resources.limits.as_mut().unwrap().remove("memory");
    groups.create_or_update(&resized, CpuQuota::Limited).expect("the changed group");
    let stats = groups.group(&resized).expect("a group").expect("not foreign").stats();
    assert_eq!(stats.memory.limit_bytes, None);

    assert_eq!(groups.remove_unknown(|uid| uid == "u-1").expect("a look"), Vec::<String>::new());
    assert_eq!(groups.remove_unknown(|_| false).expect("a removal"), ["u-1"]);
    assert!(!groups.exists(&burstable).expect("to be looked for"));
    groups.remove(&burstable).expect("nothing left to do");
    assert_eq!(PodCgroups::foreign().name(&burstable), "");
    PodCgroups::foreign().create_or_update(&burstable, CpuQuota::Limited).expect("nothing to do");
}
