//! `knarr cluster`: several nodes on this machine, used from this machine's own network with real kubectl.

#[path = "support/registry.rs"]
mod registry;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::local_cluster::{LocalCluster, machines, who_answers};
use testkit::machine::{connect_within, listen_within};
use testkit::{Hub, Kubectl, Machine, Place};

const PATIENCE: Duration = Duration::from_secs(120);

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: knarr.dev/demo:latest
        imagePullPolicy: Never
        command: [serve]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
"#;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Nothing in the kernel, no process, no folder.
fn assert_gone(cluster: &LocalCluster, device: &str) {
    for part in ["hub", "node-1", "node-2", "node-3"] {
        assert_eq!(machines(&cluster.folder().join(part)), Vec::<u32>::new(), "processes of {part}");
    }
    assert!(!cluster.ip(&["link"]).contains(device), "the device {device}");
    assert!(!cluster.ip(&["rule"]).contains(device), "the rule of {device}");
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).unwrap().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.filter(|path| path.is_dir()).chain([root.to_owned()]) {
        let groups = std::fs::read_dir(hierarchy).unwrap().flatten();
        let prefix = format!("knarr-{}-", cluster.name);
        let left: Vec<_> = groups.filter(|group| group.file_name().to_string_lossy().starts_with(&prefix)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(!cluster.folder().exists());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&*cluster.folder().to_string_lossy()), "{mounts}");
}

fn ready_nodes(kubectl: &Kubectl) -> usize {
    let output = kubectl.run(&["get", "nodes", "--no-headers", "--request-timeout=5s"]).expect("kubectl runs");
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains(" Ready ")).count()
}

#[test]
fn three_nodes_serve_are_hurt_stopped_started_and_gone() {
    let cluster = LocalCluster::create(&["--nodes", "3"]);
    let (name, kubectl) = (cluster.name.as_str(), cluster.kubectl());
    // Ready when the command ends, not some time later.
    assert_eq!(ready_nodes(&kubectl), 3);
    assert_eq!(cluster.status(), "Running");
    // What is mounted on a node later appears in pods that ask for it, and not on this machine.
    for pid in machines(&cluster.folder().join("node-2")) {
        let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
        let root = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/")).unwrap();
        assert!(root.contains(" shared:") && !root.contains(" master:"), "{root}");
    }
    assert_eq!(
        cluster.ok(&["kubeconfig", name]),
        std::fs::read_to_string(cluster.folder().join("kubeconfig")).unwrap()
    );
    let again = cluster.run(&["create", name]);
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("already"));

    // Every node reaches the pods of all three by the address of their Service.
    kubectl.ok_with(&["apply", "-f", "-"], WEB);
    let answers_everywhere = || {
        let address = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
        let pods = kubectl.ok(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}"]);
        let mut nodes: Vec<&str> = pods.split_whitespace().collect();
        nodes.sort();
        assert_eq!(nodes, ["node-1", "node-2", "node-3"]);
        for node in ["node-1", "node-2", "node-3"] {
            let mut seen = std::collections::BTreeSet::new();
            eventually("all pods answer to every node", || {
                seen.extend(who_answers(&cluster.network(node), &address));
                seen.len() == 3
            });
        }
    };
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    answers_everywhere();

    // A node whose cable is pulled cannot be reached from here.
    let range = cluster.description()["range"].as_str().unwrap().to_owned();
    let second: std::net::SocketAddr = format!("{}:10250", range.replace(".0/24", ".2")).parse().unwrap();
    let reaches = || TcpStream::connect_timeout(&second, Duration::from_secs(1)).is_ok();
    assert!(reaches());
    cluster.ok(&["fault", "cut", name, "node-2"]);
    assert!(!reaches());
    cluster.ok(&["fault", "uncut", name, "node-2"]);
    eventually("the cable is back", reaches);
    cluster.ok(&["fault", "slow", name, "node-2", "--rate", "200kbit"]);
    let queues = Command::new("nsenter")
        .arg(format!("--net={}", cluster.network("node-2").display()))
        .args(["tc", "qdisc", "show", "dev", "uplink0"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&queues.stdout).contains("rate 200Kbit"), "{queues:?}");
    cluster.ok(&["fault", "slow", name, "node-2"]);
    assert!(!cluster.run(&["fault", "cut", name, "node-9"]).status.success());

    // A killed knarr stays so, its containers go on, and it comes back.
    cluster.ok(&["fault", "kill", name, "node-3"]);
    assert_eq!(cluster.status(), "Degraded");
    assert!(TcpStream::connect_timeout(&second, Duration::from_secs(1)).is_ok());
    answers_everywhere();
    cluster.ok(&["fault", "restart", name, "node-3"]);
    assert_eq!(cluster.status(), "Running");
    let restarts =
        ["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}"];
    assert_eq!(kubectl.ok(&restarts), "0 0 0");

    // Stopped it is quiet; started it is the same cluster.
    let uids = ["get", "deployment,service,node,pod", "-o", "jsonpath={.items[*].metadata.uid}"];
    let before = kubectl.ok(&uids);
    cluster.ok(&["stop", name]);
    assert_eq!(cluster.status(), "Stopped");
    let device = cluster.description()["device"].as_str().unwrap().to_owned();
    assert!(!cluster.ip(&["link"]).contains(&device));
    assert_eq!(machines(&cluster.folder().join("node-1")), Vec::<u32>::new());
    cluster.ok(&["start", name]);
    assert_eq!(ready_nodes(&kubectl), 3);
    assert_eq!(cluster.description()["range"], range.as_str());
    assert_eq!(kubectl.ok(&uids), before);
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    answers_everywhere();

    cluster.ok(&["delete", name]);
    assert_gone(&cluster, &device);
}

#[test]
fn three_servers_go_on_without_the_first() {
    let cluster = LocalCluster::create(&["--nodes", "3", "--servers", "3"]);
    assert_eq!(ready_nodes(&cluster.kubectl()), 3);
    // A server comes and goes with its member of etcd.
    cluster.ok(&["add-node", &cluster.name, "--server"]);
    assert_eq!(ready_nodes(&cluster.kubectl()), 4);
    cluster.ok(&["remove-node", &cluster.name, "node-4"]);
    assert_eq!(ready_nodes(&cluster.kubectl()), 3);
    eventually("every server shows what it is", || {
        let nodes = cluster.kubectl().ok(&["get", "nodes", "--no-headers"]);
        nodes.lines().filter(|line| line.contains(" control-plane,etcd ")).count() == 3
    });
    cluster.kubectl().ok(&["create", "configmap", "kept"]);
    let other = cluster.folder().join("other.kubeconfig");
    std::fs::write(&other, cluster.ok(&["kubeconfig", &cluster.name, "--server", "node-2"])).unwrap();
    let program = testkit::kubectl::programs().pop().unwrap();
    let kubectl = Kubectl::new(&program, &other);
    cluster.ok(&["fault", "cut", &cluster.name, "node-1"]);
    let mut number = 0;
    eventually("the others go on", || {
        number += 1;
        let made = kubectl.run(&["create", "configmap", &format!("without-{number}"), "--request-timeout=5s"]);
        made.is_ok_and(|made| made.status.success())
    });
    cluster.ok(&["stop", &cluster.name, "--grace-period", "1"]);
    cluster.ok(&["start", &cluster.name]);
    let listed = cluster.kubectl().ok(&["get", "configmaps", "-o", "name"]);
    assert!(listed.contains("/kept") && listed.contains(&format!("/without-{number}")), "{listed}");
}

/// A pod on every node that says the word of an image and goes on.
const WORD: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: word}
spec:
  selector: {matchLabels: {app: word}}
  template:
    metadata: {labels: {app: word}}
    spec:
      containers:
      - {name: word, image: "shop.example/word:1", imagePullPolicy: Never, command: [/bin/busybox, sh, -c, "/bin/busybox cat /word; /bin/busybox echo; exec /bin/busybox sleep 9999"]}
"#;

/// A port of this machine that nobody uses now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn get(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: web\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.contains("pod: ").then_some(text)
}

/// What people do who come from kind: bring an image, look inside, reach a port, have more nodes and fewer.
#[test]
fn images_commands_ports_and_nodes_of_a_cluster() {
    let port = free_port();
    let cluster = LocalCluster::named(None);
    let name = cluster.name.as_str();
    let said = cluster.run(&["create", name, "--port", "8080:80@node-9"]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("has no node node-9"), "{said:?}");
    let said = cluster.ok(&["create", name, "--nodes", "2", "--port", &format!("{port}:30080@node-2")]);
    assert!(said.contains(&format!("127.0.0.1:{port} forwards to port 30080 of node-2")), "{said}");
    let kubectl = cluster.kubectl();

    // The command's own output, input and exit code, inside the node asked for.
    let exec = |node: &str, script: &str| cluster.run(&["exec", name, "--node", node, "--", "sh", "-c", script]);
    assert_eq!(
        String::from_utf8_lossy(&exec("node-2", "hostname; ls /proc/1/cwd").stdout),
        "node-2\ndata\nlog\nmachine.json\n"
    );
    assert_eq!(exec("node-1", "exit 42").status.code(), Some(42));
    assert_eq!(exec("node-1", "kill -TERM $$").status.code(), Some(128 + 15));
    assert_eq!(cluster.run(&["exec", name, "--", "/no/such/program"]).status.code(), Some(127));
    let address = cluster.ok(&["exec", name, "--node", "node-2", "--", "ip", "-br", "addr", "show", "uplink0"]);
    assert!(address.contains(".2/24"), "{address}");
    // A terminal is the command's terminal.
    let line = format!(
        "{} cluster --dir {} exec {name} -- tty",
        testkit::server::binary().unwrap().display(),
        cluster.folder().parent().unwrap().display()
    );
    let script = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&script.stdout).contains("/dev/pts/"), "{script:?}");

    // An image for every node, unpacked once.
    let archive = cluster.folder().with_extension("tar");
    std::fs::write(&archive, registry::Image::saying("loaded").archive("shop.example/word:1")).unwrap();
    let said = cluster.ok(&["load", name, archive.to_str().unwrap()]);
    assert_eq!(said, "loaded shop.example/word:1 on 2 nodes\n");
    let word_of = |node: &str| {
        let layers = cluster.folder().join(node).join("data/runtime/images/layers");
        let found = std::fs::read_dir(layers).unwrap().flatten().map(|layer| layer.path().join("fs/word"));
        let word = found.into_iter().find(|word| word.is_file()).expect("the layer is there");
        std::fs::metadata(word).unwrap()
    };
    assert_eq!(word_of("node-1").ino(), word_of("node-2").ino());
    assert!(!cluster.run(&["load", name, "no/such/file.tar!"]).status.success());
    kubectl.ok_with(&["apply", "-f", "-"], WORD);
    kubectl.ok(&["rollout", "status", "daemonset/word", "--timeout=120s"]);
    eventually("both nodes run it", || {
        kubectl.ok(&["logs", "-l", "app=word", "--tail=1"]).matches("loaded").count() == 2
    });

    // One node more has what was loaded; the port of the host leads where it was told to.
    let said = cluster.ok(&["add-node", name]);
    assert!(said.contains("node-3 is ready"), "{said}");
    assert_eq!(word_of("node-3").nlink(), 3);
    eventually("the image runs on the new node", || {
        // A container that is not there yet has no log, which is an error.
        let logs = kubectl.run(&["logs", "-l", "app=word"]).expect("kubectl runs");
        String::from_utf8_lossy(&logs.stdout).matches("loaded").count() == 3
    });
    kubectl.ok_with(
        &["apply", "-f", "-"],
        &WEB.replace("spec:\n  selector: {app: web}", "spec:\n  type: NodePort\n  selector: {app: web}")
            .replace("targetPort: http}", "targetPort: http, nodePort: 30080}"),
    );
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    eventually("the port answers", || get(&format!("127.0.0.1:{port}")).is_some());
    let outside = cluster.ip(&["-4", "-br", "addr", "show", "dev", cluster.description()["device"].as_str().unwrap()]);
    let outside = outside.split_whitespace().nth(2).unwrap().split('/').next().unwrap().to_owned();
    assert!(TcpStream::connect(format!("{outside}:{port}")).is_err(), "only this machine itself reaches the port");

    // And fewer again: pods go elsewhere, nothing of the node is left. Those that others lead to stay.
    for (node, why) in [("node-1", "that the others join"), ("node-2", "forwards to node-2")] {
        let refused = cluster.run(&["remove-node", name, node]);
        assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains(why), "{refused:?}");
    }
    kubectl.ok(&["scale", "deployment/web", "--replicas=2"]);
    cluster.ok(&["remove-node", name, "node-3"]);
    assert_eq!(kubectl.ok(&["get", "nodes", "-o", "name"]), "node/node-1\nnode/node-2\n");
    assert!(!cluster.folder().join("node-3").exists() && machines(&cluster.folder().join("node-3")).is_empty());
    assert_eq!(word_of("node-1").nlink(), 2);
    let refused = cluster.run(&["add-node", name, "--server"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("with the embedded store"), "{refused:?}");

    // The same name again is another node; what is stopped listens nowhere, and starts with all of it.
    cluster.ok(&["add-node", name]);
    cluster.ok(&["stop", name, "--grace-period", "1"]);
    assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
    assert_eq!(cluster.run(&["exec", name, "--", "true"]).status.code(), Some(1));
    cluster.ok(&["start", name]);
    assert_eq!(ready_nodes(&kubectl), 3);
    eventually("the port answers again", || get(&format!("127.0.0.1:{port}")).is_some());
    let device = cluster.description()["device"].as_str().unwrap().to_owned();
    cluster.ok(&["delete", name]);
    assert_gone(&cluster, &device);
}

/// A host that forwards packets, with another machine beyond it.
#[test]
fn packets_leave_only_when_asked_for() {
    let hub = Arc::new(Hub::start(1).unwrap());
    let world = Machine::start_on(&hub, Place { link: 0, host: 1 }).unwrap();
    let listener = listen_within(&world.network(), "172.29.0.1:8099").unwrap();
    let cluster = LocalCluster::named(Some(hub.clone()));
    let name = cluster.name.as_str();

    cluster.ok(&["create", name]);
    let tries = |network: PathBuf| connect_within(&network, "172.29.0.1:8099");
    assert!(tries(cluster.network("node-1")).is_err());
    // Also a node that knows the way gets nowhere, and also when somebody allows all forwarding later.
    let router = cluster.description()["range"].as_str().unwrap().replace(".0/24", ".254");
    hub.shell("echo 0 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/ip_forward").unwrap();
    let routed = Command::new("nsenter")
        .arg(format!("--net={}", cluster.network("node-1").display()))
        .args(["ip", "route", "replace", "172.29.0.0/24", "via", &router])
        .status()
        .unwrap();
    assert!(routed.success());
    assert!(tries(cluster.network("node-1")).is_err());
    let device = cluster.description()["device"].as_str().unwrap().to_owned();
    cluster.ok(&["delete", name]);
    assert_gone(&cluster, &device);

    cluster.ok(&["create", name, "--uplink"]);
    tries(cluster.network("node-1")).unwrap();
    // By then it has the host's address.
    assert_eq!(listener.accept().unwrap().1.ip().to_string(), "172.29.0.254");
    cluster.ok(&["delete", name]);
    assert_gone(&cluster, &device);
    let rules = hub.shell("nft list tables").unwrap();
    assert!(!rules.contains(&device), "{rules}");
}

#[test]
fn what_fails_or_is_interrupted_leaves_nothing() {
    let cluster = LocalCluster::named(None);
    let name = cluster.name.as_str();
    let failed = cluster.run(&["create", name, "--nodes", "2", "--agent-arg=--no-such-flag"]);
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && said.contains("node-2") && said.contains("--no-such-flag"), "{said}");
    assert_gone(&cluster, "none");
    assert!(!cluster.run(&["delete", name]).status.success());

    // Killed in the middle: half of a cluster is there, and can be taken away.
    let mut creating = cluster.command(&["create", name, "--nodes", "3"]).stderr(Stdio::null()).spawn().unwrap();
    eventually("a machine is there", || !machines(&cluster.folder().join("node-2")).is_empty());
    creating.kill().unwrap();
    creating.wait().unwrap();
    let device = cluster.description()["device"].as_str().unwrap().to_owned();
    cluster.ok(&["delete", name]);
    assert_gone(&cluster, &device);
}
