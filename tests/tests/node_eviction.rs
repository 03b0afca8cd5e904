//! A node that runs short: who goes first, what users and schedulers are told, and how it recovers. What dead containers and
//! unused images take is given back before pods have to go.

#[path = "support/node.rs"]
mod node;
#[path = "support/registry.rs"]
mod registry;
#[path = "support/small_disk.rs"]
mod small_disk;

use std::path::Path;
use std::time::{Duration, Instant};

use node::{Node, container, is_ready, restarts, script};
use registry::{Image, Layer};
use serde_json::{Value, json};
use small_disk::on_small_disk;

const MIB: u64 = 1 << 20;

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + node::PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The node's taint for a shortage, as the scheduler sees it.
fn tainted(node: &Node, key: &str) -> bool {
    let node = node.get("/api/v1/nodes/node-1");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().any(|taint| taint["key"] == key && taint["effect"] == "NoSchedule")
}

fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
    *pod.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
    pod
}

/// Not bound by hand: the scheduler decides.
fn unbound(name: &str) -> Value {
    let mut pod = script(name, "Always", "exec sleep infinity");
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    pod
}

#[test]
fn memory_that_pods_take_is_won_back_from_the_greediest() {
    // Pods may have 400 MiB together, of which 100 MiB must stay free: how much the machine has beside does not matter.
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    let reserved = format!("memory={}Ki", total - 400 * 1024);
    let node = Node::start(&[
        "--system-reserved",
        &reserved,
        "--eviction-hard",
        "memory.available<100Mi",
        "--eviction-pressure-transition-period",
        "5s",
    ]);
    let hungry = |name: &str, eats: &str, request: &str, priority: &str| {
        let mut pod = script(name, "Never", &format!("exec eat-memory {eats}"));
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": request}});
        if !priority.is_empty() {
            pod["spec"]["priorityClassName"] = priority.into();
        }
        pod
    };
    let class = json!({"metadata": {"name": "important"}, "value": 1000, "globalDefault": false});
    node.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    // Within what it asked for; beyond it, and important; a little beyond it.
    for pod in [
        hungry("modest", "80Mi", "120Mi", ""),
        hungry("important", "60Mi", "1Mi", "important"),
        hungry("little", "30Mi", "1Mi", ""),
    ] {
        node.create_pod(&pod);
    }
    for name in ["modest", "important", "little"] {
        node.ready(name);
    }
    assert_eq!(node.condition("MemoryPressure"), "False");
    node.create_pod(&hungry("greedy", "170Mi", "1Mi", ""));
    let evicted = node.until("greedy", "evicted", |pod| pod["status"]["reason"] == "Evicted");
    assert_eq!(evicted["status"]["phase"], "Failed");
    let message = evicted["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: 100Mi, available: "),
        "{message}"
    );
    assert!(
        message.contains("Container main was using 1")
            && message.contains("request is 1Mi, has larger consumption of memory."),
        "{message}"
    );
    let conditions = evicted["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("TerminationByKubelet")));
    node.until_event("greedy", "Evicted: The node was low on resource: memory.");
    node.until_event("node-1", "EvictionThresholdMet: Attempting to reclaim memory");
    until("the condition", || node.condition("MemoryPressure") == "True");
    until("the taint", || tainted(&node, "node.kubernetes.io/memory-pressure"));
    // Of those that are left, none had to go.
    for name in ["modest", "important", "little"] {
        let pod = node.pod(name);
        assert!(is_ready(&pod) && restarts(&pod) == 0, "{name}: {}", pod["status"]);
    }
    until("the recovery", || node.condition("MemoryPressure") == "False");
    until("the end of the taint", || !tainted(&node, "node.kubernetes.io/memory-pressure"));
    node.create_pod(&unbound("later"));
    node.ready("later");
}

/// Writes so many megabytes into its own emptyDir and stays.
fn writer(name: &str, megabytes: u64, request: &str, more: Value) -> Value {
    let text = format!("log --rate 0 --bytes 1048575 --lines {megabytes} > /data/file; exec sleep infinity");
    let mut pod = script(name, "Never", &text);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"ephemeral-storage": request}});
    pod["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    pod
}

#[test]
fn a_disk_is_won_back_from_those_beyond_their_request_and_least_important() {
    let (disk, node) = on_small_disk(
        "900m",
        &["--eviction-pressure-transition-period", "5s", "--eviction-hard", "nodefs.available<200Mi"],
    );
    let class = json!({"metadata": {"name": "important"}, "value": 1000, "globalDefault": false});
    node.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    assert!(disk.free() > 600 * MIB, "{} MiB are free", disk.free() / MIB);
    let kept = disk.free() / MIB - 600;
    // What is on the disk already differs between builds; the rest is for the pods.
    let ballast = node.server.data_dir().join("ballast");
    std::fs::write(&ballast, vec![1; (kept * MIB) as usize]).unwrap();
    node.create_pod(&writer("modest", 150, "200Mi", json!({})));
    node.create_pod(&writer("important", 120, "1Mi", json!({"priorityClassName": "important"})));
    until("two files", || disk.free() < 340 * MIB);
    assert_eq!(node.condition("DiskPressure"), "False");
    node.create_pod(&writer("plain", 60, "1Mi", json!({})));
    until("a third", || disk.free() < 280 * MIB);
    node.create_pod(&writer("straw", 100, "150Mi", json!({})));
    let evicted = node.until("plain", "evicted", |pod| pod["status"]["reason"] == "Evicted");
    let message = evicted["status"]["message"].as_str().unwrap();
    let expected = "The node was low on resource: ephemeral-storage. Threshold quantity: 200Mi, available: ";
    assert!(message.starts_with(expected), "{message}");
    node.until_event("node-1", "EvictionThresholdMet: Attempting to reclaim ephemeral-storage");
    until("the condition", || node.condition("DiskPressure") == "True");
    until("the taint", || tainted(&node, "node.kubernetes.io/disk-pressure"));
    // Neither the scheduler nor the node itself takes a pod now.
    node.create_pod(&unbound("waits"));
    let told = node.until_event("waits", "FailedScheduling: ");
    assert!(told.contains("untolerated taint(s)") || told.contains("node.kubernetes.io/disk-pressure"), "{told}");
    node.create_pod(&script("refused", "Always", "exec sleep infinity"));
    let refused = node.until("refused", "refused", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(refused["status"]["reason"], "Evicted");
    assert_eq!(refused["status"]["message"], "Pod was rejected: The node had condition: [DiskPressure]. ");
    std::fs::remove_file(&ballast).unwrap();
    until("the recovery", || node.condition("DiskPressure") == "False");
    node.ready("waits");
    for name in ["modest", "important", "straw"] {
        let pod = node.pod(name);
        assert!(pod["status"]["reason"].is_null(), "{name}: {}", pod["status"]);
    }
}

#[test]
fn images_that_nobody_uses_go_before_pods_do() {
    let arguments = [
        "--eviction-pressure-transition-period",
        "5s",
        "--minimum-image-ttl-duration",
        "0s",
        "--eviction-hard",
        "nodefs.available<300Mi",
    ];
    let (disk, node) = on_small_disk("800m", &arguments);
    let import = |name: &str, megabytes: u64| {
        let layer = Layer::default().file("word", name.as_bytes()).file("zeros", &vec![0; (megabytes * MIB) as usize]);
        let archive = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(archive.path(), Image::with(layer).archive(name)).unwrap();
        let mut command = node.server.machine().command(testkit::server::binary().unwrap());
        command.args(["image", "import"]).arg(archive.path()).arg("--data-dir").arg(node.server.data_dir());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    import("local/unused:1", 24);
    import("local/used:1", 2);
    let pod = with(script("user", "Always", ""), "/spec/containers/0/image", "local/used:1".into());
    let sleep = json!(["/bin/busybox", "sleep", "1000"]);
    node.create_pod(&with(pod, "/spec/containers/0/command", sleep));
    node.ready("user");
    let images = || {
        let node = node.get("/api/v1/nodes/node-1");
        node["status"]["images"].to_string()
    };
    until("both images in the node's status", || images().contains("unused") && images().contains("local/used"));
    let ballast = node.server.data_dir().join("ballast");
    let more = disk.free() - 290 * MIB;
    std::fs::write(&ballast, vec![1; more as usize]).unwrap();
    node.until_event("node-1", "EvictionThresholdMet: Attempting to reclaim ephemeral-storage");
    until("the end of the image", || !images().contains("unused"));
    assert!(images().contains("local/used"), "an image that is used stays: {}", images());
    until("room", || disk.free() > 300 * MIB);
    until("the recovery", || node.condition("DiskPressure") == "False");
    let pod = node.pod("user");
    assert!(is_ready(&pod) && restarts(&pod) == 0, "no pod had to go: {}", pod["status"]);
}

#[test]
fn of_a_container_that_crashes_the_last_two_ends_are_kept() {
    let node = Node::start(&[]);
    node.create_pod(&script("crashing", "Always", "date; exit 1"));
    let pod = node.until("crashing", "crashed three times", |pod| {
        restarts(pod) >= 2
            && !container(pod)["lastState"]["terminated"].is_null()
            && !container(pod)["state"]["waiting"].is_null()
    });
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let logs = node.server.machine().path(format!("/var/log/pods/default_crashing_{uid}/main"));
    let count = |folder: &Path, end: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(end)).count()
    };
    let sandboxes = node.server.data_dir().join("runtime/sandboxes");
    let exits = || -> usize {
        let folders = std::fs::read_dir(&sandboxes).unwrap().flatten();
        folders.map(|folder| count(&folder.path(), ".exit")).sum()
    };
    until("two ends and two logs", || exits() == 2 && count(&logs, ".log") == 2);
    let links = node.server.machine().path("/var/log/containers");
    assert_eq!(count(&links, ".log"), 2, "what collectors of logs look at");
    // What is kept is what `kubectl logs` shows, now and with `-p` once it runs again.
    assert!(!node.log("crashing").is_empty());
    assert!(!node.server.kubectl().ok(&["logs", "crashing", "-p"]).is_empty());
    node.server.kubectl().ok(&["delete", "pod", "crashing", "--now"]);
    until("the end of all", || exits() == 0 && count(&links, ".log") == 0 && !logs.exists());
}
