//! Ports of nodes' addresses that the machines themselves listen at: those of this one by its sockets, those of others by what
//! their Nodes say. No Service gets one of them, or whoever may write a Service could answer in the place of the API server, of
//! a kubelet or of ssh.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use component_helpers::host_ports::{self, Ports};
use k8s_openapi::api::core::v1::Node;
use linux::sockets::{Listener, Listeners};
use nlink::netlink::{Connection, Route};

use crate::model::{Destination, Family, NodePort, Protocol};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub host: Host,
    /// What other nodes' machines listen at, by their addresses.
    pub others: BTreeMap<IpAddr, Arc<Ports>>,
}

/// This machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    pub addresses: BTreeSet<IpAddr>,
    pub listeners: BTreeSet<Listener>,
}

/// Who listens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    ThisNode,
    AnotherNode,
}

impl Held {
    pub fn holder(&self, to: &Destination) -> Option<Holder> {
        if self.host.addresses.contains(&to.address) {
            let listens = |one: &Listener| {
                one.protocol == to.protocol.number() && one.port == to.port && one.answers_at(&to.address)
            };
            return self.host.listeners.iter().any(listens).then_some(Holder::ThisNode);
        }
        let protocol = match to.protocol {
            Protocol::Tcp => host_ports::Protocol::Tcp,
            Protocol::Udp => host_ports::Protocol::Udp,
            Protocol::Sctp => host_ports::Protocol::Sctp,
        };
        let listens = |ports: &Arc<Ports>| ports.contains(&(protocol, to.port));
        self.others.get(&to.address).is_some_and(listens).then_some(Holder::AnotherNode)
    }

    /// Whether the port is taken at any address by which node ports could be reached.
    pub fn has_port(&self, port: &NodePort) -> bool {
        self.host.listeners.iter().any(|one| {
            let of_family = match one.address {
                IpAddr::V6(address) if address.is_unspecified() => true,
                address => Family::of(&address) == port.family && !address.is_loopback(),
            };
            one.protocol == port.protocol.number() && one.port == port.port && of_family
        })
    }
}

/// What other nodes listen at.
pub fn others(own: &str, nodes: &[Arc<Node>]) -> BTreeMap<IpAddr, Arc<Ports>> {
    let mut others = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.metadata.name.as_deref() != Some(own)) {
        let ports = Arc::new(host_ports::of(node));
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let addresses = addresses.filter_map(|address| address.address.parse::<IpAddr>().ok());
        others.extend(addresses.map(|address| (address, ports.clone())));
    }
    others
}

/// Looks at this machine.
pub struct Observer {
    namespace: Option<PathBuf>,
    listeners: Listeners,
    /// Ports that are the machine's own although nobody may listen at them yet.
    reserved: Vec<(Protocol, u16)>,
}

impl Observer {
    pub fn new(namespace: Option<&Path>, reserved: &[(Protocol, u16)]) -> Observer {
        let (listeners, reserved) = (Listeners::new(namespace), reserved.to_vec());
        Observer { namespace: namespace.map(Path::to_owned), listeners, reserved }
    }

    pub async fn look(&mut self) -> io::Result<Host> {
        let mut listeners = self.listeners.look()?;
        let everywhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        listeners.extend(self.reserved.iter().map(|(protocol, port)| Listener {
            protocol: protocol.number(),
            address: everywhere,
            port: *port,
        }));
        let addresses = self.addresses().await.map_err(io::Error::other)?;
        Ok(Host { addresses, listeners })
    }

    async fn addresses(&self) -> nlink::netlink::Result<BTreeSet<IpAddr>> {
        let connection: Connection<Route> = match &self.namespace {
            Some(path) => Connection::new_in(path.as_path())?,
            None => Connection::<Route>::new()?,
        };
        let messages = connection.get_addresses().await?;
        Ok(messages.iter().filter_map(|message| message.primary_address().copied()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_its_ports() {
        let listener =
            |protocol: u8, address: &str, port| Listener { protocol, address: address.parse().unwrap(), port };
        let host = Host {
            addresses: ["192.0.2.1", "fd00::1"].map(|text| text.parse().unwrap()).into(),
            listeners: [
                listener(6, "0.0.0.0", 22),
                listener(6, "::", 6443),
                listener(17, "192.0.2.1", 8472),
                listener(6, "127.0.0.1", 10249),
            ]
            .into(),
        };
        let other = Arc::new(Ports::from([(host_ports::Protocol::Tcp, 6443)]));
        let held = Held { host, others: [("192.0.2.2".parse().unwrap(), other)].into() };
        let holder = |address: &str, protocol, port| {
            held.holder(&Destination { address: address.parse().unwrap(), protocol, port })
        };
        let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
        for (address, protocol, port, expected) in [
            ("192.0.2.1", tcp, 22, Some(Holder::ThisNode)),
            ("fd00::1", tcp, 22, None),
            ("192.0.2.1", tcp, 6443, Some(Holder::ThisNode)),
            ("fd00::1", tcp, 6443, Some(Holder::ThisNode)),
            ("192.0.2.1", udp, 6443, None),
            ("192.0.2.1", udp, 8472, Some(Holder::ThisNode)),
            // At its loopback address it is in nobody's way.
            ("192.0.2.1", tcp, 10249, None),
            ("192.0.2.2", tcp, 6443, Some(Holder::AnotherNode)),
            ("192.0.2.2", tcp, 80, None),
            ("192.0.2.3", tcp, 6443, None),
        ] {
            assert_eq!(holder(address, protocol, port), expected, "{address} {protocol} {port}");
        }
        let has = |family, protocol, port| held.has_port(&NodePort { family, protocol, port });
        assert!(has(Family::V4, tcp, 22) && !has(Family::V6, tcp, 22) && has(Family::V6, tcp, 6443));
        assert!(has(Family::V4, udp, 8472) && !has(Family::V4, tcp, 10249));
    }
}
