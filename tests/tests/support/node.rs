//! A whole node on a machine of its own, and what tests ask about its pods.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Client, Server};

pub const IMAGE: &str = "knarr.dev/demo";
/// Debug builds on a machine that runs other tests, too.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Node {
    pub server: Server,
    tokio: tokio::runtime::Runtime,
}

impl Node {
    pub fn start(arguments: &[&str]) -> Node {
        Node::on(Server::start_node(arguments).expect("a node starts"))
    }

    pub fn on(server: Server) -> Node {
        let tokio = tokio::runtime::Runtime::new().expect("a runtime");
        let node = Node { server, tokio };
        node.server.default_account("default").expect("the default account is made");
        node
    }

    fn client(&self) -> Client {
        self.server.client().expect("the administrator's certificate is there")
    }

    /// Reads a path of the API; null when it is not there or the server is not.
    pub fn get(&self, path: &str) -> Value {
        match self.tokio.block_on(self.client().get(path)) {
            Ok(reply) if reply.code == 200 => reply.json(),
            Ok(_) | Err(_) => Value::Null,
        }
    }

    pub fn create(&self, path: &str, object: &Value) {
        let reply = self.tokio.block_on(self.client().post(path, object)).expect("the server answers");
        assert_eq!(reply.code, 201, "{}", reply.text());
    }

    pub fn create_pod(&self, pod: &Value) {
        self.create("/api/v1/namespaces/default/pods", pod);
    }

    pub fn pod(&self, name: &str) -> Value {
        self.get(&format!("/api/v1/namespaces/default/pods/{name}"))
    }

    pub fn pods(&self) -> BTreeMap<String, Value> {
        let list = self.get("/api/v1/namespaces/default/pods");
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().map(|pod| (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod)).collect()
    }

    /// Waits until the pod is as wanted, and returns it so.
    pub fn until(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let pod = self.pod(name);
            if wanted(&pod) {
                return pod;
            }
            if Instant::now() > until {
                panic!("{name} does not become {what}: {:#}\n{:#?}", pod["status"], self.events(name));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn ready(&self, name: &str) -> Value {
        self.until(name, "ready", is_ready)
    }

    /// The pod's main container's log.
    pub fn log(&self, name: &str) -> String {
        let path = format!("/api/v1/namespaces/default/pods/{name}/log");
        let reply = self.tokio.block_on(self.client().get(&path)).expect("the server answers");
        assert_eq!(reply.code, 200, "{}", reply.text());
        reply.text()
    }

    /// What was told about an object, as `reason: message`.
    pub fn events(&self, name: &str) -> Vec<String> {
        let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}");
        let list = self.get(&path);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let text = |event: &Value| format!("{}: {}", event["reason"].as_str().unwrap_or(""), message(event));
        items.iter().map(text).collect()
    }

    pub fn until_event(&self, name: &str, wanted: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let events = self.events(name);
            if let Some(found) = events.iter().find(|event| event.contains(wanted)) {
                return found.clone();
            }
            if Instant::now() > until {
                panic!("nobody tells {wanted:?} of {name}: {events:#?}\n{:#}", self.pod(name)["status"]);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn exec(&self, name: &str, command: &[&str]) -> String {
        self.server.kubectl().ok(&[&["exec", name, "--"], command].concat())
    }

    /// A condition of the node: `True` or `False`.
    pub fn condition(&self, kind: &str) -> String {
        let node = self.get("/api/v1/nodes/node-1");
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        found.and_then(|condition| condition["status"].as_str()).unwrap_or("missing").to_owned()
    }

    /// The processes of a container, by the ids they have outside, each with the time of its start.
    pub fn processes(&self, container: &str) -> BTreeMap<u32, String> {
        let roots =
            ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(|root| Path::new(root).join(self.server.machine().name()));
        let group = roots.iter().find_map(|root| find_folder(root, container));
        let group = group.unwrap_or_else(|| panic!("{container} has no cgroup"));
        let text = std::fs::read_to_string(group.join("cgroup.procs")).expect("processes of a group can be read");
        text.lines().filter_map(|line| line.parse().ok()).map(|pid: u32| (pid, started(pid))).collect()
    }
}

fn message(event: &Value) -> &str {
    event["message"].as_str().unwrap_or("")
}

/// Field 22 of stat: with the id it names one process for as long as the machine runs.
fn started(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or_default().to_owned()
}

fn find_folder(root: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(root).ok()?.flatten().filter(|entry| entry.path().is_dir()) {
        if entry.file_name().to_string_lossy().contains(name) {
            return Some(entry.path());
        }
        if let Some(found) = find_folder(&entry.path(), name) {
            return Some(found);
        }
    }
    None
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The status of the pod's first container.
pub fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

/// Its id without the runtime's name.
pub fn container_id(pod: &Value) -> String {
    let id = container(pod)["containerID"].as_str().unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default().to_owned()
}

pub fn restarts(pod: &Value) -> u64 {
    container(pod)["restartCount"].as_u64().unwrap_or_default()
}

/// A pod of one container that runs a script of the demo image's shell.
pub fn script(name: &str, restart: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node-1", "restartPolicy": restart, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}],
        },
    })
}

/// The same with a folder of the host at `/host`.
pub fn with_folder(mut pod: Value, folder: &Path) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "host", "hostPath": {"path": folder}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "host", "mountPath": "/host"}]);
    pod
}
