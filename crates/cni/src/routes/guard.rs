//! Anti-spoofing rules of the VXLAN tunnel. Only other nodes may send into it, each with packets of its own pods. VXLAN itself asks nobody who he is, so
//! anyone who reaches its port could send in the name of any pod.
//!
//! A table of our own, there as long as the tunnel is. What comes to the tunnel's port is looked at from outside and inside:
//! the source must be an address of a node, and the packet within must be from that node's range, or at least from no pod's and
//! no other node's address. What a node forwards never goes to a tunnel: nodes send themselves what goes there, and a pod's
//! packet would leave with the node's address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use nlink::netlink::nftables::{
    BaseChain, Chain, ChainName, CmpOp, Expr, Family, FilterHook, LookupExpr, NFT_MSG_NEWTABLE, NFTA_TABLE_NAME,
    PacketField, PayloadBase, Priority, RawMessage, Register, Rule, Set, SetElement, SetKeyType, Transaction, Verdict,
};

use super::kernel::PORT;
use super::plan::Peer;
use crate::builtin::{hash, text_attribute};
use crate::{Error, Result};

pub const TABLE: &str = "knarr-tunnel";
const FAMILY: Family = Family::Inet;
const CREATE: u16 = 0x400;
/// Before the usual filters.
const EARLY: i32 = -10;
const OTHERS: &str = "others";
/// Where the packet within begins, counted from the UDP header: behind that, VXLAN's and Ethernet's.
const INNER: u32 = 8 + 8 + 14;
/// The kind of the packet within ends Ethernet's header.
const INNER_TYPE: u32 = INNER - 2;

/// Everything that the rules depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Whose packets a node may send, by each of its addresses: ranges of pods, and its own addresses.
    senders: BTreeMap<IpAddr, BTreeSet<IpNet>>,
    cluster_ranges: Vec<IpNet>,
}

impl Input {
    pub fn new(peers: &[Peer], cluster_ranges: &[IpNet]) -> Input {
        let mut senders: BTreeMap<IpAddr, BTreeSet<IpNet>> = BTreeMap::new();
        for peer in peers {
            let own = peer.all_addresses.iter().map(|address| IpNet::from(*address));
            let allowed: BTreeSet<IpNet> = peer.ranges.iter().copied().chain(own).collect();
            for address in &peer.all_addresses {
                senders.entry(*address).or_default().extend(&allowed);
            }
        }
        Input { senders, cluster_ranges: cluster_ranges.to_vec() }
    }

    fn rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (address, allowed) in &self.senders {
            let chain = chain_of(address);
            rules.extend(allowed.iter().map(|range| inner_source(rule(&chain), range).accept()));
        }
        for range in &self.cluster_ranges {
            rules.push(inner_source(rule(OTHERS), range).drop());
        }
        for is_four in [true, false] {
            let (offset, len) = source_place(is_four);
            let from_node = of_type(rule(OTHERS), is_four)
                .expr(Expr::Payload { dreg: Register::R0, base: PayloadBase::Transport, offset, len })
                .expr(LookupExpr::new(nodes_name(is_four), Register::R0));
            rules.push(from_node.drop());
        }
        rules.extend([true, false].map(|is_four| of_type(rule(OTHERS), is_four).accept()));
        // Who is where is known here; nobody need be asked for it.
        rules.push(rule(OTHERS).drop());
        for is_four in [true, false] {
            let (source, target) = fields(is_four);
            rules.push(rule("input").match_udp_dport(PORT).vmap(source, senders_name(is_four)));
            rules.push(rule("forward").match_udp_dport(PORT).match_in_set(target, nodes_name(is_four)).drop());
        }
        rules.push(rule("input").match_udp_dport(PORT).drop());
        rules
    }
}

/// Replaces everything by the rules for these nodes, or by nothing where there is no tunnel.
pub async fn write(config: &super::Config, input: Option<&Input>) -> Result<()> {
    let fail = |source| Error::Rules { table: TABLE.to_owned(), source };
    let connection = connect(config)?;
    let made = RawMessage::new(NFT_MSG_NEWTABLE, FAMILY).flags(CREATE).attrs(text_attribute(NFTA_TABLE_NAME, TABLE));
    let mut transaction = connection.transaction().raw(made).del_table(TABLE, FAMILY);
    if let Some(input) = input {
        transaction = add(transaction.add_table(TABLE, FAMILY), input).map_err(fail)?;
    }
    transaction.commit(&connection).await.map_err(fail)
}

/// Whether the rules are there; without a tunnel, whether there are none.
pub async fn is_there(config: &super::Config, input: Option<&Input>) -> Result<bool> {
    let fail = |source| Error::Rules { table: TABLE.to_owned(), source };
    let connection = connect(config)?;
    let tables = connection.list_tables_in(FAMILY).await.map_err(fail)?;
    let there = tables.iter().any(|table| table.name == TABLE);
    match input {
        Some(input) if there => {
            let found = connection.list_rules(TABLE, FAMILY).await.map_err(fail)?;
            let count = input.rules().len() + input.senders.len();
            Ok(found.len() == count)
        }
        input => Ok(there == input.is_some()),
    }
}

fn add(mut transaction: Transaction, input: &Input) -> nlink::netlink::Result<Transaction> {
    for chain in input.senders.keys().map(chain_of).chain([OTHERS.to_owned()]) {
        transaction = transaction.add_chain(Chain::new(TABLE, chain.as_str())?.family(FAMILY));
    }
    for is_four in [true, false] {
        let kind = if is_four { SetKeyType::Ipv4Addr } else { SetKeyType::Ipv6Addr };
        let map = Set::new(TABLE, senders_name(is_four)).family(FAMILY).key_type(kind.clone()).vmap();
        let nodes = Set::new(TABLE, nodes_name(is_four)).family(FAMILY).key_type(kind);
        transaction = transaction.add_set(map.clone()).add_set(nodes.clone());
        for address in input.senders.keys().filter(|address| address.is_ipv4() == is_four) {
            let verdict = Verdict::GotoTo(ChainName::new(chain_of(address))?);
            transaction = transaction
                .add_set_elements(&map, &[SetElement::new(octets(address)).verdict(verdict)])
                .add_set_elements(&nodes, &[SetElement::new(octets(address))]);
        }
    }
    for (name, hook) in [("input", FilterHook::Input), ("forward", FilterHook::Forward)] {
        let base = BaseChain::filter(hook, Priority::Custom(EARLY));
        transaction = transaction.add_chain(Chain::new(TABLE, name)?.family(FAMILY).base(base));
    }
    for rule in input.rules() {
        transaction = transaction.add_rule(rule);
    }
    for address in input.senders.keys() {
        transaction = transaction.add_rule(rule(&chain_of(address)).try_goto(OTHERS)?);
    }
    Ok(transaction)
}

fn rule(chain: &str) -> Rule {
    Rule::new(TABLE, chain).family(FAMILY)
}

fn connect(config: &super::Config) -> Result<nlink::netlink::Connection<nlink::netlink::Nftables>> {
    let connection = match &config.node_namespace {
        Some(path) => nlink::netlink::Connection::new_in(path.as_path()),
        None => nlink::netlink::Connection::<nlink::netlink::Nftables>::new(),
    };
    connection.map_err(|source| Error::Rules { table: TABLE.to_owned(), source })
}

/// The packet within is from this range.
fn inner_source(rule: Rule, range: &IpNet) -> Rule {
    let (offset, len) = source_place(range.addr().is_ipv4());
    let zero = vec![0; len as usize];
    of_type(rule, range.addr().is_ipv4())
        .expr(Expr::Payload { dreg: Register::R0, base: PayloadBase::Transport, offset, len })
        .expr(Expr::Bitwise { sreg: Register::R0, dreg: Register::R0, len, mask: octets(&range.netmask()), xor: zero })
        .expr(Expr::Cmp { sreg: Register::R0, op: CmpOp::Eq, data: octets(&range.network()) })
}

/// The packet within is of this family.
fn of_type(rule: Rule, is_four: bool) -> Rule {
    let kind: u16 = if is_four { 0x0800 } else { 0x86dd };
    rule.expr(Expr::Payload { dreg: Register::R0, base: PayloadBase::Transport, offset: INNER_TYPE, len: 2 })
        .expr(Expr::Cmp { sreg: Register::R0, op: CmpOp::Eq, data: kind.to_be_bytes().to_vec() })
}

/// Where the source of the packet within is, and how long.
fn source_place(is_four: bool) -> (u32, u32) {
    if is_four { (INNER + 12, 4) } else { (INNER + 8, 16) }
}

fn chain_of(sender: &IpAddr) -> String {
    format!("from-{:016x}", hash(&sender.to_string()))
}

fn senders_name(is_four: bool) -> &'static str {
    if is_four { "senders4" } else { "senders6" }
}

fn nodes_name(is_four: bool) -> &'static str {
    if is_four { "nodes4" } else { "nodes6" }
}

fn fields(is_four: bool) -> (PacketField, PacketField) {
    if is_four {
        (PacketField::Ip4Saddr, PacketField::Ip4Daddr)
    } else {
        (PacketField::Ip6Saddr, PacketField::Ip6Daddr)
    }
}

fn octets(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
