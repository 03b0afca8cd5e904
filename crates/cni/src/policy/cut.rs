//! Connections that exist although the rules, as they are now, would not let them begin. What is established passes without
//! being looked at again, so these are forgotten: their next packet is a new one to the rules.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use nlink::netlink::netfilter::{ConntrackEntry, ConntrackFilter, IpProtocol};
use nlink::netlink::{Connection, Netfilter, Route};

use super::compile::{Set, Table};
use super::walk::{Packet, passes};

/// Whether what passed before might not pass now.
pub(crate) fn tightens(is: Option<&Table>, should: &Table) -> bool {
    let Some(is) = is else { return !should.pods.is_empty() };
    let lost = |name: &String, set: &Set| match (set, should.sets.get(name)) {
        (Set::Addresses(_, old), Some(Set::Addresses(_, new))) => !old.is_subset(new),
        (Set::Ports(_, old), Some(Set::Ports(_, new))) => !old.is_subset(new),
        // One of ranges has its content in its name.
        _ => false,
    };
    should.pods.iter().any(|(pod, chain)| is.pods.get(pod) != Some(chain))
        || should.chains.iter().any(|(name, rules)| is.chains.get(name).is_some_and(|old| old != rules))
        || is.sets.iter().any(|(name, set)| lost(name, set))
}

/// What decides about connections.
pub struct Judge<'a> {
    pub table: &'a Table,
    /// This node's addresses: what it says itself always passes.
    pub own: &'a BTreeSet<IpAddr>,
    /// Protocols and ports of the node that every pod may ask.
    pub node_ports: &'a [(u8, u16)],
}

impl Judge<'_> {
    fn forbids(&self, entry: &ConntrackEntry) -> bool {
        // Answers come from where the packets really went, whatever address they were sent to.
        let (Some(source), Some(target)) = (entry.orig.src_ip, entry.reply.src_ip) else { return false };
        let protocol = match entry.proto {
            IpProtocol::Tcp => 6,
            IpProtocol::Udp => 17,
            IpProtocol::Icmp => 1,
            IpProtocol::Icmpv6 => 58,
            IpProtocol::Other(number) => number,
            _ => return false,
        };
        let port = entry.reply.src_port.unwrap_or(0);
        self.forbids_packet(Packet { source, target, protocol, port })
    }

    fn forbids_packet(&self, packet: Packet) -> bool {
        let asks_node = self.own.contains(&packet.target) && self.node_ports.contains(&(packet.protocol, packet.port));
        !self.own.contains(&packet.source) && !asks_node && !passes(self.table, packet)
    }
}

/// Forgets the connections that are allowed no more, and says how many.
pub async fn cut(namespace: Option<&Path>, table: &Table, node_ports: &[(u8, u16)]) -> nlink::netlink::Result<usize> {
    let (route, connections): (Connection<Route>, Connection<Netfilter>) = match namespace {
        Some(path) => (Connection::new_in(path)?, Connection::new_in(path)?),
        None => (Connection::<Route>::new()?, Connection::<Netfilter>::new()?),
    };
    let own = route.get_addresses().await?;
    let own = own.iter().filter_map(|message| message.primary_address().copied()).collect();
    let judge = Judge { table, own: &own, node_ports };
    let mut count = 0;
    for entry in connections.get_conntrack_matching(&ConntrackFilter::new()).await? {
        if !judge.forbids(&entry) {
            continue;
        }
        match connections.del_conntrack_entry(&entry).await {
            Ok(()) => count += 1,
            // It ended by itself.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::super::compile::{Direction, Family, isolated};
    use super::*;

    #[test]
    fn the_node_itself_and_its_dns_go_on() {
        let [pod, node, peer] = ["10.0.0.2", "10.0.0.1", "10.0.0.3"].map(|text| text.parse::<IpAddr>().unwrap());
        let (table, own) = (isolated(&[pod]), BTreeSet::from([node]));
        let judge = Judge { table: &table, own: &own, node_ports: &[(17, 253)] };
        let forbids = |source, target, protocol, port| judge.forbids_packet(Packet { source, target, protocol, port });
        assert!(forbids(peer, pod, 6, 80) && forbids(pod, peer, 6, 80) && forbids(pod, node, 6, 10250));
        assert!(!forbids(node, pod, 6, 80), "a probe");
        assert!(!forbids(pod, node, 17, 253), "a name");
        assert!(!forbids(peer, node, 6, 10250) && !forbids(pod, pod, 6, 80));
    }

    #[test]
    fn what_only_allows_more_cuts_nothing() {
        let [pod, peer] = ["10.0.0.2", "10.0.0.3"].map(|text| text.parse::<IpAddr>().unwrap());
        let table = |members: &[IpAddr]| {
            let mut table = isolated(&[pod]);
            let members = members.iter().copied().collect();
            table.sets.insert("a".into(), Set::Addresses(Family::Four, members));
            table
        };
        assert!(tightens(None, &table(&[])) && !tightens(None, &Table::default()));
        assert!(!tightens(Some(&table(&[])), &table(&[peer])) && tightens(Some(&table(&[peer])), &table(&[])));
        assert!(!tightens(Some(&table(&[])), &Table::default()), "policies that are gone");
        let mut open = table(&[]);
        open.pods.retain(|(direction, _), _| *direction == Direction::Egress);
        assert!(tightens(Some(&open), &table(&[])) && !tightens(Some(&table(&[])), &open));
    }
}
