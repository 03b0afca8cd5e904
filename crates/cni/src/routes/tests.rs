//! Real packets between the pods of nodes that are namespaces: two on one link, a third behind a router.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use cri::{Network, SandboxNetwork};
use linux::netns::Namespace;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(3);

fn tool(namespace: &Namespace, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = namespace.run(|| Command::new(words[0]).args(&words[1..]).output().unwrap()).unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Number N has the pods 10.77.N.0/24.
struct Machine {
    number: u8,
    address: String,
    namespace: Namespace,
    keeper: Keeper,
    _state: tempfile::TempDir,
}

impl Machine {
    /// With a cable to the router, where it is joined to a link.
    async fn start(router: &Namespace, link: u8, number: u8, backend: Backend) -> Machine {
        let namespace = Namespace::create().unwrap();
        let address = format!("192.0.{link}.{number}");
        let peer = router.path();
        tool(&namespace, "ip link set lo up");
        tool(&namespace, &format!("ip link add uplink type veth peer name m{number} netns {}", peer.display()));
        tool(&namespace, &format!("ip address add {address}/24 dev uplink"));
        tool(&namespace, "ip link set uplink up");
        tool(&namespace, &format!("ip route add default via 192.0.{link}.254"));
        tool(router, &format!("ip link set m{number} master link{link} up"));
        let state = tempfile::tempdir().unwrap();
        let config = crate::Config {
            cluster_ranges: vec!["10.77.0.0/16".parse().unwrap()],
            service_ranges: vec!["10.96.0.0/16".parse().unwrap()],
            node_namespace: Some(namespace.path()),
            overhead: backend.overhead(),
            ..crate::Config::new(state.path())
        };
        let routes = Config::new(format!("node-{number}"), backend, &config);
        let network = Arc::new(Builtin::open(config).unwrap());
        network.set_pod_cidr(&format!("10.77.{number}.0/24")).await.unwrap();
        let keeper = Keeper { config: routes, network, last: None, guarded: None, complaints: Vec::new() };
        Machine { number, address, namespace, keeper, _state: state }
    }

    fn peer(&self) -> Peer {
        Peer {
            name: format!("node-{}", self.number),
            addresses: vec![self.address.parse().unwrap()],
            all_addresses: vec![self.address.parse().unwrap()],
            ranges: vec![format!("10.77.{}.0/24", self.number).parse().unwrap()],
        }
    }

    async fn keep(&mut self, peers: &[Peer]) {
        let own = self.peer();
        let others: Vec<Peer> = peers.iter().filter(|peer| peer.name != own.name).cloned().collect();
        self.keeper.keep(&own.ranges, &others).await.unwrap();
    }

    async fn pod(&self) -> Namespace {
        let namespace = Namespace::create().unwrap();
        let sandbox = SandboxNetwork {
            sandbox: format!("pod-{}", self.number),
            namespace: "default".to_owned(),
            name: "pod".to_owned(),
            uid: "uid".to_owned(),
            netns: namespace.path(),
            port_mappings: Vec::new(),
            annotations: Default::default(),
        };
        self.keeper.network.attach(&sandbox).await.unwrap();
        serve(&namespace);
        namespace
    }
}

/// Says to each caller where the call seemed to come from.
fn serve(namespace: &Namespace) {
    let listener = namespace.run(|| TcpListener::bind("0.0.0.0:80").unwrap()).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let caller = stream.peer_addr().unwrap().ip();
            let _ = write!(stream, "{caller}");
        }
    });
}

fn call(namespace: &Namespace, address: &str) -> std::io::Result<String> {
    let address: SocketAddr = format!("{address}:80").parse().unwrap();
    namespace.run(|| {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })?
}

async fn three(backend: Backend) -> (Namespace, [Machine; 3]) {
    let router = Namespace::create().unwrap();
    tool(&router, "ip link set lo up");
    router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap()).unwrap();
    for link in [2, 3] {
        tool(&router, &format!("ip link add link{link} type bridge"));
        tool(&router, &format!("ip address add 192.0.{link}.254/24 dev link{link}"));
        tool(&router, &format!("ip link set link{link} up"));
    }
    let machines = [
        Machine::start(&router, 2, 1, backend).await,
        Machine::start(&router, 2, 2, backend).await,
        Machine::start(&router, 3, 3, backend).await,
    ];
    (router, machines)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_three_nodes_see_each_others_own_addresses() {
    for backend in [Backend::Auto, Backend::Vxlan] {
        let (router, mut machines) = three(backend).await;
        let peers: Vec<Peer> = machines.iter().map(Machine::peer).collect();
        for machine in &mut machines {
            machine.keep(&peers).await;
        }
        let pods = [machines[0].pod().await, machines[1].pod().await, machines[2].pod().await];
        for (from, pod) in pods.iter().enumerate() {
            for to in 0..3 {
                let (source, target) = (format!("10.77.{}.2", from + 1), format!("10.77.{}.2", to + 1));
                assert_eq!(call(pod, &target).unwrap(), source, "{backend:?} {from} {to}");
            }
        }
        // From a node it is one that the pod can answer to.
        let seen = call(&machines[0].namespace, "10.77.3.2").unwrap();
        assert_eq!(seen, "10.77.1.1", "{backend:?}");
        let near = tool(&machines[0].namespace, "ip route get 10.77.2.2");
        assert_eq!(near.contains("via 192.0.2.2"), backend == Backend::Auto, "{near}");
        let far = tool(&machines[0].namespace, "ip route get 10.77.3.2");
        assert!(far.contains("dev knarr-vxlan"), "{far}");
        // Every packet fits, with what the tunnel adds.
        assert!(tool(&pods[0], "ip link show eth0").contains("mtu 1450"));
        assert!(tool(&machines[0].namespace, "ip link show knarr-vxlan").contains("mtu 1450"));
        // What belongs to no node goes nowhere, and not to the uplink.
        let refused = call(&pods[0], "10.77.9.9").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::HostUnreachable, "{refused}");
        // The router, who is outside, sees nodes only.
        serve(&router);
        assert_eq!(call(&pods[0], "192.0.2.254").unwrap(), "192.0.2.1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_gateways_only_where_told() {
    let (_router, mut machines) = three(Backend::HostGateway).await;
    let peers: Vec<Peer> = machines.iter().map(Machine::peer).collect();
    for machine in &mut machines {
        machine.keep(&peers).await;
    }
    let (a, _b) = (machines[0].pod().await, machines[1].pod().await);
    assert_eq!(call(&a, "10.77.2.2").unwrap(), "10.77.1.2");
    assert!(tool(&a, "ip link show eth0").contains("mtu 1500"));
    assert!(call(&a, "10.77.3.2").is_err());
    assert!(!tool(&machines[0].namespace, "ip link").contains("knarr-vxlan"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_or_is_taken_away_is_put_right() {
    let (_router, mut machines) = three(Backend::Auto).await;
    let peers: Vec<Peer> = machines.iter().map(Machine::peer).collect();
    for machine in &mut machines {
        machine.keep(&peers).await;
    }
    let [mut first, mut second, third] = machines;
    let pods = [first.pod().await, second.pod().await, third.pod().await];
    let there = |namespace: &Namespace| {
        ["ip route", "ip neigh show dev knarr-vxlan", "bridge fdb show dev knarr-vxlan", "ip -o -4 address"]
            .map(|line| tool(namespace, line))
    };
    let before = there(&first.namespace);
    for taken in [
        "ip route del 10.77.2.0/24",
        "ip route del unreachable 10.77.0.0/16",
        "ip link set knarr-vxlan down",
        "ip neigh del 10.77.3.0 dev knarr-vxlan",
        "ip link del knarr-vxlan",
        "ip address del 10.77.1.1/24 dev knarr0",
        "ip link set knarr0 down",
        "ip link del knarr0",
        "nft flush ruleset",
        "nft flush table inet knarr-cni",
        "nft flush table bridge knarr-cni",
    ] {
        tool(&first.namespace, taken);
        first.keep(&peers).await;
        let lines = |texts: &[String; 4]| {
            let all = texts.iter().flat_map(|text| text.lines());
            // The numbers of devices change when they are made anew.
            let stable = all.map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest).trim().to_owned());
            stable.collect::<std::collections::BTreeSet<String>>()
        };
        assert_eq!(lines(&there(&first.namespace)), lines(&before), "{taken}");
        assert_eq!(call(&pods[0], "10.77.3.2").unwrap(), "10.77.1.2", "{taken}");
        assert_eq!(call(&pods[1], "10.77.1.2").unwrap(), "10.77.2.2", "{taken}");
    }
    // A pod's own device, too.
    let device = links::device_name("pod-1");
    tool(&first.namespace, &format!("ip link del {device}"));
    assert!(call(&pods[0], "10.77.3.2").is_err());
    first.keep(&peers).await;
    assert_eq!(call(&pods[0], "10.77.3.2").unwrap(), "10.77.1.2");

    // The second node comes back with another address, the third is removed.
    tool(&second.namespace, "ip address flush dev uplink");
    tool(&second.namespace, "ip address add 192.0.2.22/24 dev uplink");
    let moved = Peer {
        addresses: vec!["192.0.2.22".parse().unwrap()],
        all_addresses: vec!["192.0.2.22".parse().unwrap()],
        ..second.peer()
    };
    let first_peer = first.peer();
    first.keep(std::slice::from_ref(&moved)).await;
    second.keep(&[first_peer]).await;
    assert_eq!(call(&pods[0], "10.77.2.2").unwrap(), "10.77.1.2");
    let routes = tool(&first.namespace, "ip route");
    assert!(!routes.contains("10.77.3.0"), "{routes}");
    assert!(!tool(&first.namespace, "bridge fdb show dev knarr-vxlan").contains("192.0.3.3"));
    // Nothing is left for the next look.
    let kernel = kernel::read(&first.keeper.config, &links::inside(&first.namespace.path()).unwrap()).await.unwrap();
    assert!(plan::changes(&kernel.is, first.keeper.last.as_ref().unwrap()).is_empty());
}

/// A datagram in a tunnel's wrapping, from a plain socket, for the pod of the third node.
fn wrapped(source: [u8; 4], text: &[u8]) -> Vec<u8> {
    let range = "10.77.3.0/24".parse().unwrap();
    let inner =
        crate::builtin::hostile_tests::datagram(plan::tunnel_address(&range), [2; 6], source, [10, 77, 3, 2], text);
    [&[8, 0, 0, 0, 0, 0, 1, 0], &inner[..]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tunnel_takes_from_nodes_what_is_their_own() {
    let (router, mut machines) = three(Backend::Auto).await;
    let peers: Vec<Peer> = machines.iter().map(Machine::peer).collect();
    for machine in &mut machines {
        machine.keep(&peers).await;
    }
    let (first, _third) = (machines[0].pod().await, machines[2].pod().await);
    let inbox = _third.run(|| std::net::UdpSocket::bind("0.0.0.0:53").unwrap()).unwrap();
    inbox.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let say = |from: &Namespace, source: [u8; 4]| {
        let packet = wrapped(source, b"x");
        from.run(|| std::net::UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&packet, "192.0.3.3:8472").unwrap())
            .unwrap();
        inbox.recv(&mut [0; 64]).is_ok()
    };
    let node = &machines[0].namespace;
    assert!(say(node, [10, 77, 1, 2]), "the node, for its own pod");
    assert!(say(node, [192, 0, 2, 1]), "the node, for itself");
    assert!(!say(node, [10, 77, 2, 2]), "the node, for another's pod");
    assert!(!say(node, [192, 0, 2, 2]), "the node, for another node");
    assert!(!say(&router, [10, 77, 1, 2]), "somebody outside");
    // A pod's packet would leave with its node's address.
    assert!(!say(&first, [10, 77, 1, 2]), "a pod of another node");
    assert!(!say(&_third, [10, 77, 1, 2]), "a pod of the node");
    tool(&machines[2].namespace, "nft delete table inet knarr-tunnel");
    assert!(say(&router, [10, 77, 1, 2]), "without the rules it works");
    let [.., third] = &mut machines;
    third.keep(&peers).await;
    assert!(!say(&router, [10, 77, 1, 2]), "they are put back");
}
