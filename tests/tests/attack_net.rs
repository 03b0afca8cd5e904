//! Attacks over the network: Services and pods that take a machine's ports, and packets that go around the rules. Each of them
//! got through once.

#[path = "support/several_nodes.rs"]
mod several_nodes;
#[path = "support/frames.rs"]
mod frames;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use frames::{frame, pod_network, send_frame, wrapped};
use serde_json::{Value, json};
use several_nodes::{eventually, run_pods, seen, server_pod, start};
use testkit::{Cluster, Kubectl, Machine, machine};

/// What shall not come is waited for so long.
const SHORT: Duration = Duration::from_millis(700);

/// Attacks that got through; each attempt is printed.
#[derive(Default)]
struct Attacks {
    broken: Vec<String>,
}

impl Attacks {
    fn check(&mut self, what: impl Into<String>, holds: bool) {
        let what = what.into();
        // As `testkit::attack::held` says it; here the others are tried as well.
        println!("attack {}: {what}", if holds { "held" } else { "BROKEN" });
        self.broken.extend((!holds).then_some(what));
    }

    fn end(self) {
        assert!(self.broken.is_empty(), "{:#?}", self.broken);
    }
}

/// Whether a pod of the attacker answers there.
fn is_taken(network: &Path, address: &str) -> bool {
    let address: SocketAddr = address.parse().unwrap();
    let asked = machine::within(network, move || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        // Whoever speaks TLS may reset the connection instead of ending it.
        let _ = stream.read_to_end(&mut answer);
        Ok(String::from_utf8_lossy(&answer).contains("remote: "))
    });
    asked.unwrap_or(false)
}

fn is_open(network: &Path, address: &str) -> bool {
    let address: SocketAddr = address.parse().unwrap();
    machine::within(network, move || TcpStream::connect_timeout(&address, SHORT)).is_ok()
}

fn service(name: &str, spec: Value) -> Value {
    let mut whole = json!({"selector": {"app": "web"}});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": whole})
}

fn apply(kubectl: &Kubectl, items: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    kubectl.ok_with(&["apply", "-f", "-"], &list.to_string());
}

fn policy(kubectl: &Kubectl, name: &str, spec: Value) {
    let metadata = json!({"name": name});
    apply(
        kubectl,
        &[json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec})],
    );
}

fn balanced_at(kubectl: &Kubectl, name: &str) -> Vec<String> {
    let path = "jsonpath={.status.loadBalancer.ingress[*].ip}";
    kubectl.ok(&["get", "service", name, "-o", path]).split_whitespace().map(str::to_owned).collect()
}

fn events(kubectl: &Kubectl, name: &str) -> String {
    let about = format!("involvedObject.name={name}");
    kubectl.ok(&["get", "events", "--field-selector", &about, "-o", "jsonpath={.items[*].message}"])
}

/// From where somebody may ask: outside, on each machine, in a pod of each node.
fn places(cluster: &Cluster, pods: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = vec![cluster.hub.network(), cluster.machine(1).network(), cluster.machine(2).network()];
    places.extend_from_slice(pods);
    places
}

#[test]
fn no_service_takes_a_port_of_a_machine() {
    let cluster = start(2, 1, &[]);
    let kubectl = cluster.server.kubectl();
    let pods = run_pods(&kubectl, &[server_pod("web", 2), server_pod("near", 1)]);
    let inside = [pod_network(cluster.machine(2), &pods["web"]), pod_network(cluster.machine(1), &pods["near"])];
    let places = places(&cluster, &inside);
    let (server, agent) = (cluster.machine(1).address(), cluster.machine(2).address());
    let api: u16 = cluster.server.url.rsplit_once(':').unwrap().1.parse().unwrap();
    // Somebody's own program, as ssh would be, before there is a Service and after.
    let program = machine::listen_within(&cluster.machine(1).network(), "0.0.0.0:2222").unwrap();
    let node_port = machine::listen_within(&cluster.machine(1).network(), "0.0.0.0:31999").unwrap();

    let port = |port: u16| json!([{"port": port, "targetPort": 8080}]);
    let wanted = [("kubelet", 10250), ("proxy", 10256), ("api", api), ("program", 2222)];
    let mut objects = Vec::new();
    for (name, number) in wanted {
        objects.push(service(&format!("lb-{name}"), json!({"type": "LoadBalancer", "ports": port(number)})));
        let outer = json!({"ports": port(number), "externalIPs": [server, agent]});
        objects.push(service(&format!("ip-{name}"), outer));
    }
    // Without endpoints it would be refused, with sources dropped.
    let nobody = json!({"selector": {"app": "nobody"}, "ports": port(10250), "externalIPs": [server, agent]});
    objects.push(service("ip-nobody", nobody));
    let numbered = json!([{"port": 80, "targetPort": 8080, "nodePort": 31999}]);
    objects.push(service("node-port", json!({"type": "NodePort", "ports": numbered})));
    objects.push(service("good", json!({"type": "LoadBalancer", "ports": port(8088)})));
    apply(&kubectl, &objects);

    let both = [server.clone(), agent.clone()];
    eventually("what is free is given", || balanced_at(&kubectl, "good") == both);
    eventually("and served", || is_taken(&cluster.hub.network(), &format!("{server}:8088")));
    eventually("where it is free", || balanced_at(&kubectl, "lb-api") == both[1..]);
    eventually("the node port is served where it is free", || {
        is_taken(&cluster.hub.network(), &format!("{agent}:31999"))
    });
    let mut attacks = Attacks::default();
    for name in ["lb-kubelet", "lb-proxy"] {
        let needed = || events(&kubectl, name).contains("is in use by the machine of node");
        eventually("the event says why", needed);
        eventually("it waits", || balanced_at(&kubectl, name).is_empty());
        attacks.check(name, kubectl.ok(&["get", "service", name]).contains("<pending>"));
    }
    // The node says what it listens at every ten seconds.
    eventually("it has no address of the machine", || !balanced_at(&kubectl, "lb-program").contains(&server));
    for name in ["ip-kubelet", "ip-api", "ip-program", "node-port"] {
        eventually("the event says it", || events(&kubectl, name).contains("is in use by node node-1 itself"));
    }
    for place in &places {
        for address in [format!("{server}:{api}"), format!("{server}:2222"), format!("{server}:31999")]
            .into_iter()
            .chain([&server, &agent].into_iter().flat_map(|node| [10250, 10256].map(|port| format!("{node}:{port}"))))
        {
            attacks.check(format!("{address} from {}", place.display()), !is_taken(place, &address));
            attacks.check(format!("{address} refused from {}", place.display()), is_open(place, &address));
        }
    }
    // Who begins to listen later has the port as well.
    let late = machine::listen_within(&cluster.machine(1).network(), "0.0.0.0:8088").unwrap();
    eventually("the machine gets its port", || {
        !is_taken(&cluster.hub.network(), &format!("{server}:8088")) && balanced_at(&kubectl, "good") == both[1..]
    });
    drop((program, node_port, late));
    eventually("what is free again is given", || balanced_at(&kubectl, "good") == both);
    // The ingress's own Service uses the same way.
    let ingress = "jsonpath={.status.loadBalancer.ingress[*].ip}";
    let ingress = kubectl.ok(&["get", "service", "knarr-ingress", "-n", "kube-system", "-o", ingress]);
    assert_eq!(ingress, both.join(" "));
    attacks.end();
}

#[test]
fn no_pod_takes_a_port_of_its_machine() {
    let cluster = start(1, 1, &[]);
    let kubectl = cluster.server.kubectl();
    let machine = cluster.machine(1);
    let with_port = |name: &str, number: u16, host: &str| {
        let mut pod = server_pod(name, 1);
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8080, "hostPort": number, "hostIP": host}]);
        pod
    };
    let own = machine::listen_within(&machine.network(), "127.0.0.1:8090").unwrap();
    apply(&kubectl, &[with_port("thief", 10250, ""), with_port("second", 10256, &machine.address())]);
    run_pods(
        &kubectl,
        &[with_port("good", 8089, ""), with_port("beside", 8090, ""), with_port("local", 8091, "127.0.0.1")],
    );
    let mut attacks = Attacks::default();
    for (name, port) in [("thief", 10250), ("second", 10256)] {
        let refused = format!("host port {port}/TCP of pod default/{name} is in use by the node itself");
        eventually("the event says why", || events(&kubectl, name).contains(&refused));
        let address = format!("{}:{port}", machine.address());
        for place in [cluster.hub.network(), machine.network()] {
            attacks.check(format!("hostPort {port}"), !is_taken(&place, &address) && is_open(&place, &address));
        }
    }
    attacks.check("hostPort at loopback", !is_taken(&machine.network(), "127.0.0.1:8090"));
    for (place, address) in [
        (cluster.hub.network(), format!("{}:8089", machine.address())),
        (cluster.hub.network(), format!("{}:8090", machine.address())),
        (machine.network(), "127.0.0.1:8089".into()),
        (machine.network(), "127.0.0.1:8091".into()),
    ] {
        eventually("host ports that are free work", || is_taken(&place, &address));
    }
    drop(own);
    attacks.end();
}

/// A UDP socket that says whether anything came.
fn inbox(network: &Path, address: &str) -> UdpSocket {
    let socket = machine::datagrams_within(network, address).unwrap();
    socket.set_read_timeout(Some(SHORT)).unwrap();
    socket
}

fn is_empty(inbox: &UdpSocket) -> bool {
    inbox.recv(&mut [0; 256]).is_err()
}

#[test]
fn the_link_of_pods_leads_around_no_rule() {
    let cluster = start(1, 1, &[]);
    let kubectl = cluster.server.kubectl();
    let machine = cluster.machine(1);
    let pods = run_pods(&kubectl, &[server_pod("victim", 1), server_pod("evil", 1)]);
    let (victim, evil) = (pod_network(machine, &pods["victim"]), pod_network(machine, &pods["evil"]));
    let mut attacks = Attacks::default();

    // CVE-2020-8558: what the machine says to itself.
    let loopback = inbox(&machine.network(), "127.0.0.1:5999");
    let packet = frame(&evil, machine, &pods["evil"], "127.0.0.1", 5999);
    send_frame(&evil, &packet);
    attacks.check("127.0.0.1 of the node", is_empty(&loopback));
    // The same frame to an address that pods may reach arrives.
    let bridge = machine.shell("ip -4 -o address show knarr0 | sed 's/.*inet //; s,/.*,,'").unwrap();
    let open = inbox(&machine.network(), "0.0.0.0:5998");
    send_frame(&evil, &frame(&evil, machine, &pods["evil"], bridge.trim(), 5998));
    assert!(!is_empty(&open));

    // Nobody reaches the victim, by any address: also a pod without capabilities has one of the link.
    policy(&kubectl, "deny", json!({"podSelector": {"matchLabels": {"app": "victim"}}, "policyTypes": ["Ingress"]}));
    eventually("denied", || seen(&kubectl, "evil", &pods["victim"], 8080).is_none());
    let link_local = |network: &Path, device: &str| {
        let script = format!("nsenter --net={} ip -6 -o address show dev {device} scope link", network.display());
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split("inet6 ").nth(1).unwrap().split('/').next().unwrap().to_owned()
    };
    let (pod, node) = (link_local(&victim, "eth0"), link_local(&machine.network(), "knarr0"));
    let datagrams = inbox(&victim, "[::]:5997");
    let on_node = inbox(&machine.network(), "[::]:5997");
    for target in [&pod, &node, "ff02::1"] {
        say(&evil, target, 5997);
    }
    attacks.check("datagrams over the link", is_empty(&datagrams));
    attacks.check("datagrams to the node over the link", is_empty(&on_node));
    for (target, port) in [(&pod, 8080), (&node, 10250)] {
        attacks.check(format!("[{target}]:{port}"), !connects(&evil, target, port));
    }
    attacks.end();
}

/// Sends a datagram to an address of the link, as nobody.
fn say(network: &Path, to: &str, port: u16) {
    let script = "import socket,sys;s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM);s.sendto(b'x',socket.getaddrinfo(sys.argv[1]+'%eth0',int(sys.argv[2]))[0][4])";
    unprivileged(network, script, to, port);
}

fn connects(network: &Path, to: &str, port: u16) -> bool {
    let script = "import socket,sys;s=socket.socket(socket.AF_INET6);s.settimeout(1);s.connect(socket.getaddrinfo(sys.argv[1]+'%eth0',int(sys.argv[2]))[0][4])";
    unprivileged(network, script, to, port)
}

fn unprivileged(network: &Path, script: &str, to: &str, port: u16) -> bool {
    let mut command = std::process::Command::new("nsenter");
    command.arg(format!("--net={}", network.display()));
    command.args(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "python3", "-c", script, to]);
    command.arg(port.to_string()).output().unwrap().status.success()
}

#[test]
fn the_tunnel_takes_nothing_from_strangers() {
    let cluster = start(2, 2, &[]);
    let kubectl = cluster.server.kubectl();
    let pods = run_pods(&kubectl, &[server_pod("far", 1), server_pod("victim", 2), server_pod("beside", 2)]);
    let far = pod_network(cluster.machine(1), &pods["far"]);
    let (victim, beside) =
        (pod_network(cluster.machine(2), &pods["victim"]), pod_network(cluster.machine(2), &pods["beside"]));
    assert!(seen(&kubectl, "far", &pods["victim"], 8080).is_some(), "the tunnel works");
    let range = kubectl.ok(&["get", "node", "node-2", "-o", "jsonpath={.spec.podCIDR}"]);
    let inbox = inbox(&victim, "0.0.0.0:5353");
    let port = format!("{}:8472", cluster.machine(2).address());
    let send = |from: &Path, source: &str| {
        let (packet, port) = (wrapped(&range, source, &pods["victim"], 5353), port.clone());
        machine::within(from, move || UdpSocket::bind("0.0.0.0:0")?.send_to(&packet, &port)).unwrap();
        !is_empty(&inbox)
    };
    assert!(send(&cluster.machine(1).network(), &pods["far"]), "a node sends for its own pods");
    let mut attacks = Attacks::default();
    for (what, from, source) in [
        ("from outside", &cluster.hub.network(), &pods["far"]),
        ("from a pod of another node", &far, &pods["far"]),
        ("from a pod of the same node", &beside, &pods["far"]),
        ("from a node in the name of another's pod", &cluster.machine(1).network(), &pods["beside"]),
        ("from a node in the name of the other", &cluster.machine(1).network(), &cluster.machine(2).address()),
    ] {
        attacks.check(what, !send(from, source));
    }
    // By way of a Service that leads to the other node's port.
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "tunnel", "labels": {"kubernetes.io/service-name": "tunnel"}},
        "ports": [{"port": 8472, "protocol": "UDP", "name": "a"}], "endpoints": [{"addresses": [cluster.machine(2).address()]}],
    });
    let ports = json!([{"port": 8472, "protocol": "UDP", "name": "a", "nodePort": 32472}]);
    let leading = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "tunnel"}, "spec": {"type": "NodePort", "ports": ports}});
    apply(&kubectl, &[leading, slice]);
    std::thread::sleep(Duration::from_secs(2));
    for node in [1, 2] {
        let (packet, port) = (
            wrapped(&range, &pods["far"], &pods["victim"], 5353),
            format!("{}:32472", cluster.machine(node).address()),
        );
        machine::within(&cluster.hub.network(), move || UdpSocket::bind("0.0.0.0:0")?.send_to(&packet, &port)).unwrap();
        attacks.check(format!("by a node port of node {node}"), is_empty(&inbox));
    }
    assert!(seen(&kubectl, "far", &pods["victim"], 8080).is_some(), "the tunnel goes on");
    attacks.end();
}

/// Whether what is said comes back.
fn echoes(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut answer = [0; 5];
    stream.write_all(b"there").is_ok() && stream.read_exact(&mut answer).is_ok()
}

#[test]
fn policies_hold_towards_the_own_node_and_for_what_is_open_already() {
    let cluster = start(2, 1, &[]);
    let kubectl = cluster.server.kubectl();
    let mut echo = server_pod("echo", 2);
    echo["spec"]["containers"][0]["args"] = json!(["tcp-echo", "7000"]);
    let pods = run_pods(&kubectl, &[echo, server_pod("jailed", 2), server_pod("near", 2), server_pod("far", 1)]);
    let network = |machine: &Machine, name: &str| pod_network(machine, &pods[name]);
    let (jailed, near) = (network(cluster.machine(2), "jailed"), network(cluster.machine(2), "near"));
    let far = network(cluster.machine(1), "far");
    let kubelet = format!("{}:10250", cluster.machine(2).address());
    assert!(is_open(&jailed, &kubelet));
    let target = format!("{}:7000", pods["echo"]);
    let open = |place: &Path| machine::connect_within(place, &target).unwrap();
    let mut cut = [open(&near), open(&far), open(&jailed)];
    let (mut kept, mut probe) = (open(&near), open(&cluster.machine(2).network()));
    // One that is allowed and one that is not, from the same pod, differ by what they are to the policy alone: the port.
    assert!(cut.iter_mut().chain([&mut kept, &mut probe]).all(echoes));
    drop(kept);

    let mut attacks = Attacks::default();
    policy(&kubectl, "jail", json!({"podSelector": {"matchLabels": {"app": "jailed"}}, "policyTypes": ["Egress"]}));
    eventually("the kubelet of its own node answers no more", || !is_open(&jailed, &kubelet));
    for port in [10250, 10256] {
        let bridge = cluster.machine(2).shell("ip -4 -o address show knarr0 | sed 's/.*inet //; s,/.*,,'").unwrap();
        attacks.check("the node's other address", !is_open(&jailed, &format!("{}:{port}", bridge.trim())));
    }
    assert!(is_open(&near, &kubelet), "others are not concerned");
    kubectl.ok(&["exec", "jailed", "--", "lookup", "kubernetes.default.svc.cluster.local"]);
    assert!(is_open(&cluster.machine(2).network(), &format!("{}:8080", pods["jailed"])), "probes arrive");
    eventually("what the jailed one had open is cut", || !echoes(&mut cut[2]));
    attacks.check("cut in one direction only", cut[..2].iter_mut().all(echoes));

    let from_far = json!({"from": [{"podSelector": {"matchLabels": {"app": "far"}}}]});
    policy(&kubectl, "echo", json!({"podSelector": {"matchLabels": {"app": "echo"}}, "ingress": [from_far]}));
    eventually("what the neighbour had open is cut", || !echoes(&mut cut[0]));
    attacks.check("who is allowed was cut", echoes(&mut cut[1]));
    attacks.check("the node's probe was cut", echoes(&mut probe));
    attacks.check("it came back", !echoes(&mut cut[0]));
    kubectl.ok(&["delete", "networkpolicy", "--all"]);
    eventually("all is open again", || is_open(&jailed, &kubelet) && is_open(&near, &target));
    attacks.end();
}
