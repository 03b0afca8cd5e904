//! Evaluates the rules for a packet as the kernel would: for connections that exist, and for tests.

use std::net::IpAddr;

use super::compile::{Direction, Family, Match, Set, Table, Verdict};

/// A packet that opens a connection.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub source: IpAddr,
    pub target: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

pub fn passes(table: &Table, packet: Packet) -> bool {
    if packet.source == packet.target {
        return true;
    }
    let ends = [(Direction::Egress, packet.source), (Direction::Ingress, packet.target)];
    ends.into_iter().all(|end| match table.pods.get(&end) {
        None => true,
        // The last rule of a pod's chain drops.
        Some(chain) => walk(table, chain, packet).unwrap_or(false),
    })
}

/// None where no rule of the chain decides.
pub fn walk(table: &Table, chain: &str, packet: Packet) -> Option<bool> {
    for rule in table.chains.get(chain)? {
        if rule.matches.iter().all(|one| matches_packet(table, one, packet)) {
            match &rule.verdict {
                Verdict::Accept => return Some(true),
                Verdict::Drop => return Some(false),
                Verdict::Jump(chain) => {
                    if let Some(decided) = walk(table, chain, packet) {
                        return Some(decided);
                    }
                }
            }
        }
    }
    None
}

fn matches_packet(table: &Table, one: &Match, packet: Packet) -> bool {
    let has = |set: &str, address: IpAddr| match table.sets.get(set) {
        None => false,
        Some(Set::Addresses(_, members)) => members.contains(&address),
        Some(Set::Ranges(_, ranges)) => ranges.iter().any(|(first, last)| (*first..=*last).contains(&address)),
        Some(Set::Ports(_, members)) => members.contains(&(address, packet.protocol, packet.port)),
    };
    match one {
        Match::Peer { direction, family, set } => {
            let other = if *direction == Direction::Ingress { packet.source } else { packet.target };
            Family::of(&other) == *family && has(set, other)
        }
        Match::Target { family, set } => Family::of(&packet.target) == *family && has(set, packet.target),
        Match::Protocol(protocol) => packet.protocol == *protocol,
        Match::Port { protocol, first, last } => {
            packet.protocol == *protocol && (*first..=*last).contains(&packet.port)
        }
    }
}
