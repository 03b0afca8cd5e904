//! Compiles NetworkPolicies, namespaces and pods to the nftables rules of this node: data in, data out.
//!
//! A policy that concerns a pod here has one chain per direction, which accepts what its rules allow. Pods with the same
//! policies share a chain that asks one policy after the other and drops the rest. Who a rule speaks about stands in a set,
//! so that a packet costs one lookup however many pods there are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use component_helpers::labels::selects;
use reconcile::Key;

use super::facts::{Facts, Local, Peer, PodFacts, Policy, Port, Rule as PolicyRule};
use super::ranges::{self, Range};
use crate::builtin::hash;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    Four,
    Six,
}

impl Family {
    pub const ALL: [Family; 2] = [Family::Four, Family::Six];

    pub fn of(address: &IpAddr) -> Family {
        if address.is_ipv4() { Family::Four } else { Family::Six }
    }

    pub fn suffix(self) -> &'static str {
        if self == Family::Four { "4" } else { "6" }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Towards the pod.
    Ingress,
    Egress,
}

impl Direction {
    pub const ALL: [Direction; 2] = [Direction::Egress, Direction::Ingress];

    pub fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }
}

/// All rules of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub sets: BTreeMap<String, Set>,
    pub chains: BTreeMap<String, Vec<Rule>>,
    /// The chains of pods that are isolated in a direction.
    pub pods: BTreeMap<(Direction, IpAddr), String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    Addresses(Family, BTreeSet<IpAddr>),
    /// Never changes: another content has another name.
    Ranges(Family, Vec<Range>),
    /// Destination, protocol and port.
    Ports(Family, BTreeSet<(IpAddr, u8, u16)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub matches: Vec<Match>,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The other end is in this set: the source on ingress, the destination on egress.
    Peer {
        direction: Direction,
        family: Family,
        set: String,
    },
    /// Destination, protocol and port together are in this set.
    Target {
        family: Family,
        set: String,
    },
    Protocol(u8),
    /// From first to last.
    Port {
        protocol: u8,
        first: u16,
        last: u16,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    Drop,
    Jump(String),
}

pub fn compile(facts: &Facts) -> Table {
    let mut compiler =
        Compiler { facts, table: Table::default(), chains: BTreeMap::new(), addresses: local_addresses(facts) };
    for local in facts.local.values() {
        for direction in Direction::ALL {
            if let Some(chain) = compiler.chain_of(local, direction) {
                for address in &local.addresses {
                    compiler.table.pods.insert((direction, *address), chain.clone());
                }
            }
        }
    }
    compiler.table
}

/// The rules of pods that nobody knows: no packet passes.
pub fn isolated(addresses: &[IpAddr]) -> Table {
    let mut table = Table::default();
    for direction in Direction::ALL {
        let chain = unknown(direction);
        table.chains.insert(chain.clone(), vec![Rule { matches: Vec::new(), verdict: Verdict::Drop }]);
        table.pods.extend(addresses.iter().map(|address| ((direction, *address), chain.clone())));
    }
    table
}

fn unknown(direction: Direction) -> String {
    format!("pods-{}-unknown", direction.name())
}

/// What this node knows of its own pods' addresses counts before what their objects say.
fn local_addresses(facts: &Facts) -> BTreeMap<&Key, &Vec<IpAddr>> {
    let known = facts.local.values().filter(|local| facts.pod_of(local).is_some());
    known.map(|local| (&local.pod, &local.addresses)).collect()
}

struct Compiler<'a> {
    facts: &'a Facts,
    table: Table,
    /// The chains of policies that are there already.
    chains: BTreeMap<(Direction, &'a Key), String>,
    addresses: BTreeMap<&'a Key, &'a Vec<IpAddr>>,
}

impl<'a> Compiler<'a> {
    /// The chain of all policies that isolate the pod in this direction; none where it is not isolated.
    fn chain_of(&mut self, local: &Local, direction: Direction) -> Option<String> {
        let facts = self.facts;
        let namespace = local.pod.namespace.as_str();
        if !facts.has_policies(namespace) {
            return None;
        }
        let Some(pod) = facts.pod_of(local) else {
            // Nobody knows yet which policies concern it: none of its packets may pass.
            return Some(self.group(unknown(direction), Vec::new()));
        };
        let all = facts.policies.range(Key::new(namespace, "")..).take_while(|(key, _)| key.namespace == namespace);
        let mut chains = Vec::new();
        for (key, policy) in all.filter(|(_, policy)| selects(&policy.pods, Some(&pod.labels))) {
            if let Some(rules) = rules_of(policy, direction) {
                chains.push(self.policy_chain(direction, key, policy, rules));
            }
        }
        if chains.is_empty() {
            return None;
        }
        let name = format!("pods-{}-{:016x}", direction.name(), hash(&chains.join(" ")));
        Some(self.group(name, chains))
    }

    fn group(&mut self, name: String, policies: Vec<String>) -> String {
        let jumps = policies.into_iter().map(|chain| Rule { matches: Vec::new(), verdict: Verdict::Jump(chain) });
        let end = Rule { matches: Vec::new(), verdict: Verdict::Drop };
        self.table.chains.entry(name.clone()).or_insert_with(|| jumps.chain([end]).collect());
        name
    }

    fn policy_chain(&mut self, direction: Direction, key: &'a Key, policy: &Policy, rules: &[PolicyRule]) -> String {
        if let Some(name) = self.chains.get(&(direction, key)) {
            return name.clone();
        }
        let name = format!("policy-{}-{:016x}", direction.name(), hash(&format!("{}/{}", key.namespace, key.name)));
        let mut compiled = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            self.rule(direction, key, policy, rule, &format!("{name}-{number}"), &mut compiled);
        }
        self.table.chains.insert(name.clone(), compiled);
        self.chains.insert((direction, key), name.clone());
        name
    }

    fn rule(
        &mut self,
        direction: Direction,
        key: &Key,
        policy: &Policy,
        rule: &PolicyRule,
        name: &str,
        compiled: &mut Vec<Rule>,
    ) {
        let peers = self.peers(direction, key, rule, name);
        let mut ports: Vec<Vec<Match>> = Vec::new();
        for (number, port) in rule.ports.iter().enumerate() {
            match port {
                Port::All { protocol } => ports.push(vec![Match::Protocol(*protocol)]),
                Port::Range { protocol, first, last } => {
                    ports.push(vec![Match::Port { protocol: *protocol, first: *first, last: *last }]);
                }
                Port::Named { protocol, name: port } => {
                    let targets = match direction {
                        Direction::Ingress => self.named_ports_here(key, policy, *protocol, port),
                        Direction::Egress => self.named_ports_of_peers(key, rule, *protocol, port),
                    };
                    for (family, set) in self.target_sets(&format!("{name}-{number}"), targets) {
                        let target = Match::Target { family, set };
                        match direction {
                            Direction::Ingress => ports.push(vec![target]),
                            // The peers are in that set already.
                            Direction::Egress => {
                                compiled.push(Rule { matches: vec![target], verdict: Verdict::Accept });
                            }
                        }
                    }
                }
            }
        }
        if rule.ports.is_empty() {
            ports.push(Vec::new());
        }
        for peer in &peers {
            for port in ports.iter().filter(|port| agree(peer.as_ref(), port)) {
                let matches = peer.iter().chain(port).cloned().collect();
                compiled.push(Rule { matches, verdict: Verdict::Accept });
            }
        }
    }

    /// The ways of being one of the rule's peers; `None` for everybody.
    fn peers(&mut self, direction: Direction, key: &Key, rule: &PolicyRule, name: &str) -> Vec<Option<Match>> {
        if rule.peers.is_empty() {
            return vec![None];
        }
        let mut ways = Vec::new();
        let selected: BTreeSet<IpAddr> = rule
            .peers
            .iter()
            .flat_map(|peer| self.selected(key, peer))
            .flat_map(|(key, pod)| self.of(key, pod))
            .collect();
        let by_pods = rule.peers.iter().any(|peer| matches!(peer, Peer::Pods { .. }));
        for family in Family::ALL {
            let members: BTreeSet<IpAddr> = selected.iter().filter(|one| Family::of(one) == family).copied().collect();
            // IPv4 is always there, so that the next pod is one more element and no other rule.
            if by_pods && (family == Family::Four || !members.is_empty()) {
                let set = format!("{name}-pods{}", family.suffix());
                self.table.sets.insert(set.clone(), Set::Addresses(family, members));
                ways.push(Some(Match::Peer { direction, family, set }));
            }
            let blocks = rule.peers.iter().filter_map(|peer| match peer {
                Peer::Block { range, except } if Family::of(&range.addr()) == family => {
                    Some((range, except.as_slice()))
                }
                _ => None,
            });
            let ranges = ranges::union(blocks.map(|(range, except)| ranges::without(range, except)));
            if !ranges.is_empty() {
                let set = format!("ranges{}-{:016x}", family.suffix(), hash(&format!("{ranges:?}")));
                self.table.sets.insert(set.clone(), Set::Ranges(family, ranges));
                ways.push(Some(Match::Peer { direction, family, set }));
            }
        }
        ways
    }

    /// The pods that a peer of a policy in this namespace means.
    fn selected<'b>(&self, policy: &'b Key, peer: &'b Peer) -> Vec<(&'a Key, &'a PodFacts)> {
        let Peer::Pods { namespaces, pods } = peer else { return Vec::new() };
        let facts = self.facts;
        let own = [policy.namespace.as_str()];
        let names: Vec<&str> = match namespaces {
            None => own.to_vec(),
            Some(selector) => {
                let all = facts.namespaces.iter().filter(|(_, labels)| selects(selector, Some(labels)));
                all.map(|(name, _)| name.as_str()).collect()
            }
        };
        let mut found = Vec::new();
        for name in names {
            let all = facts.pods.range(Key::new(name, "")..).take_while(|(key, _)| key.namespace == name);
            found.extend(all.filter(|(_, pod)| selects(pods, Some(&pod.labels))));
        }
        found
    }

    fn of(&self, key: &Key, pod: &PodFacts) -> Vec<IpAddr> {
        self.addresses.get(key).map_or_else(|| pod.addresses.clone(), |addresses| (*addresses).clone())
    }

    /// Where the pods here that the policy selects have the port of this name.
    fn named_ports_here(&self, key: &Key, policy: &Policy, protocol: u8, name: &str) -> BTreeSet<(IpAddr, u8, u16)> {
        let mut targets = BTreeSet::new();
        for local in self.facts.local.values().filter(|local| local.pod.namespace == key.namespace) {
            let Some(pod) = self.facts.pod_of(local).filter(|pod| selects(&policy.pods, Some(&pod.labels))) else {
                continue;
            };
            let numbers = named(pod, protocol, name);
            targets.extend(numbers.flat_map(|number| local.addresses.iter().map(move |at| (*at, protocol, number))));
        }
        targets
    }

    fn named_ports_of_peers(
        &self,
        key: &Key,
        rule: &PolicyRule,
        protocol: u8,
        name: &str,
    ) -> BTreeSet<(IpAddr, u8, u16)> {
        let pods: Vec<(&Key, &PodFacts)> = if rule.peers.is_empty() {
            self.facts.pods.iter().collect()
        } else {
            rule.peers.iter().flat_map(|peer| self.selected(key, peer)).collect()
        };
        let mut targets = BTreeSet::new();
        for (key, pod) in pods {
            for number in named(pod, protocol, name) {
                targets.extend(self.of(key, pod).into_iter().map(|address| (address, protocol, number)));
            }
        }
        targets
    }

    fn target_sets(&mut self, name: &str, targets: BTreeSet<(IpAddr, u8, u16)>) -> Vec<(Family, String)> {
        let mut sets = Vec::new();
        for family in Family::ALL {
            let members: BTreeSet<_> = targets.iter().filter(|(at, ..)| Family::of(at) == family).copied().collect();
            if family == Family::Four || !members.is_empty() {
                let set = format!("{name}-ports{}", family.suffix());
                self.table.sets.insert(set.clone(), Set::Ports(family, members));
                sets.push((family, set));
            }
        }
        sets
    }
}

fn rules_of(policy: &Policy, direction: Direction) -> Option<&[PolicyRule]> {
    match direction {
        Direction::Ingress => policy.ingress.as_deref(),
        Direction::Egress => policy.egress.as_deref(),
    }
}

fn named(pod: &PodFacts, protocol: u8, name: &str) -> impl Iterator<Item = u16> {
    pod.ports.iter().filter(move |(own, of, _)| own == name && *of == protocol).map(|(_, _, number)| *number)
}

/// A packet has one family: other pairs never match.
fn agree(peer: Option<&Match>, port: &[Match]) -> bool {
    let family = |one: &Match| match one {
        Match::Peer { family, .. } | Match::Target { family, .. } => Some(*family),
        Match::Protocol(_) | Match::Port { .. } => None,
    };
    match (peer.and_then(family), port.iter().find_map(family)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}
