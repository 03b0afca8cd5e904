//! What the rules depend on, read off the objects: policies with their selectors ready to be asked, pods and namespaces
//! with what selectors look at. Everything else of an object may change without waking anyone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use component_helpers::labels::{self, Labels};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery::selector::LabelSelector;
use reconcile::Key;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub pods: BTreeMap<Key, PodFacts>,
    pub namespaces: BTreeMap<String, Labels>,
    pub policies: BTreeMap<Key, Policy>,
    /// The pods of this node's network, by sandbox.
    pub local: BTreeMap<String, Local>,
}

/// A pod that has addresses of its own, or will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    pub uids: BTreeSet<String>,
    pub labels: Labels,
    pub addresses: Vec<IpAddr>,
    /// Its named ports.
    pub ports: Vec<(String, u8, u16)>,
}

/// A sandbox on this node's network. Its addresses are known here before anybody else knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    pub pod: Key,
    pub uid: String,
    pub addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub pods: LabelSelector,
    /// The rules of a direction, if the policy speaks about it.
    pub ingress: Option<Vec<Rule>>,
    pub egress: Option<Vec<Rule>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// None: everybody.
    pub peers: Vec<Peer>,
    /// None: every port.
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Pods, of the policy's namespace or of those that are selected.
    Pods {
        namespaces: Option<LabelSelector>,
        pods: LabelSelector,
    },
    Block {
        range: IpNet,
        except: Vec<IpNet>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    All {
        protocol: u8,
    },
    Range {
        protocol: u8,
        first: u16,
        last: u16,
    },
    /// A number that each pod has its own of.
    Named {
        protocol: u8,
        name: String,
    },
}

impl Facts {
    /// Takes over a pod's new state; whether that can change a rule.
    pub(crate) fn put_pod(&mut self, pod: &Pod) -> bool {
        let key = Key::of(&pod.metadata);
        match pod_facts(pod) {
            Some(facts) => self.pods.insert(key, facts.clone()) != Some(facts),
            None => self.pods.remove(&key).is_some(),
        }
    }

    pub fn remove_pod(&mut self, pod: &Pod) -> bool {
        self.pods.remove(&Key::of(&pod.metadata)).is_some()
    }

    pub(crate) fn put_namespace(&mut self, namespace: &Namespace) -> bool {
        let labels = namespace.metadata.labels.clone().unwrap_or_default();
        let name = namespace.metadata.name.clone().unwrap_or_default();
        self.namespaces.insert(name, labels.clone()) != Some(labels)
    }

    pub(crate) fn remove_namespace(&mut self, namespace: &Namespace) -> bool {
        self.namespaces.remove(namespace.metadata.name.as_deref().unwrap_or_default()).is_some()
    }

    pub(crate) fn put_policy(&mut self, object: &NetworkPolicy) -> bool {
        let policy = policy(object);
        self.policies.insert(Key::of(&object.metadata), policy.clone()) != Some(policy)
    }

    pub(crate) fn remove_policy(&mut self, policy: &NetworkPolicy) -> bool {
        self.policies.remove(&Key::of(&policy.metadata)).is_some()
    }

    /// The labels and ports of a sandbox's pod, if that very pod is known.
    pub fn pod_of(&self, local: &Local) -> Option<&PodFacts> {
        self.pods.get(&local.pod).filter(|pod| pod.uids.contains(&local.uid))
    }

    /// Whether any policy speaks about pods of a namespace.
    pub(crate) fn has_policies(&self, namespace: &str) -> bool {
        let mut rest = self.policies.range(Key::new(namespace, "")..);
        rest.next().is_some_and(|(key, _)| key.namespace == namespace)
    }
}

/// Pods on their node's network have no address of their own, and those that have ended have given theirs back.
fn pod_facts(pod: &Pod) -> Option<PodFacts> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref());
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if spec.host_network == Some(true) || matches!(phase, "Succeeded" | "Failed") {
        return None;
    }
    let mut addresses: Vec<IpAddr> = status
        .and_then(|status| status.pod_ips.as_ref())
        .into_iter()
        .flatten()
        .filter_map(|address| address.ip.parse().ok())
        .collect();
    if addresses.is_empty() {
        addresses.extend(status.and_then(|status| status.pod_ip.as_ref()?.parse::<IpAddr>().ok()));
    }
    // Init containers that go on running serve like any other.
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ports = containers.flat_map(|container| container.ports.iter().flatten()).filter_map(|port| {
        let number = u16::try_from(port.container_port).ok()?;
        Some((port.name.clone()?, protocol(port.protocol.as_deref()), number))
    });
    let mut uids: BTreeSet<String> = pod.metadata.uid.iter().cloned().collect();
    // The node knows a pod of a manifest by another uid than the server does.
    let annotations = pod.metadata.annotations.as_ref();
    uids.extend(annotations.and_then(|all| all.get("kubernetes.io/config.hash")).cloned());
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    Some(PodFacts { uids, labels, addresses, ports: ports.collect() })
}

fn policy(object: &NetworkPolicy) -> Policy {
    let spec = object.spec.clone().unwrap_or_default();
    let types = spec.policy_types.unwrap_or_default();
    let speaks =
        |name: &str, by_default: bool| if types.is_empty() { by_default } else { types.iter().any(|one| one == name) };
    let (ingress, egress) = (spec.ingress.unwrap_or_default(), spec.egress.unwrap_or_default());
    let (speaks_ingress, speaks_egress) = (speaks("Ingress", true), speaks("Egress", !egress.is_empty()));
    let ingress = ingress.iter().map(|rule| read_rule(rule.from.as_deref(), rule.ports.as_deref()));
    let egress = egress.iter().map(|rule| read_rule(rule.to.as_deref(), rule.ports.as_deref()));
    Policy {
        // An absent selector is an empty one, and that selects all.
        pods: labels::compiled(Some(&spec.pod_selector.unwrap_or_default())).unwrap_or_else(nothing),
        ingress: speaks_ingress.then(|| ingress.collect()),
        egress: speaks_egress.then(|| egress.collect()),
    }
}

fn read_rule(peers: Option<&[NetworkPolicyPeer]>, ports: Option<&[NetworkPolicyPort]>) -> Rule {
    Rule {
        peers: peers.unwrap_or_default().iter().map(read_peer).collect(),
        ports: ports.unwrap_or_default().iter().map(read_port).collect(),
    }
}

/// What cannot be read selects nobody: a rule must not allow more than was meant.
fn read_peer(peer: &NetworkPolicyPeer) -> Peer {
    if let Some(block) = &peer.ip_block {
        let except = block.except.iter().flatten().filter_map(|range| range.parse().ok());
        return match block.cidr.parse::<IpNet>() {
            Ok(range) => Peer::Block { range: range.trunc(), except: except.collect() },
            Err(_) => Peer::Pods { namespaces: None, pods: nothing() },
        };
    }
    let everything = Default::default();
    let pods = match (&peer.pod_selector, &peer.namespace_selector) {
        (None, None) => nothing(),
        (pods, _) => labels::compiled(Some(pods.as_ref().unwrap_or(&everything))).unwrap_or_else(nothing),
    };
    let namespaces = peer.namespace_selector.as_ref();
    let namespaces = namespaces.map(|selector| labels::compiled(Some(selector)).unwrap_or_else(nothing));
    Peer::Pods { namespaces, pods }
}

fn read_port(port: &NetworkPolicyPort) -> Port {
    let protocol = protocol(port.protocol.as_deref());
    match &port.port {
        None => Port::All { protocol },
        Some(IntOrString::String(name)) => Port::Named { protocol, name: name.clone() },
        Some(IntOrString::Int(first)) => {
            let number = |port: i32| u16::try_from(port).unwrap_or(0);
            let last = port.end_port.map_or(number(*first), number);
            Port::Range { protocol, first: number(*first), last }
        }
    }
}

fn protocol(name: Option<&str>) -> u8 {
    match name {
        Some("UDP") => UDP,
        Some("SCTP") => SCTP,
        _ => TCP,
    }
}

fn nothing() -> LabelSelector {
    LabelSelector::from_object(&serde_json::Value::Null).unwrap_or_default()
}
