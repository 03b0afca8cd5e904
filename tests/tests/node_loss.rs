//! A node that falls silent: it becomes Unknown, its pods leave when they tolerate it no longer and are made anew elsewhere, and
//! when it comes back it is a node like any other. Nodes are hollow ones, of two processes, one of which is killed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Component, Kubectl, Server};

const LATER: Duration = Duration::from_secs(90);
const TOLERATED: i64 = 3;

struct Cluster {
    kubectl: Kubectl,
    server: Server,
}

impl Cluster {
    fn start() -> Cluster {
        let arguments = [
            "--node-monitor-period=500ms",
            "--node-monitor-grace-period=4s",
            "--node-eviction-rate=10",
            // Whether most of a zone is in trouble is not what is tried here.
            "--unhealthy-zone-threshold=1",
        ];
        let arguments = arguments.iter().map(|one| one.to_string()).collect();
        let server = Server::start_with(testkit::Options { arguments, ..Default::default() }).unwrap();
        server.default_account("default").unwrap();
        Cluster { kubectl: server.kubectl(), server }
    }

    fn nodes(&self, prefix: &str) -> Component {
        let prefix = format!("--prefix={prefix}");
        let arguments = ["--count=2", &prefix, "--renew-seconds=1", "--zones=1"];
        Component::start(&self.server, "nodes", "hollow-nodes", &arguments).unwrap()
    }

    fn ok(&self, line: &str) -> String {
        self.kubectl.ok(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).unwrap()
    }

    fn items(&self, what: &str) -> Vec<Value> {
        self.get(what)["items"].as_array().cloned().unwrap()
    }

    fn until(&self, what: &str, mut reached: impl FnMut(&Cluster) -> bool) {
        let began = Instant::now();
        while !reached(self) {
            assert!(began.elapsed() < LATER, "{what}: not within {LATER:?}\n{}", self.ok("get nodes,pods -o wide"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The reason and the status of a node's Ready condition.
    fn ready(&self, node: &str) -> (String, String) {
        let node = self.get(&format!("node {node}"));
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|one| one["type"] == "Ready").unwrap_or_default();
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    /// `key:effect` of a node's taints, sorted.
    fn taints(&self, node: &str) -> Vec<String> {
        let node = self.get(&format!("node {node}"));
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut taints: Vec<String> =
            taints.iter().map(|one| format!("{}:{}", text(&one["key"]), text(&one["effect"]))).collect();
        taints.sort();
        taints
    }

    /// Names of the pods that stay, with the nodes they are on.
    fn pods(&self, selector: &str) -> Vec<(String, String)> {
        let pods = self.items(&format!("pods -l {selector}"));
        let staying = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        staying.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect()
    }
}

fn template(app: &str, tolerations: Value) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"tolerations": tolerations,
        "containers": [{"name": "c", "image": "demo:1"}]}})
}

#[test]
fn pods_of_a_silent_node_are_made_anew_elsewhere_and_the_node_comes_back() {
    let cluster = Cluster::start();
    let _stays = cluster.nodes("stays-");
    let mut lost = cluster.nodes("lost-");
    cluster.until("all nodes are there", |cluster| cluster.items("nodes").len() == 4);
    for node in ["lost-0", "lost-1", "stays-0", "stays-1"] {
        cluster.until("they are ready", |cluster| cluster.ready(node).0 == "True" && cluster.taints(node).is_empty());
    }
    let unreachable = "node.kubernetes.io/unreachable";
    let brief =
        json!([{"key": unreachable, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED}]);
    for (kind, name, tolerations) in [("Deployment", "web", brief), ("DaemonSet", "agent", json!([]))] {
        let mut spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template(name, tolerations)});
        if kind == "Deployment" {
            spec["replicas"] = 4.into();
            // One on each node.
            let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": name}}}]);
            spec["template"]["spec"]["topologySpreadConstraints"] = spread;
        }
        let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        cluster.kubectl.ok_with(&["apply", "-f", "-"], &object.to_string());
        cluster.ok(&format!("rollout status {kind}/{name} --timeout=60s"));
    }
    let on_lost = |pods: &[(String, String)]| pods.iter().filter(|(_, node)| node.starts_with("lost-")).count();
    let before = cluster.pods("app=web");
    assert_eq!(on_lost(&before), 2, "{before:?}");

    lost.kill().unwrap();
    for node in ["lost-0", "lost-1"] {
        cluster.until("the node is unknown", |cluster| {
            cluster.ready(node) == ("Unknown".to_owned(), "NodeStatusUnknown".to_owned())
        });
        let expected = [format!("{unreachable}:NoExecute"), format!("{unreachable}:NoSchedule")];
        cluster.until("the node is tainted", |cluster| cluster.taints(node) == expected);
    }
    // Endpoints no longer lead there: the pods are not ready, though their node cannot say so.
    cluster.until("its pods are not ready", |cluster| {
        let pods = cluster.items("pods -l app=agent");
        let unready = pods.iter().filter(|pod| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "False")
        });
        unready.count() == 2
    });
    cluster.until("the pods are elsewhere", |cluster| {
        let pods = cluster.pods("app=web");
        pods.len() == 4 && on_lost(&pods) == 0
    });
    cluster.ok("rollout status deployment/web --timeout=60s");
    // Those of the silent node are still there, for nobody has said that they ended; a DaemonSet's stay for good.
    let leaving = cluster.items("pods -l app=web");
    let leaving: Vec<&Value> = leaving.iter().filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null()).collect();
    assert_eq!(leaving.len(), 2);
    for pod in leaving {
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        let disrupted = conditions.iter().find(|one| one["type"] == "DisruptionTarget").expect("it says why");
        assert_eq!(disrupted["reason"], "DeletionByTaintManager");
        // Not before it was tolerated for so long.
        let time = |text: &Value| text.as_str().unwrap().parse::<k8s_openapi::jiff::Timestamp>().unwrap();
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap();
        let evicted = time(&pod["metadata"]["deletionTimestamp"]).as_second() - grace;
        let node = cluster.get(&format!("node {}", pod["spec"]["nodeName"].as_str().unwrap()));
        let taints = node["spec"]["taints"].as_array().unwrap();
        let taint = taints.iter().find(|one| one["effect"] == "NoExecute").unwrap();
        let tolerated = evicted - time(&taint["timeAdded"]).as_second();
        assert!((TOLERATED - 1..TOLERATED + 30).contains(&tolerated), "evicted after {tolerated} s");
    }
    assert_eq!(on_lost(&cluster.pods("app=agent")), 2);
    let events = cluster.ok("get events -A");
    for reason in ["NodeNotReady", "TaintManagerEviction"] {
        assert!(events.contains(reason), "{reason} in {events}");
    }
    let described = cluster.ok("describe node lost-0");
    assert!(described.contains("Kubelet stopped posting node status."), "{described}");
    assert_eq!(cluster.ok("get node lost-0 --no-headers").split_whitespace().nth(1), Some("NotReady"));

    let _back = cluster.nodes("lost-");
    for node in ["lost-0", "lost-1"] {
        cluster.until("the node is well", |cluster| cluster.ready(node).0 == "True" && cluster.taints(node).is_empty());
    }
    cluster.until("what it had to end has ended", |cluster| cluster.items("pods -l app=web").len() == 4);
    cluster.ok("rollout status daemonset/agent --timeout=60s");
    // It takes pods again.
    cluster.ok("scale deployment/web --replicas=8");
    cluster.until("it has new pods", |cluster| on_lost(&cluster.pods("app=web")) >= 3);
}

#[test]
fn pods_of_a_node_that_is_gone_for_good_do_not_stay() {
    let cluster = Cluster::start();
    let _stays = cluster.nodes("stays-");
    let mut lost = cluster.nodes("lost-");
    cluster.until("all nodes are there", |cluster| cluster.items("nodes").len() == 4);
    let spec =
        json!({"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", json!([]))});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    cluster.kubectl.ok_with(&["apply", "-f", "-"], &object.to_string());
    cluster.ok("rollout status deployment/web --timeout=60s");
    lost.kill().unwrap();
    // An operator who knows says so, and what was on it is let go by force.
    cluster.until("the node is unknown", |cluster| cluster.ready("lost-0").0 == "Unknown");
    let out_of_service = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    cluster.ok(&format!("taint node lost-0 lost-1 {out_of_service}"));
    cluster.until("no pod is left there", |cluster| {
        let pods = cluster.items("pods -l app=web");
        pods.len() == 4
            && pods.iter().all(|pod| pod["spec"]["nodeName"].as_str().is_some_and(|node| node.starts_with("stays-")))
    });
    cluster.ok("delete node lost-0 lost-1");
    cluster.ok("rollout status deployment/web --timeout=60s");
}
