//! A packet walked through the rules, as the kernel would.

use std::net::IpAddr;

use super::compile::{Direction, Family, Match, Set, Table, Verdict};

/// A packet that opens a connection.
#[derive(Clone, Copy)]
pub struct Packet {
    pub source: IpAddr,
    pub target: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

/// None where no rule of the chain decides.
pub fn walk(table: &Table, chain: &str, packet: Packet) -> Option<bool> {
    for rule in &table.chains[chain] {
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
    let has = |set: &str, address: IpAddr| match &table.sets[set] {
        Set::Addresses(_, members) => members.contains(&address),
        Set::Ranges(_, ranges) => ranges.iter().any(|(first, last)| (*first..=*last).contains(&address)),
        Set::Ports(_, members) => members.contains(&(address, packet.protocol, packet.port)),
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
