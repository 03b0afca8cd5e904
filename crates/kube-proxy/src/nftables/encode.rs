//! Sets, maps and their elements as the kernel keeps them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nlink::netlink::nftables::{
    ChainName, Family as NftFamily, Set, SetDataType, SetElement, SetElementData, SetKeyType, Verdict,
};
use reconcile::Key as ObjectKey;

use crate::model::{Destination, Door, Family, Key, NodePort, Refusal, Value};

pub const ENDPOINTS: &str = "endpoints";
pub(crate) const HAIRPIN: &str = "hairpin";
pub(crate) const CLUSTER_ADDRESSES: &str = "cluster-addresses";
pub(crate) const FIREWALLS: &str = "firewalls";
pub(crate) const POD_RANGES: &str = "pod-ranges";
pub(crate) const NODE_PORT_RANGES: &str = "node-port-ranges";
/// Clients that are remembered for one endpoint.
const CLIENTS_MAX: u32 = 1 << 16;
const EXPIRED_CLIENTS_REMOVED_EVERY: Duration = Duration::from_secs(60);
/// What a comment may be long, in bytes.
const COMMENT_MAX: usize = 120;

pub fn door(door: Door) -> &'static str {
    match door {
        Door::Address => "addresses",
        Door::Port => "ports",
        Door::OutsideAddress => "outside-addresses",
        Door::OutsidePort => "outside-ports",
    }
}

pub fn refused(door: Door, refusal: Refusal) -> &'static str {
    match (door, refusal) {
        (Door::Address | Door::OutsideAddress, Refusal::Reject) => "rejected-addresses",
        (Door::Address | Door::OutsideAddress, Refusal::Drop) => "dropped-addresses",
        (Door::Port | Door::OutsidePort, Refusal::Reject) => "rejected-ports",
        (Door::Port | Door::OutsidePort, Refusal::Drop) => "dropped-ports",
    }
}

pub(crate) fn nft_family(family: Family) -> NftFamily {
    match family {
        Family::V4 => NftFamily::Ip,
        Family::V6 => NftFamily::Ip6,
    }
}

/// All sets and maps of a table, by name.
pub fn sets(table: &str, family: Family) -> BTreeMap<&'static str, Set> {
    use SetKeyType::{Concat, InetProto, InetService, Mark};
    let address = match family {
        Family::V4 => SetKeyType::Ipv4Addr,
        Family::V6 => SetKeyType::Ipv6Addr,
    };
    let mut sets = BTreeMap::new();
    let mut add = |name, key, finish: &dyn Fn(Set) -> Set| {
        sets.insert(name, finish(Set::new(table, name).family(nft_family(family)).key_type(key)));
    };
    let plain = |set: Set| set;
    let destination = || Concat(vec![address.clone(), InetProto, InetService]);
    let node_port = || Concat(vec![InetProto, InetService]);
    let to_endpoint = |set: Set| set.map(SetDataType::Value(Concat(vec![address.clone(), InetService])));
    add(FIREWALLS, destination(), &Set::vmap);
    add(ENDPOINTS, Concat(vec![address.clone(), InetProto, InetService, Mark]), &to_endpoint);
    add(HAIRPIN, Concat(vec![address.clone(), address.clone()]), &plain);
    add(CLUSTER_ADDRESSES, address.clone(), &plain);
    add(POD_RANGES, address.clone(), &Set::interval);
    add(NODE_PORT_RANGES, address.clone(), &Set::interval);
    for one in Door::ALL {
        let key = if matches!(one, Door::Address | Door::OutsideAddress) { destination() } else { node_port() };
        add(door(one), key, &Set::vmap);
    }
    for refusal in [Refusal::Reject, Refusal::Drop] {
        add(refused(Door::Address, refusal), destination(), &plain);
        add(refused(Door::Port, refusal), node_port(), &plain);
    }
    sets
}

/// The set of the clients that stay with an endpoint. Rules fill it, and the kernel empties it.
pub fn clients(table: &str, family: Family, clients: u64) -> Set {
    let address = match family {
        Family::V4 => SetKeyType::Ipv4Addr,
        Family::V6 => SetKeyType::Ipv6Addr,
    };
    let set = Set::new(table, &clients_name(clients)).family(nft_family(family)).key_type(address);
    set.dynamic().per_element_timeouts().gc_interval(EXPIRED_CLIENTS_REMOVED_EVERY).size(CLIENTS_MAX)
}

pub(crate) fn clients_name(clients: u64) -> String {
    format!("{CLIENTS_PREFIX}{clients:016x}")
}

pub(crate) const CLIENTS_PREFIX: &str = "clients-";

/// An element, and the set that it is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Encoded {
    pub set: &'static str,
    pub key: Vec<u8>,
    pub end: Option<Vec<u8>>,
    pub data: Option<SetElementData>,
}

impl Encoded {
    /// As it was read from the kernel.
    pub fn read(set: &'static str, element: &SetElement) -> Encoded {
        let end = element.key_end().filter(|end| *end != element.key()).map(<[u8]>::to_vec);
        Encoded { set, key: element.key().to_vec(), end, data: element.data().cloned() }
    }

    /// For the kernel. The owner is a comment that only people read.
    pub fn element(&self, owner: Option<&ObjectKey>) -> SetElement {
        let mut element = match &self.end {
            Some(end) => SetElement::range(self.key.clone(), end.clone()),
            None => SetElement::new(self.key.clone()),
        };
        element = match &self.data {
            Some(SetElementData::Value(bytes)) => element.value(SetElement::new(bytes.clone())),
            Some(SetElementData::Verdict(verdict)) => element.verdict(verdict.clone()),
            _ => element,
        };
        match owner.map(|owner| format!("{}/{}", owner.namespace, owner.name)).filter(|text| text.len() <= COMMENT_MAX)
        {
            Some(text) if self.is_door() => element.with_comment(text),
            _ => element,
        }
    }

    fn is_door(&self) -> bool {
        Door::ALL.iter().any(|one| door(*one) == self.set)
    }
}

/// The element of a key. A chain and a set of clients are none.
pub fn encode(key: &Key, value: &Value) -> Option<Encoded> {
    let plain = |set, key: Vec<u8>| Encoded { set, key, end: None, data: None };
    let range = |set, first: &IpAddr, last: &IpAddr| {
        let (first, last) = (address(first), address(last));
        Encoded { set, end: (first != last).then_some(last), key: first, data: None }
    };
    let with = |set, key: Vec<u8>, data| Encoded { set, key, end: None, data: Some(data) };
    Some(match (key, value) {
        (Key::Chain(..) | Key::Clients(..), _) => return None,
        (Key::Address(at, destination), Value::Goto(chain)) => {
            with(door(*at), destination_key(destination), goto(chain))
        }
        (Key::Port(at, port), Value::Goto(chain)) => with(door(*at), node_port_key(port), goto(chain)),
        (Key::Endpoint(service, number), Value::Endpoint(endpoint)) => {
            let key = [destination_key(service), number.to_ne_bytes().to_vec()].concat();
            with(ENDPOINTS, key, SetElementData::Value(endpoint_bytes(endpoint)))
        }
        (Key::Hairpin(one), _) => plain(HAIRPIN, [address(one), address(one)].concat()),
        (Key::ClusterAddress(one), _) => plain(CLUSTER_ADDRESSES, address(one)),
        (Key::RefusedAddress(refusal, destination), _) => {
            plain(refused(Door::Address, *refusal), destination_key(destination))
        }
        (Key::RefusedPort(refusal, port), _) => plain(refused(Door::Port, *refusal), node_port_key(port)),
        (Key::Firewall(destination), Value::Goto(chain)) => with(FIREWALLS, destination_key(destination), goto(chain)),
        (Key::PodRange(first, last), _) => range(POD_RANGES, first, last),
        (Key::NodePortRange(first, last), _) => range(NODE_PORT_RANGES, first, last),
        (Key::Address(..) | Key::Port(..) | Key::Endpoint(..) | Key::Firewall(..), _) => {
            unreachable!("an element has a value of its kind: {key:?} {value:?}")
        }
    })
}

fn goto(chain: &str) -> SetElementData {
    SetElementData::Verdict(Verdict::GotoTo(ChainName::new(chain).expect("our names of chains are short words")))
}

/// Every part of a key fills whole words.
pub(crate) fn destination_key(destination: &Destination) -> Vec<u8> {
    let mut key = address(&destination.address);
    key.extend(protocol_and_port(destination.protocol.number(), destination.port));
    key
}

fn node_port_key(port: &NodePort) -> Vec<u8> {
    protocol_and_port(port.protocol.number(), port.port).to_vec()
}

fn protocol_and_port(protocol: u8, port: u16) -> [u8; 8] {
    let [high, low] = port.to_be_bytes();
    [protocol, 0, 0, 0, high, low, 0, 0]
}

fn endpoint_bytes(endpoint: &SocketAddr) -> Vec<u8> {
    let [high, low] = endpoint.port().to_be_bytes();
    let mut bytes = address(&endpoint.ip());
    bytes.extend([high, low, 0, 0]);
    bytes
}

pub fn address(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
