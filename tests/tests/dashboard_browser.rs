//! The dashboard in a real browser: Debian's chromium walks every view on a real node, and keeps pictures of them in
//! `target/dashboard`. What it looks at stands in `tests/browser/walk.mjs`; here is the cluster that it walks through.

#[path = "support/on_node.rs"]
mod on_node;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use on_node::{IMAGE, Node};
use serde_json::{Value, json};

/// The browser and its driver, as `scripts/install-tools test` installs them.
const CHROMIUM: &str = "/usr/bin/chromium";
/// Pods of the long list. Nobody schedules them: they are there to be listed.
const PODS: usize = 10_000;
const CREATORS: usize = 16;
const WALK_PATIENCE: Duration = Duration::from_secs(600);

#[test]
#[ignore = "on two busy cores with an unoptimised program 10,000 pods are not listed in time: run it alone, with -- --ignored"]
fn a_browser_walks_every_view() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/browser"));
    if let Some(missing) = missing(folder) {
        eprintln!("the dashboard is not walked through: {missing}");
        return;
    }
    let node = Node::start(&[]);
    furnish(&node);
    crowd(&node);
    let address = sign_in_address(&node);
    let (url, code) = address.split_once("/dashboard/signin#code=").expect("an address with a code");
    let viewer = node.server.kubectl().ok(&["create", "token", "viewer", "-n", "shop"]);
    let shots = pictures();
    let mut walk = node.server.beside("node");
    walk.current_dir(folder).arg("walk.mjs").args(["--url", url, "--code", code, "--viewer", viewer.trim()]);
    walk.args(["--pods", &PODS.to_string(), "--chromium", CHROMIUM]).arg("--shots").arg(&shots);
    let (said, fine) = run(walk);
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
    let markup = "<img src=x onerror=\"alert(1)\"><script>alert(2)</script>";
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
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "annotations": {"example.com/markup": markup, "example.com/bidi": "invoice\u{202e}gpj.exe"}},
            "data": {"markup": markup, "escape.txt": "\u{1b}[2J\u{1b}]0;owned\u{7}cleared?", "long": "z".repeat(1 << 19)}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-model-0", "labels": {"app": "train"}},
            "spec": {"containers": [{"name": "app", "image": IMAGE, "resources": {"requests": {"cpu": "1000"}}}]}}),
    ]
}

/// Many pods in a namespace of their own, made by several clients at once.
fn crowd(node: &Node) {
    let kubectl = node.server.kubectl();
    kubectl.ok(&["create", "namespace", "load"]);
    node.server.default_account("load").expect("the account of the pods");
    let client = Arc::new(node.server.client().expect("a client"));
    let next = Arc::new(AtomicUsize::new(0));
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    tokio.block_on(async {
        let creators = (0..CREATORS).map(|_| tokio::spawn(create_pods(client.clone(), next.clone())));
        for creator in creators.collect::<Vec<_>>() {
            creator.await.expect("pods can be made");
        }
    });
}

async fn create_pods(client: Arc<testkit::Client>, next: Arc<AtomicUsize>) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= PODS {
            return;
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("hollow-{number:05}"), "labels": {"app": "hollow"}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "app", "image": IMAGE}]}});
        let reply = client.post("/api/v1/namespaces/load/pods", &pod).await.expect("the server answers");
        assert_eq!(reply.code, 201, "{}", reply.text());
    }
}

fn sign_in_address(node: &Node) -> String {
    let binary = testkit::server::binary().expect("knarr is built");
    let mut open = node.server.beside(binary.to_str().expect("a path of letters"));
    let said = open.args(["dashboard", "open", "--print", "--data-dir"]).arg(node.server.data_dir()).output();
    let said = said.expect("knarr dashboard open starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).trim().to_string()
}

/// Kept after the test: README and docs show some of them.
fn pictures() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../target").into()).join("dashboard")
}

/// What it said, and whether it ended well and in time.
fn run(mut command: Command) -> (String, bool) {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let out = log.reopen().expect("the same file");
    let errors = out.try_clone().expect("the same file");
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(errors).spawn().expect("node starts");
    let until = Instant::now() + WALK_PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("the walk can be waited for") {
            break Some(status);
        }
        if Instant::now() > until {
            // It may have ended by itself in the meantime.
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let said = std::fs::read_to_string(log.path()).unwrap_or_default();
    (said, status.is_some_and(|status| status.success()))
}
