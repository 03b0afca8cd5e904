//! Pods that change while they run, and pods that come from files.

#[path = "support/on_node.rs"]
mod on_node;

use on_node::{IMAGE, Node, condition, node, one, pod_path, script, status, with};
use serde_json::{Value, json};

fn restarts(pod: &Value, container: &str) -> i64 {
    status(pod, container)["restartCount"].as_i64().unwrap_or(-1)
}

#[test]
fn running_pods_take_new_containers_sizes_and_images() {
    let node = node();
    let resources = json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
    let kept = with(script("sleep 300"), json!({"resources": resources}));
    let policy = json!({"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}, {"resourceName": "cpu", "restartPolicy": "NotRequired"}]});
    let restarted = with(kept.clone(), with(policy, json!({"name": "other"})));
    node.pod("changes", json!({"containers": [kept, restarted]}));
    let pod = node.until_ready("changes");
    let id =
        |pod: &Value, container: &str| status(pod, container)["containerID"].as_str().unwrap_or_default().to_owned();
    let (main, other) = (id(&pod, "main"), id(&pod, "other"));

    // An ephemeral container joins, and sees the processes of its target.
    let debugger = json!({"name": "debugger", "image": IMAGE, "imagePullPolicy": "Never", "targetContainerName": "main", "command": ["sh", "-c", "cat /proc/1/cmdline; echo; sleep 300"]});
    node.patch(
        &format!("{}/ephemeralcontainers", pod_path("changes")),
        json!({"spec": {"ephemeralContainers": [debugger]}}),
    );
    let pod = node.until("changes", "debugged", |pod| !status(pod, "debugger")["state"]["running"].is_null());
    assert_eq!(condition(&pod, "Ready"), "True");
    assert!(node.until_log("changes", "debugger", "sleep").contains("sleep\x00300"));

    let file = |pod: &Value, controller: &str, container: &str, file: &str| {
        let (name, uid) = (node.server.machine().name(), pod["metadata"]["uid"].as_str().unwrap());
        let group = id(pod, container).rsplit('/').next().unwrap().to_owned();
        let path = format!("/sys/fs/cgroup/{controller}/{name}/kubepods/burstable/pod{uid}/{group}/{file}");
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
    };
    assert_eq!(file(&pod, "cpu", "main", "cpu.cfs_quota_us"), "20000");
    let resize = |container: &str, resources: Value| {
        let path = format!("{}/resize", pod_path("changes"));
        node.patch(&path, json!({"spec": {"containers": [{"name": container, "resources": resources}]}}));
    };
    resize("main", json!({"requests": {"cpu": "150m"}, "limits": {"cpu": "400m", "memory": "96Mi"}}));
    let pod = node.until("changes", "resized", |pod| status(pod, "main")["resources"]["limits"]["cpu"] == "400m");
    assert_eq!(file(&pod, "cpu", "main", "cpu.cfs_quota_us"), "40000");
    assert_eq!(file(&pod, "memory", "main", "memory.limit_in_bytes"), (96 << 20).to_string());
    assert_eq!((id(&pod, "main"), restarts(&pod, "main")), (main.clone(), 0));
    assert_eq!(status(&pod, "main")["allocatedResources"]["cpu"], "150m");
    resize("other", json!({"limits": {"memory": "80Mi"}}));
    let pod = node.until("changes", "restarted", |pod| {
        restarts(pod, "other") == 1 && !status(pod, "other")["state"]["running"].is_null()
    });
    assert_ne!(id(&pod, "other"), other);
    assert_eq!(file(&pod, "memory", "other", "memory.limit_in_bytes"), (80 << 20).to_string());
    assert_eq!((id(&pod, "main"), restarts(&pod, "main")), (main.clone(), 0));
    // What the node could never give is refused before it comes there; what it has only no room for now waits (`kubelet::pod::admission`).
    let path = format!("{}/resize", pod_path("changes"));
    let beyond = json!({"requests": {"cpu": "900"}, "limits": {"cpu": "900"}});
    let reply = node.send("PATCH", &path, json!({"spec": {"containers": [{"name": "main", "resources": beyond}]}}));
    assert_eq!(reply.code, 403, "{}", reply.text());
    assert!(reply.text().contains("node didn't have enough allocatable resources: cpu"), "{}", reply.text());
    assert_ne!(condition(&node.get("changes"), "PodResizePending"), "True");

    // Another image restarts its container, and no other.
    let versioned = node.send("GET", "/api/v1/nodes/node-1", Value::Null).json();
    let images = versioned["status"]["images"].as_array().cloned().unwrap_or_default();
    let names: Vec<String> = images
        .iter()
        .flat_map(|image| image["names"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let second = names
        .iter()
        .find(|name| name.starts_with("knarr.dev/demo:") && *name != IMAGE)
        .unwrap_or_else(|| panic!("{names:?}"));
    node.patch(&pod_path("changes"), json!({"spec": {"containers": [{"name": "main", "image": second}]}}));
    let pod = node.until("changes", "restarted", |pod| {
        restarts(pod, "main") == 1 && !status(pod, "main")["state"]["running"].is_null()
    });
    assert_eq!(restarts(&pod, "other"), 1);
    node.until_event("changes", "Normal Killing Container main definition changed, will be restarted");
    node.delete("changes", Some(0));
}

#[test]
fn files_are_pods_too() {
    let node = node();
    let folder = node.server.data_dir().join("pod-manifests");
    let manifest = |text: &str| {
        let container = with(script(text), json!({"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}));
        let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "namespace": "default"}, "spec": spec});
        std::fs::write(folder.join(".static.json"), pod.to_string()).unwrap();
        std::fs::rename(folder.join(".static.json"), folder.join("static.json")).unwrap();
    };
    manifest("echo first; sleep 300");
    let pod = node.until_ready("static-node-1");
    assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
    assert!(pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string(), "{pod:#}");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(node.until_log("static-node-1", "main", "first"), "first\n");
    let container = status(&pod, "main")["containerID"].clone();
    // The mirror is only a mirror: without it the pod runs on, and it comes back.
    let uid = pod["metadata"]["uid"].clone();
    node.delete("static-node-1", Some(0));
    let pod = node.until("static-node-1", "mirrored again", |pod| {
        pod["metadata"]["uid"].is_string() && pod["metadata"]["uid"] != uid && condition(pod, "Ready") == "True"
    });
    assert_eq!(status(&pod, "main")["containerID"], container);
    manifest("echo second; sleep 300");
    node.until("static-node-1", "changed", |pod| {
        condition(pod, "Ready") == "True" && status(pod, "main")["containerID"] != container
    });
    assert_eq!(node.until_log("static-node-1", "main", "second"), "second\n");
    std::fs::remove_file(folder.join("static.json")).unwrap();
    node.until_gone("static-node-1");
}

/// Others go for a pod that the node cannot do without.
#[test]
fn a_static_pod_is_given_room() {
    let node = Node::start(&[]);
    let shown = node.send("GET", "/api/v1/nodes/node-1", Value::Null).json();
    let allocatable = shown["status"]["allocatable"]["cpu"].as_str().unwrap().to_owned();
    let cores: u32 = allocatable.parse().unwrap_or_else(|error| panic!("{allocatable}: {error}"));
    let asks = |millis: u32| json!({"resources": {"requests": {"cpu": format!("{millis}m")}}});
    node.pod("small", one(with(script("sleep 300"), asks(100))));
    node.pod("large", one(with(script("sleep 300"), asks(cores * 1000 - 200))));
    for name in ["small", "large"] {
        node.until_ready(name);
    }
    let write = |name: &str, millis: u32| {
        let own = json!({"name": "main", "image": IMAGE, "imagePullPolicy": "Never"});
        let spec = json!({"containers": [with(with(script("sleep 300"), own), asks(millis))]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
        let folder = node.server.data_dir().join("pod-manifests");
        std::fs::write(folder.join(format!(".{name}.json")), pod.to_string()).unwrap();
        std::fs::rename(folder.join(format!(".{name}.json")), folder.join(format!("{name}.json"))).unwrap();
    };
    write("needed", 500);
    node.until_ready("needed-node-1");
    let pod = node.until("large", "preempted", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(pod["status"]["reason"], "Preempting");
    assert_eq!(pod["status"]["message"], "Preempted in order to admit critical pod");
    assert_eq!(condition(&pod, "DisruptionTarget"), "True");
    node.until_event("large", "Warning Preempting Preempted in order to admit critical pod");
    let small = node.until_ready("small");
    assert_eq!(restarts(&small, "main"), 0);
    // All of them together would not be enough for this one, so nobody goes.
    write("impossible", cores * 1000 + 1000);
    let pod = node.until("impossible-node-1", "refused", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(pod["status"]["reason"], "UnexpectedAdmissionError", "{}", pod["status"]);
    assert_eq!(condition(&node.get("small"), "Ready"), "True");
}
