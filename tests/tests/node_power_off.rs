//! The machine goes down: pods end before it does, the ordinary ones first, and the node takes no more.

use std::process::Stdio;
use std::time::{Duration, Instant};

use testkit::Server;
use testkit::server::binary;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeName: node-1
  priorityClassName: PRIORITY
  # How long the stubborn one takes, which is a small part of the time that there is.
  terminationGracePeriodSeconds: 2
  containers:
  - {name: c, image: "knarr.dev/demo:latest", imagePullPolicy: IfNotPresent, args: [ARGS]}
"#;

#[test]
fn pods_end_before_the_machine_does() {
    let server = Server::start_node(&[]).unwrap();
    let kubectl = server.kubectl();
    server.default_account("default").unwrap();
    let critical = "system-node-critical";
    for (name, arguments, priority) in
        [("polite", "serve", "\"\""), ("stubborn", "ignore-term", "\"\""), ("critical", "serve", critical)]
    {
        let pod = POD.replace("NAME", name).replace("ARGS", arguments).replace("PRIORITY", priority);
        kubectl.ok_with(&["create", "-f", "-"], &pod);
    }
    kubectl.ok(&["wait", "--for=condition=Ready", "pod", "--all", "--timeout=30s"]);

    let began = Instant::now();
    let mut command = server.machine().command(binary().unwrap());
    command.args(["power-off", "--grace-period", "50", "--grace-period-critical-pods", "20", "--data-dir"]);
    let output = command.arg(server.data_dir()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(began.elapsed() < Duration::from_secs(30), "nobody waits longer than needed: {:?}", began.elapsed());

    let path =
        "jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.reason} {.status.message}{\"\\n\"}{end}";
    let expected = "Pod was terminated in response to imminent node shutdown.";
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let pods = kubectl.ok(&["get", "pods", "-o", path]);
        let lines: Vec<&str> = pods.lines().collect();
        let ended = |name: &str| {
            lines.iter().any(|line| line.starts_with(name) && line.contains(" Terminated ") && line.contains(expected))
        };
        if ended("polite") && ended("stubborn") && ended("critical") {
            break;
        }
        assert!(Instant::now() < until, "{pods}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let finished = |name: &str| {
        let path = "jsonpath={.status.containerStatuses[0].state.terminated.finishedAt}";
        kubectl.ok(&["get", "pod", name, "-o", path])
    };
    // The polite ones end at once when they are told, so the critical one was told after the stubborn one had been killed.
    let (polite, stubborn, critical) = (finished("polite"), finished("stubborn"), finished("critical"));
    assert!(!polite.is_empty() && polite < stubborn && stubborn <= critical, "{polite} {stubborn} {critical}");
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    let until = Instant::now() + Duration::from_secs(30);
    while kubectl.ok(&["get", "node", "node-1", "-o", ready]) != "False" {
        assert!(Instant::now() < until, "the node still takes pods");
        std::thread::sleep(Duration::from_millis(200));
    }
}
