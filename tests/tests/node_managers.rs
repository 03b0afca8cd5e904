//! The CPU and memory managers on a real node: who has processors for himself, who shares the rest, and what a restart finds. Machines with
//! several memory nodes are made up in the unit tests of `kubelet::managers`.

#[path = "support/node.rs"]
mod node;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use node::{Node, container_id, is_ready, restarts, script};
use serde_json::{Value, json};
use testkit::devices;

fn root(node: &Node) -> PathBuf {
    node.server.data_dir().join("kubelet")
}

/// The processors that a pod's container may run on, as the kernel says of its processes.
fn allowed(node: &Node, pod: &str) -> String {
    let processes = node.processes(&container_id(&node.pod(pod)));
    let first = processes.keys().next().unwrap_or_else(|| panic!("{pod} has no process"));
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_else(|| panic!("no processors in {status}")).trim().to_owned()
}

fn until_allowed(node: &Node, pod: &str, wanted: &str) {
    let deadline = Instant::now() + node::PATIENCE;
    loop {
        let found = allowed(node, pod);
        if found == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{pod} may run on {found}, not on {wanted}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn with_resources(name: &str, resources: Value) -> Value {
    let mut pod = script(name, "Always", "exec sleep infinity");
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

fn guaranteed(name: &str, cpu: &str, memory: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": memory});
    with_resources(name, json!({"requests": amounts, "limits": amounts}))
}

fn state(node: &Node) -> Value {
    let text = std::fs::read(root(node).join("cpu_manager_state")).expect("the state of the CPU manager");
    serde_json::from_slice(&text).expect("JSON")
}

/// Two processors or more, of which the first is the system's.
#[test]
fn a_container_has_its_processor_for_itself() {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let all = online.trim();
    assert!(all.starts_with("0-"), "this test needs two processors or more, and there is {all}");
    let mut node = Node::start(&["--cpu-manager-policy", "static", "--reserved-cpus", "0"]);
    let allocatable = node.get("/api/v1/nodes/node-1")["status"]["allocatable"]["cpu"].clone();
    let last: usize = all.rsplit('-').next().unwrap().parse().unwrap();
    assert_eq!(allocatable, last.to_string(), "one of {all} is reserved");

    node.create_pod(&with_resources("shares", json!({})));
    node.ready("shares");
    assert_eq!(allowed(&node, "shares"), all);
    node.create_pod(&guaranteed("owns", "1", "64Mi"));
    node.ready("owns");
    let own = allowed(&node, "owns");
    assert_eq!(own, "1");
    let others = if last == 1 { "0".to_owned() } else { format!("0,2-{last}").replace("2-2", "2") };
    until_allowed(&node, "shares", &others);
    assert_eq!(state(&node)["defaultCpuSet"], *others);
    assert_eq!(devices::of_pod(&root(&node), "default", "owns").unwrap(), ["main cpus 1"]);
    assert_eq!(devices::of_pod(&root(&node), "default", "shares").unwrap(), [""; 0]);
    // Half a processor is not whole: it shares.
    node.create_pod(&guaranteed("half", "100m", "64Mi"));
    let half = node.until("half", "decided", |pod| is_ready(pod) || pod["status"]["phase"] == "Failed");
    if last > 1 {
        assert_eq!((is_ready(&half), allowed(&node, "half")), (true, others.clone()));
    } else {
        assert_eq!(half["status"]["reason"], "OutOfcpu", "the only processor is given");
    }

    // Neither a restart nor a kill changes who has what.
    node.server.restart().unwrap();
    let owns = node.ready("owns");
    assert_eq!((restarts(&owns), allowed(&node, "owns")), (0, own.clone()));
    until_allowed(&node, "shares", &others);

    // What it had goes back when it ends.
    node.server.kubectl().ok(&["delete", "pod", "owns", "half", "--now"]);
    until_allowed(&node, "shares", all);
    assert_eq!(state(&node)["defaultCpuSet"], *all);
    assert_eq!(state(&node).get("entries"), None);
}

#[test]
fn a_pod_is_aligned_to_the_only_memory_node() {
    let node = Node::start(&[
        "--cpu-manager-policy",
        "static",
        "--reserved-cpus",
        "0",
        "--topology-manager-policy",
        "single-numa-node",
    ]);
    node.create_pod(&guaranteed("aligned", "1", "64Mi"));
    node.ready("aligned");
    assert_eq!(state(&node)["policyName"], "static");
    let uid = node.pod("aligned")["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(state(&node)["entries"][&uid]["main"], "1");
}
