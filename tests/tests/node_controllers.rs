//! The controllers that look after nodes, on a real one.

use std::time::{Duration, Instant};

use testkit::{Kubectl, Server};

const SOON: Duration = Duration::from_secs(20);

/// Asks until the answer is the wanted one.
fn until(kubectl: &Kubectl, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let output = kubectl.run(arguments).expect("kubectl runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if wanted(&said) {
            return said;
        }
        assert!(Instant::now() < deadline, "{arguments:?} says {said:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_new_node_gets_its_range_and_takes_pods() {
    let server = Server::start_node(&[]).unwrap();
    let kubectl = server.kubectl();
    let began = Instant::now();
    kubectl.ok(&["run", "one", "--image=knarr.dev/demo:latest", "--command", "--", "sleep", "1000"]);
    let ready = ["get", "nodes", "-o", "jsonpath={.items[0].status.conditions[?(@.type==\"Ready\")].status}"];
    until(&kubectl, &ready, |status| status == "True");
    eprintln!("ready after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(5), "ready after {:?}", began.elapsed());
    let range = ["get", "nodes", "-o", "jsonpath={.items[0].spec.podCIDRs[0]}"];
    until(&kubectl, &range, |range| range == "10.42.0.0/24");
    let taints = ["get", "nodes", "-o", "jsonpath={.items[0].spec.taints}"];
    until(&kubectl, &taints, str::is_empty);
    let phase = ["get", "pod", "one", "-o", "jsonpath={.status.phase}"];
    until(&kubectl, &phase, |phase| phase == "Running");
    until(&kubectl, &["get", "events", "-A"], |events| events.contains("RegisteredNode"));

    // Nobody tolerates this one, so the pod goes at once; others only stay away.
    let node = kubectl.ok(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    kubectl.ok(&["cordon", &node]);
    until(&kubectl, &taints, |taints| taints.contains("node.kubernetes.io/unschedulable"));
    kubectl.ok(&["taint", "node", &node, "mine=yes:NoExecute"]);
    until(&kubectl, &["get", "events"], |events| events.contains("TaintManagerEviction"));
    until(&kubectl, &["get", "pods"], |pods| !pods.contains("one"));
    kubectl.ok(&["uncordon", &node]);
    until(&kubectl, &taints, |taints| !taints.contains("node.kubernetes.io/unschedulable"));
}
