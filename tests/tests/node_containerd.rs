//! Another runtime instead of ours: a node whose containers are made by Debian's containerd and runc, through CRI.

#[path = "support/node.rs"]
mod node;

use std::sync::Arc;
use std::time::{Duration, Instant};

use node::{Node, container, is_ready, restarts, script};
use serde_json::json;
use testkit::{Machine, Options, Server, containerd};

#[test]
fn pods_run_in_containerd() {
    let folder = tempfile::Builder::new().prefix("knarr-containerd-").tempdir().unwrap();
    let machine = Arc::new(Machine::start().unwrap());
    let _containerd = containerd::start(&machine, folder.path(), &demo_image::archive(), demo_image::NAME).unwrap();
    let endpoint = containerd::endpoint(folder.path());
    let arguments = vec!["--container-runtime-endpoint".to_owned(), endpoint];
    let mut node = Node::on(Server::start_with(Options { arguments, machine: Some(machine) }).unwrap());

    // Port 8080 is taken: the image stands in for the pause image, too.
    let mut pod = script("web", "Always", "echo begun; exec serve --port 9090");
    pod["spec"]["containers"][0]["env"] = json!([{"name": "COLOR", "value": "blue"}]);
    pod["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}});
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": 9090}, "periodSeconds": 1});
    node.create_pod(&pod);
    node.create_pod(&script("task", "Never", "exit 7"));
    let ready = node.ready("web");
    let id = container(&ready)["containerID"].as_str().unwrap_or_default().to_owned();
    assert!(id.starts_with("containerd://"), "{id}");
    assert!(ready["status"]["podIP"].as_str().unwrap_or_default().starts_with("10.99.0."), "{}", ready["status"]);
    let version = node.get("/api/v1/nodes/node-1")["status"]["nodeInfo"]["containerRuntimeVersion"].clone();
    assert!(version.as_str().unwrap_or_default().starts_with("containerd://"), "{version}");

    assert!(node.log("web").starts_with("begun\n"), "{}", node.log("web"));
    assert_eq!(node.exec("web", &["sh", "-c", "echo $COLOR"]), "blue\n");
    let failed = node.server.kubectl().run(&["exec", "web", "--", "exit", "3"]).unwrap();
    assert_eq!(failed.status.code(), Some(3));
    let cat = node.server.kubectl().ok_with(&["exec", "-i", "web", "--", "cat"], "typed\n");
    assert_eq!(cat, "typed\n");

    let task = node.until("task", "over", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(container(&task)["state"]["terminated"]["exitCode"], 7);

    // The pod outlives knarr here, too.
    node.server.restart().unwrap();
    let after = node.until("web", "ready again", is_ready);
    assert_eq!((container(&after)["containerID"].as_str(), restarts(&after)), (Some(id.as_str()), 0));

    let began = Instant::now();
    node.server.kubectl().ok(&["delete", "pod", "web", "--timeout=60s"]);
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    node.until_event("web", "Killing: Stopping container main");
    let list = format!("ctr --address {}/containerd.sock -n k8s.io tasks list -q", folder.path().display());
    let id = id.trim_start_matches("containerd://");
    assert!(!node.server.machine().shell(&list).unwrap().contains(id));
}
