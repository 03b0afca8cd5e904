//! Real packets between namespaces that these tests make: a node, its pods, and a machine outside that the node can reach.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use cri::v1::PortMapping;
use linux::netns::Namespace;

use super::*;

const RANGE: &str = "10.77.0.0/24";
const UPLINK: &str = "192.0.2.1";
const OUTSIDE: &str = "192.0.2.2";
const TIMEOUT: Duration = Duration::from_secs(3);

pub struct Machine {
    pub node: Namespace,
    pub outside: Namespace,
    pub state: tempfile::TempDir,
    pub network: Builtin,
}

/// Runs a tool inside a namespace and insists on its success.
pub fn tool(namespace: &Namespace, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = namespace.run(|| Command::new(words[0]).args(&words[1..]).output().unwrap()).unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Machine {
    pub async fn start(range: &str) -> Machine {
        Machine::start_with(range, true).await
    }

    pub async fn start_with(range: &str, bridge_netfilter: bool) -> Machine {
        let (node, outside) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        tool(&node, "ip link set lo up");
        tool(&outside, "ip link set lo up");
        tool(
            &node,
            &format!("ip link add uplink mtu 1400 type veth peer name uplink netns {}", outside.path().display()),
        );
        tool(&node, &format!("ip address add {UPLINK}/24 dev uplink"));
        tool(&outside, &format!("ip address add {OUTSIDE}/24 dev uplink"));
        tool(&node, "ip link set uplink up");
        tool(&outside, "ip link set uplink up");
        tool(&node, &format!("ip route add default via {OUTSIDE}"));
        let state = tempfile::tempdir().unwrap();
        let network = Machine::network_with(&node, &state, bridge_netfilter);
        network.set_pod_cidr(range).await.unwrap();
        Machine { node, outside, state, network }
    }

    fn network(node: &Namespace, state: &tempfile::TempDir) -> Builtin {
        Machine::network_with(node, state, true)
    }

    fn network_with(node: &Namespace, state: &tempfile::TempDir, bridge_netfilter: bool) -> Builtin {
        Builtin::open(Config {
            bridge_netfilter,
            cluster_ranges: vec!["10.77.0.0/16".parse().unwrap()],
            service_ranges: vec!["10.96.0.0/16".parse().unwrap()],
            node_namespace: Some(node.path()),
            ..Config::new(state.path())
        })
        .unwrap()
    }

    pub async fn pod(&self, name: &str, ports: Vec<PortMapping>) -> Pod {
        let namespace = Namespace::create().unwrap();
        let sandbox = SandboxNetwork {
            sandbox: name.repeat(32),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            netns: namespace.path(),
            port_mappings: ports,
            annotations: Default::default(),
        };
        let addresses = self.network.attach(&sandbox).await.unwrap().ips;
        Pod { namespace, sandbox, addresses }
    }
}

pub struct Pod {
    pub namespace: Namespace,
    pub sandbox: SandboxNetwork,
    pub addresses: Vec<IpAddr>,
}

fn port(protocol: i32, host: i32, container: i32, address: &str) -> PortMapping {
    PortMapping { protocol, host_port: host, container_port: container, host_ip: address.to_owned() }
}

/// A server that tells each caller where the call seemed to come from.
pub fn serve(namespace: &Namespace, address: &str) {
    let listener = namespace.run(|| TcpListener::bind(address).unwrap()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let caller = stream.peer_addr().unwrap().ip();
            let _ = write!(stream, "{caller}");
        }
    });
}

fn serve_udp(namespace: &Namespace, address: &str) {
    let socket = namespace.run(|| UdpSocket::bind(address).unwrap()).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, caller)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(caller.ip().to_string().as_bytes(), caller);
        }
    });
}

pub fn call(namespace: &Namespace, address: impl ToString) -> std::io::Result<String> {
    let address: SocketAddr = address.to_string().parse().unwrap();
    namespace.run(|| {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })?
}

fn call_udp(namespace: &Namespace, address: &str) -> std::io::Result<String> {
    namespace.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.send_to(b"hello", address)?;
        let mut buffer = [0; 64];
        let (length, from) = socket.recv_from(&mut buffer)?;
        // The answer must come from where the question went.
        assert_eq!(from.to_string(), address);
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    })?
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_node_and_the_world_reach_each_other() {
    let machine = Machine::start(RANGE).await;
    let (a, b) = (machine.pod("a", Vec::new()).await, machine.pod("b", Vec::new()).await);
    assert_eq!((a.addresses[0].to_string(), b.addresses[0].to_string()), ("10.77.0.2".into(), "10.77.0.3".into()));
    serve(&a.namespace, "0.0.0.0:80");
    serve(&machine.node, "0.0.0.0:81");
    serve(&machine.outside, "0.0.0.0:82");
    assert_eq!(call(&b.namespace, "10.77.0.2:80").unwrap(), "10.77.0.3", "pod to pod");
    assert_eq!(call(&a.namespace, "10.77.0.2:80").unwrap(), "10.77.0.2", "pod to itself");
    assert_eq!(call(&b.namespace, "127.0.0.1:80").unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(call(&machine.node, "10.77.0.2:80").unwrap(), "10.77.0.1", "node to pod");
    assert_eq!(call(&b.namespace, "10.77.0.1:81").unwrap(), "10.77.0.3", "pod to node");
    assert_eq!(call(&b.namespace, format!("{OUTSIDE}:82")).unwrap(), UPLINK, "pod to outside");
    // The uplink's mtu, and no redirects that would lead around the node's rules.
    assert!(tool(&a.namespace, "ip link show eth0").contains("mtu 1400"));
    assert!(!tool(&b.namespace, "ip route get 10.77.0.2").contains("redirected"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_nodes_pods_see_the_pods_own_address() {
    let machine = Machine::start(RANGE).await;
    let pod = machine.pod("a", Vec::new()).await;
    // A pod of another node, beyond the outside machine.
    tool(&machine.outside, "ip address add 10.77.9.9/32 dev lo");
    tool(&machine.outside, &format!("ip route add {RANGE} via {UPLINK}"));
    tool(&machine.node, &format!("ip route add 10.77.9.0/24 via {OUTSIDE}"));
    serve(&machine.outside, "10.77.9.9:82");
    assert_eq!(call(&pod.namespace, "10.77.9.9:82").unwrap(), "10.77.0.2");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_ports_lead_into_the_pod() {
    let machine = Machine::start(RANGE).await;
    let ports =
        vec![port(0, 8080, 80, ""), port(1, 5353, 53, "0.0.0.0"), port(0, 8443, 80, UPLINK), port(0, 0, 99, "")];
    let pod = machine.pod("a", ports).await;
    let other = machine.pod("b", Vec::new()).await;
    serve(&pod.namespace, "0.0.0.0:80");
    serve_udp(&pod.namespace, "0.0.0.0:53");
    assert_eq!(call(&machine.outside, format!("{UPLINK}:8080")).unwrap(), OUTSIDE, "from outside, with its address");
    assert_eq!(call(&machine.node, format!("{UPLINK}:8080")).unwrap(), UPLINK, "from the node");
    assert_eq!(call(&machine.node, "127.0.0.1:8080").unwrap(), "10.77.0.1", "from the node's localhost");
    assert_eq!(call(&other.namespace, format!("{UPLINK}:8080")).unwrap(), "10.77.0.3", "from another pod");
    assert_eq!(call(&pod.namespace, format!("{UPLINK}:8080")).unwrap(), "10.77.0.1", "from the pod itself");
    assert_eq!(call_udp(&machine.outside, &format!("{UPLINK}:5353")).unwrap(), OUTSIDE, "by datagrams");
    assert_eq!(call(&machine.outside, format!("{UPLINK}:8443")).unwrap(), OUTSIDE, "at one address");
    assert!(call(&machine.node, "127.0.0.1:8443").is_err(), "and not at another");

    machine.network.detach(&pod.sandbox).await.unwrap();
    assert!(call(&machine.outside, format!("{UPLINK}:8080")).is_err());
    assert!(!tool(&machine.node, "nft list ruleset").contains("8080"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeating_changes_nothing_and_ending_frees() {
    let machine = Machine::start(RANGE).await;
    let a = machine.pod("a", vec![port(0, 8080, 80, "")]).await;
    let links = tool(&machine.node, "ip -o link");
    assert_eq!(machine.network.attach(&a.sandbox).await.unwrap().ips, a.addresses);
    machine.network.set_pod_cidr(RANGE).await.unwrap();
    assert_eq!(tool(&machine.node, "ip -o link"), links);
    serve(&a.namespace, "0.0.0.0:80");
    assert_eq!(call(&machine.node, "10.77.0.2:80").unwrap(), "10.77.0.1");

    machine.network.detach(&a.sandbox).await.unwrap();
    machine.network.detach(&a.sandbox).await.unwrap();
    assert!(!tool(&machine.node, "ip -o link").contains("veth"));
    // The namespace may be gone already.
    let mut gone = machine.pod("b", Vec::new()).await;
    gone.sandbox.netns = "/nonexistent".into();
    drop(gone.namespace);
    machine.network.detach(&gone.sandbox).await.unwrap();
    assert!(machine.state.path().join("claims").read_dir().unwrap().next().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_range_is_said_and_freed_addresses_work_again() {
    let machine = Machine::start("10.77.0.0/30").await;
    let a = machine.pod("a", Vec::new()).await;
    let namespace = Namespace::create().unwrap();
    let mut sandbox = SandboxNetwork { sandbox: "second".into(), netns: namespace.path(), ..a.sandbox.clone() };
    let error = machine.network.attach(&sandbox).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (cri::Code::ResourceExhausted, "no free address in 10.77.0.0/30"));
    machine.network.detach(&a.sandbox).await.unwrap();
    assert_eq!(machine.network.attach(&sandbox).await.unwrap().ips, a.addresses);
    serve(&namespace, "0.0.0.0:80");
    assert_eq!(call(&machine.node, "10.77.0.2:80").unwrap(), "10.77.0.1");
    sandbox.sandbox = "../climb".into();
    assert_eq!(machine.network.attach(&sandbox).await.unwrap_err().code, cri::Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_is_cleared() {
    let machine = Machine::start(RANGE).await;
    let (a, b) = (machine.pod("a", Vec::new()).await, machine.pod("b", vec![port(0, 9090, 80, "")]).await);
    // A device whose claim is gone, and a claim whose device is gone.
    let c = machine.pod("c", Vec::new()).await;
    std::fs::remove_file(machine.state.path().join(format!("claims/{}.json", c.sandbox.sandbox))).unwrap();
    tool(&machine.node, &format!("ip link delete {}", links::device_name(&b.sandbox.sandbox)));

    let again = Machine::network(&machine.node, &machine.state);
    assert_eq!(again.not_ready().await, None, "the range is known from before");
    // The pod that lost its device gets it back, under the same address.
    assert_eq!(again.attach(&b.sandbox).await.unwrap().ips, b.addresses);
    serve(&b.namespace, "0.0.0.0:80");
    assert_eq!(call(&a.namespace, "10.77.0.3:80").unwrap(), "10.77.0.2");

    again.keep_only(std::slice::from_ref(&a.sandbox.sandbox)).await.unwrap();
    let links = tool(&machine.node, "ip -o link");
    assert_eq!(links.matches("veth").count(), 1, "{links}");
    assert!(links.contains(&links::device_name(&a.sandbox.sandbox)));
    assert!(!tool(&machine.node, "nft list ruleset").contains("9090"));
    assert_eq!(machine.state.path().join("claims").read_dir().unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_took_away_comes_back() {
    let machine = Machine::start(RANGE).await;
    let a = machine.pod("a", Vec::new()).await;
    serve(&machine.outside, "0.0.0.0:82");
    tool(&machine.node, "nft flush ruleset");
    let b = machine.pod("b", Vec::new()).await;
    assert_eq!(call(&a.namespace, format!("{OUTSIDE}:82")).unwrap(), UPLINK);
    tool(&machine.node, "ip link delete knarr0");
    machine.network.attach(&b.sandbox).await.unwrap();
    assert_eq!(call(&b.namespace, format!("{OUTSIDE}:82")).unwrap(), UPLINK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_who_came_too_early_is_heard_once_the_port_is_there() {
    let machine = Machine::start(RANGE).await;
    machine.pod("other", vec![port(2, 7000, 70, "")]).await;
    assert!(tool(&machine.node, "nft list ruleset").contains("dport 7000 dnat ip to 10.77.0.2:70"), "sctp");
    // The node remembers a connection that it answered with a refusal, as long as the sender goes on.
    let sender = machine.outside.run(|| UdpSocket::bind("0.0.0.0:4000").unwrap()).unwrap();
    sender.set_read_timeout(Some(TIMEOUT)).unwrap();
    sender.send_to(b"early", format!("{UPLINK}:5353")).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let pod = machine.pod("a", vec![port(1, 5353, 53, "")]).await;
    serve_udp(&pod.namespace, "0.0.0.0:53");
    sender.send_to(b"again", format!("{UPLINK}:5353")).unwrap();
    let mut buffer = [0; 64];
    let (length, _) = sender.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], OUTSIDE.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn service_addresses_are_served_or_refused_at_once() {
    let machine = Machine::start(RANGE).await;
    let (a, b) = (machine.pod("a", Vec::new()).await, machine.pod("b", Vec::new()).await);
    serve(&a.namespace, "0.0.0.0:80");
    // Even without a default route the node finds the way.
    tool(&machine.node, "ip route del default");
    for namespace in [&machine.node, &b.namespace] {
        let error = call(namespace, "10.96.0.10:80").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{error}");
    }
    // As kube-proxy would, in a table of its own.
    let translate = "ip daddr 10.96.0.10 tcp dport 80 dnat to 10.77.0.2:80";
    let rules = format!(
        "table ip proxy {{
            chain pre {{ type nat hook prerouting priority -100; {translate}; }}
            chain out {{ type nat hook output priority -100; {translate}; }}
        }}"
    );
    let file = machine.state.path().join("proxy.nft");
    std::fs::write(&file, rules).unwrap();
    tool(&machine.node, &format!("nft -f {}", file.display()));
    assert_eq!(call(&machine.node, "10.96.0.10:80").unwrap(), "10.77.0.1");
    assert_eq!(call(&b.namespace, "10.96.0.10:80").unwrap(), "10.77.0.3", "both on one node, with its own address");
    machine.network.set_pod_cidr(RANGE).await.unwrap();
    assert!(tool(&machine.node, "nft list tables").contains("table ip proxy"), "other tables are left alone");

    // One that has ended leaves no way behind that others would follow until it is forgotten.
    assert!(tool(&machine.node, "ip neigh show 10.77.0.2 dev knarr0").contains("lladdr"));
    assert!(tool(&machine.node, "cat /proc/net/nf_conntrack").contains("src=10.77.0.2 "));
    machine.network.detach(&a.sandbox).await.unwrap();
    assert_eq!(tool(&machine.node, "ip neigh show 10.77.0.2 dev knarr0"), "");
    let followed = tool(&machine.node, "cat /proc/net/nf_conntrack");
    assert!(!followed.contains("src=10.77.0.2 "), "{followed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_families_and_a_changed_range() {
    let machine = Machine::start("10.77.0.0/24,fd00:77::/64").await;
    let (a, b) = (machine.pod("a", vec![port(0, 8080, 80, "")]).await, machine.pod("b", Vec::new()).await);
    assert_eq!(a.addresses[1].to_string(), "fd00:77::2");
    serve(&a.namespace, "[::]:80");
    for _ in 0..5 {
        assert_eq!(call(&b.namespace, "[fd00:77::2]:80").unwrap(), "fd00:77::3");
    }
    assert!(!tool(&b.namespace, "ip -6 route show cache").contains("fd00:77::2"), "no way around the node");
    assert_eq!(call(&b.namespace, "[fd00:77::1]:8080").unwrap(), "fd00:77::3", "host port");
    machine.network.set_pod_cidr("10.77.1.0/24").await.unwrap();
    let addresses = tool(&machine.node, "ip -o address show knarr0");
    assert!(addresses.contains("10.77.1.1/24") && !addresses.contains("10.77.0.1/24"), "{addresses}");
    for bad in ["", "x", "10.0.0.0/31", "10.0.0.0/24,10.1.0.0/24"] {
        assert_eq!(machine.network.set_pod_cidr(bad).await.unwrap_err().code, cri::Code::InvalidArgument, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_leaves_pods_alone_that_are_taken_away() {
    let machine = Machine::start(RANGE).await;
    for name in ["a", "b", "c", "d", "e", "f", "0", "1"] {
        let pod = machine.pod(name, Vec::new()).await;
        let (detached, repaired) = tokio::join!(machine.network.detach(&pod.sandbox), machine.network.repair());
        detached.unwrap();
        assert_eq!(repaired.unwrap(), Vec::<String>::new());
        assert_eq!(tool(&pod.namespace, "ip -o link").lines().count(), 1, "only its loopback");
    }
}

#[tokio::test]
async fn without_a_range_it_is_not_ready() {
    let state = tempfile::tempdir().unwrap();
    let network = Builtin::open(Config::new(state.path())).unwrap();
    assert_eq!(network.not_ready().await.as_deref(), Some("the node has no pod CIDR yet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_come_and_go_at_once() {
    let machine = Machine::start(RANGE).await;
    let names: Vec<String> = (0..30).map(|number| format!("p{number}")).collect();
    let pods = futures::future::join_all(
        names.iter().zip(9000..).map(|(name, host)| machine.pod(name, vec![port(0, host, 80, "")])),
    )
    .await;
    let addresses: BTreeSet<IpAddr> = pods.iter().map(|pod| pod.addresses[0]).collect();
    assert_eq!(addresses.len(), pods.len());
    for (pod, host) in pods.iter().zip(9000..).step_by(7) {
        serve(&pod.namespace, "0.0.0.0:80");
        assert_eq!(call(&machine.outside, format!("{UPLINK}:{host}")).unwrap(), OUTSIDE);
    }
    let ended = pods.iter().map(|pod| machine.network.detach(&pod.sandbox));
    futures::future::join_all(ended).await.into_iter().for_each(|ended| ended.unwrap());
    assert!(!tool(&machine.node, "ip -o link").contains("veth"));
    assert!(!tool(&machine.node, "nft list ruleset").contains("dnat"));
    assert!(machine.state.path().join("claims").read_dir().unwrap().next().is_none());
}
