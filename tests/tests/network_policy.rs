//! NetworkPolicies by real kubectl, on real pods of several nodes.

#[path = "support/several_nodes.rs"]
mod several_nodes;

use serde_json::{Value, json};
use several_nodes::{eventually, run_pods, seen, server_pod, start};
use testkit::Kubectl;

fn apply(kubectl: &Kubectl, name: &str, spec: Value) {
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec});
    kubectl.ok_with(&["apply", "-f", "-"], &policy.to_string());
}

#[test]
fn policies_allow_and_deny_each_direction_on_every_node() {
    let cluster = start(2, 1, &[]);
    let kubectl = cluster.server.kubectl();
    // The server has a neighbour on its node and a caller on another.
    let pods = [server_pod("server", 2), server_pod("near", 2), server_pod("far", 1)];
    let addresses = run_pods(&kubectl, &pods);
    let target = &addresses["server"];
    let reaches = |from: &str, to: &str, port: u16| seen(&kubectl, from, &addresses[to], port).is_some();
    assert!(reaches("near", "server", 8080) && reaches("far", "server", 8080));

    apply(&kubectl, "deny", json!({"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"]}));
    let took = eventually("denied", || !reaches("far", "server", 8080));
    println!("denied after {took:?}, a question that waits for its timeout included");
    assert!(!reaches("near", "server", 8080) && reaches("server", "near", 8080));
    // Its own node still reaches it: probes would.
    let probe = format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{target}/8080 && echo open'");
    assert_eq!(cluster.machine(2).shell(&probe).unwrap().trim(), "open");

    apply(
        &kubectl,
        "allow",
        json!({
            "podSelector": {"matchLabels": {"app": "server"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "far"}}}], "ports": [{"port": "web"}]}],
        }),
    );
    eventually("allowed", || reaches("far", "server", 8080));
    assert!(!reaches("far", "server", 9090) && !reaches("near", "server", 8080));
    // A label makes the difference.
    kubectl.ok(&["label", "pod", "near", "app=far", "--overwrite"]);
    eventually("the label counts", || reaches("near", "server", 8080));

    // Out of a pod, by block and namespace.
    kubectl.ok(&["label", "namespace", "default", "open=yes"]);
    apply(
        &kubectl,
        "out",
        json!({
            "podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Egress"],
            "egress": [
                {"to": [{"namespaceSelector": {"matchLabels": {"open": "yes"}}}], "ports": [{"port": 9000, "endPort": 9100}]},
                {"to": [{"ipBlock": {"cidr": format!("{}/32", addresses["far"])}}]},
            ],
        }),
    );
    eventually("only what is allowed leaves", || !reaches("server", "near", 8080));
    assert!(reaches("server", "near", 9090) && reaches("server", "far", 8080));
    kubectl.ok(&["label", "namespace", "default", "open-"]);
    eventually("a namespace's label counts", || !reaches("server", "near", 9090));

    kubectl.ok(&["delete", "networkpolicy", "--all"]);
    eventually("all is open again", || reaches("server", "near", 8080) && reaches("near", "server", 9090));
}

#[test]
fn not_even_the_first_packet_of_a_pod_escapes() {
    let cluster = start(1, 1, &[]);
    let kubectl = cluster.server.kubectl();
    let addresses = run_pods(&kubectl, &[server_pod("server", 1)]);
    let quick = |name: &str, app: &str| {
        let script = format!("connect {}:8080 --timeout 1 && echo reached || echo stopped", addresses["server"]);
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": "node-1", "restartPolicy": "Never", "containers": [
                {"name": "main", "image": several_nodes::IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]},
            ]},
        })
    };
    apply(&kubectl, "deny", json!({"podSelector": {"matchLabels": {"app": "jailed"}}, "policyTypes": ["Egress"]}));
    let mut pods: Vec<Value> = (0..5).map(|number| quick(&format!("jailed-{number}"), "jailed")).collect();
    pods.push(quick("free", "free"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    kubectl.ok_with(&["apply", "-f", "-"], &list.to_string());
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        eventually(&format!("{name} has ended"), || {
            kubectl.ok(&["get", "pod", name, "-o", "jsonpath={.status.phase}"]) == "Succeeded"
        });
        let expected = if name == "free" { "reached" } else { "stopped" };
        let said = kubectl.ok(&["logs", name]);
        assert!(said.contains(expected), "{name}: {said}");
    }
}

#[test]
fn policies_see_the_pods_behind_a_service() {
    let cluster = start(2, 1, &[]);
    let kubectl = cluster.server.kubectl();
    run_pods(&kubectl, &[server_pod("server", 2), server_pod("near", 2), server_pod("far", 1)]);
    kubectl.ok(&["expose", "pod", "server", "--name=web", "--port=80", "--target-port=8080"]);
    let address = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    let reaches = |from: &str| seen(&kubectl, from, &address, 80).is_some();
    eventually("the service answers both", || reaches("near") && reaches("far"));
    apply(
        &kubectl,
        "one",
        json!({
            "podSelector": {"matchLabels": {"app": "server"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "far"}}}], "ports": [{"port": 8080}]}],
        }),
    );
    eventually("the neighbour is refused", || !reaches("near"));
    assert!(reaches("far"));
    // Out: the pod behind the Service counts, not the Service's address.
    apply(
        &kubectl,
        "two",
        json!({
            "podSelector": {"matchLabels": {"app": "far"}}, "policyTypes": ["Egress"],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "near"}}}]}],
        }),
    );
    eventually("the caller may not leave", || !reaches("far"));
}
