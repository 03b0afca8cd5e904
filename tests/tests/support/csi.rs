//! A storage driver on a node, volumes of it, and what must not be left of them.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::CsiDriver;
use testkit::csi::Options;

use crate::on_node::{Node, with};

/// A state that is not reached in this time is never reached.
const LONG: Duration = Duration::from_secs(90);

pub fn wait<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never {what}");
        std::thread::sleep(Duration::from_millis(40));
    }
}

pub fn root(node: &Node) -> PathBuf {
    node.server.data_dir().join("kubelet")
}

pub fn driver(node: &Node, options: Options) -> CsiDriver {
    let started = CsiDriver::start(node.server.machine().pid(), &root(node), options).expect("the driver starts");
    started.until_registered().expect("the driver is registered");
    started
}

/// Describes a driver to the cluster; what it says beyond that it needs no attaching.
pub fn describe(node: &Node, name: &str, more: Value) {
    let spec = with(json!({"attachRequired": false}), more);
    node.create("/apis/storage.k8s.io/v1/csidrivers", json!({"metadata": {"name": name}, "spec": spec}));
}

/// A persistent volume of a driver and a claim that has it, both of this name.
pub fn claimed(node: &Node, name: &str, driver: &str, more: Value) {
    let common = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand"});
    let spec = json!({"capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "default", "name": name}, "csi": {"driver": driver, "volumeHandle": format!("{name}-h")}});
    let spec = with(with(common.clone(), spec), more.clone());
    node.create("/api/v1/persistentvolumes", json!({"metadata": {"name": name}, "spec": spec}));
    let mut wished = with(common, json!({"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}));
    for field in ["volumeMode", "accessModes"] {
        if !more[field].is_null() {
            wished[field] = more[field].clone();
        }
    }
    node.create("persistentvolumeclaims", json!({"metadata": {"name": name}, "spec": wished}));
    wait("bound", || {
        let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
        (node.send("GET", &path, Value::Null).json()["status"]["phase"] == "Bound").then_some(())
    });
}

pub fn claim(name: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": name}})
}

/// Nothing of any volume of drivers may be left: no mount, no folder, no loop device.
pub fn nothing_is_left(node: &Node) {
    let root = root(node);
    let left = || {
        let mounts = node.server.machine().shell("cat /proc/self/mountinfo").expect("mounts");
        let mounts = mounts.lines().filter(|line| line.contains("csi")).map(str::to_owned);
        let mut left: Vec<String> = mounts.collect();
        let plugins = root.join("plugins/kubernetes.io/csi");
        for place in [plugins.clone(), plugins.join("volumeDevices")] {
            for driver in names(&place).into_iter().filter(|name| name != "volumeDevices") {
                left.extend(names(&place.join(&driver)).into_iter().map(|name| format!("{driver}/{name}")));
            }
        }
        for pod in names(&root.join("pods")) {
            left.extend(names(&root.join("pods").join(&pod).join("volumes/kubernetes.io~csi")));
            left.extend(names(&root.join("pods").join(&pod).join("plugins/kubernetes.io~csi")));
        }
        let loops = std::process::Command::new("losetup").arg("--list").output().expect("losetup");
        let data = root.join("csi-test-data").to_string_lossy().into_owned();
        let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
        left.extend(loops.lines().filter(|line| line.contains(&data)).map(str::to_owned));
        left
    };
    let deadline = Instant::now() + LONG;
    while !left().is_empty() {
        assert!(Instant::now() < deadline, "left behind: {:#?}\n{}", left(), log(node));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

pub fn log(node: &Node) -> String {
    let text = std::fs::read_to_string(node.server.data_dir().join("log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("csi") || line.contains("CSI")).collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

pub fn remove(node: &Node, pod: &str) {
    // With a grace of nothing the API server would take the pod away before the kubelet has ended it.
    node.delete(pod, Some(1));
    node.until_gone(pod);
}
