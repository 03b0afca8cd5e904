//! Encoding of rule expressions and set elements for nftables.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nlink::netlink::nftables::{
    CmpOp, Expr, Family as TableFamily, LookupExpr, MetaKey, PacketField, PayloadBase, Register, Rule as KernelRule,
    Set as KernelSet, SetElement, SetKeyType, Transaction,
};

use super::super::compile::{Direction, Family, Set};

/// The destination's port from first to last.
pub(super) fn match_port(rule: KernelRule, protocol: u8, first: u16, last: u16) -> KernelRule {
    let compare = |op, port: u16| Expr::Cmp { sreg: Register::R0, op, data: port.to_be_bytes().to_vec() };
    let load = Expr::Payload { dreg: Register::R0, base: PayloadBase::Transport, offset: 2, len: 2 };
    let port = rule.match_l4proto(protocol).expr(load);
    if first == last {
        port.expr(compare(CmpOp::Eq, first))
    } else {
        port.expr(compare(CmpOp::Gte, first)).expr(compare(CmpOp::Lte, last))
    }
}

/// Destination, protocol and destination port, which is at the same place in TCP, UDP and SCTP.
pub(super) fn match_target(rule: KernelRule, family: Family, set: &str) -> KernelRule {
    let (offset, len, next, last) = match family {
        Family::Four => (16, 4, Register::Reg32_01, Register::Reg32_02),
        Family::Six => (24, 16, Register::Reg32_04, Register::Reg32_05),
    };
    let number = if family == Family::Four { TableFamily::Ip } else { TableFamily::Ip6 };
    rule.expr(Expr::Meta { dreg: Register::R0, key: MetaKey::NfProto })
        .expr(Expr::Cmp { sreg: Register::R0, op: CmpOp::Eq, data: vec![number as u8] })
        .expr(Expr::Payload { dreg: Register::R0, base: PayloadBase::Network, offset, len })
        .expr(Expr::Meta { dreg: next, key: MetaKey::L4Proto })
        .expr(Expr::Payload { dreg: last, base: PayloadBase::Transport, offset: 2, len: 2 })
        .expr(LookupExpr::new(set, Register::R0))
}

pub(super) fn fields(family: Family) -> (PacketField, PacketField) {
    match family {
        Family::Four => (PacketField::Ip4Saddr, PacketField::Ip4Daddr),
        Family::Six => (PacketField::Ip6Saddr, PacketField::Ip6Daddr),
    }
}

pub(super) fn address_type(family: Family) -> SetKeyType {
    match family {
        Family::Four => SetKeyType::Ipv4Addr,
        Family::Six => SetKeyType::Ipv6Addr,
    }
}

pub(super) fn pods_name(direction: Direction, family: Family) -> String {
    format!("pods-{}{}", direction.name(), family.suffix())
}

pub(super) fn selves_name(family: Family) -> String {
    format!("selves{}", family.suffix())
}

/// The addresses of all pods that any policy concerns.
pub(super) fn isolated_name(family: Family) -> String {
    format!("isolated{}", family.suffix())
}

pub(super) fn octets(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) fn element(parts: &[&[u8]]) -> SetElement {
    SetElement::new(parts.concat())
}

pub(super) fn size(set: &Set) -> usize {
    match set {
        Set::Addresses(_, members) => members.len(),
        Set::Ranges(_, members) => members.len(),
        Set::Ports(_, members) => members.len(),
    }
}

/// The elements as the kernel's keys. A range is both of its ends, one after the other.
pub(super) fn keys(set: &Set) -> BTreeSet<Vec<u8>> {
    match set {
        Set::Addresses(_, members) => members.iter().map(octets).collect(),
        Set::Ranges(_, members) => members.iter().map(|(first, last)| [octets(first), octets(last)].concat()).collect(),
        Set::Ports(_, members) => {
            let key = |(address, protocol, port): &(IpAddr, u8, u16)| {
                let port = port.to_be_bytes();
                [octets(address), vec![*protocol, 0, 0, 0, port[0], port[1], 0, 0]].concat()
            };
            members.iter().map(key).collect()
        }
    }
}

/// So many elements fit into one message.
const ELEMENTS_MAX: usize = 500;

pub(super) fn change_elements(
    mut transaction: Transaction,
    set: &KernelSet,
    old: &BTreeSet<Vec<u8>>,
    new: &BTreeSet<Vec<u8>>,
    interval: bool,
) -> Transaction {
    let element = |key: &Vec<u8>| {
        if interval {
            SetElement::range(key[..key.len() / 2].to_vec(), key[key.len() / 2..].to_vec())
        } else {
            SetElement::new(key.clone())
        }
    };
    let gone: Vec<SetElement> = old.difference(new).map(element).collect();
    let come: Vec<SetElement> = new.difference(old).map(element).collect();
    for some in gone.chunks(ELEMENTS_MAX) {
        transaction = transaction.del_set_elements(set, some);
    }
    for some in come.chunks(ELEMENTS_MAX) {
        transaction = transaction.add_set_elements(set, some);
    }
    transaction
}
