//! The rules in the kernel: one table of our own, changed by what differs, in one transaction.
//!
//! Each direction has a base chain in the forward hook, after Services' destinations are translated and before sources are.
//! What the first one accepts, the second still looks at. Packets of the node's own processes take another way, so probes
//! always arrive. What a pod sends to its own node is looked at in the input hook, as what leaves the pod.

mod elements;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use nlink::netlink::nftables::{
    BaseChain, Chain, ChainName, CmpOp, CtState, Expr, Family as TableFamily, FilterHook, NFT_MSG_NEWTABLE,
    NFTA_TABLE_NAME, PayloadBase, Priority, RawMessage, Register, Rule as KernelRule, Set as KernelSet, SetElement,
    SetKeyType, TcpFlags, Transaction, Verdict as KernelVerdict,
};
use nlink::netlink::{Connection, Nftables};

use self::elements::{
    address_type, change_elements, element, fields, isolated_name, keys, match_port, match_target, octets, pods_name,
    selves_name, size,
};
use super::compile::{self, Direction, Family, Match, Rule, Set, Table, Verdict};
use crate::builtin::text_attribute;
use crate::{Error, Result};

const FAMILY: TableFamily = TableFamily::Inet;
const CREATE: u16 = 0x400;

/// The base chain of what pods send to their own node.
const TO_NODE: &str = "egress-node";
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
/// ICMPv6's messages by which neighbours, routers and groups of a link are found.
const NEIGHBOUR_DISCOVERY: (u8, u8) = (130, 143);

pub struct Writer {
    pub table: String,
    pub namespace: Option<PathBuf>,
    /// Protocols and ports of the node that every pod may ask.
    pub node_ports: Vec<(u8, u16)>,
}

impl Writer {
    fn connect(&self) -> Result<Connection<Nftables>> {
        let connection = match &self.namespace {
            Some(path) => Connection::new_in(path.as_path()),
            None => Connection::<Nftables>::new(),
        };
        connection.map_err(|source| self.error(source))
    }

    fn error(&self, source: nlink::netlink::Error) -> Error {
        Error::Rules { table: self.table.clone(), source }
    }

    /// Lets nothing pass to or from these addresses, and leaves everything else as it is.
    pub async fn isolate(&self, addresses: &[IpAddr]) -> Result<()> {
        let isolated = compile::isolated(addresses);
        let connection = self.connect()?;
        let tables = connection.list_tables_in(FAMILY).await.map_err(|source| self.error(source))?;
        if !tables.iter().any(|found| found.name == self.table) {
            return self.replace(&isolated).await;
        }
        let chains =
            connection.list_chains_in(self.table.as_str(), FAMILY).await.map_err(|source| self.error(source))?;
        let mut there = Table::default();
        for (name, rules) in &isolated.chains {
            if chains.iter().any(|chain| chain.name == *name) {
                there.chains.insert(name.clone(), rules.clone());
            }
        }
        // An address that another pod had before may still have its rules there.
        let mut transaction = connection.transaction();
        for (direction, address) in isolated.pods.keys() {
            let map = self.pods(*direction, Family::of(address));
            let found = connection.list_set_elements(&self.table, map.name(), FAMILY).await;
            let key = octets(address);
            if found.is_ok_and(|elements| elements.iter().any(|element| element.key() == key)) {
                transaction = transaction.del_set_elements(&map, &[element(&[&key])]);
            }
        }
        let transaction = self.difference(transaction, &there, &isolated)?;
        transaction.commit(&connection).await.map_err(|source| self.error(source))
    }

    /// Everything anew, without a moment in between.
    pub async fn replace(&self, should: &Table) -> Result<()> {
        let connection = self.connect()?;
        let name = self.table.as_str();
        let made = RawMessage::new(NFT_MSG_NEWTABLE, FAMILY).flags(CREATE).attrs(text_attribute(NFTA_TABLE_NAME, name));
        let mut transaction = connection.transaction().raw(made).del_table(name, FAMILY).add_table(name, FAMILY);
        for direction in Direction::ALL {
            for family in Family::ALL {
                transaction = transaction.add_set(self.pods(direction, family));
            }
        }
        for family in Family::ALL {
            transaction = transaction.add_set(self.selves(family)).add_set(self.isolated(family));
        }
        for (place, direction) in (0..).zip(Direction::ALL) {
            let base = BaseChain::filter(FilterHook::Forward, Priority::Custom(place));
            let chain = Chain::new(name, direction.name()).map_err(|source| self.error(source))?;
            transaction = transaction.add_chain(chain.family(FAMILY).base(base));
            for rule in self.base_rules(direction) {
                transaction = transaction.add_rule(rule);
            }
        }
        let chain = Chain::new(name, TO_NODE).map_err(|source| self.error(source))?.family(FAMILY);
        transaction = transaction.add_chain(chain.base(BaseChain::filter(FilterHook::Input, Priority::Custom(0))));
        for rule in self.node_rules() {
            transaction = transaction.add_rule(rule);
        }
        let transaction = self.difference(transaction, &Table::default(), should)?;
        transaction.commit(&connection).await.map_err(|source| self.error(source))
    }

    /// Only what differs from what was written last.
    pub async fn change(&self, is: &Table, should: &Table) -> Result<()> {
        if is == should {
            return Ok(());
        }
        let connection = self.connect()?;
        let transaction = self.difference(connection.transaction(), is, should)?;
        transaction.commit(&connection).await.map_err(|source| self.error(source))
    }

    /// Whether the kernel still has all of this.
    pub async fn has(&self, table: &Table) -> Result<bool> {
        let connection = self.connect()?;
        let tables = connection.list_tables_in(FAMILY).await.map_err(|source| self.error(source))?;
        if !tables.iter().any(|found| found.name == self.table) {
            return Ok(false);
        }
        let rules = connection.list_rules(&self.table, FAMILY).await.map_err(|source| self.error(source))?;
        let base: usize = Direction::ALL.iter().map(|direction| self.base_rules(*direction).len()).sum();
        let base = base + self.node_rules().len();
        if rules.len() != base + table.chains.values().map(Vec::len).sum::<usize>() {
            return Ok(false);
        }
        let mut sizes: BTreeMap<String, usize> =
            table.sets.iter().map(|(name, set)| (name.clone(), size(set))).collect();
        for direction in Direction::ALL {
            for family in Family::ALL {
                let of = |(one, address): &&(Direction, IpAddr)| *one == direction && Family::of(address) == family;
                sizes.insert(pods_name(direction, family), table.pods.keys().filter(of).count());
            }
        }
        for family in Family::ALL {
            let addresses: BTreeSet<&IpAddr> = table.pods.keys().map(|(_, address)| address).collect();
            let of_family = addresses.iter().filter(|address| Family::of(address) == family);
            sizes.insert(isolated_name(family), of_family.count());
        }
        for (name, wanted) in sizes.iter().filter(|(_, wanted)| **wanted > 0) {
            let found = connection.list_set_elements(&self.table, name, FAMILY).await;
            // A set that is gone holds nothing; one of ranges shows their ends one by one.
            if found.map_or(0, |elements| elements.len()) < *wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// First what is new, then what leads there, and last what nothing leads to any more.
    fn difference(&self, mut transaction: Transaction, is: &Table, should: &Table) -> Result<Transaction> {
        let table = self.table.as_str();
        let nothing = BTreeSet::new();
        for (name, set) in &should.sets {
            let kernel = self.set(name, set);
            let before = is.sets.get(name);
            if before.is_none() {
                transaction = transaction.add_set(kernel.clone());
            }
            let (old, new) = (before.map_or_else(|| nothing.clone(), keys), keys(set));
            transaction = change_elements(transaction, &kernel, &old, &new, matches!(set, Set::Ranges(..)));
        }
        for name in should.chains.keys().filter(|name| !is.chains.contains_key(*name)) {
            transaction = transaction.add_chain(self.chain(name)?);
        }
        for (name, rules) in &should.chains {
            let before = is.chains.get(name);
            if before == Some(rules) {
                continue;
            }
            if before.is_some() {
                transaction = transaction.flush_chain(table, name, FAMILY);
            }
            for rule in rules {
                transaction = transaction.add_rule(self.rule(name, rule)?);
            }
        }
        transaction = self.change_pods(transaction, is, should)?;
        let gone: Vec<&String> = is.chains.keys().filter(|name| !should.chains.contains_key(*name)).collect();
        for name in &gone {
            transaction = transaction.flush_chain(table, name, FAMILY);
        }
        for name in &gone {
            transaction = transaction.del_chain(table, name, FAMILY);
        }
        for name in is.sets.keys().filter(|name| !should.sets.contains_key(*name)) {
            transaction = transaction.del_set(table, name, FAMILY);
        }
        Ok(transaction)
    }

    fn change_pods(&self, mut transaction: Transaction, is: &Table, should: &Table) -> Result<Transaction> {
        let changed = |a: &Table, b: &Table| -> Vec<(Direction, IpAddr, String)> {
            let different = a.pods.iter().filter(|(pod, chain)| b.pods.get(*pod) != Some(chain));
            different.map(|((direction, address), chain)| (*direction, *address, chain.clone())).collect()
        };
        for (direction, address, _) in changed(is, should) {
            let map = self.pods(direction, Family::of(&address));
            transaction = transaction.del_set_elements(&map, &[element(&[&octets(&address)])]);
        }
        for (direction, address, chain) in changed(should, is) {
            let map = self.pods(direction, Family::of(&address));
            let chain = ChainName::new(chain).map_err(|source| self.error(source))?;
            let element = element(&[&octets(&address)]).verdict(KernelVerdict::GotoTo(chain));
            transaction = transaction.add_set_elements(&map, &[element]);
        }
        // A pod always reaches itself, also by way of a Service.
        let selves = |table: &Table| -> BTreeSet<IpAddr> { table.pods.keys().map(|(_, address)| *address).collect() };
        let (old, new) = (selves(is), selves(should));
        for family in Family::ALL {
            let pairs = |all: &BTreeSet<IpAddr>| -> BTreeSet<Vec<u8>> {
                let own = all.iter().filter(|address| Family::of(address) == family);
                own.map(|address| [octets(address), octets(address)].concat()).collect()
            };
            transaction = change_elements(transaction, &self.selves(family), &pairs(&old), &pairs(&new), false);
            let single = |all: &BTreeSet<IpAddr>| -> BTreeSet<Vec<u8>> {
                all.iter().filter(|address| Family::of(address) == family).map(octets).collect()
            };
            transaction = change_elements(transaction, &self.isolated(family), &single(&old), &single(&new), false);
        }
        Ok(transaction)
    }

    fn base_rules(&self, direction: Direction) -> Vec<KernelRule> {
        let rule = || KernelRule::new(&self.table, direction.name()).family(FAMILY);
        let mut rules = vec![rule().match_ct_state(CtState::ESTABLISHED | CtState::RELATED).accept()];
        if direction == Direction::ALL[0] {
            rules.extend(self.broken(direction.name(), true));
        }
        for family in Family::ALL {
            let (source, target) = fields(family);
            let own = match direction {
                Direction::Ingress => target,
                Direction::Egress => source,
            };
            rules.push(rule().match_concat_in_set(&[source, target], &selves_name(family)).accept());
            rules.push(rule().vmap(own, &pods_name(direction, family)));
        }
        rules
    }

    fn node_rules(&self) -> Vec<KernelRule> {
        let rule = || KernelRule::new(&self.table, TO_NODE).family(FAMILY);
        let mut rules = vec![rule().match_ct_state(CtState::ESTABLISHED | CtState::RELATED).accept()];
        rules.extend(self.broken(TO_NODE, false));
        let compare = |op, value: u8| Expr::Cmp { sreg: Register::R0, op, data: vec![value] };
        let neighbours = rule()
            .match_l4proto(ICMPV6)
            .expr(Expr::Payload { dreg: Register::R0, base: PayloadBase::Transport, offset: 0, len: 1 })
            .expr(compare(CmpOp::Gte, NEIGHBOUR_DISCOVERY.0))
            .expr(compare(CmpOp::Lte, NEIGHBOUR_DISCOVERY.1));
        rules.push(neighbours.accept());
        rules.extend(
            self.node_ports.iter().map(|(protocol, port)| match_port(rule(), *protocol, *port, *port).accept()),
        );
        for family in Family::ALL {
            rules.push(rule().vmap(fields(family).0, &pods_name(Direction::Egress, family)));
        }
        rules
    }

    /// A packet in the middle of a connection that the kernel does not know was cut, or answers one that was. The kernel would
    /// take the other end for the one who began, and let everything pass again.
    fn broken(&self, chain: &str, both_ends: bool) -> Vec<KernelRule> {
        let middle = || {
            let rule = KernelRule::new(&self.table, chain).family(FAMILY);
            let rule = rule.match_ct_state(CtState::NEW | CtState::INVALID).match_l4proto(TCP);
            rule.match_tcp_flags(TcpFlags::empty(), TcpFlags::SYN)
        };
        let mut rules = Vec::new();
        for family in Family::ALL {
            let (source, target) = fields(family);
            let ends = if both_ends { vec![source, target] } else { vec![source] };
            rules.extend(ends.into_iter().map(|end| middle().match_in_set(end, &isolated_name(family)).drop()));
        }
        rules
    }

    fn isolated(&self, family: Family) -> KernelSet {
        KernelSet::new(&self.table, &isolated_name(family)).family(FAMILY).key_type(address_type(family))
    }

    fn pods(&self, direction: Direction, family: Family) -> KernelSet {
        KernelSet::new(&self.table, &pods_name(direction, family)).family(FAMILY).key_type(address_type(family)).vmap()
    }

    fn selves(&self, family: Family) -> KernelSet {
        let key = SetKeyType::Concat(vec![address_type(family), address_type(family)]);
        KernelSet::new(&self.table, &selves_name(family)).family(FAMILY).key_type(key)
    }

    fn set(&self, name: &str, set: &Set) -> KernelSet {
        let kernel = KernelSet::new(&self.table, name).family(FAMILY);
        match set {
            Set::Addresses(family, _) => kernel.key_type(address_type(*family)),
            Set::Ranges(family, _) => kernel.key_type(address_type(*family)).interval(),
            Set::Ports(family, _) => kernel.key_type(SetKeyType::Concat(vec![
                address_type(*family),
                SetKeyType::InetProto,
                SetKeyType::InetService,
            ])),
        }
    }

    fn chain(&self, name: &str) -> Result<Chain> {
        Ok(Chain::new(self.table.as_str(), name).map_err(|source| self.error(source))?.family(FAMILY))
    }

    fn rule(&self, chain: &str, rule: &Rule) -> Result<KernelRule> {
        let mut kernel = KernelRule::new(&self.table, chain).family(FAMILY);
        for one in &rule.matches {
            kernel = match one {
                Match::Peer { direction, family, set } => {
                    let (source, target) = fields(*family);
                    kernel.match_in_set(if *direction == Direction::Ingress { source } else { target }, set)
                }
                Match::Target { family, set } => match_target(kernel, *family, set),
                Match::Protocol(protocol) => kernel.match_l4proto(*protocol),
                Match::Port { protocol, first, last } => match_port(kernel, *protocol, *first, *last),
            };
        }
        Ok(match &rule.verdict {
            Verdict::Accept => kernel.accept(),
            Verdict::Drop => kernel.drop(),
            Verdict::Jump(chain) => kernel.try_jump(chain).map_err(|source| self.error(source))?,
        })
    }
}

pub(crate) fn has_chain(table: &Table, name: &str) -> bool {
    name == TO_NODE
        || table.chains.contains_key(name)
        || Direction::ALL.iter().any(|direction| direction.name() == name)
}

/// Whether any of these elements of a set belongs there.
pub fn has_any(table: &Table, set: &str, elements: &[SetElement]) -> bool {
    if let Some(set) = table.sets.get(set) {
        let keys = keys(set);
        // Ranges come in halves; they are never changed, so whoever takes one is not us.
        return matches!(set, Set::Ranges(..)) || elements.iter().any(|element| keys.contains(element.key()));
    }
    let belongs = |(direction, address): &(Direction, IpAddr)| {
        pods_name(*direction, Family::of(address)) == set
            && elements.iter().any(|element| element.key() == octets(address))
    };
    table.pods.keys().any(belongs)
}
