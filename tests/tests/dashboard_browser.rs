//! The dashboard in a real browser: Debian's chromium walks every view on a real node, and keeps pictures of them in
//! `target/dashboard`. What it looks at stands in `tests/browser/walk.mjs`; here is the cluster that it walks through.

#[path = "support/hostile_objects.rs"]
mod hostile_objects;
#[path = "support/on_node.rs"]
mod on_node;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use on_node::{IMAGE, Node};
use serde_json::{Value, json};
use store::embedded::{Config, EmbeddedStore};
use store::{Change, Expect, Store, Written};
use tempfile::TempDir;

/// The browser and its driver, as `scripts/install-tools test` installs them.
const CHROMIUM: &str = "/usr/bin/chromium";
/// Pods of the long list. Nobody schedules them: they are there to be listed.
const PODS: usize = 10_000;
/// Of them so many are written to the store at once.
const WRITES: usize = 1000;
/// What the walk says when it wants to see a server come back.
const RESTART: &str = "restart the server";
const TUNNEL_PATIENCE: Duration = Duration::from_secs(60);
/// The walk ends by itself before.
const WALK_PATIENCE: Duration = Duration::from_secs(960);

#[test]
fn a_browser_walks_every_view() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/browser"));
    if let Some(missing) = missing(folder) {
        eprintln!("the dashboard is not walked through: {missing}");
        return;
    }
    let mut node = Node::start(&[]);
    crowd(&mut node);
    furnish(&node);
    let address = sign_in_address(&node);
    let (url, code) = address.split_once("/dashboard/signin#code=").expect("an address with a code");
    let viewer = node.server.kubectl().ok(&["create", "token", "viewer", "-n", "shop"]);
    let shots = pictures();
    let tunnel = Tunnel::start(&node, folder, url);
    // A network of its own, in which nothing comes and goes; and processes of its own, which all end when the first one does.
    let mut walk = Command::new("unshare");
    walk.args([
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
        "sh",
        "-c",
        "ip link set lo up && exec node walk.mjs \"$@\"",
        "walk",
    ]);
    walk.current_dir(folder).args(["--url", url, "--code", code, "--viewer", viewer.trim()]);
    walk.arg("--tunnel").arg(&tunnel.socket);
    walk.args(["--pods", &PODS.to_string(), "--chromium", CHROMIUM]).arg("--shots").arg(&shots);
    let (said, fine) = run(walk, &mut node);
    eprintln!("{said}");
    assert!(fine, "the walk failed; pictures are in {}\n{said}", shots.display());
}

/// Why there can be no walk, if so.
fn missing(folder: &Path) -> Option<String> {
    if !Path::new(CHROMIUM).exists() {
        return Some("there is no chromium: run `make tools`".into());
    }
    if !folder.join("node_modules/playwright-core").exists() {
        return Some("its driver is not installed: run `make tools`".into());
    }
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    node.err().map(|error| format!("node cannot be started: {error}"))
}

/// What the walk expects to find in the namespace `shop`.
fn furnish(node: &Node) {
    let kubectl = node.server.kubectl();
    kubectl.ok(&["create", "namespace", "shop"]);
    node.server.default_account("shop").expect("the account of the pods");
    for object in shop() {
        kubectl.ok_with(&["create", "-n", "shop", "-f", "-"], &object.to_string());
    }
    hostile_objects::create(node, "shop");
    kubectl.ok(&["create", "serviceaccount", "viewer", "-n", "shop"]);
    kubectl.ok(&[
        "create",
        "rolebinding",
        "viewers",
        "-n",
        "shop",
        "--clusterrole=view",
        "--serviceaccount=shop:viewer",
    ]);
    kubectl.ok(&["rollout", "status", "deployment/frontend", "-n", "shop", "--timeout=120s"]);
    // The second revision, so that there is one to go back to.
    kubectl.ok(&["set", "env", "deployment/frontend", "-n", "shop", "COLOUR=blue"]);
    kubectl.ok(&["rollout", "status", "deployment/frontend", "-n", "shop", "--timeout=120s"]);
}

fn shop() -> Vec<Value> {
    let labels = json!({"app": "frontend"});
    let container = json!({"name": "app", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "args": ["log", "--rate", "2"],
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}}});
    let template = json!({"metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "frontend", "port": {"number": 80}}}});
    vec![
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "frontend", "labels": labels},
            "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "frontend"},
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "shop"},
            "spec": {"rules": [{"host": "shop.example", "http": {"paths": [path]}}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "only-frontend"},
            "spec": {"podSelector": {"matchLabels": {"app": "cart"}}, "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": labels}}]}]}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-model-0", "labels": {"app": "train"}},
            "spec": {"containers": [{"name": "app", "image": IMAGE, "resources": {"requests": {"cpu": "1000"}}}]}}),
    ]
}

/// Many pods in a namespace of their own. An unoptimised server takes minutes to admit so many on a busy machine, and that is
/// not what is tested: one is made through the API, and while the server is stopped the others are put beside it.
fn crowd(node: &mut Node) {
    node.server.kubectl().ok(&["create", "namespace", "load"]);
    node.server.default_account("load").expect("the account of the pods");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": hollow(0), "labels": {"app": "hollow"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "app", "image": IMAGE}]}});
    let made = node.create("/api/v1/namespaces/load/pods", pod);
    let uid = made["metadata"]["uid"].as_str().expect("a pod has a uid");
    node.server.kill().expect("the server can be stopped");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio.block_on(copies(&node.server.data_dir().join("store"), uid));
    node.server.restart().expect("the server starts again");
    node.until_served("/api/v1/namespaces/load/pods?limit=1");
}

fn hollow(number: usize) -> String {
    format!("hollow-{number:05}")
}

/// The first pod again and again, each with a name and a uid of its own.
async fn copies(folder: &Path, uid: &str) {
    let store = EmbeddedStore::open(Config::new(folder)).expect("the store opens");
    let key = |number| format!("/registry/pods/load/{}", hollow(number));
    let first = store.get(&key(0)).await.expect("the store answers").expect("the first pod is stored");
    let text = std::str::from_utf8(&first.value).expect("pods are stored as JSON");
    assert!(text.contains(uid), "{text}");
    let put = async |number: usize| {
        let own = format!("{number:08x}{}", &uid[8..]);
        let value = Bytes::from(text.replace(&hollow(0), &hollow(number)).replace(uid, &own));
        let change = Change::Put { value, ttl: None };
        let written = store.write_if(&key(number), Expect::Absent, change).await.expect("the store takes it");
        assert!(matches!(written, Written::Done(_)), "{written:?}");
    };
    futures::stream::iter(1..PODS).for_each_concurrent(WRITES, put).await;
}

fn sign_in_address(node: &Node) -> String {
    let binary = testkit::server::binary().expect("knarr is built");
    let mut open = node.server.beside(binary.to_str().expect("a path of letters"));
    let said = open.args(["dashboard", "open", "--print", "--data-dir"]).arg(node.server.data_dir()).output();
    let said = said.expect("knarr dashboard open starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).trim().to_string()
}

/// A program that ends with whoever started it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// From a socket in the file system to the node's network; ended when dropped.
struct Tunnel {
    _node: Running,
    socket: PathBuf,
    _folder: TempDir,
}

impl Tunnel {
    fn start(node: &Node, browser: &Path, url: &str) -> Tunnel {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("tunnel");
        let (host, port) = url.trim_start_matches("https://").rsplit_once(':').expect("an address with a port");
        let mut command = node.server.beside("node");
        command.current_dir(browser).arg("tunnel.mjs").arg(&socket).args([host, port]);
        let tunnel = Tunnel { _node: Running(command.spawn().expect("node starts")), socket, _folder: folder };
        let until = Instant::now() + TUNNEL_PATIENCE;
        while !tunnel.socket.exists() {
            assert!(Instant::now() < until, "the tunnel is not there");
            std::thread::sleep(Duration::from_millis(50));
        }
        tunnel
    }
}

/// Kept after the test: README and docs show some of them.
fn pictures() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../target").into()).join("dashboard")
}

/// What it said, and whether it ended well and in time. It asks once for the server to be restarted.
fn run(mut command: Command, node: &mut Node) -> (String, bool) {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let out = log.reopen().expect("the same file");
    let errors = out.try_clone().expect("the same file");
    let child = command.stdin(Stdio::null()).stdout(out).stderr(errors).spawn().expect("node starts");
    let mut child = Running(child);
    let until = Instant::now() + WALK_PATIENCE;
    let said = || std::fs::read_to_string(log.path()).unwrap_or_default();
    let mut restarted = false;
    let status = loop {
        if !restarted && said().lines().any(|line| line == RESTART) {
            node.server.kill().expect("the server can be stopped");
            node.server.restart().expect("the server starts again");
            restarted = true;
        }
        if let Some(status) = child.0.try_wait().expect("the walk can be waited for") {
            break Some(status);
        }
        if Instant::now() > until {
            break None;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    (said(), status.is_some_and(|status| status.success()))
}
