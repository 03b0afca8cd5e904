//! Volumes of a storage driver on several nodes: a StatefulSet keeps its data when the node under it is lost, and nobody has the volume on two
//! nodes at once. The driver's controller, which attaches, is the test.

#[path = "support/several_nodes.rs"]
mod several_nodes;

use std::path::Path;

use serde_json::{Value, json};
use several_nodes::{IMAGE, eventually};
use testkit::csi::Options;
use testkit::{Cluster, CsiDriver, Kubectl};

const DRIVER: &str = "shared.test";

fn apply(kubectl: &Kubectl, object: &Value) {
    kubectl.ok_with(&["apply", "-f", "-"], &object.to_string());
}

fn items(kubectl: &Kubectl, what: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(&kubectl.ok(&["get", what, "-o", "json"])).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Attaches what is to be attached, and answers which node has each volume.
fn attach(kubectl: &Kubectl) -> Vec<(String, String)> {
    let mut attached = Vec::new();
    for attachment in items(kubectl, "volumeattachments") {
        let name = attachment["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let node = attachment["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        if attachment["status"]["attached"] != true && attachment["metadata"]["deletionTimestamp"].is_null() {
            let patch = json!({"status": {"attached": true}}).to_string();
            kubectl.ok(&["patch", "volumeattachment", &name, "--subresource=status", "--type=merge", "-p", &patch]);
        }
        let volume = attachment["spec"]["source"]["persistentVolumeName"].as_str().unwrap_or_default().to_owned();
        attached.push((volume, node));
    }
    attached
}

/// The driver on the node of a folder, whose data all drivers share.
fn driver(pid: u32, data_dir: &Path, shared: &Path) -> CsiDriver {
    let options = Options { data: Some(shared.to_owned()), ..Options::new(DRIVER) };
    let driver = CsiDriver::start(pid, &data_dir.join("kubelet"), options).expect("the driver starts");
    driver.until_registered().expect("the driver is registered");
    driver
}

fn objects() -> Vec<Value> {
    let common = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand"});
    let mut volume = common.clone();
    volume["capacity"] = json!({"storage": "1Gi"});
    volume["persistentVolumeReclaimPolicy"] = "Retain".into();
    volume["claimRef"] = json!({"namespace": "default", "name": "data-web-0"});
    volume["csi"] = json!({"driver": DRIVER, "volumeHandle": "web-h"});
    let mut claim = common;
    claim["volumeName"] = "web".into();
    claim["resources"] = json!({"requests": {"storage": "1Gi"}});
    let hosts = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2", "node-3"]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}}});
    let script = "hostname >> /data/starts; date >> /data/starts; exec sleep infinity";
    let container = json!({"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"affinity": affinity, "terminationGracePeriodSeconds": 1, "containers": [container]}});
    vec![
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"attachRequired": true}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "web"}, "spec": volume}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {
            "serviceName": "web", "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        }}),
    ]
}

fn node_of(kubectl: &Kubectl) -> Option<String> {
    let pod = items(kubectl, "pods").into_iter().find(|pod| pod["metadata"]["name"] == "web-0")?;
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is_ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
    let stays = pod["metadata"]["deletionTimestamp"].is_null();
    pod["spec"]["nodeName"].as_str().filter(|_| is_ready && stays).map(str::to_owned)
}

#[test]
fn a_stateful_set_keeps_its_data_when_its_node_is_lost() {
    let shared = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
    let mut cluster: Cluster = several_nodes::start(3, 1, &[]);
    let kubectl = cluster.server.kubectl();
    let mut drivers: Vec<CsiDriver> =
        cluster.agents.iter().map(|agent| driver(agent.machine().pid(), agent.data_dir(), shared.path())).collect();
    for object in objects() {
        apply(&kubectl, &object);
    }
    let running_on = |kubectl: &Kubectl, unlike: &str| {
        let mut found = None;
        eventually("web-0 runs", || {
            attach(kubectl);
            found = node_of(kubectl).filter(|node| node != unlike);
            found.is_some()
        });
        found.unwrap()
    };
    let first = running_on(&kubectl, "");
    let starts = || std::fs::read_to_string(drivers_content(shared.path())).unwrap_or_default();
    eventually("it has written", || starts().lines().count() == 2);

    // The machine burns down: its processes, its mounts and its kubelet are gone at once.
    let index = usize::from(first == "node-3");
    drivers.remove(index).crash();
    drop(cluster.agents.remove(index));
    // As long as nobody says that the node is really gone, nobody else gets the volume.
    eventually("the node is not ready", || {
        let node: Value = serde_json::from_str(&kubectl.ok(&["get", "node", &first, "-o", "json"])).unwrap();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "Unknown")
    });
    assert_eq!(attach(&kubectl), [("web".to_owned(), first.clone())]);
    kubectl.ok(&["delete", "pod", "web-0", "--wait=false"]);
    kubectl.ok(&["taint", "node", &first, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"]);
    let second = running_on(&kubectl, &first);
    assert_ne!(first, second);
    eventually("the data of before is there, and the new start", || starts().lines().count() == 4);
    assert_eq!(attach(&kubectl), [("web".to_owned(), second)], "the lost node has it no more");
}

/// The file that the pod writes, in the driver's storage.
fn drivers_content(shared: &Path) -> std::path::PathBuf {
    let mut folders = vec![shared.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name() == "starts" {
                return entry.path();
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    shared.join("starts")
}
