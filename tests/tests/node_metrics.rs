//! What nodes and pods use, on a real node: `kubectl top`, the columns of the API, and an autoscaler that follows the load.

#[path = "support/on_node.rs"]
mod on_node;

use std::time::{Duration, Instant};

use on_node::{IMAGE, Node};
use serde_json::{Value, json};
use testkit::Kubectl;

const LATER: Duration = Duration::from_secs(150);

fn until<T>(what: &str, mut reached: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match reached() {
            Ok(found) => return found,
            Err(seen) => assert!(began.elapsed() < LATER, "{what}: not within {LATER:?}: {seen}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn read(kubectl: &Kubectl, what: &[&str]) -> Result<Value, String> {
    let output = kubectl.run(what).map_err(|error| error.to_string())?;
    serde_json::from_slice(&output.stdout).map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
}

fn deployment(name: &str, command: Value) -> Value {
    let labels = json!({"app": name});
    let container = json!({"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "args": command,
        "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "8Mi"}, "limits": {"cpu": "150m", "memory": "32Mi"}}});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}})
}

/// What dashboards read of a kubelet that has started two pods whose containers are probed.
fn kubelet_tells_of_itself(kubectl: &Kubectl) {
    let page = |path: &str| kubectl.ok(&["get", "--raw", &format!("/api/v1/nodes/node-1/proxy/{path}")]);
    let value = |text: &str, sample: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse::<f64>().ok());
        found.unwrap_or_else(|| panic!("{sample} in\n{text}"))
    };
    let own = page("metrics");
    for sample in [
        "kubelet_started_pods_total",
        "kubelet_started_containers_total{container_type=\"container\"}",
        "kubelet_pod_start_duration_seconds_count",
        "kubelet_pod_start_total_duration_seconds_count",
        "kubelet_pod_start_sli_duration_seconds_count",
        "kubelet_pod_worker_start_duration_seconds_count",
        "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"}",
        "kubelet_runtime_operations_duration_seconds_count{operation_type=\"start_container\"}",
        "kubelet_desired_pods{static=\"\"}",
    ] {
        assert!(value(&own, sample) >= 2.0, "{sample} in\n{own}");
    }
    let probed = until("both are probed", || {
        let probes = page("metrics/probes");
        let lines: Vec<String> =
            probes.lines().filter(|line| line.starts_with("prober_probe_total{")).map(str::to_owned).collect();
        if lines.len() >= 2 { Ok(lines) } else { Err(probes) }
    });
    let good = "probe_type=\"Liveness\",result=\"successful\"}";
    assert!(probed.iter().all(|line| line.contains("namespace=\"default\"") && line.contains(good)), "{probed:?}");
    let requests = "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"metrics/probes\",server_type=\"readwrite\"}";
    assert!(value(&page("metrics"), requests) >= 1.0);
}

#[test]
fn top_shows_what_is_used_and_autoscalers_follow_it() {
    let node = Node::start(&["--horizontal-pod-autoscaler-sync-period=2s"]);
    let kubectl = node.server.kubectl();
    kubectl.ok_with(&["apply", "-f", "-"], &deployment("busy", json!(["spin"])).to_string());
    kubectl.ok_with(&["apply", "-f", "-"], &deployment("idle", json!(["sleep", "infinity"])).to_string());
    for name in ["busy", "idle"] {
        kubectl.ok(&["rollout", "status", &format!("deployment/{name}"), "--timeout=100s"]);
    }

    // NAME CPU(cores) MEMORY(bytes): the busy one uses about what it may, the idle one next to nothing.
    let rows = until("both are measured", || {
        let output = kubectl.run(&["top", "pods", "--no-headers"]).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rows: Vec<Vec<String>> =
            text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
        if rows.len() == 2 { Ok(rows) } else { Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))) }
    });
    let cores = |row: &[String]| row[1].trim_end_matches('m').parse::<u64>().expect("thousandths of a core");
    assert!(rows[0][0].starts_with("busy-") && cores(&rows[0]) >= 40, "{rows:?}");
    assert!(rows[1][0].starts_with("idle-") && cores(&rows[1]) <= 20, "{rows:?}");
    let nodes = kubectl.ok(&["top", "nodes", "--no-headers"]);
    let cells: Vec<&str> = nodes.split_whitespace().collect();
    assert!(cells[0] == "node-1" && cells[2].ends_with('%') && cells[4].ends_with('%'), "{nodes}");
    let one = kubectl.ok(&["top", "pods", "-l", "app=idle", "--containers", "--no-headers"]);
    assert_eq!(one.lines().count(), 1, "{one}");

    kubelet_tells_of_itself(&kubectl);

    // The API itself.
    let table = kubectl.ok(&["get", "pods.metrics.k8s.io", "-l", "app=busy"]);
    let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(head, ["NAME", "CPU", "MEMORY", "WINDOW"], "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    let list = read(
        &kubectl,
        &["get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dbusy"],
    )
    .unwrap();
    assert_eq!((list["kind"].as_str(), list["items"].as_array().map(Vec::len)), (Some("PodMetricsList"), Some(1)));
    let pod = &list["items"][0];
    assert_eq!(pod["metadata"]["labels"]["app"], "busy");
    assert_eq!(pod["containers"][0]["name"], "c");
    let named = read(&kubectl, &["get", "nodes.metrics.k8s.io", "node-1", "-o", "json"]).unwrap();
    assert_eq!(named["kind"], "NodeMetrics");
    let said = kubectl.fails(&["get", "pods.metrics.k8s.io", "nobody"]);
    assert!(said.contains("pods.metrics.k8s.io \"nobody\" not found"), "{said}");
    // Those who may look at pods may look at this, others may not.
    let said = kubectl.fails(&["--as=ann", "top", "pods"]);
    assert!(said.contains("cannot list resource \"pods\" in API group \"metrics.k8s.io\""), "{said}");
    kubectl.ok(&["create", "rolebinding", "ann", "--clusterrole=view", "--user=ann"]);
    until("the role is made of others", || {
        let output = kubectl.run(&["--as=ann", "top", "pods"]).map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    });

    // An autoscaler follows the load, and one over an idle Deployment does not.
    for name in ["busy", "idle"] {
        kubectl.ok(&["autoscale", "deployment", name, "--cpu-percent=50", "--min=1", "--max=2"]);
    }
    until("the busy one is scaled", || {
        let found = read(&kubectl, &["get", "hpa", "busy", "-o", "json"])?;
        if found["status"]["desiredReplicas"] == 2 { Ok(()) } else { Err(found["status"].to_string()) }
    });
    kubectl.ok(&["rollout", "status", "deployment/busy", "--timeout=100s"]);
    let idle = until("the idle one is measured", || {
        let found = read(&kubectl, &["get", "hpa", "idle", "-o", "json"])?;
        let used = found["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"].as_i64();
        used.ok_or_else(|| found["status"].to_string()).map(|used| (used, found))
    });
    assert!(idle.0 < 50 && idle.1["status"]["desiredReplicas"] == 1, "{}", idle.1);
}
