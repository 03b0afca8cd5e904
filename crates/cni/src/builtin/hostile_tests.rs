//! A pod that writes its own frames: in another's name, about another's address, around the node's rules.

use std::net::UdpSocket;
use std::time::Duration;

use component_base::tasks;
use linux::netns::Namespace;

use super::tests::{Machine, Pod, call, serve, tool};

const RANGE: &str = "10.77.0.0/24";
const GATEWAY: [u8; 4] = [10, 77, 0, 1];

/// Puts a frame on the pod's device as it is.
fn send(pod: &Pod, frame: &[u8]) {
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let script = "import socket,sys;s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);s.bind(('eth0',0));s.send(bytes.fromhex(sys.argv[1]))";
    let sent = pod.namespace.run(|| std::process::Command::new("python3").args(["-c", script, &hex]).output().unwrap());
    let sent = sent.unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: u16) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes()].concat()
}

pub(crate) fn datagram(to: [u8; 6], from: [u8; 6], source: [u8; 4], target: [u8; 4], text: &[u8]) -> Vec<u8> {
    let length = 28 + text.len() as u16;
    let mut header = vec![0x45, 0];
    header.extend(length.to_be_bytes());
    header.extend([0, 1, 0, 0, 64, 17, 0, 0]);
    header.extend(source);
    header.extend(target);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ethernet(to, from, 0x0800);
    frame.extend(header);
    frame
        .extend([4000_u16.to_be_bytes(), 53_u16.to_be_bytes(), (8 + text.len() as u16).to_be_bytes(), [0, 0]].concat());
    frame.extend(text);
    frame
}

/// "The address is mine."
fn arp(to: [u8; 6], from: [u8; 6], hardware: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let mut frame = ethernet(to, from, 0x0806);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 2]);
    frame.extend(hardware);
    frame.extend(address);
    frame.extend(to);
    frame.extend(GATEWAY);
    frame
}

fn hardware(namespace: &Namespace, device: &str) -> [u8; 6] {
    let text = tool(namespace, &format!("ip -o link show {device}"));
    let text = text.split("link/ether ").nth(1).unwrap().split_whitespace().next().unwrap();
    let bytes: Vec<u8> = text.split(':').map(|part| u8::from_str_radix(part, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

struct Scene {
    machine: Machine,
    victim: Pod,
    evil: Pod,
    inbox: UdpSocket,
    _other: Pod,
}

impl Scene {
    async fn start(bridge_netfilter: bool) -> Scene {
        let machine = Machine::start_with(RANGE, bridge_netfilter).await;
        let victim = machine.pod("victim", Vec::new()).await;
        let other = machine.pod("other", Vec::new()).await;
        let evil = machine.pod("evil", Vec::new()).await;
        let inbox = other.namespace.run(|| UdpSocket::bind("0.0.0.0:53").unwrap()).unwrap();
        inbox.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        serve(&victim.namespace, "0.0.0.0:80");
        // The node knows all of them.
        for pod in [&victim, &other, &evil] {
            let _ = call(&machine.node, format!("{}:80", pod.addresses[0]));
        }
        Scene { machine, victim, evil, inbox, _other: other }
    }

    fn received(&self) -> Option<(String, String)> {
        let mut buffer = [0; 64];
        let (length, from) = self.inbox.recv_from(&mut buffer).ok()?;
        Some((String::from_utf8_lossy(&buffer[..length]).into_owned(), from.ip().to_string()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sends_in_anothers_name() {
    for bridge_netfilter in [true, false] {
        let scene = Scene::start(bridge_netfilter).await;
        let node = hardware(&scene.machine.node, "knarr0");
        let (own, victim) = (hardware(&scene.evil.namespace, "eth0"), hardware(&scene.victim.namespace, "eth0"));
        let other = hardware(&scene._other.namespace, "eth0");
        let target = [10, 77, 0, 3];
        // The same frame in its own name arrives: the test can fail.
        send(&scene.evil, &datagram(node, own, [10, 77, 0, 4], target, b"honest"));
        assert_eq!(scene.received(), Some(("honest".into(), "10.77.0.4".into())));
        for (what, frame) in [
            ("a pod's address", datagram(node, own, [10, 77, 0, 2], target, b"a")),
            ("an address outside", datagram(node, own, [192, 0, 2, 2], target, b"b")),
            ("the node's address", datagram(node, own, GATEWAY, target, b"c")),
            ("another's hardware address", datagram(node, victim, [10, 77, 0, 4], target, b"d")),
            ("another's both", datagram(node, victim, [10, 77, 0, 2], target, b"e")),
            ("straight to the other", datagram(other, own, [10, 77, 0, 2], target, b"f")),
        ] {
            send(&scene.evil, &frame);
            assert_eq!(scene.received(), None, "{what}");
        }
        // Around the node's rules: only where those rules see it.
        send(&scene.evil, &datagram(other, own, [10, 77, 0, 4], target, b"straight"));
        assert_eq!(scene.received().is_some(), bridge_netfilter);
        tool(&scene.machine.node, "nft add table inet no");
        tool(&scene.machine.node, "nft add chain inet no no { type filter hook forward priority 0; policy drop; }");
        send(&scene.evil, &datagram(other, own, [10, 77, 0, 4], target, b"straight"));
        assert_eq!(scene.received(), None, "the node's rules count for what is switched");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_draws_anothers_packets_to_itself() {
    let scene = Scene::start(true).await;
    let node = hardware(&scene.machine.node, "knarr0");
    let (own, victim) = (hardware(&scene.evil.namespace, "eth0"), hardware(&scene.victim.namespace, "eth0"));
    let neighbours = || tool(&scene.machine.node, "ip -4 neigh show 10.77.0.2 dev knarr0");
    let shown: Vec<String> = victim.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(neighbours().contains(&shown.join(":")), "{}", neighbours());
    serve(&scene.evil.namespace, "0.0.0.0:80");
    for frame in [
        arp(node, own, own, [10, 77, 0, 2]),
        arp([0xff; 6], own, own, [10, 77, 0, 2]),
        arp([0xff; 6], victim, own, [10, 77, 0, 2]),
        arp(node, own, own, GATEWAY),
        arp(node, own, victim, [10, 77, 0, 4]),
        // With a hardware address the bridge would look for at another port.
        arp([0xff; 6], victim, victim, [10, 77, 0, 2]),
    ] {
        send(&scene.evil, &frame);
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(neighbours().contains(&shown.join(":")), "{}", neighbours());
    let port = super::links::device_name(&scene.victim.sandbox.sandbox);
    let table = tool(&scene.machine.node, "bridge fdb show br knarr0");
    let line = table.lines().find(|line| line.starts_with(&shown.join(":"))).unwrap();
    assert!(line.contains(&port), "{line}");
    assert_eq!(call(&scene.machine.node, "10.77.0.2:80").unwrap(), "10.77.0.1");

    // Without the rules it works: they are what protects.
    tool(&scene.machine.node, "nft flush ruleset");
    // The kernel keeps what it has just learned for a second, whoever says otherwise.
    let drawn = (0..50).any(|_| {
        send(&scene.evil, &arp(node, own, own, [10, 77, 0, 2]));
        std::thread::sleep(Duration::from_millis(100));
        !neighbours().contains(&shown.join(":"))
    });
    assert!(drawn, "{}", neighbours());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reaches_what_the_node_says_to_itself() {
    let scene = Scene::start(true).await;
    let inbox = scene.machine.node.run(|| UdpSocket::bind("127.0.0.1:53").unwrap()).unwrap();
    inbox.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let (node, own) = (hardware(&scene.machine.node, "knarr0"), hardware(&scene.evil.namespace, "eth0"));
    send(&scene.evil, &datagram(node, own, [10, 77, 0, 4], [127, 0, 0, 1], b"in"));
    assert!(inbox.recv(&mut [0; 64]).is_err(), "CVE-2020-8558");
    // Without the rules it works: they are what protects.
    tool(&scene.machine.node, "nft flush ruleset");
    send(&scene.evil, &datagram(node, own, [10, 77, 0, 4], [127, 0, 0, 1], b"in"));
    assert!(inbox.recv(&mut [0; 64]).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_outside_is_a_pod() {
    let scene = Scene::start(true).await;
    let inbox = scene.machine.node.run(|| UdpSocket::bind("192.0.2.1:53").unwrap()).unwrap();
    inbox.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    tool(&scene.machine.node, "sysctl -q net.ipv4.conf.all.rp_filter=0");
    tool(&scene.machine.node, "sysctl -q net.ipv4.conf.uplink.rp_filter=0");
    tool(&scene.machine.outside, "ip address add 10.77.0.4/32 dev lo");
    let say = |source: &str| {
        let send = || UdpSocket::bind((source, 0)).unwrap().send_to(b"in", "192.0.2.1:53").unwrap();
        scene.machine.outside.run(send).unwrap();
        inbox.recv(&mut [0; 64]).is_ok()
    };
    assert!(say("192.0.2.2") && !say("10.77.0.4"));
}

/// Datagrams over the addresses of the link, by which no policy knows pods, and to everybody on it.
#[tokio::test(flavor = "multi_thread")]
async fn the_link_carries_nothing_around_the_rules() {
    for bridge_netfilter in [true, false] {
        let scene = Scene::start(bridge_netfilter).await;
        let link_local = |namespace: &Namespace, device: &str| {
            let text = tool(namespace, &format!("ip -6 -o address show dev {device} scope link"));
            text.split("inet6 ").nth(1).unwrap().split('/').next().unwrap().to_owned()
        };
        let (victim, node) = (&scene.victim.namespace, &scene.machine.node);
        let listen = |namespace: &Namespace| {
            let socket = namespace.run(|| UdpSocket::bind("[::]:54").unwrap()).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            socket
        };
        let (pod, own) = (listen(victim), listen(node));
        // Addresses of the link are there once nobody else has them.
        let ready = || link_local(&scene.evil.namespace, "eth0").len() + link_local(victim, "eth0").len() > 0;
        let is_tentative = |namespace: &Namespace| tool(namespace, "ip -6 address").contains("tentative");
        while !ready() || is_tentative(victim) || is_tentative(&scene.evil.namespace) || is_tentative(node) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let say = |to: &str| {
            let script = format!(
                "import socket;s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM);s.sendto(b'x',socket.getaddrinfo('{to}%eth0',54)[0][4])"
            );
            let said =
                scene.evil.namespace.run(|| std::process::Command::new("python3").args(["-c", &script]).output());
            assert!(said.unwrap().unwrap().status.success(), "{to}");
        };
        say(&link_local(victim, "eth0"));
        say("ff02::1");
        assert!(pod.recv(&mut [0; 8]).is_err(), "{bridge_netfilter}");
        say(&link_local(node, "knarr0"));
        assert!(own.recv(&mut [0; 8]).is_err(), "{bridge_netfilter}");
        // In IPv4: to everybody on the link.
        let mac = hardware(&scene.evil.namespace, "eth0");
        for target in [[255, 255, 255, 255], [224, 0, 0, 1]] {
            send(&scene.evil, &datagram([0xff; 6], mac, [10, 77, 0, 4], target, b"all"));
            assert_eq!(scene.received(), None, "{bridge_netfilter}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_the_machine_lead_into_no_pod() {
    use cri::{Network, SandboxNetwork};
    let machine = Machine::start(RANGE).await;
    serve(&machine.node, "0.0.0.0:10250");
    serve(&machine.node, "127.0.0.1:8080");
    let mapping = |host_port: i32| cri::v1::PortMapping { host_port, container_port: 80, ..Default::default() };
    let namespace = Namespace::create().unwrap();
    let wants = SandboxNetwork {
        sandbox: "thief".into(),
        namespace: "default".into(),
        name: "thief".into(),
        uid: "uid".into(),
        netns: namespace.path(),
        port_mappings: vec![mapping(10250)],
        annotations: Default::default(),
    };
    let refused = machine.network.attach(&wants).await.unwrap_err().message;
    assert_eq!(refused, "host port 10250/TCP of pod default/thief is in use by the node itself");
    // What is at the node's own loopback stays there; elsewhere the port is free.
    let pod = machine.pod("a", vec![mapping(8080), mapping(9090)]).await;
    serve(&pod.namespace, "0.0.0.0:80");
    assert_eq!(call(&machine.outside, "192.0.2.1:8080").unwrap(), "192.0.2.2");
    assert_eq!(call(&machine.node, "127.0.0.1:8080").unwrap(), "127.0.0.1", "its own");
    assert_eq!(call(&machine.node, "127.0.0.1:9090").unwrap(), "10.77.0.1", "the pod's");
    // Who comes later has it, too.
    let network = std::sync::Arc::new(machine.network);
    tasks::spawn(network.watch_ports(reconcile::Shutdown::new()));
    serve(&machine.node, "0.0.0.0:9090");
    let began = std::time::Instant::now();
    while call(&machine.outside, "192.0.2.1:9090").unwrap_or_default() != "192.0.2.2"
        || call(&machine.node, "127.0.0.1:9090").unwrap_or_default() != "127.0.0.1"
    {
        assert!(began.elapsed() < Duration::from_secs(60), "the pod still has the port");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
