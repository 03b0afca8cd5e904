//! Packet rules, in an nftables table of our own that is replaced as a whole, in one transaction.
//!
//! What they do: pods' traffic that leaves the cluster gets the node's address; ports of the node lead into pods; what is
//! sent to a Service address that no one serves is refused.

use std::net::IpAddr;

use ipnet::IpNet;
use nlink::netlink::nftables::{
    BaseChain, Chain, CmpOp, CtStatus, Expr, Family, FibFlags, Field, FilterHook, IcmpxCode, Match, NFT_MSG_NEWTABLE,
    NFTA_TABLE_NAME, NatHook, NatStatement, PayloadBase, Priority, RawMessage, Register, Rule,
};
use nlink::netlink::types::route::RouteType;
use nlink::netlink::{Connection, Nftables};

use super::Config;
use super::claims::{Claim, Port};
use crate::{Error, Result};

const FAMILY: Family = Family::Inet;
/// `NLM_F_CREATE`.
const CREATE: u16 = 0x400;
/// After the rules for Services, which have their places at -100 and 0.
const AFTER_FILTERS: i32 = 10;
/// ICMPv6's message that another way is shorter.
const REDIRECT: u8 = 137;

/// All that the rules depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub table: String,
    pub bridge: String,
    pub ranges: Vec<IpNet>,
    pub cluster_ranges: Vec<IpNet>,
    pub service_ranges: Vec<IpNet>,
    /// Only those with ports.
    pub pods: Vec<Claim>,
    /// Addresses, protocols and ports that lead into no pod, because the machine itself listens there.
    pub kept: Vec<(IpAddr, u8, u16)>,
}

/// Whether our table exists.
pub(crate) async fn are_there(config: &Config) -> Result<bool> {
    let fail = |source| Error::Rules { table: config.table.clone(), source };
    let tables = connect(config)?.list_tables_in(FAMILY).await.map_err(fail)?;
    Ok(tables.iter().any(|table| table.name == config.table))
}

/// Whether our table exists with so many rules.
pub(crate) async fn are_complete(config: &Config, count: usize) -> Result<bool> {
    let fail = |source| Error::Rules { table: config.table.clone(), source };
    Ok(are_there(config).await?
        && connect(config)?.list_rules(&config.table, FAMILY).await.map_err(fail)?.len() == count)
}

pub async fn write(input: &Input, config: &Config) -> Result<()> {
    let fail = |source| Error::Rules { table: input.table.clone(), source };
    let connection = connect(config)?;
    let table = input.table.as_str();
    // Making it first means that there is one to delete, on kernels that cannot delete what may not be there.
    let made = RawMessage::new(NFT_MSG_NEWTABLE, FAMILY).flags(CREATE).attrs(text_attribute(NFTA_TABLE_NAME, table));
    let mut transaction = connection.transaction().raw(made).del_table(table, FAMILY).add_table(table, FAMILY);
    for (name, base) in chains() {
        transaction = transaction.add_chain(Chain::new(table, name).map_err(fail)?.family(FAMILY).base(base));
    }
    for rule in rules(input) {
        transaction = transaction.add_rule(rule);
    }
    transaction.commit(&connection).await.map_err(fail)
}

pub fn connect(config: &Config) -> Result<Connection<Nftables>> {
    let connection = match &config.node_namespace {
        Some(path) => Connection::new_in(path.as_path()),
        None => Connection::<Nftables>::new(),
    };
    connection.map_err(|source| Error::Rules { table: config.table.clone(), source })
}

fn chains() -> [(&'static str, BaseChain); 6] {
    [
        // Before addresses are translated back: what answers to a translated packet is sent to another address than it gets.
        ("spoofed", BaseChain::filter(FilterHook::Prerouting, Priority::Raw)),
        ("host-ports", BaseChain::nat(NatHook::Prerouting, Priority::DstNat)),
        ("host-ports-local", BaseChain::nat(NatHook::Output, Priority::DstNat)),
        ("masquerade", BaseChain::nat(NatHook::Postrouting, Priority::SrcNat)),
        ("unserved", BaseChain::filter(FilterHook::Forward, Priority::Custom(AFTER_FILTERS))),
        ("unserved-local", BaseChain::filter(FilterHook::Output, Priority::Custom(AFTER_FILTERS))),
    ]
}

pub fn rules(input: &Input) -> Vec<Rule> {
    let rule = |chain: &str| Rule::new(&input.table, chain).family(FAMILY);
    let mut rules = spoofed(input);
    for (address, protocol, port) in &input.kept {
        for chain in ["host-ports", "host-ports-local"] {
            rules.push(match_port(rule(chain).match_daddr(*address, width(address)), *protocol, *port).accept());
        }
    }
    for pod in &input.pods {
        for port in &pod.ports {
            for address in pod.addresses.iter().filter(|address| reaches(port, address)) {
                for chain in ["host-ports", "host-ports-local"] {
                    let matched = match_destination(rule(chain), port, address);
                    let matched = match_port(matched, port.protocol, port.host_port);
                    rules.push(matched.nat(NatStatement::dnat(*address).port(port.container_port)));
                }
            }
        }
        // A pod that reaches itself through the node would take the answer for its own question.
        for address in &pod.addresses {
            let itself = rule("masquerade").match_saddr(*address, width(address)).match_daddr(*address, width(address));
            rules.push(itself.match_ct_status(CtStatus::DST_NAT).masquerade());
        }
    }
    if !input.pods.is_empty() {
        let local = rule("masquerade").match_saddr(IpAddr::from([127, 0, 0, 0]), 8).match_oif(&input.bridge);
        rules.push(local.match_ct_status(CtStatus::DST_NAT).masquerade());
    }
    for range in &input.ranges {
        let same_family = |other: &&IpNet| other.addr().is_ipv4() == range.addr().is_ipv4();
        let multicast: IpNet =
            if range.addr().is_ipv4() { "224.0.0.0/4" } else { "ff00::/8" }.parse().expect("a range");
        let unchanged = [range, &multicast].into_iter().chain(input.cluster_ranges.iter().filter(same_family));
        let from = || rule("masquerade").match_saddr(range.network(), range.prefix_len());
        for other in unchanged {
            rules.push(from().match_daddr(other.network(), other.prefix_len()).accept());
        }
        rules.push(from().match_oif_not(&input.bridge).masquerade());
    }
    // IPv6 has no switch for this: no pod is told a shorter way to another, around these rules.
    rules.push(rule("unserved-local").match_oif(&input.bridge).match_icmpv6_type(REDIRECT).drop());
    for range in &input.service_ranges {
        for chain in ["unserved", "unserved-local"] {
            let matched = rule(chain).match_daddr(range.network(), range.prefix_len());
            rules.push(matched.reject_icmpx(IcmpxCode::PortUnreachable));
        }
    }
    rules
}

/// Packets that nobody can have sent where they come from. The bridge takes those for 127.0.0.0/8 so that host ports work
/// there; pods must not reach what the node says to itself (CVE-2020-8558), and nobody outside is one of our pods.
fn spoofed(input: &Input) -> Vec<Rule> {
    let rule = || Rule::new(&input.table, "spoofed").family(FAMILY).match_iif_not("lo");
    let loopback = IpAddr::from([127, 0, 0, 0]);
    let mut rules = vec![rule().match_daddr(loopback, 8).drop(), rule().match_saddr(loopback, 8).drop()];
    let elsewhere = || rule().match_iif_not(&input.bridge);
    rules.extend(input.ranges.iter().map(|own| elsewhere().match_saddr(own.network(), own.prefix_len()).drop()));
    rules
}

/// Whether the port leads to this one of the pod's addresses: families must agree.
fn reaches(port: &Port, address: &IpAddr) -> bool {
    port.host_address.is_none_or(|host| host.is_ipv4() == address.is_ipv4())
}

fn match_destination(rule: Rule, port: &Port, pod: &IpAddr) -> Rule {
    match port.host_address {
        Some(host) => rule.match_daddr(host, width(&host)),
        None => {
            // Any address of this node, of the pod's family.
            let family = if pod.is_ipv4() { Family::Ip } else { Family::Ip6 };
            rule.then(Match::eq(Field::NfProto, family as u8)).match_fib_type(FibFlags::DADDR, RouteType::Local)
        }
    }
}

/// The destination port is at the same place in TCP, UDP and SCTP.
fn match_port(rule: Rule, protocol: u8, port: u16) -> Rule {
    rule.match_l4proto(protocol)
        .expr(Expr::Payload { dreg: Register::R0, base: PayloadBase::Transport, offset: 2, len: 2 })
        .expr(Expr::Cmp { sreg: Register::R0, op: CmpOp::Eq, data: port.to_be_bytes().to_vec() })
}

fn width(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A netlink attribute that holds a text.
pub fn text_attribute(kind: u16, text: &str) -> Vec<u8> {
    let length = 4 + text.len() + 1;
    let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}
