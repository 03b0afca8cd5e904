//! Logs on the node's disk: rotated and packed, read back whole, and found where collectors of logs look for them.

#[path = "support/on_node.rs"]
mod on_node;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use on_node::{Node, one, script, status};
use serde_json::json;

/// The files of a container's log, by name.
fn files(node: &Node, name: &str) -> Vec<PathBuf> {
    let pod = node.get(name);
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let folder = node.server.machine().path(format!("/var/log/pods/default_{name}_{uid}/main"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn rotated_logs_are_packed_and_shown_whole() {
    let node = Node::start(&["--container-log-max-size", "64Ki", "--container-log-max-files", "4"]);
    node.pod("chatty", one(json!({"command": ["log", "--rate", "0", "--bytes", "100", "--lines", "3000"]})));
    node.until_phase("chatty", "Succeeded");
    let packed = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "gz");
    let deadline = Instant::now() + Duration::from_secs(30);
    let found = loop {
        let found = files(&node, "chatty");
        // The newest of the old ones stays plain.
        if found.len() == 4 && found.iter().filter(|path| packed(path)).count() == 2 {
            break found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let plain = |path: &PathBuf| -> String {
        let output = Command::new("gzip").args(["-dc"]).arg(path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let oldest = found.iter().find(|path| packed(path)).unwrap();
    assert!(std::fs::metadata(oldest).unwrap().len() < 32 << 10, "it is smaller than it was");
    let first_kept = plain(oldest).lines().next().unwrap().split(' ').nth(4).unwrap().to_owned();
    // All that is kept is shown, from the oldest packed line to the newest, none missing, none twice.
    let numbers = |text: &str| -> Vec<u32> {
        text.lines().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
    };
    let shown = numbers(&node.server.kubectl().ok(&["logs", "chatty"]));
    assert_eq!(shown, Vec::from_iter(first_kept.parse().unwrap()..=3000));
    let tail = numbers(&node.server.kubectl().ok(&["logs", "chatty", "--tail=1500"]));
    assert_eq!(tail, Vec::from_iter(1501..=3000));
    assert_eq!(numbers(&node.server.kubectl().ok(&["logs", "chatty", "--since=1h"])).len(), shown.len());
    assert!(files(&node, "chatty").iter().all(|path| !path.to_string_lossy().ends_with(".tmp")));
}

#[test]
fn collectors_find_logs_under_the_containers_names() {
    let node = Node::start(&[]);
    node.pod("collected", one(script("echo for everybody; sleep 300")));
    let pod = node.until_ready("collected");
    node.until_log("collected", "main", "everybody");
    let id = status(&pod, "main")["containerID"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let link = format!("/var/log/containers/collected_default_main-{id}.log");
    let text = node.server.machine().shell(&format!("cat {link}")).unwrap();
    assert!(text.ends_with(" stdout F for everybody\n"), "{text}");
    // The kubelet shows the machine's own logs to administrators, those of containers among them.
    let path = "/api/v1/nodes/node-1/proxy/logs/containers/";
    let listed = node.server.kubectl().ok(&["get", "--raw", path]);
    assert!(listed.contains(&id), "{listed}");
    node.delete("collected", Some(0));
    node.until_gone("collected");
    let deadline = Instant::now() + Duration::from_secs(30);
    let folder = node.server.machine().path("/var/log/containers");
    while std::fs::read_dir(&folder).unwrap().next().is_some() {
        assert!(Instant::now() < deadline, "the link outlives its log");
        std::thread::sleep(Duration::from_millis(50));
    }
}
