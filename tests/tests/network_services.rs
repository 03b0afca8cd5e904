//! Services and the ingress on three nodes, one of them behind a router: reached from pods, from nodes and from outside, at
//! every node, while pods are exchanged, rules are thrown away and a node is lost.

#[path = "support/several_nodes.rs"]
mod several_nodes;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use several_nodes::{IMAGE, PATIENCE, eventually, run_pods, server_pod};
use testkit::machine::within;
use testkit::{Agent, Cluster, Kubectl, Machine, Options, Place, Server};

/// What nobody answers is given up after this; what is dropped costs a test so long.
const GIVEN_UP: Duration = Duration::from_secs(2);

/// A server and two agents; `node-2` is on a link of its own, and its pods ask the DNS of others.
fn start() -> Cluster {
    let hub = Arc::new(testkit::Hub::start(2).unwrap());
    let machine = |link, host| Arc::new(Machine::start_on(&hub, Place { link, host }).unwrap());
    // A node that is silent for longer than it takes to renew a lease is lost.
    let arguments = ["--node-monitor-period=500ms", "--node-monitor-grace-period=16s", "--unhealthy-zone-threshold=1"];
    let arguments = arguments.map(str::to_owned).to_vec();
    let server = Server::start_with(Options { arguments, machine: Some(machine(0, 1)) }).unwrap();
    let mut cluster = Cluster { agents: Vec::new(), server, hub: hub.clone() };
    for (place, arguments) in [((1, 2), &["--disable=dns"][..]), ((0, 3), &[])] {
        let name = format!("node-{}", place.1);
        let agent = Agent::join(&cluster.server, machine(place.0, place.1), &name, arguments).unwrap();
        cluster.agents.push(agent);
    }
    cluster.server.default_account("default").unwrap();
    let kubectl = cluster.server.kubectl();
    eventually("all nodes are there", || kubectl.ok(&["get", "nodes", "-o", "name"]).lines().count() == 3);
    kubectl.ok(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=90s"]);
    cluster
}

/// What the web server says of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    pod: String,
    /// Whom the pod saw.
    remote: String,
}

/// Asks on a connection of its own, from inside a network.
fn ask(network: &Path, address: &str) -> Result<Answer, String> {
    let mut connection = Connection::open(network, address)?;
    let body = connection.get("/", "web")?;
    let line = |name: &str| body.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let remote = line("remote: ").ok_or_else(|| body.clone())?;
    let remote = remote.rsplit_once(':').ok_or("a remote without a port")?.0.to_owned();
    Ok(Answer { pod: line("pod: ").ok_or_else(|| body.clone())?, remote })
}

struct Connection {
    from: BufReader<TcpStream>,
}

impl Connection {
    fn open(network: &Path, address: &str) -> Result<Connection, String> {
        let address: SocketAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
        let stream = within(network, move || TcpStream::connect_timeout(&address, GIVEN_UP));
        let stream = stream.map_err(|error| format!("{address}: {error:#}"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        Ok(Connection { from: BufReader::new(stream) })
    }

    fn get(&mut self, path: &str, host: &str) -> Result<String, String> {
        self.exchange(path, host).map_err(|error| error.to_string())
    }

    fn exchange(&mut self, path: &str, host: &str) -> std::io::Result<String> {
        write!(self.from.get_mut(), "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200 ") {
            return Err(std::io::Error::other(format!("answered {line:?}")));
        }
        let mut length = 0;
        while line.trim() != "" {
            line.clear();
            self.from.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.from.read_exact(&mut body)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

/// The network of the pod with an address, on the machine of its node.
fn pod_network(machine: &Machine, address: &str) -> PathBuf {
    let script = format!(
        "for process in /proc/[0-9]*; do
           if nsenter --net=$process/ns/net ip -4 -o address 2>/dev/null | grep -q ' {address}/'; then echo $process; exit; fi
         done; exit 1"
    );
    let process = machine.shell(&script).unwrap();
    machine.path(format!("{}/ns/net", process.trim()))
}

/// Which pods answer, and whom they saw, when asked often enough for each to have its turn.
fn answers(network: &Path, address: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let answers: Vec<Answer> = (0..16).map(|_| ask(network, address).unwrap()).collect();
    let (pods, remotes) = (answers.iter().map(|one| one.pod.clone()), answers.iter().map(|one| one.remote.clone()));
    (pods.collect(), remotes.collect())
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|one| one.to_string()).collect()
}

fn service(name: &str, spec: Value) -> Value {
    let mut whole = json!({"selector": {"group": "web"}, "ports": [{"port": 80, "targetPort": 8080}]});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": whole})
}

fn field(kubectl: &Kubectl, what: &str, path: &str) -> String {
    kubectl.ok(&["get", what, "-o", &format!("jsonpath={{{path}}}")])
}

fn apply(kubectl: &Kubectl, items: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    kubectl.ok_with(&["apply", "-f", "-"], &list.to_string());
}

#[test]
fn every_kind_of_service_is_reached_from_everywhere() {
    let mut cluster = start();
    let kubectl = cluster.server.kubectl();
    let grouped = |name: &str, node| {
        let mut pod = server_pod(name, node);
        pod["metadata"]["labels"]["group"] = json!("web");
        pod
    };
    let mut echo = server_pod("echo", 2);
    echo["spec"]["containers"][0]["args"] = json!(["udp-echo", "7000"]);
    let port = |port: u16, node_port: u16| json!([{"port": port, "targetPort": 8080, "nodePort": node_port}]);
    apply(
        &kubectl,
        &[
            service("cluster", json!({})),
            service("itself", json!({"selector": {"app": "s2"}})),
            service("ports", json!({"type": "NodePort", "ports": port(80, 30080)})),
            service("balanced", json!({"type": "LoadBalancer", "ports": port(8081, 30081)})),
            service(
                "local",
                json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": port(8082, 30082)}),
            ),
            service("inside", json!({"internalTrafficPolicy": "Local"})),
            service("sticky", json!({"type": "NodePort", "sessionAffinity": "ClientIP", "ports": port(80, 30083)})),
            service("headless", json!({"clusterIP": "None"})),
            service("named", json!({"type": "ExternalName", "externalName": "cluster.default.svc.cluster.local"})),
            service(
                "echo",
                json!({"type": "NodePort", "selector": {"app": "echo"}, "ports": [
                    {"port": 7, "targetPort": 7000, "nodePort": 30084, "protocol": "UDP"}]}),
            ),
        ],
    );
    let addresses = run_pods(&kubectl, &[server_pod("c1", 1), grouped("s2", 2), grouped("s3", 3), echo]);
    let own = |name: &str| names(&[&addresses[name]]);
    let pod = |name: &str, node| pod_network(cluster.machine(node), &addresses[name]);
    let (c1, s2, s3) = (pod("c1", 1), pod("s2", 2), pod("s3", 3));
    let nodes: Vec<PathBuf> = (1..=3).map(|number| cluster.machine(number).network()).collect();
    let at: Vec<String> = (1..=3).map(|number| cluster.machine(number).address()).collect();
    let hub = cluster.hub.network();
    let both = names(&["s2", "s3"]);
    let to = |name: &str| format!("{}:80", field(&kubectl, &format!("service/{name}"), ".spec.clusterIP"));

    // The Service's own address, from pods and nodes, with and without an endpoint beside them.
    let address = to("cluster");
    let callers = [&c1, &s2, &s3].into_iter().chain(&nodes);
    for network in callers {
        let serves = || (0..8).all(|_| ask(network, &address).is_ok());
        eventually("everybody knows both endpoints", || serves() && answers(network, &address).0 == both);
    }
    assert_eq!(answers(&c1, &address).1, own("c1"), "pods are seen by their own addresses");
    let seen_by_other: BTreeSet<String> = (0..16)
        .filter_map(|_| ask(&s2, &address).ok().filter(|answer| answer.pod == "s3").map(|answer| answer.remote))
        .collect();
    assert_eq!(seen_by_other, own("s2"), "also through the tunnel");
    eventually("a pod reaches itself", || ask(&s2, &to("itself")).is_ok());
    let (pods, remotes) = answers(&s2, &to("itself"));
    assert_eq!(pods, names(&["s2"]));
    assert!(!remotes.contains(&addresses["s2"]), "it must not see its own question come in: {remotes:?}");

    // A further range gives addresses as long as it is there; one that is in use stays until its last Service is gone.
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "further"},
        "spec": {"cidrs": ["10.200.0.0/28"]}});
    let further = || service("further", json!({"clusterIP": "10.200.0.9"}));
    kubectl.fails_with(&["create", "-f", "-"], &further().to_string());
    apply(&kubectl, &[range]);
    let ready = || field(&kubectl, "servicecidr/further", ".status.conditions[?(@.type=='Ready')].status");
    eventually("the range is ready", || ready() == "True");
    apply(&kubectl, &[further()]);
    assert_eq!(field(&kubectl, "ipaddress/10.200.0.9", ".spec.parentRef.name"), "further");
    eventually("an address of another range", || [&c1, &s2].iter().all(|from| ask(from, "10.200.0.9:80").is_ok()));
    kubectl.ok(&["delete", "servicecidr", "further", "--wait=false"]);
    eventually("the range is to go", || ready() == "False");
    kubectl.fails_with(&["create", "-f", "-"], &service("late", json!({"clusterIP": "10.200.0.10"})).to_string());
    kubectl.ok(&["delete", "service", "further"]);
    eventually("the range is gone", || kubectl.ok(&["get", "servicecidr", "--ignore-not-found", "further"]).is_empty());

    // Ports of nodes and the balancer, at every node, whether it has an endpoint or not.
    let balanced = ["get", "service", "balanced", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
    let mut expected = at.clone();
    expected.sort();
    eventually("the balancer has all nodes", || kubectl.ok(&balanced) == expected.join(" "));
    for node in &at {
        for port in [30080, 8081] {
            let address = format!("{node}:{port}");
            for network in [&hub, &c1, &s2].into_iter().chain(&nodes) {
                eventually(&address, || ask(network, &address).is_ok());
            }
            let (pods, remotes) = answers(&hub, &address);
            assert_eq!(pods, both, "{address}");
            assert!(remotes.iter().all(|remote| !remote.ends_with(".254")), "nodes answer for it: {remotes:?}");
        }
    }

    // Where only endpoints of the node itself may be used, they see who asks.
    let local = ["get", "service", "local", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
    eventually("the balancer has nodes with endpoints", || kubectl.ok(&local) == "172.29.0.3 172.29.1.2");
    for (node, name, client) in [(2, "s2", "172.29.1.254"), (3, "s3", "172.29.0.254")] {
        for port in [8082, 30082] {
            let address = format!("{}:{port}", at[node - 1]);
            eventually(&address, || ask(&hub, &address).is_ok());
            assert_eq!(answers(&hub, &address), (names(&[name]), names(&[client])), "{address}");
        }
    }
    let dropped = ask(&hub, &format!("{}:30082", at[0])).unwrap_err();
    assert!(dropped.contains("timed out"), "a balancer shall look for another node: {dropped}");
    let (pods, remotes) = answers(&c1, &format!("{}:8082", at[1]));
    assert_eq!((pods, remotes), (both.clone(), own("c1")), "within the cluster every endpoint may be used");
    let health = |node: usize| {
        let port = field(&kubectl, "service/local", ".spec.healthCheckNodePort");
        Connection::open(&hub, &format!("{}:{port}", at[node - 1])).and_then(|mut one| one.get("/", "check"))
    };
    assert!(health(2).unwrap().contains("\"localEndpoints\": 1"));
    assert!(health(1).unwrap_err().contains("503"), "nothing is here");
    let address = to("inside");
    for (network, name) in [(&s3, "s3"), (&nodes[1], "s2"), (&nodes[2], "s3")] {
        eventually(name, || ask(network, &address).is_ok());
        assert_eq!(answers(network, &address).0, names(&[name]));
    }
    assert!(ask(&c1, &address).unwrap_err().contains("timed out"), "dropped: there is no endpoint on node-1");

    // Who was here before comes back to the same pod.
    for (network, address) in [(&c1, to("sticky")), (&nodes[0], to("sticky")), (&hub, format!("{}:30083", at[0]))] {
        eventually(&address, || ask(network, &address).is_ok());
        assert_eq!(answers(network, &address).0.len(), 1, "{address}");
    }

    // Names, on a node with a DNS and on one without; datagrams.
    for from in ["c1", "s2", "s3"] {
        let run = |script: String| kubectl.run(&["exec", from, "--", "sh", "-c", &script]).unwrap();
        let lookup = |name: &str| {
            let found = run(format!("lookup {name}.default.svc.cluster.local"));
            let text = String::from_utf8_lossy(&found.stdout).into_owned();
            text.lines().filter_map(|line| line.rsplit_once(" A ")).map(|(_, address)| address.to_owned()).collect()
        };
        let pods: BTreeSet<String> = ["s2", "s3"].iter().map(|name| addresses[*name].clone()).collect();
        eventually(&format!("the pods of a headless Service by {from}"), || pods == lookup("headless"));
        let named =
            run("get http://named.default.svc.cluster.local/ && get http://cluster.default.svc.cluster.local/".into());
        assert!(named.status.success(), "{from}: {}", String::from_utf8_lossy(&named.stderr));
        let said = run("connect echo.default.svc.cluster.local:7 --udp --send heard".into());
        assert!(String::from_utf8_lossy(&said.stdout).contains("heard"), "{from}: {said:?}");
    }
    for node in &at {
        let to: SocketAddr = format!("{node}:30084").parse().unwrap();
        let heard = within(&hub, move || {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(to)?;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            socket.send(b"heard")?;
            let mut buffer = [0; 16];
            let length = socket.recv(&mut buffer)?;
            Ok(buffer[..length].to_vec())
        });
        assert_eq!(heard.unwrap(), b"heard", "by {node}");
    }

    // Nodes say that their network is there.
    let path = r#".items[*].status.conditions[?(@.type=="NetworkUnavailable")].reason"#;
    let reasons = || field(&kubectl, "nodes", path);
    eventually("every node says so", || reasons() == "RouteCreated RouteCreated RouteCreated");

    // A node whose DNS is switched off has its pods ask others.
    let slices = || kubectl.ok(&["get", "endpointslices", "-n", "kube-system", "-o", "name"]);
    assert!(slices().contains("kube-dns-node-3") && !slices().contains("kube-dns-node-2"), "{}", slices());
    cluster.agents[1].set_arguments(vec!["--disable=dns".to_owned()]);
    cluster.agents[1].restart().unwrap();
    eventually("its endpoint goes", || !slices().contains("kube-dns-node-3"));
    let look = ["exec", "s3", "--", "lookup", "kubernetes.default.svc.cluster.local"];
    eventually("names are found again", || kubectl.run(&look).unwrap().status.success());

    // Rules that someone throws away come back.
    let before = cluster.agents[0].log().len();
    cluster.machine(2).shell("nft flush ruleset").unwrap();
    let address = format!("{}:30080", at[1]);
    let took = eventually("the rules are back", || ask(&hub, &address).is_ok());
    println!("rules repaired after {took:?}");
    eventually("a pod finds Services again", || ask(&s2, &to("cluster")).is_ok());
    let said = "repaired Service rules that another program changed";
    eventually("it is said", || cluster.agents[0].log()[before..].contains(said));

    // A node is lost: after a while nothing is sent there any more. It comes back, and takes its share again.
    cluster.machine(3).cut().unwrap();
    let only_s2 =
        |network: &Path, address: &str| (0..8).all(|_| ask(network, address).is_ok_and(|answer| answer.pod == "s2"));
    let took = eventually("traffic moves on", || only_s2(&c1, &to("cluster")) && only_s2(&hub, &address));
    println!("a lost node is left out after {took:?}");
    cluster.machine(3).uncut().unwrap();
    eventually("it is used again", || {
        (0..16).filter_map(|_| ask(&c1, &to("cluster")).ok()).any(|answer| answer.pod == "s3")
    });
}

fn web(version: &str) -> Value {
    let container = json!({
        "name": "web", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "args": ["serve"],
        "env": [{"name": "VERSION", "value": version}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1},
        // Whoever learns late that the pod goes still finds it.
        "lifecycle": {"preStop": {"sleep": {"seconds": 3}}},
    });
    let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"group": "web"}}}]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"group": "web"}},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": {"group": "web"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 10, "topologySpreadConstraints": spread},
            },
        },
    })
}

fn ingress() -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let paths = json!({"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web"},
        "spec": {
            "rules": [{"host": "plain.test", "http": paths}, {"host": "secret.test", "http": paths}],
            "tls": [{"hosts": ["secret.test"], "secretName": "secret-test"}],
        },
    })
}

/// A way to the application, and who is at the other end of a connection.
struct Route<'a> {
    network: &'a Path,
    address: String,
    /// The pod itself, which closes the connections that it has when it goes; the ingress never does.
    ends_with_pod: bool,
    answered: AtomicUsize,
}

/// One request after the other until told to stop; what failed.
fn load(route: &Route, keep: bool, stop: &AtomicBool) -> Result<(), String> {
    let Route { network, address, ends_with_pod, answered } = route;
    let mut kept: Option<Connection> = None;
    while !stop.load(Ordering::Relaxed) {
        let (mut connection, was_kept) = match kept.take() {
            Some(connection) => (connection, true),
            None => (Connection::open(network, address)?, false),
        };
        match connection.get("/hostname", "plain.test") {
            Ok(_) => {
                answered.fetch_add(1, Ordering::Relaxed);
                kept = keep.then_some(connection);
            }
            // Then a new one is opened, as every client does.
            Err(error) if was_kept && *ends_with_pod && is_closed(&error) => {}
            Err(error) => return Err(format!("{address}: {error}")),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Before a byte of an answer came.
fn is_closed(error: &str) -> bool {
    error == "answered \"\"" || error.contains("Broken pipe") || error.contains("Connection reset")
}

#[test]
fn an_update_is_not_noticed_behind_a_service_and_the_ingress_of_every_node() {
    let cluster = start();
    let kubectl = cluster.server.kubectl();
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["secret.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (certificate_path, key_path) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&certificate_path, certificate.pem()).unwrap();
    std::fs::write(&key_path, key.serialize_pem()).unwrap();
    let (certificate_path, key_path) = (certificate_path.display().to_string(), key_path.display().to_string());
    kubectl.ok(&["create", "secret", "tls", "secret-test", "--cert", &certificate_path, "--key", &key_path]);
    apply(&kubectl, &[web("1"), service("web", json!({"type": "NodePort"})), ingress()]);
    let addresses = run_pods(&kubectl, &[server_pod("client", 2)]);
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    let nodes = field(&kubectl, "pods", r#".items[?(@.metadata.labels.group=="web")].spec.nodeName"#);
    assert_eq!(nodes.split(' ').collect::<BTreeSet<_>>().len(), 3, "{nodes}");

    // The ingress runs on the server alone, and is reached at every node.
    let at: Vec<String> = (1..=3).map(|number| cluster.machine(number).address()).collect();
    let curl = |arguments: &[&str]| {
        let mut command = cluster.hub.command("curl");
        command.args(["--silent", "--show-error", "--max-time", "5"]).args(arguments);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let mut expected = at.clone();
    expected.sort();
    eventually("the Ingress shows where", || {
        field(&kubectl, "ingress/web", ".status.loadBalancer.ingress[*].ip") == expected.join(" ")
    });
    for node in &at {
        let to = format!("plain.test:80:{node}:80");
        let plain = ["--connect-to", &to, "http://plain.test/"];
        eventually(&format!("plain at {node}"), || curl(&plain).contains("pod: web-"));
        let to = format!("secret.test:443:{node}:443");
        let secret = ["--cacert", &certificate_path, "--http2", "--connect-to", &to, "-w", "version %{http_version}"];
        let said = curl(&[&secret[..], &["https://secret.test/"]].concat());
        assert!(said.contains("pod: web-") && said.ends_with("version 2"), "{node}: {said}");
    }
    // Where it runs, the client is known as before.
    let to = format!("plain.test:80:{}:80", at[0]);
    let said = curl(&["--connect-to", &to, "http://plain.test/"]).to_ascii_lowercase();
    assert!(said.contains("x-forwarded-for: 172.29.0.254"), "{said}");
    let own = cluster.machine(1).shell(&format!("curl -s --max-time 5 -H 'Host: plain.test' http://{}/", at[0]));
    let own = own.unwrap().to_ascii_lowercase();
    assert!(own.contains("x-forwarded-for: 172.29.0.1"), "{own}");

    // A rolling update under load.
    let cluster_address = field(&kubectl, "service/web", ".spec.clusterIP");
    let node_port = field(&kubectl, "service/web", ".spec.ports[0].nodePort");
    let (hub, pod) = (cluster.hub.network(), pod_network(cluster.machine(2), &addresses["client"]));
    let route =
        |network, address, ends_with_pod| Route { network, address, ends_with_pod, answered: Default::default() };
    let routes = [
        route(&hub, format!("{}:80", at[0]), false),
        route(&hub, format!("{}:80", at[1]), false),
        route(&hub, format!("{}:{node_port}", at[2]), true),
        route(&pod, format!("{cluster_address}:80"), true),
        route(&pod, format!("{}:80", at[2]), false),
    ];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let both = routes.iter().flat_map(|route| [(route, true), (route, false)]);
        let clients: Vec<_> = both.map(|(route, keep)| scope.spawn(move || load(route, keep, stop))).collect();
        apply(&kubectl, &[web("2")]);
        kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=120s"]);
        let pods = ["get", "pods", "-l", "group=web", "--no-headers"];
        eventually("the old ones are gone", || kubectl.ok(&pods).lines().count() == 3);
        stop.store(true, Ordering::Relaxed);
        let failed: Vec<String> = clients.into_iter().filter_map(|client| client.join().unwrap().err()).collect();
        assert_eq!(failed, Vec::<String>::new());
    });
    for Route { address, answered, .. } in &routes {
        let count = answered.load(Ordering::Relaxed);
        println!("{count} requests to {address}");
        assert!(count > 50, "only {count} requests to {address}");
    }
}
