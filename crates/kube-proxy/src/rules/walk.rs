//! Evaluates the rules for a packet as the kernel would.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use crate::layout::{self, Chain, Choice, Hook, MARK, Origin, Step};
use crate::model::{Destination, Door, Family, Key, Ledger, NodePort, Protocol, Value};

/// The first packet of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes where it was sent, and nothing of it is changed.
    Untouched,
    Reaches {
        endpoint: SocketAddr,
        masqueraded: bool,
    },
    Rejected,
    Dropped,
}

/// A node's kernel: the rules, and what it remembers of clients.
pub struct Machine<'a> {
    pub ledger: &'a Ledger,
    /// The addresses of the node itself.
    pub own: Vec<IpAddr>,
    pub clients: HashMap<u64, HashSet<IpAddr>>,
}

struct Walk<'m, 'a> {
    machine: &'m mut Machine<'a>,
    packet: Packet,
    port: u16,
    mark: u32,
    translated: Option<SocketAddr>,
    masqueraded: bool,
    random: u32,
}

enum Verdict {
    Next,
    Return,
    Accept,
    Reject,
    Drop,
}

impl Machine<'_> {
    /// `random` stands for the number that the kernel would draw.
    pub fn walk(&mut self, packet: Packet, random: u32) -> Fate {
        let is_from_here = self.own.contains(&packet.source);
        let mut walk =
            Walk { port: packet.port, machine: self, packet, mark: 0, translated: None, masqueraded: false, random };
        let first: &[fn(&Hook) -> bool] = if is_from_here {
            &[
                |hook| matches!(hook, Hook::FilterOutput(at) if *at < 0),
                |hook| matches!(hook, Hook::TranslateOutput),
                |hook| matches!(hook, Hook::FilterOutput(0)),
            ]
        } else {
            &[|hook| matches!(hook, Hook::FilterPrerouting(_)), |hook| matches!(hook, Hook::TranslatePrerouting)]
        };
        for hook in first {
            if let Some(fate) = walk.hook(hook) {
                return fate;
            }
        }
        if !is_from_here {
            let stays = walk.machine.own.contains(&walk.destination());
            let filter: fn(&Hook) -> bool = if stays {
                |hook| matches!(hook, Hook::FilterInput)
            } else {
                |hook| matches!(hook, Hook::FilterForward)
            };
            if let Some(fate) = walk.hook(&filter) {
                return fate;
            }
        }
        if let Some(fate) = walk.hook(&(|hook: &Hook| matches!(hook, Hook::TranslatePostrouting))) {
            return fate;
        }
        assert!(walk.mark == 0, "no mark leaves the node");
        match walk.translated {
            Some(endpoint) => Fate::Reaches { endpoint, masqueraded: walk.masqueraded },
            None => {
                assert!(!walk.masqueraded, "what is none of ours keeps its source");
                Fate::Untouched
            }
        }
    }
}

impl Walk<'_, '_> {
    fn hook(&mut self, is: &dyn Fn(&Hook) -> bool) -> Option<Fate> {
        let chains: Vec<Chain> =
            layout::chains().into_iter().filter(|chain| chain.hook.as_ref().is_some_and(is)).collect();
        for chain in chains {
            match self.chain(&chain) {
                Verdict::Reject => return Some(Fate::Rejected),
                Verdict::Drop => return Some(Fate::Dropped),
                Verdict::Next | Verdict::Return | Verdict::Accept => {}
            }
        }
        None
    }

    fn chain(&mut self, chain: &Chain) -> Verdict {
        for rule in &chain.rules {
            match self.rule(rule) {
                Verdict::Next => {}
                Verdict::Return => return Verdict::Next,
                done => return done,
            }
        }
        Verdict::Next
    }

    fn rule(&mut self, rule: &[Step]) -> Verdict {
        for step in rule {
            match self.holds(step) {
                Some(true) => {}
                Some(false) => return Verdict::Next,
                None => {
                    if let Some(verdict) = self.act(step) {
                        return verdict;
                    }
                }
            }
        }
        Verdict::Next
    }

    /// Whether the packet is such a one; nothing where the step is no condition.
    fn holds(&mut self, step: &Step) -> Option<bool> {
        Some(match step {
            Step::NewConnection => true,
            Step::Translated(is) => self.translated.is_some() == *is,
            Step::FromPod(is) => self.in_range(self.packet.source, true) == *is,
            Step::FromNode(is) => self.machine.own.contains(&self.packet.source) == *is,
            Step::From(range) => range.contains(&self.packet.source),
            Step::ToNodePorts => {
                self.machine.own.contains(&self.destination()) && self.in_range(self.destination(), false)
            }
            Step::Hairpin => self.packet.source == self.destination() && self.has(&Key::Hairpin(self.packet.source)),
            Step::Refused(Door::Address | Door::OutsideAddress, refusal) => {
                self.has(&Key::RefusedAddress(*refusal, self.to_address()))
            }
            Step::Refused(Door::Port | Door::OutsidePort, refusal) => {
                self.has(&Key::RefusedPort(*refusal, self.to_port()))
            }
            Step::ToClusterAddress => self.has(&Key::ClusterAddress(self.destination())),
            Step::Marked => self.mark & MARK != 0,
            Step::Chance(of) => {
                assert!(*of > 1, "one of one is no chance");
                let drawn = self.random % of;
                self.random /= of;
                drawn == 0
            }
            Step::IsAmong(clients) => self.clients(*clients).contains(&self.packet.source),
            Step::IsTcp => self.packet.protocol == Protocol::Tcp,
            _ => return None,
        })
    }

    /// Does what the step says; a verdict ends the rule.
    fn act(&mut self, step: &Step) -> Option<Verdict> {
        match step {
            Step::Mark => self.mark |= MARK,
            Step::Unmark => self.mark &= !MARK,
            Step::Jump(name) => {
                let chain = layout::chains().into_iter().find(|chain| chain.name == *name);
                return Some(self.chain(&chain.expect("a chain that is there")));
            }
            Step::Enter(door) => {
                let key = match door {
                    Door::Address | Door::OutsideAddress => Key::Address(*door, self.to_address()),
                    Door::Port | Door::OutsidePort => Key::Port(*door, self.to_port()),
                };
                return Some(self.follow(&key).unwrap_or(Verdict::Next));
            }
            Step::Firewall => {
                let key = Key::Firewall(self.to_address());
                return Some(self.follow(&key).unwrap_or(Verdict::Next));
            }
            Step::Remember { clients, .. } => {
                let source = self.packet.source;
                self.clients(*clients);
                self.machine.clients.entry(*clients).or_default().insert(source);
            }
            Step::Pick { service, choice } => return Some(self.pick(service, choice)),
            Step::To(endpoint) => {
                self.translated = Some(*endpoint);
                return Some(Verdict::Accept);
            }
            Step::Masquerade => {
                self.masqueraded = true;
                return Some(Verdict::Accept);
            }
            Step::Reject | Step::Reset => return Some(Verdict::Reject),
            Step::Drop => return Some(Verdict::Drop),
            Step::Return => return Some(Verdict::Return),
            condition => unreachable!("{condition:?} only holds or does not"),
        }
        None
    }

    fn pick(&mut self, service: &Origin, choice: &Choice) -> Verdict {
        let service = match service {
            Origin::Packet => self.to_address(),
            Origin::Service(service) => *service,
        };
        let number = match choice {
            Choice::Random { of, from } => from + self.random % of,
            Choice::Number(number) => *number,
        };
        match self.machine.ledger.get(&Key::Endpoint(service, number)) {
            Some(Value::Endpoint(endpoint)) => self.translated = Some(*endpoint),
            _ => return Verdict::Next,
        }
        Verdict::Accept
    }

    /// Goes to where an element leads, which ends the chain it is gone from.
    fn follow(&mut self, key: &Key) -> Option<Verdict> {
        let Value::Goto(name) = self.machine.ledger.get(key)? else { panic!("{key:?} leads to no chain") };
        let Some(Value::Chain(chain)) = self.machine.ledger.get(&Key::Chain(self.family(), name.clone())) else {
            panic!("there is no chain {name}");
        };
        Some(match self.chain(&chain.clone()) {
            Verdict::Next => Verdict::Return,
            done => done,
        })
    }

    fn clients(&self, clients: u64) -> HashSet<IpAddr> {
        assert!(self.has(&Key::Clients(self.family(), clients)), "there is no set of these clients");
        self.machine.clients.get(&clients).cloned().unwrap_or_default()
    }

    fn in_range(&self, address: IpAddr, pods: bool) -> bool {
        self.machine.ledger.iter().any(|(key, ..)| match key {
            Key::PodRange(first, last) if pods => (*first..=*last).contains(&address),
            Key::NodePortRange(first, last) if !pods => (*first..=*last).contains(&address),
            _ => false,
        })
    }

    fn has(&self, key: &Key) -> bool {
        self.machine.ledger.get(key).is_some()
    }

    fn family(&self) -> Family {
        Family::of(&self.packet.destination)
    }

    fn destination(&self) -> IpAddr {
        self.translated.map_or(self.packet.destination, |endpoint| endpoint.ip())
    }

    fn to_address(&self) -> Destination {
        let port = self.translated.map_or(self.port, |endpoint| endpoint.port());
        Destination { address: self.destination(), protocol: self.packet.protocol, port }
    }

    fn to_port(&self) -> NodePort {
        let Destination { protocol, port, .. } = self.to_address();
        NodePort { family: self.family(), protocol, port }
    }
}
