//! Packets through the rules of small clusters. A cluster is a text: Services with `key=value` words, their endpoints,
//! then packets and what becomes of them.
//!
//! The node is `n1` in zone `z1` with the address 192.0.2.1; pods are in 10.42.0.0/16, those of this node in 10.42.1.0/24.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value as Json, json};

use super::walk::{Fate, Machine, Packet};
use super::*;
use crate::model::Ledger;

const NODE: &str = "192.0.2.1";
const OUTSIDE: &str = "198.51.100.7";
const LOCAL_POD: &str = "10.42.1.9";
const OTHER_POD: &str = "10.42.2.9";

fn node() -> Node {
    Node {
        name: "n1".into(),
        zone: Some("z1".into()),
        addresses: vec![NODE.parse().unwrap()],
        pod_ranges: vec!["10.42.0.0/16".parse().unwrap(), "fd42::/48".parse().unwrap()],
        node_ports: NodePortAddresses::All,
        external_ips: true,
        families: vec![Family::V4, Family::V6],
        held: Held::default(),
    }
}

struct Cluster {
    services: Vec<(ObjectKey, Service)>,
    slices: HashMap<ObjectKey, Vec<Arc<EndpointSlice>>>,
    node: Node,
}

/// The words `key=value` of a line after its first.
fn words(line: &str) -> HashMap<&str, &str> {
    line.split_whitespace().skip(1).map(|word| word.split_once('=').unwrap_or((word, "true"))).collect()
}

/// `service name ip=10.43.0.1 port=80 target=8080 protocol=TCP type=.. node-port=.. balancer=.. external=.. internal-policy=Local
/// external-policy=Local stay=60 sources=..`, then `endpoint address node=n1 [not-ready] [serving] [terminating] [for-node=..]
/// [for-zone=..]`.
fn read(text: &str) -> Cluster {
    let mut cluster = Cluster { services: Vec::new(), slices: HashMap::new(), node: node() };
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let fields = words(line);
        let get = |name: &str| fields.get(name).copied();
        match line.split_whitespace().next().unwrap() {
            "service" => {
                let name = line.split_whitespace().nth(1).unwrap();
                let mut labels = json!({});
                if let Some(label) = get("label") {
                    labels[label] = json!("x");
                }
                let list = |name| get(name).map(|text| text.split(',').collect::<Vec<_>>()).unwrap_or_default();
                let protocol = get("protocol").unwrap_or("TCP");
                let port = json!({
                    "name": "p", "port": get("port").unwrap_or("80").parse::<i32>().unwrap(), "protocol": protocol,
                    "nodePort": get("node-port").map(|port| port.parse::<i32>().unwrap()),
                });
                let ingress = |address: &&str| json!({"ip": address, "ipMode": get("mode").unwrap_or("VIP")});
                let service = json!({
                    "metadata": {"namespace": "default", "name": name, "labels": labels},
                    "spec": {
                        "type": get("type").unwrap_or("ClusterIP"),
                        "clusterIPs": list("ip"),
                        "ports": [port],
                        "externalIPs": list("external"),
                        "internalTrafficPolicy": get("internal-policy").unwrap_or("Cluster"),
                        "externalTrafficPolicy": get("external-policy").unwrap_or("Cluster"),
                        "sessionAffinity": if get("stay").is_some() { "ClientIP" } else { "None" },
                        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": get("stay").map(|text| text.parse::<i32>().unwrap())}},
                        "loadBalancerSourceRanges": list("sources"),
                        "healthCheckNodePort": get("check").map(|text| text.parse::<i32>().unwrap()),
                    },
                    "status": {"loadBalancer": {"ingress": list("balancer").iter().map(ingress).collect::<Vec<_>>()}},
                });
                cluster.services.push((ObjectKey::new("default", name), serde_json::from_value(service).unwrap()));
            }
            "endpoint" => {
                let (key, service) = cluster.services.last().unwrap();
                let protocol = service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].protocol.clone();
                let address = line.split_whitespace().nth(1).unwrap();
                let hint = |name: &str| get(name).map(|text| json!([{"name": text}]));
                let is_ready = get("not-ready").is_none();
                let slice = json!({
                    "metadata": {"namespace": "default", "name": format!("{}-{address}", key.name)},
                    "addressType": if address.contains(':') { "IPv6" } else { "IPv4" },
                    "ports": [{"name": "p", "port": 8080, "protocol": protocol}, {"name": "other", "port": 1}],
                    "endpoints": [{
                        "addresses": [address],
                        "nodeName": get("node"),
                        "conditions": {
                            "ready": is_ready,
                            "serving": get("serving").map_or(is_ready, |_| true),
                            "terminating": get("terminating").is_some(),
                        },
                        "hints": {"forNodes": hint("for-node"), "forZones": hint("for-zone")},
                    }],
                });
                cluster
                    .slices
                    .entry(key.clone())
                    .or_default()
                    .push(Arc::new(serde_json::from_value::<EndpointSlice>(slice).unwrap()));
            }
            other => panic!("{other}?"),
        }
    }
    cluster
}

impl Cluster {
    fn outcome(&self, index: usize) -> Outcome {
        let (key, service) = &self.services[index];
        outcome(key, service, self.slices.get(key).map(Vec::as_slice).unwrap_or_default(), &self.node)
    }

    fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.replace(&ObjectKey::default(), node_elements(&self.node));
        for (index, (key, _)) in self.services.iter().enumerate() {
            ledger.replace(key, self.outcome(index).elements);
        }
        ledger
    }
}

fn packet(source: &str, destination: &str) -> Packet {
    let (protocol, rest) = match destination.split_once('/') {
        Some(("udp", rest)) => (Protocol::Udp, rest),
        Some(("sctp", rest)) => (Protocol::Sctp, rest),
        _ => (Protocol::Tcp, destination),
    };
    let to: SocketAddr = rest.parse().unwrap();
    Packet { source: source.parse().unwrap(), destination: to.ip(), protocol, port: to.port() }
}

fn machine(ledger: &Ledger) -> Machine<'_> {
    let own = [NODE, "10.42.1.1", "127.0.0.1", "203.0.113.5", "2001:db8::1"].map(|text| text.parse().unwrap());
    Machine { ledger, own: own.to_vec(), clients: HashMap::new() }
}

/// What becomes of a packet, over everything that chance may choose.
fn fates(ledger: &Ledger, source: &str, destination: &str) -> String {
    let mut all = BTreeSet::new();
    for random in 0..12 {
        all.insert(match machine(ledger).walk(packet(source, destination), random) {
            Fate::Untouched => "untouched".to_owned(),
            Fate::Rejected => "rejected".to_owned(),
            Fate::Dropped => "dropped".to_owned(),
            Fate::Reaches { endpoint, masqueraded: true } => format!("{endpoint} masqueraded"),
            Fate::Reaches { endpoint, masqueraded: false } => endpoint.to_string(),
        });
    }
    all.into_iter().collect::<Vec<_>>().join(", ")
}

/// Lines of `source -> destination: fate`.
#[track_caller]
fn check(cluster: &str, packets: &str) {
    check_on(read(cluster), packets);
}

#[track_caller]
fn check_on(cluster: Cluster, packets: &str) {
    let ledger = cluster.ledger();
    for line in packets.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (source, rest) = line.split_once(" -> ").unwrap();
        let (destination, expected) = rest.split_once(": ").unwrap();
        let source = match source {
            "pod" => LOCAL_POD,
            "other pod" => OTHER_POD,
            "node" => NODE,
            "outside" => OUTSIDE,
            address => address,
        };
        assert_eq!(fates(&ledger, source, destination), expected, "{line}");
    }
}

const TWO: &str = "endpoint 10.42.1.2 node=n1\nendpoint 10.42.2.2 node=n2";

#[test]
fn a_cluster_address() {
    check(
        &format!(
            "service a ip=10.43.0.1\n{TWO}\nservice none ip=10.43.0.2\nservice udp ip=10.43.0.3 port=53 protocol=UDP\n{TWO}\nservice sctp ip=10.43.0.4 protocol=SCTP\n{TWO}"
        ),
        "pod -> 10.43.0.1:80: 10.42.1.2:8080, 10.42.2.2:8080
         other pod -> 10.43.0.1:80: 10.42.1.2:8080, 10.42.2.2:8080
         node -> 10.43.0.1:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         outside -> 10.43.0.1:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         10.42.1.2 -> 10.43.0.1:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080
         pod -> 10.43.0.1:81: rejected
         pod -> udp/10.43.0.1:80: rejected
         pod -> 10.43.0.2:80: rejected
         node -> 10.43.0.2:80: rejected
         pod -> 10.43.0.9:80: untouched
         pod -> udp/10.43.0.3:53: 10.42.1.2:8080, 10.42.2.2:8080
         pod -> 10.43.0.3:53: rejected
         pod -> sctp/10.43.0.4:80: 10.42.1.2:8080, 10.42.2.2:8080
         pod -> 10.42.2.2:8080: untouched
         pod -> 198.51.100.7:80: untouched",
    );
}

#[test]
fn services_that_are_not_ours() {
    for service in [
        "service a ip=None",
        "service a ip=",
        "service a ip=10.43.0.1 type=ExternalName",
        "service a ip=10.43.0.1 label=service.kubernetes.io/service-proxy-name",
    ] {
        let cluster = read(&format!("{service}\n{TWO}"));
        assert_eq!(cluster.outcome(0), Outcome::default(), "{service}");
    }
    // This label counts on EndpointSlices alone.
    let labelled = read(&format!("service a ip=10.43.0.1 label=service.kubernetes.io/headless\n{TWO}"));
    assert_ne!(labelled.outcome(0), Outcome::default());
}

#[test]
fn node_ports() {
    let cluster = format!(
        "service a ip=10.43.0.1 type=NodePort node-port=30080\n{TWO}\nservice none ip=10.43.0.2 type=NodePort node-port=30081"
    );
    check(
        &cluster,
        "outside -> 192.0.2.1:30080: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         pod -> 192.0.2.1:30080: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         node -> 192.0.2.1:30080: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         outside -> 203.0.113.5:30080: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         node -> 127.0.0.1:30080: untouched
         outside -> 192.0.2.99:30080: untouched
         outside -> udp/192.0.2.1:30080: untouched
         outside -> 192.0.2.1:30081: rejected
         outside -> 192.0.2.1:30082: untouched
         pod -> 10.43.0.1:80: 10.42.1.2:8080, 10.42.2.2:8080",
    );
    let on = |addresses| Cluster { node: Node { node_ports: addresses, ..node() }, ..read(&cluster) };
    check_on(
        on(NodePortAddresses::Primary),
        "outside -> 192.0.2.1:30080: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         outside -> 203.0.113.5:30080: untouched",
    );
    check_on(
        on(NodePortAddresses::Ranges(vec!["203.0.113.0/24".parse().unwrap(), "127.0.0.0/8".parse().unwrap()])),
        "outside -> 192.0.2.1:30080: untouched
         node -> 127.0.0.1:30080: untouched
         outside -> 203.0.113.5:30080: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded",
    );
}

#[test]
fn external_traffic_policy_local() {
    check(
        &format!(
            "service a ip=10.43.0.1 type=LoadBalancer node-port=30080 balancer=203.0.113.5 external-policy=Local\n{TWO}
             service far ip=10.43.0.2 type=LoadBalancer node-port=30081 balancer=203.0.113.6 external-policy=Local
             endpoint 10.42.2.3 node=n2
             service none ip=10.43.0.3 type=LoadBalancer node-port=30082 balancer=203.0.113.7 external-policy=Local"
        ),
        "outside -> 203.0.113.5:80: 10.42.1.2:8080
         outside -> 192.0.2.1:30080: 10.42.1.2:8080
         pod -> 203.0.113.5:80: 10.42.1.2:8080, 10.42.2.2:8080
         pod -> 192.0.2.1:30080: 10.42.1.2:8080, 10.42.2.2:8080
         node -> 203.0.113.5:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         outside -> 203.0.113.6:80: dropped
         outside -> 192.0.2.1:30081: dropped
         pod -> 203.0.113.6:80: 10.42.2.3:8080
         pod -> 10.43.0.2:80: 10.42.2.3:8080
         outside -> 203.0.113.7:80: rejected
         outside -> 192.0.2.1:30082: rejected
         pod -> 203.0.113.7:80: rejected",
    );
}

#[test]
fn internal_traffic_policy_local() {
    check(
        &format!(
            "service a ip=10.43.0.1 internal-policy=Local type=NodePort node-port=30080\n{TWO}
             service far ip=10.43.0.2 internal-policy=Local type=NodePort node-port=30081
             endpoint 10.42.2.3 node=n2
             service none ip=10.43.0.3 internal-policy=Local
             service both ip=10.43.0.4 internal-policy=Local external-policy=Local type=NodePort node-port=30084
             endpoint 10.42.2.3 node=n2"
        ),
        "pod -> 10.43.0.1:80: 10.42.1.2:8080
         node -> 10.43.0.1:80: 10.42.1.2:8080 masqueraded
         outside -> 192.0.2.1:30080: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         pod -> 10.43.0.2:80: dropped
         outside -> 192.0.2.1:30081: 10.42.2.3:8080 masqueraded
         pod -> 10.43.0.3:80: rejected
         pod -> 10.43.0.4:80: dropped
         pod -> 192.0.2.1:30084: dropped
         outside -> 192.0.2.1:30084: dropped",
    );
    let outcome = read("service far ip=10.43.0.2 internal-policy=Local\nendpoint 10.42.2.3 node=n2").outcome(0);
    assert_eq!((outcome.lacks_internal_local, outcome.lacks_external_local), ([Family::V4].into(), [].into()));
}

#[test]
fn external_addresses_and_balancers() {
    let cluster = format!(
        "service a ip=10.43.0.1 type=LoadBalancer balancer=203.0.113.9 external=198.51.100.80\n{TWO}
         service limited ip=10.43.0.2 type=LoadBalancer balancer=203.0.113.10 sources=198.51.100.0/24,10.42.1.0/24 node-port=30082\n{TWO}
         service own ip=10.43.0.3 type=LoadBalancer balancer=192.0.2.1 port=443 sources=192.0.2.0/24\n{TWO}
         service proxied ip=10.43.0.4 type=LoadBalancer balancer=203.0.113.11 mode=Proxy\n{TWO}
         service plain ip=10.43.0.5 balancer=203.0.113.12\n{TWO}"
    );
    check(
        &cluster,
        "outside -> 203.0.113.9:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         pod -> 203.0.113.9:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         outside -> 198.51.100.80:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         outside -> 203.0.113.10:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         pod -> 203.0.113.10:80: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         other pod -> 203.0.113.10:80: dropped
         100.64.0.1 -> 203.0.113.10:80: dropped
         100.64.0.1 -> 192.0.2.1:30082: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         node -> 192.0.2.1:443: 10.42.1.2:8080 masqueraded, 10.42.2.2:8080 masqueraded
         outside -> 192.0.2.1:443: dropped
         outside -> 203.0.113.11:80: untouched
         outside -> 203.0.113.12:80: untouched",
    );
    let off = Cluster { node: Node { external_ips: false, ..node() }, ..read(&cluster) };
    check_on(off, "outside -> 198.51.100.80:80: untouched");
}

#[test]
fn whoever_listens_at_the_balanced_address_itself_is_left_alone() {
    // As the ingress: at the same port of every server, and for this node that of this node.
    check(
        "service here ip=10.43.0.1 type=LoadBalancer balancer=192.0.2.1,192.0.2.3 port=8080
         endpoint 192.0.2.1 node=n1 for-node=n1
         endpoint 192.0.2.2 node=n2 for-node=n2
         service elsewhere ip=10.43.0.2 type=LoadBalancer balancer=192.0.2.1 port=8081
         endpoint 192.0.2.2 node=n2 for-node=n2",
        "outside -> 192.0.2.1:8080: untouched
         pod -> 192.0.2.1:8080: untouched
         node -> 192.0.2.1:8080: untouched
         pod -> 192.0.2.3:8080: 192.0.2.1:8080 masqueraded
         pod -> 10.43.0.1:8080: 192.0.2.1:8080
         outside -> 192.0.2.1:8081: 192.0.2.2:8080 masqueraded",
    );
}

#[test]
fn endpoints_that_end() {
    check(
        "service ready ip=10.43.0.1
         endpoint 10.42.1.2 node=n1 not-ready serving terminating
         endpoint 10.42.2.2 node=n2
         endpoint 10.42.2.3 node=n2 not-ready
         service ending ip=10.43.0.2
         endpoint 10.42.1.2 node=n1 not-ready serving terminating
         endpoint 10.42.2.2 node=n2 not-ready terminating
         service gone ip=10.43.0.3
         endpoint 10.42.1.2 node=n1 not-ready terminating
         endpoint 10.42.1.3 node=n1 not-ready serving
         service balanced ip=10.43.0.4 type=NodePort node-port=30084 external-policy=Local
         endpoint 10.42.1.2 node=n1 not-ready serving terminating
         endpoint 10.42.2.2 node=n2",
        "pod -> 10.43.0.1:80: 10.42.2.2:8080
         pod -> 10.43.0.2:80: 10.42.1.2:8080
         pod -> 10.43.0.3:80: rejected
         outside -> 192.0.2.1:30084: 10.42.1.2:8080
         pod -> 10.43.0.4:80: 10.42.2.2:8080",
    );
}

#[test]
fn hints() {
    check(
        "service same-node ip=10.43.0.1
         endpoint 10.42.1.2 node=n1 for-node=n1 for-zone=z1
         endpoint 10.42.2.2 node=n2 for-node=n2 for-zone=z1
         service other-node ip=10.43.0.2
         endpoint 10.42.2.2 node=n2 for-node=n2 for-zone=z1
         endpoint 10.42.3.2 node=n3 for-node=n3 for-zone=z2
         service other-zone ip=10.43.0.3
         endpoint 10.42.2.2 node=n2 for-node=n2 for-zone=z2
         endpoint 10.42.3.2 node=n3 for-node=n3 for-zone=z2
         service partly ip=10.43.0.4
         endpoint 10.42.1.2 node=n1 for-node=n1 for-zone=z1
         endpoint 10.42.2.2 node=n2
         service unready ip=10.43.0.5
         endpoint 10.42.1.2 node=n1 for-node=n1 for-zone=z1 not-ready
         endpoint 10.42.2.2 node=n2 for-node=n2 for-zone=z2
         service zone-only ip=10.43.0.6
         endpoint 10.42.2.2 node=n2 for-zone=z1
         endpoint 10.42.1.2 node=n1 for-zone=z2",
        "pod -> 10.43.0.1:80: 10.42.1.2:8080
         pod -> 10.43.0.2:80: 10.42.2.2:8080
         pod -> 10.43.0.3:80: 10.42.2.2:8080, 10.42.3.2:8080
         pod -> 10.43.0.4:80: 10.42.1.2:8080, 10.42.2.2:8080
         pod -> 10.43.0.5:80: 10.42.2.2:8080
         pod -> 10.43.0.6:80: 10.42.2.2:8080",
    );
}

#[test]
fn clients_stay_with_their_endpoint() {
    let mut cluster = read(&format!("service a ip=10.43.0.1 stay=60 type=NodePort node-port=30080\n{TWO}"));
    let ledger = cluster.ledger();
    let mut before = machine(&ledger);
    let reach =
        |machine: &mut Machine<'_>, source: &str, to: &str, random| match machine.walk(packet(source, to), random) {
            Fate::Reaches { endpoint, .. } => endpoint.to_string(),
            other => format!("{other:?}"),
        };
    let first = reach(&mut before, LOCAL_POD, "10.43.0.1:80", 0);
    for random in 0..5 {
        assert_eq!(reach(&mut before, LOCAL_POD, "10.43.0.1:80", random), first);
        // By the node's port it is the same Service.
        assert_eq!(reach(&mut before, LOCAL_POD, "192.0.2.1:30080", random), first);
    }
    assert_ne!(reach(&mut before, OTHER_POD, "10.43.0.1:80", 1), first, "another client draws anew");
    // The endpoint goes: the client draws again and stays with the new one.
    let mut clients = before.clients;
    for slices in cluster.slices.values_mut() {
        slices.retain(|slice| !first.starts_with(&slice.endpoints.as_ref().unwrap()[0].addresses[0]));
    }
    let ledger = cluster.ledger();
    // The kernel forgets the clients of an endpoint with its set.
    clients.retain(|clients, _| ledger.get(&Key::Clients(Family::V4, *clients)).is_some());
    let mut after = Machine { clients, ..machine(&ledger) };
    let second = reach(&mut after, LOCAL_POD, "10.43.0.1:80", 0);
    assert_ne!(second, first);
    assert_eq!(reach(&mut after, LOCAL_POD, "10.43.0.1:80", 1), second);
}

#[test]
fn both_families() {
    check(
        "service a ip=10.43.0.1,fd43::1 type=NodePort node-port=30080
         endpoint 10.42.1.2 node=n1
         endpoint fd42::2 node=n1",
        "pod -> 10.43.0.1:80: 10.42.1.2:8080
         fd42::9 -> [fd43::1]:80: [fd42::2]:8080
         fd42::2 -> [fd43::1]:80: [fd42::2]:8080 masqueraded
         2001:db8::7 -> [fd43::1]:80: [fd42::2]:8080 masqueraded
         2001:db8::7 -> [2001:db8::1]:30080: [fd42::2]:8080 masqueraded
         fd42::9 -> [fd43::1]:81: rejected",
    );
}

#[test]
fn a_packet_that_meets_a_change_halfway_still_finds_an_endpoint() {
    use crate::layout::{Choice, Origin, Step, picking_chain};
    let ledger = read(&format!("service a ip=10.43.0.1\n{TWO}")).ledger();
    // The chain of three endpoints, when there are two by now: the number that was drawn leads nowhere.
    let service = Destination { address: "10.43.0.1".parse().unwrap(), protocol: Protocol::Tcp, port: 80 };
    assert!(ledger.get(&Key::Endpoint(service, 2)).is_none());
    let rules = picking_chain(String::new(), Masquerade::Never, Origin::Packet, 3, 0).rules;
    let Some([Step::Pick { choice: Choice::Number(number), .. }]) = rules.last().map(Vec::as_slice) else {
        panic!("{rules:?}")
    };
    assert!(ledger.get(&Key::Endpoint(service, *number)).is_some());
}

#[test]
fn health_checks_count_ready_local_endpoints_once() {
    let cluster = read(
        "service a ip=10.43.0.1 type=LoadBalancer external-policy=Local check=32000
         endpoint 10.42.1.2 node=n1
         endpoint 10.42.1.3 node=n1 not-ready serving terminating
         endpoint 10.42.2.2 node=n2
         service b ip=10.43.0.2 type=LoadBalancer check=32001",
    );
    assert_eq!(cluster.outcome(0).health_check, Some(HealthCheck { port: 32000, local_endpoints: 1 }));
    assert_eq!(cluster.outcome(1).health_check, None);
}

#[test]
fn ways_in_of_datagrams_name_their_endpoints() {
    let cluster = read(
        "service a ip=10.43.0.1 port=53 protocol=UDP type=NodePort node-port=30053 external-policy=Local
         endpoint 10.42.1.2 node=n1 for-zone=z2
         endpoint 10.42.2.2 node=n2 for-zone=z1",
    );
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let udp = cluster.outcome(0).udp;
    assert_eq!(udp[&Entrance::Address("10.43.0.1".parse().unwrap(), 53)], [address("10.42.2.2:8080")]);
    let external = [address("10.42.1.2:8080"), address("10.42.2.2:8080")];
    assert_eq!(udp[&Entrance::NodePort(Family::V4, 30053)], external);
}

#[test]
fn one_service_more_changes_only_what_is_its_own() {
    let text: String = (0..50).map(|number| format!("service s{number} ip=10.43.1.{number}\n{TWO}\n")).collect();
    let cluster = read(&text);
    let mut ledger = cluster.ledger();
    let more = read(&format!("service more ip=10.43.2.1\n{TWO}"));
    let changes = ledger.replace(&more.services[0].0, more.outcome(0).elements);
    // Its address, once to go in and once to be refused by, and its two endpoints. Chains and hairpins are shared.
    assert_eq!(changes.len(), 4, "{changes:#?}");
    let gone = ledger.replace(&more.services[0].0, Elements::new());
    assert_eq!(gone.len(), 4, "{gone:#?}");
}

#[test]
fn bad_objects_do_no_harm() {
    let (key, mut service) = read(&format!("service a ip=10.43.0.1\n{TWO}")).services.remove(0);
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": "x"}, "addressType": "IPv4", "ports": [{"name": "p", "port": 8080}],
        "endpoints": [{"addresses": ["nonsense"]}, {"addresses": []}, {"addresses": ["fd42::1"]}, {"addresses": ["10.42.9.9"]}],
    }))
    .unwrap();
    let spec = service.spec.as_mut().unwrap();
    spec.cluster_ips = Some(vec!["nonsense".into(), "10.43.0.1".into()]);
    let mut port: Json = serde_json::to_value(&spec.ports.as_ref().unwrap()[0]).unwrap();
    port["port"] = json!(-5);
    spec.ports.as_mut().unwrap().push(serde_json::from_value(port).unwrap());
    let outcome = outcome(&key, &service, &[Arc::new(slice)], &node());
    let endpoints = outcome.elements.keys().filter(|key| matches!(key, Key::Endpoint(..))).count();
    assert_eq!(endpoints, 1);
}

#[test]
fn no_service_gets_a_port_that_a_machine_listens_at() {
    use crate::held::Host;
    use linux::sockets::Listener;
    let services = "
        service api ip=10.43.0.1 type=LoadBalancer balancer=192.0.2.1,192.0.2.2 port=6443 external=192.0.2.1,fd00::1,203.0.113.9
        endpoint 10.42.1.2 node=n1
        service empty ip=10.43.0.2 type=LoadBalancer balancer=192.0.2.1,192.0.2.2 port=10250
        service limited ip=10.43.0.3 type=LoadBalancer balancer=192.0.2.1 port=22 sources=100.64.0.0/10
        endpoint 10.42.1.2 node=n1
        service vxlan ip=10.43.0.4 external=192.0.2.1 port=8472 protocol=UDP type=NodePort node-port=30000
        endpoint 10.42.1.2 node=n1
        service ports ip=10.43.0.5 port=80 type=NodePort node-port=30001
        endpoint 10.42.1.2 node=n1
        service free ip=10.43.0.6 type=LoadBalancer balancer=192.0.2.1 port=80
        endpoint 10.42.1.2 node=n1";
    let listener =
        |(protocol, address, port): (u8, &str, u16)| Listener { protocol, address: address.parse().unwrap(), port };
    let listeners = [(6, "::", 6443), (6, "0.0.0.0", 10250), (6, "0.0.0.0", 22), (17, "0.0.0.0", 8472)];
    let more = [(17, "0.0.0.0", 30000), (6, "192.0.2.1", 30001), (6, "127.0.0.1", 80)];
    let host = Host {
        addresses: [NODE, "127.0.0.1"].map(|text| text.parse().unwrap()).into(),
        listeners: listeners.into_iter().chain(more).map(listener).collect(),
    };
    let other = component_helpers::host_ports::Ports::from([
        (component_helpers::host_ports::Protocol::Tcp, 6443),
        (component_helpers::host_ports::Protocol::Tcp, 10250),
    ]);
    let held = Held { host, others: [("192.0.2.2".parse().unwrap(), Arc::new(other))].into() };
    let with = || Cluster { node: Node { held: held.clone(), ..node() }, ..read(services) };
    check_on(
        with(),
        "outside -> 192.0.2.1:6443: untouched
         node -> 192.0.2.1:6443: untouched
         pod -> 192.0.2.2:6443: untouched
         node -> 192.0.2.2:6443: untouched
         outside -> 203.0.113.9:6443: 10.42.1.2:8080 masqueraded
         pod -> 10.43.0.1:6443: 10.42.1.2:8080
         outside -> 192.0.2.1:10250: untouched
         pod -> 192.0.2.2:10250: untouched
         outside -> 192.0.2.1:22: untouched
         outside -> udp/192.0.2.1:8472: untouched
         outside -> udp/192.0.2.1:30000: untouched
         outside -> 192.0.2.1:30001: untouched
         outside -> 192.0.2.1:80: 10.42.1.2:8080 masqueraded",
    );
    let said: Vec<String> = (0..6).flat_map(|index| with().outcome(index).held).collect();
    assert_eq!(
        said,
        [
            "port 6443/TCP of address 192.0.2.1 is in use by node n1 itself",
            "port 10250/TCP of address 192.0.2.1 is in use by node n1 itself",
            "port 22/TCP of address 192.0.2.1 is in use by node n1 itself",
            "node port 30000/UDP is in use by node n1 itself",
            "port 8472/UDP of address 192.0.2.1 is in use by node n1 itself",
            "node port 30001/TCP is in use by node n1 itself",
        ]
    );
}
