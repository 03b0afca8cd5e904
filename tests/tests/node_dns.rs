//! The cluster's DNS on a node of its own: every kind of record asked for by real resolvers, from pods and from the node, and
//! what happens to it when things around it go wrong.

#[path = "support/on_node.rs"]
mod on_node;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use on_node::{Node, one, script, with};
use serde_json::{Value, json};
use testkit::Cluster;
use testkit::machine::{Inside, datagrams_within};

/// Where the node's own DNS answers.
const BRIDGE: &str = "10.42.0.1 -p 253";
/// Where the one that runs alone answers: at a port that the C libraries can use.
const ALONE: &str = "127.0.0.54";
const PATIENCE: Duration = Duration::from_secs(60);

/// A resolver of the outside world on the machine, which has none. It knows a few names and counts what it is asked.
struct Upstream {
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Upstream {
    fn start(node: &Node, address: &str, answers: &'static [(&'static str, [u8; 4])]) -> Upstream {
        let socket = datagrams_within(&node.server.machine().network(), address).expect("a socket on the machine");
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let counts = asked.clone();
        std::thread::spawn(move || answer_all(&socket, answers, &counts));
        Upstream { asked }
    }

    fn asked(&self) -> BTreeMap<String, usize> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer_all(socket: &UdpSocket, answers: &[(&str, [u8; 4])], counts: &Mutex<BTreeMap<String, usize>>) {
    let mut buffer = [0; 2000];
    while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
        let (mut name, mut at) = (String::new(), 12);
        while buffer[at] != 0 {
            let end = at + 1 + usize::from(buffer[at]);
            name += &(String::from_utf8_lossy(&buffer[at + 1..end]) + ".");
            at = end;
        }
        *counts.lock().unwrap().entry(name.clone()).or_default() += 1;
        let is_address = buffer[at + 2] == 1;
        let mut reply = buffer[..at + 5].to_vec();
        reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
        match answers.iter().find(|(known, _)| *known == name) {
            Some((_, address)) if is_address => {
                reply[7] = 1;
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4]);
                reply.extend(address);
            }
            Some(_) => {}
            None => {
                reply[3] |= 3;
                reply[9] = 1;
                // An SOA record of the root that lets the denial be kept for a minute.
                reply.extend([0, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22, 0, 0]);
                reply.extend([0; 16]);
                reply.extend(60_u32.to_be_bytes());
            }
        }
        // Whoever asked may be gone.
        let _ = socket.send_to(&reply, peer);
    }
}

/// What dig prints, its lines in order.
fn dig(node: &Node, at: &str, question: &str) -> String {
    let text =
        node.server.machine().shell(&format!("dig @{at} +time=3 +tries=2 +noall +answer +additional {question}"));
    let text = text.unwrap_or_else(|error| error.to_string());
    let mut lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.retain(|line| !line.is_empty());
    lines.sort();
    lines.join("\n")
}

fn until<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, mut look: impl FnMut() -> T) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if seen == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {seen:#?} instead of {expected:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A folder whose files the machine sees too.
fn resolv_conf(folder: &Path, nameserver: &str) -> PathBuf {
    let file = folder.join("resolv.conf");
    std::fs::write(&file, format!("nameserver {nameserver}\n")).expect("a file");
    file
}

fn service(node: &Node, name: &str, spec: Value) -> Value {
    node.create("services", json!({"metadata": {"name": name}, "spec": spec}))
}

/// A cluster with a Service, a set of pods with names, and a name elsewhere.
fn populate(node: &Node) -> String {
    let ports = json!([{"name": "http", "port": 80}]);
    let web = service(node, "web", json!({"selector": {"app": "web"}, "ports": ports}));
    service(node, "db", json!({"clusterIP": "None", "selector": {"app": "db"}, "ports": ports}));
    service(node, "docs", json!({"type": "ExternalName", "externalName": "docs.example.org"}));
    for number in 0..2 {
        let name = format!("db-{number}");
        let spec = with(one(script("sleep 1000")), json!({"hostname": name, "subdomain": "db"}));
        node.pod_with(json!({"name": name, "labels": {"app": "db"}}), spec);
    }
    web["spec"]["clusterIP"].as_str().expect("an address").to_owned()
}

fn address_of(node: &Node, pod: &str) -> String {
    node.until_ready(pod)["status"]["podIP"].as_str().expect("an address").to_owned()
}

const OUTSIDE: &[(&str, [u8; 4])] = &[("docs.example.org.", [192, 0, 2, 80]), ("www.example.org.", [192, 0, 2, 81])];

#[test]
fn every_kind_of_record_by_dig_from_the_node_and_from_a_pod() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = resolv_conf(folder.path(), "172.29.0.1");
    let node = Node::start(&[&format!("--resolv-conf={}", file.display())]);
    let upstream = Upstream::start(&node, "172.29.0.1:53", OUTSIDE);
    let web = populate(&node);
    let (first, second) = (address_of(&node, "db-0"), address_of(&node, "db-1"));
    let check = |question: &str, expected: &[String]| {
        let mut expected = expected.to_vec();
        expected.sort();
        until(question, expected.join("\n"), || dig(&node, BRIDGE, question));
    };
    let line = |name: &str, kind: &str, value: &str| format!("{name} 30 IN {kind} {value}");
    let domain = "default.svc.cluster.local";
    check(&format!("web.{domain} A"), &[line(&format!("web.{domain}."), "A", &web)]);
    check("WEB.Default.svc.Cluster.LOCAL A", &[line("WEB.Default.svc.Cluster.LOCAL.", "A", &web)]);
    check(&format!("web.{domain} A +tcp"), &[line(&format!("web.{domain}."), "A", &web)]);
    check(&format!("web.{domain} AAAA"), &[]);
    let db = format!("db.{domain}.");
    check(&format!("{db} A"), &[line(&db, "A", &first), line(&db, "A", &second)]);
    check(&format!("db-0.{db} A"), &[line(&format!("db-0.{db}"), "A", &first)]);
    check(
        &format!("_http._tcp.{db} SRV"),
        &[
            line(&format!("_http._tcp.{db}"), "SRV", &format!("0 50 80 db-0.{db}")),
            line(&format!("_http._tcp.{db}"), "SRV", &format!("0 50 80 db-1.{db}")),
            line(&format!("db-0.{db}"), "A", &first),
            line(&format!("db-1.{db}"), "A", &second),
        ],
    );
    let reverse = |address: &str| {
        let parts: Vec<&str> = address.split('.').rev().collect();
        format!("{}.in-addr.arpa.", parts.join("."))
    };
    check(&format!("-x {web}"), &[line(&reverse(&web), "PTR", &format!("web.{domain}."))]);
    check(&format!("-x {second}"), &[line(&reverse(&second), "PTR", &format!("db-1.{db}"))]);
    check("1-2-3-4.default.pod.cluster.local A", &[line("1-2-3-4.default.pod.cluster.local.", "A", "1.2.3.4")]);
    check("dns-version.cluster.local TXT", &["dns-version.cluster.local. 28800 IN TXT \"1.1.0\"".to_owned()]);
    // How long these live depends on when they were asked for first.
    let docs = format!("docs.{domain}. IN CNAME docs.example.org.");
    check(&format!("docs.{domain} A +nottlid"), &[docs, "docs.example.org. IN A 192.0.2.80".to_owned()]);
    check("www.example.org A +nottlid", &["www.example.org. IN A 192.0.2.81".to_owned()]);
    let status = |question: &str| {
        let text = node.server.machine().shell(&format!("dig @{BRIDGE} {question}")).expect("dig answers");
        let status = text.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or_default();
        (status.to_owned(), text.contains("SOA\tns.dns.cluster.local. hostmaster.cluster.local."))
    };
    assert_eq!(status(&format!("gone.{domain} A")), ("NXDOMAIN".into(), true));
    assert_eq!(status(&format!("web.{domain} AAAA")), ("NOERROR".into(), true));
    assert_eq!(status("gone.example.org A"), ("NXDOMAIN".into(), false));
    assert_eq!(status("gone.example.org A"), ("NXDOMAIN".into(), false));
    // A pod asks for a name outside as its search path makes it: none of the longer names leaves the cluster.
    let found = node.exec("db-0", "main", &["lookup", "www.example.org", "10.42.0.1:253"]);
    assert!(found.contains("192.0.2.81"), "{found}");
    let found = node.exec("db-0", "main", &["lookup", "db-1.db", "10.42.0.1:253"]);
    assert!(found.contains(&second), "{found}");
    let asked = upstream.asked();
    assert!(!asked.keys().any(|name| name.contains("cluster.local")), "{asked:?}");
    assert_eq!(asked["gone.example.org."], 1, "a denial is remembered");

    let metrics = node
        .server
        .machine()
        .shell("exec 3<>/dev/tcp/127.0.0.1/9153; printf 'GET /metrics HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3");
    let metrics = metrics.expect("the metrics are there");
    let counted = metrics.lines().find(|line| {
        line.starts_with("coredns_dns_responses_total{plugin=\"kubernetes\",rcode=\"NXDOMAIN\"")
            && !line.ends_with(" 0")
    });
    assert!(counted.is_some(), "{metrics}");
    let ready = node
        .server
        .machine()
        .shell("exec 3<>/dev/tcp/127.0.0.1/9153; printf 'GET /ready HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3");
    assert_eq!(ready.expect("it answers").trim(), "HTTP/1.1 200 OK");
}

#[test]
fn its_service_has_the_nodes_endpoint_and_what_is_removed_comes_back() {
    let node = Node::start(&[]);
    let service = node.send("GET", "/api/v1/namespaces/kube-system/services/kube-dns", Value::Null).json();
    assert_eq!(service["spec"]["clusterIP"], "10.43.0.10");
    assert_eq!(service["metadata"]["labels"]["kubernetes.io/name"], "CoreDNS");
    assert_eq!(service["spec"]["trafficDistribution"], "PreferSameNode");
    let path = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns-node-1";
    let endpoint = || {
        let slice = node.send("GET", path, Value::Null).json();
        json!([slice["endpoints"], slice["ports"], slice["metadata"]["ownerReferences"][0]["name"]])
    };
    let expected = json!([
        [{
            "addresses": ["10.42.0.1"],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "hints": {"forNodes": [{"name": "node-1"}]},
            "nodeName": "node-1",
        }],
        [{"name": "dns", "port": 253, "protocol": "UDP"}, {"name": "dns-tcp", "port": 253, "protocol": "TCP"}],
        "node-1",
    ]);
    until("the node's endpoint", expected.clone(), endpoint);
    assert_eq!(node.send("DELETE", path, Value::Null).code, 200);
    until("the endpoint after its removal", expected.clone(), endpoint);
    node.patch(path, json!({"endpoints": [{"addresses": ["10.42.9.9"]}]}));
    until("the endpoint after a change", expected, endpoint);

    // The bridge goes with all its addresses, and comes back with the next pod.
    let question = "kubernetes.default.svc.cluster.local +short";
    until("an answer", "10.43.0.1".to_owned(), || dig(&node, BRIDGE, question));
    node.server.machine().shell("ip link delete knarr0").expect("the bridge goes");
    node.pod("after", one(script("sleep 1000")));
    node.until_ready("after");
    until("an answer on the new bridge", "10.43.0.1".to_owned(), || dig(&node, BRIDGE, question));
    let found = node.exec("after", "main", &["lookup", "kubernetes.default", "10.42.0.1:253"]);
    assert!(found.contains("10.43.0.1"), "{found}");
}

/// `knarr dns` by itself, on the machine.
fn alone(node: &Node, resolv_conf: &Path) -> Inside {
    let mut command = node.server.machine().command(testkit::server::binary().expect("knarr"));
    command.args(["dns", "--node-name=elsewhere", "--port=53", "--bind-address", ALONE, "--resolv-conf"]);
    command.arg(resolv_conf).arg("--kubeconfig").arg(node.server.kubeconfig());
    let log = std::fs::File::create(node.server.data_dir().join("dns-log")).expect("a log");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
    Inside::new(child).expect("it runs")
}

#[test]
fn c_libraries_find_names_and_go_on_without_the_api_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = resolv_conf(folder.path(), "172.29.0.1");
    let mut node = Node::start(&["--disable=dns"]);
    let upstream = Upstream::start(&node, "172.29.0.1:53", OUTSIDE);
    let web = populate(&node);
    let first = address_of(&node, "db-0");
    let _alone = alone(&node, &file);
    // As the kubelet writes it for pods.
    let pod = folder.path().join("pod.conf");
    let search = "search default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";
    std::fs::write(&pod, format!("nameserver {ALONE}\n{search}")).expect("a file");
    let program = folder.path().join("resolve");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/dns/resolve.c");
    let built =
        std::process::Command::new("musl-gcc").args(["-static", "-O1", "-o"]).arg(&program).arg(source).status();
    assert!(built.expect("musl-gcc is there: run `make tools`").success());
    let machine = node.server.machine().clone();
    machine.shell(&format!("mount --bind {} /etc/resolv.conf", pod.display())).expect("the machine's own file");
    let ask = |command: &str| {
        let text = machine.shell(&format!("{command} 2>&1 || true")).unwrap_or_else(|error| error.to_string());
        text.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let resolve = |name: &str| ask(&format!("{} {name}", program.display()));
    for (name, expected) in [
        ("web", web.as_str()),
        ("web.default", &web),
        ("web.default.svc.cluster.local", &web),
        ("WEB.default.svc", &web),
        ("db-0.db", &first),
        ("docs", "192.0.2.80"),
        ("www.example.org", "192.0.2.81"),
    ] {
        until(&format!("glibc: {name}"), Some(expected.to_owned()), || {
            ask(&format!("getent ahostsv4 {name}")).first().cloned()
        });
        until(&format!("musl: {name}"), vec![expected.to_owned()], || resolve(name));
    }
    let own = "web.default.svc.cluster.local".to_owned();
    assert_eq!(ask(&format!("getent hosts {web}")).last(), Some(&own));
    assert_eq!(resolve(&web), [own]);
    assert_eq!(ask("getent hosts gone.default"), Vec::<String>::new());
    assert_eq!(resolve("gone.default").join(" "), "Name does not resolve");
    let nslookup = machine.shell("busybox nslookup web.default.svc.cluster.local").expect("busybox finds it");
    assert!(nslookup.contains(&web), "{nslookup}");
    let leaked: Vec<String> = upstream.asked().into_keys().filter(|name| name.contains("cluster.local")).collect();
    assert_eq!(leaked, Vec::<String>::new());

    // The machine's resolvers change.
    let other = Upstream::start(&node, "127.0.0.99:53", &[("www.example.org.", [192, 0, 2, 99])]);
    resolv_conf(folder.path(), "127.0.0.99");
    until("the other resolver", vec!["192.0.2.99".to_owned()], || resolve("www.example.org"));
    assert!(other.asked().contains_key("www.example.org."));

    // Stub domains and hosts of the administrator.
    let map = json!({"metadata": {"name": "coredns-custom"}, "data": {
        "corp.server": "corp.example:53 {\n  errors\n  cache 30\n  forward . 172.29.0.1:5353\n}\n",
        "printer.override": "hosts {\n  192.0.2.7 printer.office\n  fallthrough\n}\n",
    }});
    let _corp = Upstream::start(&node, "172.29.0.1:5353", &[("wiki.corp.example.", [192, 0, 2, 50])]);
    node.create("/api/v1/namespaces/kube-system/configmaps", map);
    until("a host", vec!["192.0.2.7".to_owned()], || resolve("printer.office"));
    until("a stub domain", vec!["192.0.2.50".to_owned()], || resolve("wiki.corp.example"));

    node.server.kill().expect("the server is killed");
    assert_eq!(resolve("db-0.db"), [first]);
    assert_eq!(resolve("gone.default").join(" "), "Name does not resolve");
    assert_eq!(resolve("wiki.corp.example"), ["192.0.2.50"]);
}

/// How many questions that machine's DNS has answered.
fn answered(machine: &testkit::Machine) -> u64 {
    let script = "exec 3<>/dev/tcp/127.0.0.1/9153; printf 'GET /metrics HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3";
    let metrics = machine.shell(script).unwrap_or_default();
    let counts = metrics.lines().filter(|line| line.starts_with("coredns_dns_requests_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn pods_of_every_node_find_names_at_the_services_address() {
    let mut cluster = Cluster::start(2, 1, &[]).expect("two nodes");
    cluster.server.default_account("default").expect("the account of the pods");
    let kubectl = cluster.server.kubectl();
    for number in 1..=2 {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number}")}, "spec": {
            "nodeName": format!("node-{number}"),
            "containers": [{"name": "main", "image": "knarr.dev/demo", "imagePullPolicy": "IfNotPresent", "args": ["sleep", "infinity"]}],
        }});
        kubectl.ok_with(&["create", "-f", "-"], &pod.to_string());
    }
    let lookup = |number: usize| {
        let pod = format!("pod-{number}");
        let output =
            kubectl.run(&["exec", &pod, "--", "lookup", "kubernetes.default", "--type", "A"]).expect("kubectl runs");
        String::from_utf8_lossy(&output.stdout).contains("10.43.0.1")
    };
    for number in 1..=2 {
        let pod = format!("pod/pod-{number}");
        kubectl.ok(&["wait", "--for=condition=Ready", &pod, "--timeout=90s"]);
        until(&format!("a name on node-{number}"), true, || lookup(number));
    }
    let slices = || kubectl.ok(&["get", "endpointslices", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", "name"]);
    let expected =
        ["node-1", "node-2"].map(|node| format!("endpointslice.discovery.k8s.io/kube-dns-{node}\n")).concat();
    assert_eq!(slices(), expected);
    // Once both endpoints are known to it, a node asks itself only.
    let (first, second) = (cluster.machine(1).clone(), cluster.machine(2).clone());
    until("questions of node-2 stay there", true, || {
        let before = (answered(&first), answered(&second));
        let found = (0..4).all(|_| lookup(2));
        found && answered(&first) == before.0 && answered(&second) > before.1
    });

    let question = "dig @10.43.0.10 +short +time=2 +tries=3 kubernetes.default.svc.cluster.local";
    let address = |machine: &testkit::Machine| machine.shell(question).unwrap_or_else(|error| error.to_string());
    cluster.server.kill().expect("the server is killed");
    assert_eq!(address(&second), "10.43.0.1\n");
    let by_stream = second.shell(&format!("{question} +tcp")).expect("dig answers");
    assert_eq!(by_stream, "10.43.0.1\n");

    // Nodes that go take their endpoint along.
    cluster.server.restart().expect("the server comes back");
    cluster.agents.clear();
    kubectl.ok(&["delete", "node", "node-2"]);
    until("the endpoint of a node that has gone", false, || slices().contains("node-2"));
}
