//! The nftables rules as data: chains, and the elements of the kernel's sets and maps, and who asked for each.
//!
//! All Services that only have an address of their own share a few chains. Such a Service is only elements: its address
//! leads to the chain for its number of endpoints, and its address with a number below that leads to an endpoint. So one
//! more Service costs its own elements, whatever else there is.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use reconcile::Key as ObjectKey;
use sha2::{Digest, Sha256};

use crate::layout::Chain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(address: &IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub(crate) fn of_range(range: &IpNet) -> Family {
        Family::of(&range.addr())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub fn parse(name: Option<&str>) -> Option<Protocol> {
        match name.unwrap_or("TCP") {
            "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            _ => None,
        }
    }

    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        })
    }
}

/// An address and port that belongs to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    pub address: IpAddr,
    pub protocol: Protocol,
    pub port: u16,
}

/// A port of the node's own addresses that belongs to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePort {
    pub family: Family,
    pub protocol: Protocol,
    pub port: u16,
}

/// The map through which a packet came to a Service. The outside ones are asked first, and only for packets that come
/// neither from pods nor from the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    Address,
    Port,
    OutsideAddress,
    OutsidePort,
}

impl Door {
    pub const ALL: [Door; 4] = [Door::Address, Door::Port, Door::OutsideAddress, Door::OutsidePort];
}

/// Whose packets get the node's address as their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Masquerade {
    Never,
    UnlessFromPod,
    Always,
}

/// A number that stands for these bytes.
pub fn digest(bytes: &[u8]) -> u64 {
    let hash = Sha256::digest(bytes);
    u64::from_be_bytes(hash[..8].try_into().expect("the hash has more than eight bytes"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    Reject,
    Drop,
}

/// Where an element is, and what finds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A chain, by its name.
    Chain(Family, String),
    /// The clients that stay with an endpoint.
    Clients(Family, u64),
    Address(Door, Destination),
    Port(Door, NodePort),
    /// The endpoints of a port of a Service, found by the Service's own address.
    Endpoint(Destination, u32),
    /// An endpoint on this node may reach itself.
    Hairpin(IpAddr),
    ClusterAddress(IpAddr),
    RefusedAddress(Refusal, Destination),
    RefusedPort(Refusal, NodePort),
    Firewall(Destination),
    /// Addresses of pods, in the whole cluster.
    PodRange(IpAddr, IpAddr),
    /// Addresses by which node ports are reached.
    NodePortRange(IpAddr, IpAddr),
}

impl Key {
    pub fn family(&self) -> Family {
        match self {
            Key::Chain(family, _) | Key::Clients(family, _) => *family,
            Key::Port(_, port) | Key::RefusedPort(_, port) => port.family,
            Key::Address(_, destination)
            | Key::Endpoint(destination, _)
            | Key::RefusedAddress(_, destination)
            | Key::Firewall(destination) => Family::of(&destination.address),
            Key::Hairpin(address)
            | Key::ClusterAddress(address)
            | Key::PodRange(address, _)
            | Key::NodePortRange(address, _) => Family::of(address),
        }
    }
}

/// What an element leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// It is there, and that is all.
    Present,
    /// The name of the chain where it goes on.
    Goto(String),
    Endpoint(SocketAddr),
    Chain(Arc<Chain>),
}

/// What one Service asks for.
pub type Elements = BTreeMap<Key, Value>;

/// A difference that the kernel must be told. What was there and is another now has both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub old: Option<Value>,
    pub new: Option<Value>,
    /// The Service that has it now; for readers of the rules.
    pub owner: ObjectKey,
}

/// All elements, with everyone who asks for each. Where two ask for one element with different values, the first by name
/// has it, as long as it asks.
#[derive(Default)]
pub struct Ledger {
    elements: HashMap<Key, Claims>,
    of_service: HashMap<ObjectKey, Elements>,
}

/// Nearly every element has one owner only.
type Claims = Vec<(ObjectKey, Value)>;

impl Ledger {
    /// Puts what a Service asks for in place of what it asked for before.
    pub fn replace(&mut self, owner: &ObjectKey, new: Elements) -> Vec<Change> {
        let old = if new.is_empty() {
            self.of_service.remove(owner).unwrap_or_default()
        } else {
            self.of_service.insert(owner.clone(), new.clone()).unwrap_or_default()
        };
        let mut changes = Vec::new();
        for key in old.keys().filter(|key| !new.contains_key(key)) {
            changes.extend(self.claim(owner, key, None));
        }
        for (key, value) in &new {
            if old.get(key) != Some(value) {
                changes.extend(self.claim(owner, key, Some(value.clone())));
            }
        }
        changes
    }

    pub fn services(&self) -> impl Iterator<Item = &ObjectKey> {
        self.of_service.keys()
    }

    /// Every element, with its value and the Service that has it.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value, &ObjectKey)> {
        self.elements.iter().filter_map(|(key, claims)| claims.first().map(|(owner, value)| (key, value, owner)))
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.elements.get(key).and_then(|claims| claims.first()).map(|(_, value)| value)
    }

    pub fn len(&self) -> usize {
        self.elements.len()
    }

    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    fn claim(&mut self, owner: &ObjectKey, key: &Key, value: Option<Value>) -> Option<Change> {
        let claims = self.elements.entry(key.clone()).or_default();
        let old = claims.first().map(|(_, value)| value.clone());
        match (claims.binary_search_by(|(other, _)| other.cmp(owner)), value) {
            (Ok(place), Some(value)) => claims[place].1 = value,
            (Ok(place), None) => _ = claims.remove(place),
            (Err(place), Some(value)) => claims.insert(place, (owner.clone(), value)),
            (Err(_), None) => {}
        }
        let first = claims.first().cloned();
        if first.is_none() {
            self.elements.remove(key);
        }
        let (owner, new) = match first {
            Some((owner, value)) => (owner, Some(value)),
            None => (owner.clone(), None),
        };
        (old != new).then(|| Change { key: key.clone(), old, new, owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16) -> Value {
        Value::Endpoint(SocketAddr::from(([10, 0, 0, 1], port)))
    }

    #[test]
    fn the_first_owner_has_an_element_and_the_next_one_inherits_it() {
        let (a, b) = (ObjectKey::new("x", "a"), ObjectKey::new("x", "b"));
        let service = Destination { address: [10, 43, 0, 1].into(), protocol: Protocol::Tcp, port: 80 };
        let key = Key::Endpoint(service, 0);
        let asks = |port| Elements::from([(key.clone(), endpoint(port))]);
        let mut ledger = Ledger::default();
        let change = |old: Option<Value>, new: Option<Value>, owner: &ObjectKey| {
            vec![Change { key: key.clone(), old, new, owner: owner.clone() }]
        };
        assert_eq!(ledger.replace(&b, asks(2)), change(None, Some(endpoint(2)), &b));
        assert_eq!(ledger.replace(&a, asks(1)), change(Some(endpoint(2)), Some(endpoint(1)), &a));
        assert_eq!(ledger.replace(&b, asks(3)), [], "it is not the first");
        assert_eq!(ledger.replace(&a, asks(1)), [], "nothing new");
        assert_eq!(ledger.replace(&a, Elements::new()), change(Some(endpoint(1)), Some(endpoint(3)), &b));
        assert_eq!(ledger.replace(&b, Elements::new()), change(Some(endpoint(3)), None, &b));
        assert!(ledger.is_empty() && ledger.services().next().is_none());
    }
}
