//! The address of a node that is told none: waited for at the start, and followed when it changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::server::{FIND_ADDRESSES, Options};
use testkit::{Machine, Server};

const PATIENCE: Duration = Duration::from_secs(90);

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: host}
spec:
  hostNetwork: true
  containers:
  - name: main
    image: knarr.dev/demo:latest
    imagePullPolicy: Never
    command: [serve, --port, "8099"]
    readinessProbe: {httpGet: {path: /readyz, port: 8099}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: own}
spec:
  containers: [{name: main, image: "knarr.dev/demo:latest", imagePullPolicy: Never, command: [sleep, infinity]}]
"#;

fn start(machine: Machine) -> Server {
    let options = Options { arguments: vec![FIND_ADDRESSES.into()], machine: Some(Arc::new(machine)) };
    Server::start_with(options).expect("a node starts")
}

fn until(server: &Server, arguments: &[&str], wanted: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = server.kubectl().run(arguments).expect("kubectl runs");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if said == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{arguments:?} says {said:?}, not {wanted:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

const INTERNAL: [&str; 5] =
    ["get", "node", "node-1", "-o", "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}"];

#[test]
fn a_machine_that_boots_without_an_address_registers_with_the_one_it_gets() {
    let machine = Machine::start().expect("a machine");
    let later = "ip address flush dev uplink0; (sleep 5; ip address add 172.29.0.1/24 dev uplink0) >/dev/null 2>&1 &";
    machine.shell(later).expect("the address goes, and comes back later");
    let server = start(machine);
    until(&server, &INTERNAL, "172.29.0.1");
    let endpoints = ["get", "endpoints", "kubernetes", "-o", "jsonpath={.subsets[*].addresses[*].ip}"];
    until(&server, &endpoints, "172.29.0.1");
}

#[test]
fn a_changed_address_is_followed() {
    let server = start(Machine::start().expect("a machine"));
    until(&server, &INTERNAL, "172.29.0.1");
    server.default_account("default").expect("the account of the pods");
    server.kubectl().ok_with(&["apply", "-f", "-"], PODS);
    for pod in ["host", "own"] {
        server.kubectl().ok(&["wait", &format!("pod/{pod}"), "--for=condition=Ready", "--timeout=90s"]);
    }
    let machine = server.machine();
    machine.shell("ip address del 172.29.0.1/24 dev uplink0; ip address add 172.29.0.66/24 dev uplink0").unwrap();
    until(&server, &INTERNAL, "172.29.0.66");
    let field = |pod: &str, path: &str| {
        vec!["get".to_owned(), "pod".into(), pod.into(), "-o".into(), format!("jsonpath={{{path}}}")]
    };
    for (pod, path) in [("host", ".status.hostIP"), ("host", ".status.podIP"), ("own", ".status.hostIP")] {
        let arguments = field(pod, path);
        until(&server, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), "172.29.0.66");
    }
    // The kubelet is asked there, and shows a certificate for it.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = server.kubectl().run(&["exec", "own", "--", "echo", "here"]).expect("kubectl runs");
        if said.stdout == b"here\n" {
            break;
        }
        assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&said.stderr));
        std::thread::sleep(Duration::from_millis(200));
    }
    until(&server, &["get", "pod", "host", "-o", "jsonpath={.status.containerStatuses[0].ready}"], "true");

    // The cable is out: the last address stays, and neither that of the pods' bridge nor the machine's own takes its place.
    machine.shell("ip address del 172.29.0.66/24 dev uplink0").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    until(&server, &INTERNAL, "172.29.0.66");
}
