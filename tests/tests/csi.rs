//! Volumes of storage drivers on a real node: a driver of our own registers, its volumes are attached, staged and published, and nothing
//! is left of them, also of drivers that misbehave.

#[path = "support/csi.rs"]
mod csi;
#[path = "support/on_node.rs"]
mod on_node;

use std::process::Stdio;

use csi::{claim, claimed, describe, driver, nothing_is_left, remove, root, wait};
use on_node::{Node, condition, mounting, none, one, script, with};
use serde_json::{Value, json};
use testkit::CsiDriver;
use testkit::csi::{Fault, Options};

const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/node-1";

#[test]
fn drivers_register_and_are_announced() {
    let node = Node::start(&[]);
    let drivers = || {
        let found = node.send("GET", CSI_NODE, Value::Null).json()["spec"]["drivers"].clone();
        let found = found.as_array().cloned().unwrap_or_default();
        found
            .into_iter()
            .map(|driver| (driver["name"].as_str().unwrap_or_default().to_owned(), driver))
            .collect::<Vec<_>>()
    };
    let topology = [("topology.test/zone".to_owned(), "z1".to_owned())].into();
    let mut first = driver(&node, Options { max_volumes: 7, topology, ..Options::new("first.test") });
    let expected = json!({"name": "first.test", "nodeID": "first.test-node", "topologyKeys": ["topology.test/zone"],
        "allocatable": {"count": 7}});
    assert_eq!(drivers(), [("first.test".to_owned(), expected.clone())]);
    let metadata = node.send("GET", "/api/v1/nodes/node-1", Value::Null).json()["metadata"].clone();
    assert_eq!(metadata["labels"]["topology.test/zone"], "z1");
    assert_eq!(metadata["annotations"]["csi.volume.kubernetes.io/nodeid"], "{\"first.test\":\"first.test-node\"}");

    // Those who lie are told why they are refused, and change nothing.
    let refused = |options: Options, socket: &str, reason: &str| {
        let pid = node.server.machine().pid();
        let liar = CsiDriver::start_as(pid, &root(&node), options, socket).expect("the driver starts");
        let answers = wait("refused", || Some(liar.answers()).filter(|answers| !answers.is_empty()));
        assert!(!answers[0].0 && answers[0].1.contains(reason), "{answers:?}");
        liar
    };
    let liars = [
        refused(Options::new("first.test"), "other.test", "Another driver with the same name is already registered"),
        refused(
            Options { plugin_type: "Toaster".into(), ..Options::new("a.test") },
            "a.test",
            "no handler registered for plugin type: Toaster",
        ),
        refused(
            Options { versions: vec!["2.0.0".into()], ..Options::new("b.test") },
            "b.test",
            "None of the versions specified",
        ),
        refused(Options::new("../../etc"), "c.test", "is not a DNS name"),
    ];
    let garbage = std::os::unix::net::UnixListener::bind(root(&node).join("plugins_registry/garbage.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in garbage.incoming() {
            let _ = stream.map(|mut stream| std::io::Write::write_all(&mut stream, &[0xff; 4096]));
        }
    });
    assert_eq!(drivers().len(), 1);
    drop(liars);

    // It restarts, goes, and comes back.
    first.crash();
    let before = first.answers().len();
    first.run().unwrap();
    wait("registered again", || (first.answers().len() > before && first.answers()[before].0).then_some(()));
    first.unregister().unwrap();
    wait("unregistered", || drivers().is_empty().then_some(()));
    let node_id = || {
        node.send("GET", "/api/v1/nodes/node-1", Value::Null).json()["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"].clone()
    };
    wait("forgotten", || node_id().is_null().then_some(()));
    first.run().unwrap();
    wait("back", || (drivers() == [("first.test".to_owned(), expected.clone())]).then_some(()));
}

#[test]
fn volumes_are_shown_and_taken_back() {
    let node = Node::start(&[]);
    let disk = driver(&node, Options::new("disk.test"));
    describe(
        &node,
        "disk.test",
        json!({"podInfoOnMount": true, "fsGroupPolicy": "File",
        "volumeLifecycleModes": ["Persistent", "Ephemeral"], "tokenRequests": [{"audience": "vault"}]}),
    );
    claimed(&node, "data", "disk.test", json!({"mountOptions": ["noatime"]}));

    // Two pods share what is staged once; one sees a part, the other may not write.
    let group = json!({"securityContext": {"fsGroup": 4321}});
    let writer = mounting(
        "mkdir /v/sub; echo kept > /v/sub/file; stat /v; echo ready; sleep 600",
        &[("v", claim("data"), none())],
    );
    node.pod("writer", with(writer, group));
    let text = node.until_log("writer", "main", "ready");
    assert!(text.contains("mode 2775 uid 0 gid 4321"), "{text}");
    let part = json!({"subPath": "sub", "readOnly": true});
    node.pod("reader", mounting("cat /v/file; touch /v/x || echo locked; sleep 600", &[("v", claim("data"), part)]));
    node.until_log("reader", "main", "kept\n");
    node.until_log("reader", "main", "locked");
    assert_eq!(std::fs::read_to_string(disk.content("data-h").join("sub/file")).unwrap(), "kept\n");
    assert_eq!(
        (disk.count("NodeStageVolume data-h"), disk.count("NodePublishVolume data-h")),
        (1, 2),
        "{:?}",
        disk.calls()
    );
    // How full it is, as its driver says.
    let stats = wait("statistics", || {
        let summary = node.send("GET", "/api/v1/nodes/node-1/proxy/stats/summary", Value::Null).json();
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let pod = pods.into_iter().find(|pod| pod["podRef"]["name"] == "writer")?;
        pod["volume"].as_array()?.iter().find(|volume| volume["pvcRef"]["name"] == "data").cloned()
    });
    assert_eq!(
        (&stats["capacityBytes"], &stats["usedBytes"], &stats["inodes"]),
        (&json!(1048576), &json!(262144), &json!(400))
    );
    let metrics = node.send("GET", "/api/v1/nodes/node-1/proxy/metrics", Value::Null).text();
    let line = "kubelet_volume_stats_capacity_bytes{namespace=\"default\",persistentvolumeclaim=\"data\"} 1048576";
    assert!(metrics.contains(line), "{metrics}");
    remove(&node, "writer");
    assert_eq!(
        (disk.count("NodeUnpublishVolume data-h"), disk.count("NodeUnstageVolume data-h")),
        (1, 0),
        "{:?}",
        disk.calls()
    );
    remove(&node, "reader");
    assert_eq!(
        (disk.count("NodeUnpublishVolume data-h"), disk.count("NodeUnstageVolume data-h")),
        (2, 1),
        "{:?}",
        disk.calls()
    );
    let told = disk.requests().join("\n");
    for word in ["\"noatime\"", "csi.storage.k8s.io/pod.name\": \"writer\"", "serviceAccount.tokens", "vault"] {
        assert!(told.contains(word), "{word} in {told}");
    }

    // Its controller has made it larger; the node's part is done before the pod starts.
    let size = json!({"spec": {"capacity": {"storage": "2Gi"}}});
    node.patch("/api/v1/persistentvolumes/data", size);
    let claim_path = "/api/v1/namespaces/default/persistentvolumeclaims/data";
    let pending = json!({"status": {"allocatedResourceStatuses": {"storage": "NodeResizePending"}}});
    node.patch(&format!("{claim_path}/status"), pending);
    node.pod("grown", mounting("sleep 600", &[("v", claim("data"), none())]));
    node.until_ready("grown");
    assert_eq!(disk.count("NodeExpandVolume data-h"), 1, "{:?}", disk.calls());
    let status = node.send("GET", claim_path, Value::Null).json()["status"].clone();
    assert_eq!((&status["capacity"]["storage"], &status["allocatedResourceStatuses"]), (&json!("2Gi"), &Value::Null));
    let grown = "Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume \"data\" node-1";
    node.until_event("grown", grown);
    remove(&node, "grown");

    // Inline, and read-only as the pod says.
    let inline = json!({"csi": {"driver": "disk.test", "readOnly": true, "volumeAttributes": {"k": "v"}}});
    assert_eq!(
        node.output("inline", mounting("touch /v/x || echo locked", &[("v", inline, none())])).lines().last(),
        Some("locked")
    );
    remove(&node, "inline");
    assert!(disk.requests().iter().any(|one| one.contains("csi.storage.k8s.io/ephemeral\": \"true\"")));

    // A device.
    claimed(&node, "raw", "disk.test", json!({"volumeMode": "Block"}));
    let container = with(
        script("stat /dev/raw; echo raw > /dev/raw; sync; echo written; sleep 600"),
        json!({"volumeDevices": [{"name": "v", "devicePath": "/dev/raw"}]}),
    );
    node.pod("raw", with(one(container), json!({"volumes": [with(json!({"name": "v"}), claim("raw"))]})));
    node.until_log("raw", "main", "written");
    remove(&node, "raw");
    assert!(std::fs::read(disk.content("raw-h").with_extension("img")).unwrap().starts_with(b"raw\n"));
    nothing_is_left(&node);
}

#[test]
fn volumes_are_attached_first_and_detached_last() {
    let node = Node::start(&[]);
    let disk = driver(&node, Options::new("far.test"));
    describe(&node, "far.test", json!({"attachRequired": true}));
    claimed(&node, "far", "far.test", none());
    node.pod("far", mounting("echo here; sleep 600", &[("v", claim("far"), none())]));
    let attachments = || {
        let list = node.send("GET", "/apis/storage.k8s.io/v1/volumeattachments", Value::Null).json();
        list["items"].as_array().cloned().unwrap_or_default()
    };
    let attachment = wait("an attachment", || attachments().into_iter().next());
    assert_eq!(
        attachment["spec"],
        json!({"attacher": "far.test", "nodeName": "node-1", "source": {"persistentVolumeName": "far"}})
    );
    let name = "kubernetes.io/csi/far.test^far-h";
    let in_use = || node.send("GET", "/api/v1/nodes/node-1", Value::Null).json()["status"]["volumesInUse"].clone();
    wait("in use", || (in_use() == json!([name])).then_some(()));
    assert_eq!(disk.calls(), Vec::<String>::new(), "nothing is mounted before it is attached");
    let path =
        format!("/apis/storage.k8s.io/v1/volumeattachments/{}", attachment["metadata"]["name"].as_str().unwrap());
    // What the driver's controller could not do is told.
    let error = json!({"status": {"attached": false, "attachError": {"message": "no free slot", "time": "2026-01-01T00:00:00Z"}}});
    node.patch(&format!("{path}/status"), error);
    node.until_event("far", "Warning FailedAttachVolume AttachVolume.Attach failed for volume \"far\" : no free slot");
    let done = json!({"status": {"attached": true, "attachError": null, "attachmentMetadata": {"slot": "7"}}});
    node.patch(&format!("{path}/status"), done);
    node.until_ready("far");
    assert!(disk.requests().iter().any(|one| one.starts_with("NodeStageVolume") && one.contains("\"slot\": \"7\"")));
    node.until_event("far", "Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume \"far\"");
    node.delete("far", Some(0));
    node.until_gone("far");
    wait("not in use", || in_use().is_null().then_some(()));
    wait("detached", || attachments().is_empty().then_some(()));
    nothing_is_left(&node);
}

#[test]
fn drivers_that_misbehave_hurt_only_their_own_pods() {
    let node = Node::start(&[]);
    let mut bad = driver(&node, Options::new("bad.test"));
    let _good = driver(&node, Options::new("good.test"));
    for name in ["bad.test", "good.test"] {
        describe(&node, name, none());
    }
    claimed(&node, "bad", "bad.test", none());
    claimed(&node, "good", "good.test", none());
    let spec = |name: &str| mounting("echo here; sleep 600", &[("v", claim(name), none())]);

    // It hangs: another driver's pod starts all the same, and the pod that waits says so.
    bad.break_call("NodePublishVolume", Fault::Hang);
    node.pod("hangs", spec("bad"));
    bad.until_called("NodePublishVolume bad-h", 1).unwrap();
    node.pod("fine", spec("good"));
    node.until_ready("fine");
    assert_eq!(condition(&node.get("hangs"), "Ready"), "False");
    // It crashes in the middle of the call and comes back.
    bad.crash();
    node.until_event(
        "hangs",
        "Warning FailedMount MountVolume.SetUp failed for volume \"bad\" : rpc error: code = Unavailable",
    );
    bad.heal();
    bad.run().unwrap();
    node.until_ready("hangs");
    remove(&node, "hangs");
    remove(&node, "fine");

    // It refuses, and talks nonsense.
    bad.break_call("NodeStageVolume", Fault::Refuse);
    node.pod("refused", spec("bad"));
    node.until_event("refused", "Warning FailedMount MountVolume.MountDevice failed for volume \"bad\" : rpc error: code = Internal desc = told to refuse");
    bad.break_call("NodeStageVolume", Fault::Garbage);
    node.until_event(
        "refused",
        "Warning FailedMount MountVolume.MountDevice failed for volume \"bad\" : rpc error: code = Unknown",
    );
    bad.heal();
    node.until_ready("refused");
    remove(&node, "refused");

    // What it publishes leads elsewhere, or is not there.
    bad.break_call("NodePublishVolume", Fault::Climb);
    node.pod("climbs", spec("bad"));
    node.until_event("climbs", "Warning FailedMount MountVolume.SetUp failed for volume \"bad\" : driver bad.test has published something that is not a directory");
    remove(&node, "climbs");
    bad.break_call("NodePublishVolume", Fault::Lie);
    node.pod("lies", spec("bad"));
    node.until_event(
        "lies",
        "Warning FailedMount MountVolume.SetUp failed for volume \"bad\" : driver bad.test has published nothing",
    );
    bad.heal();
    remove(&node, "lies");

    // It mounts twice, and says that it has taken back what it has not.
    bad.break_call("NodePublishVolume", Fault::Twice);
    node.pod("twice", spec("bad"));
    node.until_ready("twice");
    bad.heal();
    remove(&node, "twice");
    node.pod("stays", spec("bad"));
    node.until_ready("stays");
    bad.break_call("NodeUnpublishVolume", Fault::Lie);
    node.delete("stays", Some(1));
    bad.until_called("NodeUnpublishVolume bad-h", bad.count("NodeUnpublishVolume bad-h") + 2).unwrap();
    assert_ne!(node.get("stays")["kind"], "Status", "the pod stays as long as its volume is mounted");
    bad.heal();
    node.until_gone("stays");

    // It is not there at all.
    bad.unregister().unwrap();
    wait("unregistered", || {
        let drivers = node.send("GET", CSI_NODE, Value::Null).json()["spec"]["drivers"].clone();
        (drivers.as_array().map(Vec::len) == Some(1)).then_some(())
    });
    node.pod("without", spec("bad"));
    node.until_event("without", "Warning FailedMount MountVolume.MountDevice failed for volume \"bad\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name bad.test not found in the list of registered CSI drivers");
    bad.run().unwrap();
    node.until_ready("without");
    remove(&node, "without");
    nothing_is_left(&node);
}

/// A process of the machine that holds a file open, until it is dropped.
struct Holder(std::process::Child);

impl Holder {
    fn of(node: &Node, file: &std::path::Path) -> Holder {
        let script = format!("exec 3< {}; echo held; read end", file.display());
        let mut command = node.server.machine().command("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("a line");
        assert_eq!(line, "held\n");
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_volume_is_told_of_and_taken_back_later() {
    let node = Node::start(&[]);
    let disk = driver(&node, Options::new("disk.test"));
    describe(&node, "disk.test", none());
    for name in ["busy", "free"] {
        claimed(&node, name, "disk.test", none());
        node.pod(name, mounting("echo kept > /v/file; echo ready; sleep 600", &[("v", claim(name), none())]));
        node.until_log(name, "main", "ready");
    }
    let uid = node.get("busy")["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let shown = root(&node).join("pods").join(uid).join("volumes/kubernetes.io~csi/busy/mount/file");
    let holder = Holder::of(&node, &shown);
    node.delete("busy", Some(1));
    disk.until_called("NodeUnpublishVolume busy-h", 2).expect("it is tried again");
    node.until_event("busy", "Warning FailedUnmount Unable to unmount volumes: CSI volume busy: kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = Internal desc = ");
    assert_eq!(node.get("busy")["metadata"]["name"], "busy", "the pod stays as long as its volume is mounted");
    assert_eq!(disk.count("NodeUnstageVolume busy-h"), 0, "what is shown stays staged");
    // Another pod of the same driver is not kept by it.
    remove(&node, "free");
    drop(holder);
    node.until_gone("busy");
    assert_eq!(std::fs::read_to_string(disk.content("busy-h").join("file")).unwrap(), "kept\n");
    nothing_is_left(&node);
}

#[test]
fn a_socket_that_speaks_no_grpc_is_told_of() {
    let node = Node::start(&[]);
    let mut disk = driver(&node, Options::new("disk.test"));
    describe(&node, "disk.test", none());
    claimed(&node, "data", "disk.test", none());
    disk.crash();
    let socket = root(&node).join("plugins/disk.test/csi.sock");
    std::fs::remove_file(&socket).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.map(|mut stream| std::io::Write::write_all(&mut stream, &[0xff; 1 << 16]));
        }
    });
    node.pod("garbage", mounting("echo here; sleep 600", &[("v", claim("data"), none())]));
    node.until_event(
        "garbage",
        "Warning FailedMount MountVolume.MountDevice failed for volume \"data\" : rpc error: code = ",
    );
    disk.run().unwrap();
    node.until_ready("garbage");
    remove(&node, "garbage");
    nothing_is_left(&node);
}
