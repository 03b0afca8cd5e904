//! The ways into a Service, and the chains in which an endpoint is chosen.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reconcile::Key as ObjectKey;

use super::Entering;
use super::endpoints::Usable;
use crate::layout::{self, Chain, Origin};
use crate::model::{Door, Elements, Key, Masquerade, NodePort, Refusal, Value, digest};

/// A Service has no more endpoints than this; a way in uses no more.
const ENDPOINTS_MAX: u32 = 1 << 16;
const CHAIN_NAME_MAX: usize = 120;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To the Service's own address.
    Internal = 0,
    /// To an address or port that is meant for others too, from whomever the last way does not take.
    External,
    /// The same from outside of the cluster, where only endpoints of this node count.
    Outside,
}

impl Entering<'_> {
    /// One way in: to endpoints, or refused where there are none.
    pub(super) fn add_way(&self, elements: &mut Elements, way: Way, chosen: &[SocketAddr], usable: &Usable) {
        let (addresses, node_port) = match way {
            Way::Internal => (&self.cluster_addresses, None),
            Way::External | Way::Outside => (&self.external_addresses, self.node_port),
        };
        // Whoever listens at the very address, as the ingress does on its own node, is reached without us: a translation
        // to the same place would only cost the client its address.
        let is_itself = |address: &&IpAddr| chosen == [SocketAddr::new(**address, self.port)];
        let addresses: Vec<&IpAddr> = addresses.iter().filter(|address| !is_itself(address)).collect();
        let node_port = node_port.map(|port| NodePort { family: self.family, protocol: self.protocol, port });
        if addresses.is_empty() && node_port.is_none() {
            return;
        }
        if chosen.is_empty() {
            // What another node could serve is dropped: whoever balances the load tries that one.
            let refusal = if usable.is_anywhere { Refusal::Drop } else { Refusal::Reject };
            for address in addresses {
                elements.insert(Key::RefusedAddress(refusal, self.destination(*address)), Value::Present);
            }
            if let Some(port) = node_port {
                elements.insert(Key::RefusedPort(refusal, port), Value::Present);
            }
            return;
        }
        let chain = match self.affinity_seconds {
            0 => self.picking_chain(elements, way, chosen),
            seconds => self.staying_chain(elements, way, chosen, seconds),
        };
        let chain = self.add_chain(elements, chain);
        let (address_door, port_door) = match way {
            Way::Internal | Way::External => (Door::Address, Door::Port),
            Way::Outside => (Door::OutsideAddress, Door::OutsidePort),
        };
        for address in addresses {
            elements.insert(Key::Address(address_door, self.destination(*address)), Value::Goto(chain.clone()));
        }
        if let Some(port) = node_port {
            elements.insert(Key::Port(port_door, port), Value::Goto(chain));
        }
    }

    /// Any of the endpoints. They are numbered, those of each way from another number on.
    fn picking_chain(&self, elements: &mut Elements, way: Way, chosen: &[SocketAddr]) -> Chain {
        let from = way as u32 * ENDPOINTS_MAX;
        let chosen = &chosen[..chosen.len().min(ENDPOINTS_MAX as usize)];
        let of = chosen.len() as u32;
        for address in &self.cluster_addresses {
            let service = self.destination(*address);
            for (number, endpoint) in (from..).zip(chosen) {
                elements.insert(Key::Endpoint(service, number), Value::Endpoint(*endpoint));
            }
        }
        let masquerade = self.masquerade(way);
        match way {
            Way::Internal => {
                let name = layout::shared_name(masquerade, of);
                layout::picking_chain(name, masquerade, Origin::Packet, of, from)
            }
            Way::External | Way::Outside => {
                let service = self.destination(self.cluster_addresses[0]);
                layout::picking_chain(self.chain_name(way), masquerade, Origin::Service(service), of, from)
            }
        }
    }

    /// The endpoint that the client was led to before, whichever way it came.
    fn staying_chain(&self, elements: &mut Elements, way: Way, chosen: &[SocketAddr], seconds: u32) -> Chain {
        let with_clients = |endpoint: &SocketAddr| {
            let ObjectKey { namespace, name } = self.name;
            // None of the parts can hold a line break.
            let text = format!("{namespace}\n{name}\n{}\n{}\n{endpoint}", self.port_name, self.protocol);
            (digest(text.as_bytes()), *endpoint)
        };
        let endpoints: Vec<(u64, SocketAddr)> = chosen.iter().map(with_clients).collect();
        for (clients, _) in &endpoints {
            elements.insert(Key::Clients(self.family, *clients), Value::Present);
        }
        layout::staying_chain(self.chain_name(way), self.masquerade(way), seconds, &endpoints)
    }

    pub(super) fn add_chain(&self, elements: &mut Elements, chain: Chain) -> String {
        let name = chain.name.clone();
        elements.insert(Key::Chain(self.family, name.clone()), Value::Chain(Arc::new(chain)));
        name
    }

    fn masquerade(&self, way: Way) -> Masquerade {
        match way {
            Way::Internal => self.unless_from_pod,
            Way::External if self.external_local => self.unless_from_pod,
            Way::External => Masquerade::Always,
            Way::Outside => Masquerade::Never,
        }
    }

    /// Ends with what people know the Service by, as far as there is room.
    fn chain_name(&self, way: Way) -> String {
        let way = match way {
            Way::Internal => "internal",
            Way::External => "external",
            Way::Outside => "outside",
        };
        let ObjectKey { namespace, name } = self.name;
        let text = format!("{namespace}/{name}/{}/{}", self.protocol, self.port);
        let mut name = format!("{way}-{:016x}-{text}", digest(text.as_bytes()));
        name.truncate(CHAIN_NAME_MAX);
        name
    }
}
