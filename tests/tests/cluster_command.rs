//! `knarr cluster`: several nodes on this machine, used from this machine's own network with real kubectl.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
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

/// A cluster that is gone when the test is over, however that ends.
struct Cluster {
    dir: TempDir,
    name: String,
    /// The network that is the host's, where it is not this machine's.
    host: Option<Arc<Hub>>,
}

impl Cluster {
    /// Nothing is made yet, only a name that nobody else has.
    fn named(host: Option<Arc<Hub>>) -> Cluster {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
        Cluster { dir, name: format!("e2e-{}-{number}", std::process::id()), host }
    }

    fn create(arguments: &[&str]) -> Cluster {
        let cluster = Cluster::named(None);
        cluster.ok(&[&["create", &cluster.name], arguments].concat());
        cluster
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let program = testkit::server::binary().unwrap();
        let mut command = match &self.host {
            None => Command::new(program),
            Some(hub) => hub.command(program),
        };
        command.args(["cluster", "--dir"]).arg(self.dir.path()).args(arguments).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("knarr runs")
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {said}{complained}");
        said.into_owned()
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    fn kubectl(&self) -> Kubectl {
        let program = testkit::kubectl::programs().pop().expect("there is a kubectl: run `make tools`");
        Kubectl::new(&program, &self.folder().join("kubeconfig"))
    }

    fn status(&self) -> String {
        let list = self.ok(&["list"]);
        let line = list.lines().find(|line| line.starts_with(&self.name)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    }

    fn description(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.folder().join("cluster.json")).unwrap()).unwrap()
    }

    /// The network of a node's machine.
    fn network(&self, node: &str) -> PathBuf {
        let folder = self.folder().join(node);
        let first = machines(&folder).into_iter().find(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"))
        });
        format!("/proc/{}/ns/net", first.expect("the machine runs")).into()
    }

    /// Nothing in the kernel, no process, no folder.
    fn assert_gone(&self, device: &str) {
        for part in ["hub", "node-1", "node-2", "node-3"] {
            assert_eq!(machines(&self.folder().join(part)), Vec::<u32>::new(), "processes of {part}");
        }
        let of_host = |arguments: &[&str]| {
            let mut command = match &self.host {
                None => Command::new("ip"),
                Some(hub) => hub.command("ip"),
            };
            String::from_utf8_lossy(&command.args(arguments).output().unwrap().stdout).into_owned()
        };
        assert!(!of_host(&["link"]).contains(device), "the device {device}");
        assert!(!of_host(&["rule"]).contains(device), "the rule of {device}");
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = std::fs::read_dir(root).unwrap().flatten().map(|entry| entry.path());
        for hierarchy in hierarchies.filter(|path| path.is_dir()).chain([root.to_owned()]) {
            let groups = std::fs::read_dir(hierarchy).unwrap().flatten();
            let prefix = format!("knarr-{}-", self.name);
            let left: Vec<_> =
                groups.filter(|group| group.file_name().to_string_lossy().starts_with(&prefix)).collect();
            assert!(left.is_empty(), "{left:?}");
        }
        assert!(!self.folder().exists());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&*self.folder().to_string_lossy()), "{mounts}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in ["node-1", "node-2", "node-3"] {
                let log = std::fs::read_to_string(self.folder().join(node).join("log/knarr.log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("{node}:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
        if self.folder().exists() {
            self.run(&["delete", &self.name]);
        }
    }
}

/// Processes that were started to be the machine of this folder.
fn machines(folder: &Path) -> Vec<u32> {
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_machine = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"cluster-machine"[..]) && words.get(2) == Some(&folder.as_os_str().as_encoded_bytes())
    };
    pids.filter(is_machine).collect()
}

/// Which pod answers there, seen from that network.
fn who_answers(network: &Path, address: &str) -> Option<String> {
    let mut stream: TcpStream = connect_within(network, &format!("{address}:80")).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: web\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| line.strip_prefix("pod: ")).map(str::to_owned)
}

fn ready_nodes(kubectl: &Kubectl) -> usize {
    let output = kubectl.run(&["get", "nodes", "--no-headers", "--request-timeout=5s"]).expect("kubectl runs");
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains(" Ready ")).count()
}

#[test]
fn three_nodes_serve_are_hurt_stopped_started_and_gone() {
    let cluster = Cluster::create(&["--nodes", "3"]);
    let (name, kubectl) = (cluster.name.as_str(), cluster.kubectl());
    // Ready when the command ends, not some time later.
    assert_eq!(ready_nodes(&kubectl), 3);
    assert_eq!(cluster.status(), "Running");
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
    assert!(!reaches());
    assert_eq!(machines(&cluster.folder().join("node-1")), Vec::<u32>::new());
    cluster.ok(&["start", name]);
    assert_eq!(ready_nodes(&kubectl), 3);
    assert_eq!(cluster.description()["range"], range.as_str());
    assert_eq!(kubectl.ok(&uids), before);
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    answers_everywhere();

    let device = cluster.description()["device"].as_str().unwrap().to_owned();
    cluster.ok(&["delete", name]);
    cluster.assert_gone(&device);
}

#[test]
fn three_servers_go_on_without_the_first() {
    let cluster = Cluster::create(&["--nodes", "3", "--servers", "3"]);
    assert_eq!(ready_nodes(&cluster.kubectl()), 3);
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

/// A host that forwards packets, with another machine beyond it.
#[test]
fn packets_leave_only_when_asked_for() {
    let hub = Arc::new(Hub::start(1).unwrap());
    let world = Machine::start_on(&hub, Place { link: 0, host: 1 }).unwrap();
    let listener = listen_within(&world.network(), "172.29.0.1:8099").unwrap();
    let cluster = Cluster::named(Some(hub.clone()));
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
    cluster.assert_gone(&device);

    cluster.ok(&["create", name, "--uplink"]);
    tries(cluster.network("node-1")).unwrap();
    // By then it has the host's address.
    assert_eq!(listener.accept().unwrap().1.ip().to_string(), "172.29.0.254");
    cluster.ok(&["delete", name]);
    cluster.assert_gone(&device);
    let rules = hub.shell("nft list tables").unwrap();
    assert!(!rules.contains(&device), "{rules}");
}

#[test]
fn what_fails_or_is_interrupted_leaves_nothing() {
    let cluster = Cluster::named(None);
    let name = cluster.name.as_str();
    let failed = cluster.run(&["create", name, "--nodes", "2", "--agent-arg=--no-such-flag"]);
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && said.contains("node-2") && said.contains("--no-such-flag"), "{said}");
    cluster.assert_gone("none");
    assert!(!cluster.run(&["delete", name]).status.success());

    // Killed in the middle: half of a cluster is there, and can be taken away.
    let mut creating = cluster.command(&["create", name, "--nodes", "3"]).stderr(Stdio::null()).spawn().unwrap();
    eventually("a machine is there", || !machines(&cluster.folder().join("node-2")).is_empty());
    creating.kill().unwrap();
    creating.wait().unwrap();
    let device = cluster.description()["device"].as_str().unwrap().to_owned();
    cluster.ok(&["delete", name]);
    cluster.assert_gone(&device);
}
