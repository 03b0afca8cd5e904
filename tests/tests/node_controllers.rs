//! The controllers that look after nodes, on a real one.

use std::time::{Duration, Instant};

use testkit::{Kubectl, Server};

const IMAGE: &str = "--image=knarr.dev/demo:latest";
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
    // How full the host's disk is must not matter here.
    let server = Server::start_node(&["--eviction-hard", "memory.available<50Mi"]).unwrap();
    let kubectl = server.kubectl();
    let began = Instant::now();
    kubectl.ok(&["run", "one", IMAGE, "--image-pull-policy=Never", "--command", "--", "sleep", "1000"]);
    let ready = ["get", "nodes", "-o", "jsonpath={.items[0].status.conditions[?(@.type==\"Ready\")].status}"];
    until(&kubectl, &ready, |status| status == "True");
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

#[test]
fn a_load_balancer_is_reached_by_the_nodes() {
    let server = Server::start_node(&[]).unwrap();
    let kubectl = server.kubectl();
    // A port at which nothing on the node listens: 80 is the ingress's.
    kubectl.ok(&["create", "service", "loadbalancer", "web", "--tcp=8080:80"]);
    let ingress = ["get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
    until(&kubectl, &ingress, |addresses| addresses == "172.29.0.1");
    let finalizers = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.metadata.finalizers}"]);
    assert!(finalizers.contains("service.kubernetes.io/load-balancer-cleanup"), "{finalizers}");
    kubectl.ok(&["delete", "service", "web", "--timeout=20s"]);
    until(&kubectl, &["get", "events"], |events| events.contains("DeletedLoadBalancer"));
}

#[test]
fn certificates_and_tokens_that_are_asked_for_are_given() {
    let server = Server::start().unwrap();
    let kubectl = server.kubectl();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let object = serde_json::json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "jane"},
        "spec": {"request": base64(&request), "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"]},
    });
    kubectl.ok_with(&["create", "-f", "-"], &object.to_string());
    kubectl.ok(&["certificate", "approve", "jane"]);
    until(&kubectl, &["get", "csr", "jane", "-o", "jsonpath={.status.certificate}"], |text| !text.is_empty());

    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "robot"}},
    });
    kubectl.ok(&["create", "serviceaccount", "robot"]);
    kubectl.ok_with(&["create", "-f", "-"], &secret.to_string());
    let token =
        until(&kubectl, &["get", "secret", "robot", "-o", "go-template={{.data.token | base64decode}}"], |token| {
            token.matches('.').count() == 2
        });
    let review = serde_json::json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
    });
    let user = ["create", "-f", "-", "-o", "jsonpath={.status.user.username}"];
    assert_eq!(kubectl.ok_with(&user, &review.to_string()), "system:serviceaccount:default:robot");
    kubectl.ok(&["delete", "serviceaccount", "robot"]);
    until(&kubectl, &["get", "secrets", "-o", "name"], |names| !names.contains("robot"));
}

fn base64(text: &str) -> String {
    let bytes = k8s_openapi::ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes).unwrap().as_str().unwrap().to_owned()
}
