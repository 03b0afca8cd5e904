//! The same rules in the kernel: real packets between pods that are namespaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Instant;

use cri::{Network, SandboxNetwork};
use linux::netns::Namespace as NetworkNamespace;
use serde_json::{Value, json};

use super::tests::{namespace, pod, policy};
use super::*;
use crate::Builtin;

/// A packet that shall not arrive is waited for so long.
const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(5);

fn tool(namespace: &NetworkNamespace, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = namespace.run(|| Command::new(words[0]).args(&words[1..]).output().unwrap()).unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A node with policies, and a machine outside.
struct Scene {
    node: NetworkNamespace,
    outside: NetworkNamespace,
    network: Builtin,
    policies: Arc<Policies>,
    state: tempfile::TempDir,
    shutdown: Shutdown,
}

struct Guest {
    namespace: NetworkNamespace,
    sandbox: SandboxNetwork,
    address: IpAddr,
}

impl Scene {
    async fn start(bridge_netfilter: bool) -> Scene {
        let (node, outside) = (NetworkNamespace::create().unwrap(), NetworkNamespace::create().unwrap());
        tool(&node, "ip link set lo up");
        tool(&node, &format!("ip link add uplink type veth peer name uplink netns {}", outside.path().display()));
        for (place, address) in [(&node, "192.0.2.1/24"), (&outside, "192.0.2.2/24")] {
            tool(place, &format!("ip address add {address} dev uplink"));
            tool(place, "ip link set uplink up");
        }
        tool(&outside, "ip route add 10.77.0.0/16 via 192.0.2.1");
        let state = tempfile::tempdir().unwrap();
        let (network, policies, shutdown) = Scene::knarr(&node, &state, bridge_netfilter);
        network.set_pod_cidr("10.77.0.0/24").await.unwrap();
        serve(&node, "0.0.0.0:80");
        serve(&node, "0.0.0.0:253");
        serve(&outside, "0.0.0.0:80");
        Scene { node, outside, network, policies, state, shutdown }
    }

    fn knarr(
        node: &NetworkNamespace,
        state: &tempfile::TempDir,
        bridge_netfilter: bool,
    ) -> (Builtin, Arc<Policies>, Shutdown) {
        let config = crate::Config {
            cluster_ranges: vec!["10.77.0.0/16".parse().unwrap()],
            node_namespace: Some(node.path()),
            bridge_netfilter,
            ..crate::Config::new(state.path())
        };
        let config_of_policies = Config { node_ports: vec![(6, 253)], ..Config::new(Some(node.path())) };
        let policies = Policies::new(config_of_policies);
        let network = Builtin::open(config).unwrap().with_policies(policies.clone());
        policies.change(|facts| facts.put_namespace(&namespace("shop", json!({"team": "shop"}))));
        let shutdown = Shutdown::new();
        let (kept, stop) = (policies.clone(), shutdown.clone());
        tokio::spawn(async move { kept.keep(None, stop).await });
        (network, policies, shutdown)
    }

    /// The server knows of it before its node does.
    async fn pod(&self, name: &str) -> Guest {
        self.know(name);
        self.connect(name).await
    }

    fn know(&self, name: &str) {
        let mut object = pod("shop", name, json!({"app": name}), "10.77.0.250");
        object.status = None;
        self.policies.change(|facts| facts.put_pod(&object));
    }

    async fn connect(&self, name: &str) -> Guest {
        let namespace = NetworkNamespace::create().unwrap();
        let sandbox = SandboxNetwork {
            sandbox: format!("sandbox-{name}"),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            netns: namespace.path(),
            port_mappings: Vec::new(),
            annotations: Default::default(),
        };
        let address = self.network.attach(&sandbox).await.unwrap().ips[0];
        serve(&namespace, "0.0.0.0:80");
        serve(&namespace, "0.0.0.0:8080");
        Guest { namespace, sandbox, address }
    }

    async fn apply(&self, name: &str, spec: Value) {
        let object = policy("shop", name, spec);
        self.policies.change(|facts| facts.put_policy(&object));
        self.settled().await;
    }

    async fn withdraw(&self, name: &str) {
        let object = policy("shop", name, json!({}));
        self.policies.change(|facts| facts.remove_policy(&object));
        self.settled().await;
    }

    async fn settled(&self) {
        let wanted = *self.policies.changed.borrow();
        let mut written = self.policies.written.subscribe();
        let began = Instant::now();
        tokio::time::timeout(LONG, written.wait_for(|newest| *newest >= wanted)).await.unwrap().unwrap();
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

fn serve(namespace: &NetworkNamespace, address: &str) {
    let listener = namespace.run(|| TcpListener::bind(address).unwrap()).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let caller = stream.peer_addr().unwrap().ip();
                let _ = writeln!(stream, "{caller}");
                // An echo, for as long as the caller likes.
                let mut buffer = [0; 64];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let _ = stream.write_all(&buffer[..count]);
                }
            });
        }
    });
}

fn connect(from: &NetworkNamespace, to: IpAddr, port: u16) -> Option<TcpStream> {
    let address = SocketAddr::new(to, port);
    from.run(|| TcpStream::connect_timeout(&address, SHORT)).unwrap().ok()
}

/// Whether what is said comes back.
fn echoes(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SHORT)).unwrap();
    let (mut answer, mut text) = ([0; 64], String::new());
    let said = stream.write_all(b"there?");
    while said.is_ok() && !text.contains("there?") {
        match stream.read(&mut answer) {
            Ok(count @ 1..) => text.push_str(&String::from_utf8_lossy(&answer[..count])),
            _ => return false,
        }
    }
    said.is_ok()
}

fn reaches(from: &NetworkNamespace, to: IpAddr, port: u16) -> bool {
    connect(from, to, port).is_some()
}

/// A connection that must not be is shown with all that can have let it pass.
fn refuses(scene: &Scene, from: &NetworkNamespace, to: IpAddr, port: u16, what: &str) {
    let Some(connection) = connect(from, to, port) else { return };
    let ends = (connection.local_addr(), connection.peer_addr());
    let facts = format!("{:?}", scene.policies.facts.lock());
    panic!("{what}: {ends:?} are connected by\n{}\nmade from {facts}", tool(&scene.node, "nft list ruleset"));
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_hold_on_one_node_and_towards_the_outside() {
    // Kept to the end: a namespace is known by the number of its file, and what still runs in one must not find another.
    let mut scenes = Vec::new();
    for bridge_netfilter in [true, false] {
        let scene = Scene::start(bridge_netfilter).await;
        let (web, api) = (scene.pod("web").await, scene.pod("api").await);
        let world: IpAddr = "192.0.2.2".parse().unwrap();
        let gateway: IpAddr = "10.77.0.1".parse().unwrap();
        assert!(reaches(&web.namespace, api.address, 80) && reaches(&scene.outside, api.address, 80));

        scene.apply("deny", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})).await;
        refuses(&scene, &web.namespace, api.address, 80, "pod to pod");
        refuses(&scene, &scene.outside, api.address, 80, "from outside");
        refuses(&scene, &web.namespace, world, 80, "to the outside");
        assert!(reaches(&web.namespace, web.address, 80), "to itself");
        assert!(reaches(&scene.node, api.address, 80), "from its own node, as probes do");
        refuses(&scene, &web.namespace, gateway, 80, "to its own node");
        assert!(reaches(&web.namespace, gateway, 253), "to what it may always ask");

        let to_api = json!({"to": [{"podSelector": {"matchLabels": {"app": "api"}}}], "ports": [{"port": "web"}]});
        scene
            .apply(
                "out",
                json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": [to_api]}),
            )
            .await;
        refuses(&scene, &web.namespace, api.address, 8080, "one end is not enough");
        let from_web = json!({"from": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": 8000, "endPort": 8100}]});
        scene.apply("in", json!({"podSelector": {"matchLabels": {"app": "api"}}, "ingress": [from_web]})).await;
        assert!(reaches(&web.namespace, api.address, 8080));
        assert!(!reaches(&web.namespace, api.address, 80) && !reaches(&api.namespace, web.address, 80));

        let block = json!({"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "192.0.2.128/25"]});
        scene
            .apply(
                "world",
                json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"ipBlock": block}]}], "egress": [{"to": [{"ipBlock": block}]}]}),
            )
            .await;
        assert!(reaches(&web.namespace, world, 80) && reaches(&scene.outside, web.address, 80));
        let node: IpAddr = "192.0.2.1".parse().unwrap();
        assert!(reaches(&web.namespace, node, 80), "its own node is in the block");
        refuses(&scene, &web.namespace, gateway, 80, "the node's other address is not");
        assert!(!reaches(&web.namespace, api.address, 80));
        tool(&scene.outside, "ip address add 192.0.2.200/24 dev uplink");
        tool(&scene.outside, "ip route replace 10.77.0.0/16 via 192.0.2.1 src 192.0.2.200");
        refuses(&scene, &scene.outside, web.address, 80, "excepted");

        for name in ["deny", "out", "in", "world"] {
            scene.withdraw(name).await;
        }
        assert!(reaches(&scene.outside, web.address, 80) && reaches(&web.namespace, api.address, 80));
        // Nothing is left of them.
        let rules = tool(&scene.node, "nft list table inet knarr-policy");
        assert!(!rules.contains("policy-") && !rules.contains("10.77"), "{rules}");
        scenes.push(scene);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_go_on_while_they_are_allowed_and_datagrams_are_filtered() {
    let scene = Scene::start(true).await;
    let (web, api) = (scene.pod("web").await, scene.pod("api").await);
    let mut open = connect(&web.namespace, api.address, 80).unwrap();
    let mut probe = connect(&scene.node, api.address, 80).unwrap();
    let mut back = connect(&api.namespace, web.address, 80).unwrap();
    let mut kept = connect(&web.namespace, api.address, 8080).unwrap();
    assert!([&mut open, &mut probe, &mut back, &mut kept].into_iter().all(echoes));
    let inbox = api.namespace.run(|| UdpSocket::bind("0.0.0.0:53").unwrap()).unwrap();
    inbox.set_read_timeout(Some(SHORT)).unwrap();
    let send = |from: &NetworkNamespace, port: u16| {
        let target = SocketAddr::new(api.address, port);
        from.run(|| UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"hello", target).unwrap()).unwrap();
        inbox.recv(&mut [0; 16]).is_ok()
    };
    assert!(send(&web.namespace, 53));
    // Talking all the time from its end keeps a connection no more than the other end does.
    let web_80 = json!({"from": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": 8080}]});
    scene.apply("some", json!({"podSelector": {"matchLabels": {"app": "api"}}, "ingress": [web_80]})).await;
    assert!(!send(&web.namespace, 53));
    assert!(!reaches(&web.namespace, api.address, 80));
    let until = Instant::now() + LONG;
    while echoes(&mut open) {
        assert!(Instant::now() < until, "a connection that is forbidden goes on");
    }
    assert!(echoes(&mut probe) && echoes(&mut back) && echoes(&mut kept), "others go on");
    assert!(!echoes(&mut open), "neither end brings it back");
    scene.withdraw("some").await;
    scene.apply("deny", json!({"podSelector": {"matchLabels": {"app": "api"}}})).await;
    while echoes(&mut kept) {
        assert!(Instant::now() < until + LONG, "a connection that is forbidden goes on");
    }
    assert!(echoes(&mut probe) && echoes(&mut back));
    let dns = json!({"ports": [{"protocol": "UDP", "port": "dns"}]});
    scene.apply("dns", json!({"podSelector": {"matchLabels": {"app": "api"}}, "ingress": [dns]})).await;
    assert!(send(&web.namespace, 53) && !reaches(&web.namespace, api.address, 80));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pods_first_packet_is_judged() {
    let scene = Scene::start(true).await;
    let web = scene.pod("web").await;
    scene.apply("deny", json!({"podSelector": {}})).await;
    let from_late = json!({"from": [{"podSelector": {"matchLabels": {"app": "late"}}}]});
    scene.apply("late", json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [from_late]})).await;
    // When its network is handed over, all that concerns it is in the kernel: what is denied to it and what is allowed.
    let late = scene.pod("late").await;
    assert!(!reaches(&web.namespace, late.address, 80) && reaches(&late.namespace, web.address, 80));

    // One that the server has not told us of waits, and when it comes by name it goes on.
    let (policies, began) = (scene.policies.clone(), Instant::now());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        policies.change(|facts| facts.put_pod(&pod("shop", "slow", json!({"app": "late"}), "10.77.0.250")));
    });
    let slow = scene.connect("slow").await;
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(reaches(&slow.namespace, web.address, 80) && !reaches(&web.namespace, slow.address, 80));

    // What goes leaves nothing behind, and its address means nobody.
    scene.network.detach(&late.sandbox).await.unwrap();
    scene.settled().await;
    let rules = tool(&scene.node, "nft list table inet knarr-policy");
    assert!(!rules.contains(&format!("{} :", late.address)), "{rules}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_survive_a_restart_and_come_back_when_flushed() {
    let scene = Scene::start(true).await;
    let (web, api) = (scene.pod("web").await, scene.pod("api").await);
    scene.apply("deny", json!({"podSelector": {"matchLabels": {"app": "api"}}})).await;
    scene.shutdown.cancel();
    assert!(!reaches(&web.namespace, api.address, 80), "also while nobody keeps them");

    let (network, policies, shutdown) = Scene::knarr(&scene.node, &scene.state, true);
    let again = Scene { network, policies, shutdown, ..scene };
    again.know("web");
    again.know("api");
    again.apply("deny", json!({"podSelector": {"matchLabels": {"app": "api"}}})).await;
    assert!(!reaches(&web.namespace, api.address, 80) && reaches(&api.namespace, web.address, 80));

    for taken in [
        "nft flush ruleset",
        "nft flush table inet knarr-policy",
        "nft delete table inet knarr-policy",
        "nft flush chain inet knarr-policy ingress",
        "nft delete element inet knarr-policy pods-ingress4 { 10.77.0.3 }",
    ] {
        tool(&again.node, taken);
        let until = Instant::now() + LONG;
        while reaches(&web.namespace, api.address, 80) {
            assert!(Instant::now() < until, "{taken}");
        }
        let should = compile::compile(&again.policies.facts.lock());
        assert!(again.policies.writer.has(&should).await.unwrap(), "{taken}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_server_answers_new_pods_wait_and_old_ones_go_on() {
    let scene = Scene::start(true).await;
    let (web, api) = (scene.pod("web").await, scene.pod("api").await);
    let from_web = json!({"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]});
    scene.apply("in", json!({"podSelector": {"matchLabels": {"app": "api"}}, "ingress": [from_web]})).await;
    scene.shutdown.cancel();
    // A new process that has read nothing yet, and an address that had rules before.
    let policies = Policies::new(Config::new(Some(scene.node.path())));
    policies.writer.isolate(&[web.address]).await.unwrap();
    assert!(!reaches(&web.namespace, api.address, 80) && !reaches(&api.namespace, web.address, 80));
    assert!(!reaches(&scene.outside, api.address, 80), "the old rules are there");
    policies.writer.isolate(&[web.address]).await.unwrap();
    tool(&scene.node, "nft delete table inet knarr-policy");
    policies.writer.isolate(&[web.address]).await.unwrap();
    assert!(!reaches(&scene.outside, web.address, 80) && reaches(&scene.outside, api.address, 80));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_are_written_quickly() {
    let scene = Scene::start(true).await;
    let _web = scene.pod("web").await;
    for number in 0..1000 {
        let address = format!("10.77.{}.{}", number / 250 + 1, number % 250 + 1);
        scene
            .policies
            .change(|facts| facts.put_pod(&pod("shop", &format!("p{number}"), json!({"app": "many"}), &address)));
    }
    let many = json!({"from": [{"podSelector": {"matchLabels": {"app": "many"}}}]});
    scene.apply("many", json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [many]})).await;
    let began = Instant::now();
    scene.policies.change(|facts| facts.put_pod(&pod("shop", "more", json!({"app": "many"}), "10.77.9.9")));
    scene.settled().await;
    println!("one more pod among a thousand: {:?}", began.elapsed());
    let rules = tool(&scene.node, "nft list table inet knarr-policy");
    assert!(rules.contains("10.77.9.9") && rules.contains("10.77.4.250"));
}
