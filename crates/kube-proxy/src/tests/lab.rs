//! A node with its pods, a client outside and another node, all in network namespaces of their own and with no way out.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use cni::Builtin;
use cri::{Network, SandboxNetwork};
use linux::netns::Namespace;
use reconcile::{Caches, Cluster, Shutdown};
use serde_json::{Value, json};
use testkit::fake_api::FakeApi;

use crate::model::Family;
use crate::{Config, Error};

pub const NODE: &str = "192.0.2.1";
pub const OUTSIDE: &str = "192.0.2.2";
/// The pod of the other node.
pub(crate) const REMOTE: &str = "10.42.2.2";
const SERVICE_RANGES: [&str; 2] = ["10.43.0.0/16", "fd43::/108"];
const POD_RANGES: [&str; 2] = ["10.42.0.0/16", "fd42::/48"];
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Lab {
    node: Namespace,
    outside: Namespace,
    remote: Namespace,
    network: Builtin,
    api: FakeApi,
    families: Vec<Family>,
    running: Option<(Shutdown, tokio::task::JoinHandle<Result<(), Error>>)>,
    marker: AtomicU16,
    _state: tempfile::TempDir,
}

pub struct Pod {
    pub name: String,
    pub address: IpAddr,
    pub address6: Option<IpAddr>,
    pub namespace: Namespace,
}

impl Lab {
    pub async fn start() -> Lab {
        Lab::start_with(false).await
    }

    pub async fn start_with(both_families: bool) -> Lab {
        let (node, outside, remote) = (made(), made(), made());
        let link = |name: &str, other: &Namespace, near: &[&str], far: &[&str]| {
            tool(&node, &format!("ip link add {name} type veth peer name uplink netns {}", other.path().display()));
            for (namespace, device, addresses) in [(&node, name, near), (other, "uplink", far)] {
                for address in addresses {
                    let nodad = if address.contains(':') { "nodad" } else { "" };
                    tool(namespace, &format!("ip address add {address} dev {device} {nodad}"));
                }
                tool(namespace, &format!("ip link set {device} up"));
            }
        };
        link("uplink0", &outside, &["192.0.2.1/24", "2001:db8::1/64"], &["192.0.2.2/24", "2001:db8::2/64"]);
        link("uplink1", &remote, &["192.0.3.1/24"], &["192.0.3.2/24"]);
        tool(&outside, "ip route add 10.43.0.0/16 via 192.0.2.1");
        tool(&outside, "ip -6 route add fd43::/108 via 2001:db8::1");
        tool(&remote, &format!("ip address add {REMOTE}/32 dev lo"));
        tool(&remote, "ip route add default via 192.0.3.1");
        tool(&node, "ip route add 10.42.2.0/24 via 192.0.3.2");
        let state = tempfile::tempdir().unwrap();
        let network = Builtin::open(cni::Config {
            cluster_ranges: POD_RANGES.map(|range| range.parse().unwrap()).to_vec(),
            service_ranges: SERVICE_RANGES.map(|range| range.parse().unwrap()).to_vec(),
            node_namespace: Some(node.path()),
            ..cni::Config::new(state.path())
        })
        .unwrap();
        let ranges = if both_families { "10.42.1.0/24,fd42::/64" } else { "10.42.1.0/24" };
        network.set_pod_cidr(ranges).await.unwrap();
        let families = if both_families { vec![Family::V4, Family::V6] } else { vec![Family::V4] };
        let (api, marker) = (FakeApi::default(), AtomicU16::new(0));
        api.put("/api/v1/nodes/n1", node_object(&[]));
        let mut lab = Lab { node, outside, remote, network, api, families, running: None, marker, _state: state };
        lab.run();
        lab.settled().await;
        lab
    }

    /// Starts the proxy.
    pub fn run(&mut self) {
        let config = Config {
            cluster_cidrs: POD_RANGES.map(|range| range.parse().unwrap()).to_vec(),
            families: self.families.clone(),
            node_namespace: Some(self.node.path()),
            ..Config::new("n1")
        };
        let shutdown = Shutdown::new();
        let (client, _) = self.api.client();
        let cluster = Cluster::with_client(client.clone(), Caches::new(client, shutdown.clone()));
        self.running = Some((shutdown.clone(), tokio::spawn(crate::run(config, cluster, shutdown))));
    }

    pub async fn stop(&mut self) {
        let (shutdown, task) = self.running.take().unwrap();
        shutdown.cancel();
        task.await.unwrap().unwrap();
    }

    pub async fn pod(&self, name: &str) -> Pod {
        let namespace = made();
        let sandbox = SandboxNetwork {
            sandbox: name.repeat(32),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            netns: namespace.path(),
            port_mappings: Vec::new(),
            annotations: Default::default(),
        };
        let addresses = self.network.attach(&sandbox).await.unwrap().ips;
        Pod { name: name.to_owned(), address: addresses[0], address6: addresses.get(1).copied(), namespace }
    }

    /// `ip` is one address or two with a comma.
    pub fn service(&self, given: Value) {
        let name = given["name"].as_str().unwrap();
        let port = json!({
            "name": "p", "port": given["port"], "protocol": given["protocol"].as_str().unwrap_or("TCP"), "nodePort": given["nodePort"],
        });
        let mut spec = json!({
            "type": given["type"].as_str().unwrap_or("ClusterIP"),
            "clusterIPs": given["ip"].as_str().unwrap().split(',').collect::<Vec<_>>(),
            "ports": [port],
            "externalTrafficPolicy": given["externalTrafficPolicy"],
            "loadBalancerSourceRanges": given["loadBalancerSourceRanges"],
            "healthCheckNodePort": given["healthCheckNodePort"],
        });
        if given["stay"].is_number() {
            spec["sessionAffinity"] = json!("ClientIP");
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": given["stay"]}});
        }
        let ingress: Vec<Value> = given["balancer"].as_str().into_iter().map(|ip| json!({"ip": ip})).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name}, "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        self.api.put(&service_path(name), object);
    }

    pub fn delete(&self, name: &str) {
        self.api.remove(&service_path(name));
        self.api.remove(&slice_path(name));
        self.api.remove(&slice_path(&format!("{name}-6")));
    }

    pub fn endpoints(&self, service: &str, pods: &[&Pod]) {
        self.slices(service, &pods.iter().map(|pod| pod.endpoint()).collect::<Vec<_>>());
        if self.families.len() > 1 {
            let second = |pod: &&Pod| json!({"addresses": [pod.address6.unwrap()], "nodeName": "n1"});
            let endpoints: Vec<Value> = pods.iter().map(second).collect();
            self.slice(service, &format!("{service}-6"), "IPv6", ("TCP", 8080), &endpoints);
        }
    }

    pub(crate) fn udp_endpoints(&self, service: &str, port: u16, pods: &[&Pod]) {
        let endpoints: Vec<Value> = pods.iter().map(|pod| pod.endpoint()).collect();
        self.slice(service, service, "IPv4", ("UDP", port), &endpoints);
    }

    pub fn slices(&self, service: &str, endpoints: &[Value]) {
        self.slice(service, service, "IPv4", ("TCP", 8080), endpoints);
    }

    fn slice(&self, service: &str, name: &str, family: &str, (protocol, port): (&str, u16), endpoints: &[Value]) {
        let labels = json!({"kubernetes.io/service-name": service});
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": name, "labels": labels},
            "addressType": family, "ports": [{"name": "p", "port": port, "protocol": protocol}], "endpoints": endpoints,
        });
        self.api.put(&slice_path(name), object);
    }

    /// A server in the pod of the other node; answers its endpoint.
    pub(crate) fn remote_server(&self, port: u16) -> Value {
        serve(&self.remote, "remote", port);
        json!({"addresses": [REMOTE], "nodeName": "n2"})
    }

    pub fn taint(&self, key: &str) {
        self.api.put("/api/v1/nodes/n1", node_object(&[key]));
    }

    /// Until the kernel has everything that was said so far. What comes after in a watch is seen after.
    pub async fn settled(&self) {
        let number = self.marker.fetch_add(1, Ordering::Relaxed) + 1;
        let endpoint = format!("10.42.{}.{}", 200 + number / 250, number % 250 + 1);
        self.service(json!({"name": "marker", "ip": format!("10.43.255.{}", number % 250 + 1), "port": number}));
        self.slices("marker", &[json!({"addresses": [endpoint], "nodeName": "elsewhere"})]);
        let (address, port) = (format!("10.43.255.{} ", number % 250 + 1), format!(" . {number} "));
        self.until(|| {
            let (addresses, endpoints) = (self.list("map", "addresses"), self.list("map", "endpoints"));
            let is_there = |line: &str| line.contains(&address) && line.contains(&port);
            addresses.split(',').any(is_there) && endpoints.contains(&format!("{endpoint} . 8080"))
        })
        .await;
    }

    fn list(&self, kind: &str, name: &str) -> String {
        let words = ["list", kind, "ip", "knarr-proxy", name];
        let output = self.node.run(|| Command::new("nft").args(words).output().unwrap()).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub async fn until(&self, mut reached: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !reached() {
            if Instant::now() > end || self.running.as_ref().is_none_or(|(_, task)| task.is_finished()) {
                panic!("it is not reached; the rules are\n{}", tool(&self.node, "nft list ruleset"));
            }
            tokio::time::sleep(super::POLL).await;
        }
    }

    pub fn nft(&self, command: &str) {
        tool(&self.node, &format!("nft {command}"));
    }

    /// The table's text in an order that does not depend on the kernel's.
    pub fn rules(&self) -> Vec<String> {
        let words = ["list", "table", "ip", "knarr-proxy"];
        let output = self.node.run(|| Command::new("nft").args(words).output().unwrap()).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut parts: Vec<String> =
            text.split([',', '\n', '{', '}', '=']).map(|part| part.trim().to_owned()).collect();
        parts.sort();
        parts
    }

    /// The kernel's numbers of all rules.
    pub(crate) fn rule_handles(&self) -> BTreeSet<String> {
        let text = tool(&self.node, "nft -a list table ip knarr-proxy");
        let rules = text.lines().filter(|line| line.contains("comment \"") && !line.contains("elements"));
        rules.filter_map(|line| line.rsplit_once("# handle ").map(|(_, handle)| handle.to_owned())).collect()
    }

    pub(crate) fn node_call(&self, address: &str) -> io::Result<String> {
        call(&self.node, address)
    }

    pub(crate) fn outside_call(&self, address: &str) -> io::Result<String> {
        call(&self.outside, address)
    }

    pub(crate) fn node_udp(&self) -> UdpSocket {
        let socket = self.node.run(|| UdpSocket::bind("0.0.0.0:4000").unwrap()).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }

    /// Who answered so many calls, each once.
    pub fn names(&self, call: impl Fn() -> io::Result<String>, count: usize) -> Vec<String> {
        let name = |answer: String| answer.split(' ').next().unwrap().to_owned();
        let names: BTreeSet<String> = (0..count).map(|_| name(call().unwrap())).collect();
        names.into_iter().collect()
    }

    pub fn text(&self, port: u16, path: &str) -> String {
        self.get(port, path).unwrap().1
    }

    pub fn http(&self, port: u16, path: &str) -> (u16, Value) {
        let (status, body) = self.get(port, path).unwrap();
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    pub(crate) fn connect_fails(&self, port: u16) -> bool {
        self.get(port, "/").is_err()
    }

    fn get(&self, port: u16, path: &str) -> io::Result<(u16, String)> {
        let mut stream = connect(&self.node, &format!("127.0.0.1:{port}"))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
    }
}

impl Pod {
    pub fn serve(&self, port: u16) {
        serve(&self.namespace, &self.name, port);
    }

    pub fn serve_udp(&self, port: u16) {
        let socket = self.namespace.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
        let name = self.name.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((_, caller)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(format!("{name} {}", caller.ip()).as_bytes(), caller);
            }
        });
    }

    pub fn call(&self, address: &str) -> io::Result<String> {
        call(&self.namespace, address)
    }

    pub fn endpoint(&self) -> Value {
        json!({"addresses": [self.address], "nodeName": "n1"})
    }
}

/// A connection that is kept open.
pub struct Server(BufReader<TcpStream>);

impl Server {
    pub fn connect(from: &Namespace, address: &str) -> Server {
        let mut server = Server(BufReader::new(connect(from, address).unwrap()));
        server.0.read_line(&mut String::new()).unwrap();
        server
    }

    /// Insists that the other end still answers.
    pub fn exchange(&mut self) {
        self.0.get_mut().write_all(b"again\n").unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert_eq!(line, "again\n");
    }
}

/// A server that tells each caller its own name and where the call seemed to come from, and then says what it hears.
fn serve(namespace: &Namespace, name: &str, port: u16) {
    let listener = namespace.run(|| TcpListener::bind(("::", port)).unwrap()).unwrap();
    let name = name.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, name) = (stream.unwrap(), name.clone());
            std::thread::spawn(move || {
                let caller = stream.peer_addr().unwrap().ip().to_canonical();
                let _ = writeln!(stream, "{name} {caller}");
                let mut reader = stream.try_clone().unwrap();
                let _ = io::copy(&mut reader, &mut stream);
            });
        }
    });
}

fn connect(from: &Namespace, address: &str) -> io::Result<TcpStream> {
    let address: SocketAddr = address.parse().unwrap();
    from.run(|| {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(stream)
    })?
}

fn call(from: &Namespace, address: &str) -> io::Result<String> {
    let mut answer = String::new();
    BufReader::new(connect(from, address)?).read_line(&mut answer)?;
    Ok(answer.trim_end().to_owned())
}

fn made() -> Namespace {
    let namespace = Namespace::create().unwrap();
    tool(&namespace, "ip link set lo up");
    namespace
}

/// Runs a tool inside a namespace and insists on its success.
fn tool(namespace: &Namespace, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = namespace.run(|| Command::new(words[0]).args(&words[1..]).output().unwrap()).unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn node_object(taints: &[&str]) -> Value {
    let taints: Vec<Value> = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": taints},
        "status": {"addresses": [{"type": "InternalIP", "address": NODE}]},
    })
}

fn service_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/services/{name}")
}

fn slice_path(name: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/{name}")
}
