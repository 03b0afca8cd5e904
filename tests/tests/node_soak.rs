//! Many pods of many shapes come and go, and nothing of them stays on the node: no shim, cgroup, mount, interface, rule,
//! connection or file.

#[path = "support/on_node.rs"]
mod on_node;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use on_node::{Node, condition, ended, one, script, status, with};
use serde_json::{Value, json};

const PODS: usize = 60;
/// What is taken away beside the pods' ends may take a moment.
const PATIENCE: Duration = Duration::from_secs(120);
/// Connections that have ended are remembered for two minutes; those of so few probes and requests are this many at most.
const CONNECTIONS_MORE_MAX: i64 = 60;

/// Everything that pods leave on a node while they run, by what it is.
type Inventory = BTreeMap<&'static str, BTreeSet<String>>;

fn inventory(node: &Node) -> Inventory {
    let machine = node.server.machine();
    let data = node.server.data_dir().display().to_string();
    let lines = |command: &str| -> BTreeSet<String> {
        let text = machine.shell(command).unwrap_or_else(|error| panic!("{error:#}"));
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let name = machine.name();
    [
        // By number, since each is one process.
        ("shims", r#"for one in /proc/[0-9]*; do tr '\0' ' ' 2>/dev/null < $one/cmdline | grep -q ' [s]him ' && echo $one; done; true"#.to_owned()),
        ("cgroups", format!("find /sys/fs/cgroup -type d -path '*{name}*'")),
        ("mounts", "cut -d' ' -f5 /proc/self/mountinfo".to_owned()),
        ("interfaces", "ip -o link | cut -d' ' -f2".to_owned()),
        // Without numbers of packets, and what belongs to clients that come back.
        ("rules", "nft list ruleset | sed -E 's/counter packets [0-9]+ bytes [0-9]+//; s/expires [0-9a-z]+//g'".to_owned()),
        ("state", "find /run/knarr".to_owned()),
        ("pods' folders", format!("find {data}/kubelet/pods -mindepth 1 -maxdepth 1; find {data}/runtime/sandboxes -mindepth 1")),
        ("snapshots", format!("find {data}/runtime -maxdepth 3 -type d")),
        ("logs", "find /var/log/pods /var/log/containers -mindepth 1".to_owned()),
    ]
    .into_iter()
    .map(|(what, command)| (what, lines(&command)))
    .collect()
}

/// How many connections the kernel remembers in the node's network, without those of this test's own questions to the API
/// server: how many of them are still remembered depends on how fast they were asked.
fn connections(node: &Node) -> i64 {
    let said = node.server.machine().shell("grep -vc 'src=127.0.0.1 dst=127.0.0.1' /proc/net/nf_conntrack || true");
    said.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// What is there and was not before.
fn left(before: &Inventory, now: &Inventory) -> Vec<String> {
    let new = |(what, things): (&&'static str, &BTreeSet<String>)| -> Vec<String> {
        things.difference(&before[what]).map(|thing| format!("{what}: {thing}")).collect()
    };
    now.iter().flat_map(new).collect()
}

/// One of the shapes, and what it reaches.
fn shape(number: usize) -> (&'static str, Value) {
    let sleeping = || script("sleep 300");
    match number % 9 {
        0 => {
            let volumes = json!([
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
                {"name": "map", "configMap": {"name": "soak"}},
                {"name": "secret", "secret": {"secretName": "soak"}},
                {"name": "mixed", "projected": {"sources": [
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    {"serviceAccountToken": {"path": "token"}}]}},
            ]);
            let mounts: Vec<Value> = ["memory", "map", "secret", "mixed"]
                .map(|name| json!({"name": name, "mountPath": format!("/{name}")}))
                .to_vec();
            ("ready", with(one(with(sleeping(), json!({"volumeMounts": mounts}))), json!({"volumes": volumes})))
        }
        1 => {
            let port = 20000 + number;
            let server = json!({
                "command": ["serve"],
                "ports": [{"containerPort": 8080, "hostPort": port}, {"containerPort": 8080, "hostPort": port, "protocol": "UDP"}],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1},
                "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
            });
            ("ready", one(server))
        }
        2 => {
            let first = with(script("true"), json!({"name": "first"}));
            let beside = with(sleeping(), json!({"name": "beside", "restartPolicy": "Always"}));
            ("ready", with(one(sleeping()), json!({"initContainers": [first, beside]})))
        }
        3 => ("ended", one(script("echo failed; exit 3"))),
        4 => ("restarted", with(one(script("exit 1")), json!({"restartPolicy": "Always"}))),
        5 => ("ready", with(one(sleeping()), json!({"hostNetwork": true}))),
        6 => ("ended", one(json!({"command": ["/no/such/program"]}))),
        7 => {
            let parts = json!([{"name": "v", "mountPath": "/a", "subPath": "a"}, {"name": "v", "mountPath": "/b", "subPath": "b"}]);
            let container = with(sleeping(), json!({"volumeMounts": parts}));
            let more = json!({"shareProcessNamespace": true, "volumes": [{"name": "v", "emptyDir": {}}]});
            ("ready", with(one(container), more))
        }
        _ => ("waiting", one(json!({"image": "knarr.dev/no-such-image:1", "imagePullPolicy": "Never"}))),
    }
}

fn is_reached(what: &str, pod: &Value) -> bool {
    match what {
        "ready" => condition(pod, "Ready") == "True",
        "ended" => ended(pod),
        "restarted" => status(pod, "main")["restartCount"].as_i64().unwrap_or(0) >= 1,
        _ => status(pod, "main")["state"]["waiting"]["reason"] == "ErrImageNeverPull",
    }
}

fn service(number: usize) -> Value {
    let kind = ["ClusterIP", "NodePort"][number % 2];
    json!({
        "metadata": {"name": format!("soak-{number}")},
        "spec": {"type": kind, "selector": {"soak": number.to_string()}, "sessionAffinity": "ClientIP",
            "ports": [{"name": "tcp", "port": 80, "targetPort": 8080}, {"name": "udp", "protocol": "UDP", "port": 53, "targetPort": 8080}]},
    })
}

#[test]
fn nothing_is_left_of_pods_that_are_gone() {
    let node = Node::start(&[]);
    node.create("configmaps", json!({"metadata": {"name": "soak"}, "data": {"a": "b"}}));
    node.create("secrets", json!({"metadata": {"name": "soak"}, "stringData": {"a": "b"}}));
    // What the first pod brings along stays: the bridge, the classes' cgroups, the tables.
    for (name, number) in [("first", 0), ("second", 1)] {
        node.pod(name, shape(number).1);
        node.until_ready(name);
    }
    for name in ["first", "second"] {
        node.delete(name, Some(0));
        node.until_gone(name);
    }
    settle(&node);
    let (before, connected) = (inventory(&node), connections(&node));

    let names: Vec<String> = (0..PODS).map(|number| format!("soak-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let (_, spec) = shape(number);
        node.pod_with(json!({"name": name, "labels": {"soak": (number % 20).to_string()}}), spec);
    }
    (0..20).for_each(|number| drop(node.create("services", service(number))));
    for (number, name) in names.iter().enumerate() {
        let (what, _) = shape(number);
        node.until(name, what, |pod| is_reached(what, pod));
    }
    // Some traffic, so that there are connections to forget.
    for number in 0..20 {
        let path = format!("/api/v1/namespaces/default/services/soak-{number}:tcp/proxy/");
        node.send("GET", &path, Value::Null);
    }
    let running = inventory(&node);
    for what in ["shims", "cgroups", "mounts", "interfaces", "rules", "state", "logs"] {
        assert!(running[what].len() > before[what].len(), "{what} can be seen: {}", running[what].len());
    }

    for (number, name) in names.iter().enumerate() {
        node.delete(name, (number % 2 == 0).then_some(0));
    }
    (0..20).for_each(|number| {
        drop(node.send("DELETE", &format!("/api/v1/namespaces/default/services/soak-{number}"), Value::Null))
    });
    names.iter().for_each(|name| node.until_gone(name));
    let deadline = Instant::now() + PATIENCE;
    let mut now = inventory(&node);
    while !left(&before, &now).is_empty() {
        assert!(Instant::now() < deadline, "left behind:\n{}", left(&before, &now).join("\n"));
        std::thread::sleep(Duration::from_millis(500));
        now = inventory(&node);
    }
    let count = |inventory: &Inventory| -> String {
        inventory.iter().map(|(what, things)| format!("{what} {}", things.len())).collect::<Vec<_>>().join(", ")
    };
    println!("before: {}\nduring: {}\nafter: {}", count(&before), count(&running), count(&now));
    let more = connections(&node) - connected;
    println!("connections: {connected} before, {more} more after");
    assert!(more <= CONNECTIONS_MORE_MAX, "{more} connections more than before");
}

/// Until there is no more and no less of anything. Which processes there are may change: looking needs some itself.
fn settle(node: &Node) {
    let counts = |inventory: &Inventory| inventory.values().map(|things| things.len()).collect::<Vec<_>>();
    let deadline = Instant::now() + PATIENCE;
    let mut last = inventory(node);
    loop {
        std::thread::sleep(Duration::from_secs(2));
        let now = inventory(node);
        if counts(&now) == counts(&last) {
            return;
        }
        assert!(Instant::now() < deadline, "it does not settle: {:?}", left(&last, &now));
        last = now;
    }
}
