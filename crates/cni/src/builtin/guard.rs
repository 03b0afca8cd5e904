//! Anti-spoofing rules of the bridge. A pod may send packets from its own addresses, and answers about its own addresses, under the
//! hardware address it was given. Everything else that comes in by a pod's device is dropped, so that a pod can neither
//! send in another's name nor draw another's packets to itself.
//!
//! Of IPv6's addresses of one link, which no policy knows, pods get what finding a neighbour needs and nothing else.
//!
//! Frames from pod to pod either pass the rules for routed packets, or the bridge does not switch them.

use std::net::IpAddr;

use nlink::netlink::nftables::{
    BaseChain, Chain, CmpOp, Expr, Family, FilterHook, LookupExpr, MetaKey, NFT_MSG_NEWTABLE, NFTA_TABLE_NAME,
    PayloadBase, Priority, RawMessage, Register, Rule, Set, SetElement, SetKeyType,
};

use super::Config;
use super::links::{device_name, pod_hardware_address};
use super::rules::{connect, text_attribute};
use crate::{Error, Result};

const FAMILY: Family = Family::Bridge;
const CHAIN: &str = "pods";
const BETWEEN: &str = "between-pods";
/// Before anything else looks at a frame.
const FIRST: i32 = -400;
const CREATE: u16 = 0x400;
/// nft's number for the names of devices, and how long the kernel keeps them.
const DEVICE_NAME: SetKeyType = SetKeyType::Other { type_id: 41, len: 16 };

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const ROUTER_ADVERTISEMENT: u8 = 134;
/// Reports about groups that a device listens to, and questions for routers and neighbours.
const FROM_LINK_LOCAL: [u8; 5] = [131, 132, 133, 135, 143];
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// A pod's place on the bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub sandbox: String,
    pub addresses: Vec<IpAddr>,
}

/// Replaces everything by the rules for these pods, in one transaction.
pub async fn write(config: &Config, pods: &[Place]) -> Result<()> {
    let fail = |source| Error::Rules { table: config.table.clone(), source };
    let connection = connect(config)?;
    let table = config.table.as_str();
    let made = RawMessage::new(NFT_MSG_NEWTABLE, FAMILY).flags(CREATE).attrs(text_attribute(NFTA_TABLE_NAME, table));
    let mut transaction = connection.transaction().raw(made).del_table(table, FAMILY).add_table(table, FAMILY);
    for kind in Kind::ALL {
        transaction = transaction.add_set(kind.set(config));
        let elements: Vec<SetElement> = pods.iter().flat_map(|pod| kind.elements(pod)).collect();
        if !elements.is_empty() {
            transaction = transaction.add_set_elements(&kind.set(config), &elements);
        }
    }
    for (name, hook) in [(CHAIN, FilterHook::Prerouting), (BETWEEN, FilterHook::Forward)] {
        let base = BaseChain::filter(hook, Priority::Custom(FIRST));
        transaction = transaction.add_chain(Chain::new(table, name).map_err(fail)?.family(FAMILY).base(base));
    }
    for rule in rules(config) {
        transaction = transaction.add_rule(rule);
    }
    transaction.commit(&connection).await.map_err(fail)
}

/// Lets a pod in.
pub async fn admit(config: &Config, pod: &Place) -> Result<()> {
    change(config, pod, true).await
}

/// Takes a pod's right back. Whoever has none anyway is no error.
pub(crate) async fn dismiss(config: &Config, pod: &Place) -> Result<()> {
    match change(config, pod, false).await {
        Err(Error::Rules { source, .. }) if source.is_not_found() => Ok(()),
        other => other,
    }
}

async fn change(config: &Config, pod: &Place, admitted: bool) -> Result<()> {
    let connection = connect(config)?;
    let mut transaction = connection.transaction();
    for kind in Kind::ALL {
        let elements = kind.elements(pod);
        transaction = match (elements.is_empty(), admitted) {
            (true, _) => transaction,
            (false, true) => transaction.add_set_elements(&kind.set(config), &elements),
            (false, false) => transaction.del_set_elements(&kind.set(config), &elements),
        };
    }
    let committed = transaction.commit(&connection).await;
    committed.map_err(|source| Error::Rules { table: config.table.clone(), source })
}

/// Whether the rules for so many addresses are there.
pub async fn is_there(config: &Config, pods: &[Place]) -> Result<bool> {
    let connection = connect(config)?;
    let fail = |source| Error::Rules { table: config.table.clone(), source };
    let tables = connection.list_tables_in(FAMILY).await.map_err(fail)?;
    if !tables.iter().any(|table| table.name == config.table) {
        return Ok(false);
    }
    let found = connection.list_rules(&config.table, FAMILY).await.map_err(fail)?;
    let mut complete = found.len() == rules(config).len();
    for kind in Kind::ALL {
        let wanted = pods.iter().flat_map(|pod| kind.elements(pod)).count();
        let found = connection.list_set_elements(&config.table, kind.name(), FAMILY).await;
        // A set that is gone holds nothing.
        complete &= found.map_or(0, |elements| elements.len()) >= wanted;
    }
    Ok(complete)
}

/// What is kept of the pods.
#[derive(Clone, Copy)]
enum Kind {
    /// The names of their devices.
    Devices,
    /// Device, hardware address and address.
    Four,
    Six,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Devices, Kind::Four, Kind::Six];

    fn name(self) -> &'static str {
        match self {
            Kind::Devices => "devices",
            Kind::Four => "pods4",
            Kind::Six => "pods6",
        }
    }

    fn set(self, config: &Config) -> Set {
        let key = match self {
            Kind::Devices => DEVICE_NAME,
            Kind::Four => SetKeyType::Concat(vec![DEVICE_NAME, SetKeyType::EtherAddr, SetKeyType::Ipv4Addr]),
            Kind::Six => SetKeyType::Concat(vec![DEVICE_NAME, SetKeyType::EtherAddr, SetKeyType::Ipv6Addr]),
        };
        Set::new(&config.table, self.name()).family(FAMILY).key_type(key)
    }

    fn elements(self, pod: &Place) -> Vec<SetElement> {
        let mut device = device_name(&pod.sandbox).into_bytes();
        device.resize(16, 0);
        let hardware = pod_hardware_address(&pod.sandbox, &pod.addresses);
        let place = |address: &[u8]| SetElement::new([&device, &hardware[..], &[0, 0], address].concat());
        let all = pod.addresses.iter();
        match self {
            Kind::Devices => vec![SetElement::new(device)],
            Kind::Four => all
                .filter_map(|address| match address {
                    IpAddr::V4(address) => Some(place(&address.octets())),
                    IpAddr::V6(_) => None,
                })
                .collect(),
            Kind::Six => all
                .filter_map(|address| match address {
                    IpAddr::V4(_) => None,
                    IpAddr::V6(address) => Some(place(&address.octets())),
                })
                .collect(),
        }
    }
}

fn rules(config: &Config) -> Vec<Rule> {
    let rule = || Rule::new(&config.table, CHAIN).family(FAMILY);
    // Other bridges of this machine are none of our business.
    let elsewhere = rule()
        .expr(Expr::Meta { dreg: Register::R0, key: MetaKey::IifName })
        .expr(LookupExpr::new("devices", Register::R0).invert())
        .accept();
    let (link, network) = (PayloadBase::LinkLayer, PayloadBase::Network);
    // The hardware address of the sender is at 6 of a frame; in ARP at 8, and the sender's address at 14.
    let four = own(of_type(rule(), IPV4), (link, 6), (network, 12, 4), "pods4").accept();
    let arp = own(of_type(rule(), ARP), (link, 6), (network, 14, 4), "pods4");
    let arp = own(arp, (network, 8), (network, 14, 4), "pods4").accept();
    let icmp =
        |kind: u8| load_and_compare(of_type(rule(), IPV6).match_l4proto(ICMPV6), PayloadBase::Transport, 0, vec![kind]);
    let no_router = icmp(ROUTER_ADVERTISEMENT).drop();
    // Whom an advertisement is about is at 8 of it.
    let transport = PayloadBase::Transport;
    let neighbour = own(icmp(NEIGHBOUR_ADVERTISEMENT), (link, 6), (transport, 8, 16), "pods6").accept();
    let link_local_neighbour = load_and_compare(icmp(NEIGHBOUR_ADVERTISEMENT), transport, 8, vec![0xfe, 0x80]).accept();
    let no_neighbour = icmp(NEIGHBOUR_ADVERTISEMENT).drop();
    let six = own(of_type(rule(), IPV6), (link, 6), (network, 8, 16), "pods6").accept();
    let mut rules = vec![elsewhere, four, arp, no_router, neighbour, link_local_neighbour, no_neighbour, six];
    // Addresses that are never routed, and that of a device that has none yet.
    for kind in FROM_LINK_LOCAL {
        rules.push(load_and_compare(icmp(kind), network, 8, vec![0xfe, 0x80]).accept());
        rules.push(load_and_compare(icmp(kind), network, 8, vec![0; 16]).accept());
    }
    rules.push(rule().drop());
    rules.extend(between_pods(config));
    rules
}

/// What the bridge itself must not carry from one pod to another, because rules for routed packets would not find the pods
/// by its addresses: frames to many, and those from or to an address of the link. The node gets them all the same.
fn between_pods(config: &Config) -> [Rule; 3] {
    let rule = || {
        Rule::new(&config.table, BETWEEN)
            .family(FAMILY)
            .expr(Expr::Meta { dreg: Register::R0, key: MetaKey::IifName })
            .expr(LookupExpr::new("devices", Register::R0))
            .expr(Expr::Meta { dreg: Register::R0, key: MetaKey::OifName })
            .expr(LookupExpr::new("devices", Register::R0))
    };
    // The lowest bit of the first byte says that a frame is for many.
    let many = rule()
        .expr(Expr::Payload { dreg: Register::R0, base: PayloadBase::LinkLayer, offset: 0, len: 1 })
        .expr(Expr::Bitwise { sreg: Register::R0, dreg: Register::R0, len: 1, mask: vec![1], xor: vec![0] })
        .expr(Expr::Cmp { sreg: Register::R0, op: CmpOp::Eq, data: vec![1] });
    // fe80::/10.
    let link_local = |offset: u32| {
        of_type(rule(), IPV6)
            .expr(Expr::Payload { dreg: Register::R0, base: PayloadBase::Network, offset, len: 2 })
            .expr(Expr::Cmp { sreg: Register::R0, op: CmpOp::Gte, data: vec![0xfe, 0x80] })
            .expr(Expr::Cmp { sreg: Register::R0, op: CmpOp::Lte, data: vec![0xfe, 0xbf] })
    };
    [many.drop(), link_local(8).drop(), link_local(24).drop()]
}

fn of_type(rule: Rule, protocol: u16) -> Rule {
    rule.expr(Expr::Meta { dreg: Register::R0, key: MetaKey::Protocol }).expr(Expr::Cmp {
        sreg: Register::R0,
        op: CmpOp::Eq,
        data: protocol.to_be_bytes().to_vec(),
    })
}

fn load_and_compare(rule: Rule, base: PayloadBase, offset: u32, data: Vec<u8>) -> Rule {
    let len = data.len() as u32;
    rule.expr(Expr::Payload { dreg: Register::R0, base, offset, len }).expr(Expr::Cmp {
        sreg: Register::R0,
        op: CmpOp::Eq,
        data,
    })
}

/// The device, a hardware address and an address of the frame belong together.
fn own(rule: Rule, hardware: (PayloadBase, u32), address: (PayloadBase, u32, u32), set: &str) -> Rule {
    // Each part begins at a word: the name has four, the hardware address two.
    rule.expr(Expr::Meta { dreg: Register::R0, key: MetaKey::IifName })
        .expr(Expr::Payload { dreg: Register::Reg32_04, base: hardware.0, offset: hardware.1, len: 6 })
        .expr(Expr::Payload { dreg: Register::Reg32_06, base: address.0, offset: address.1, len: address.2 })
        .expr(LookupExpr::new(set, Register::R0))
}
