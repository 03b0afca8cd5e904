//! The chains that every packet meets, and those of a treatment, as data. `nftables/` writes them into the kernel, the tests
//! walk packets through them.

use std::net::SocketAddr;

use ipnet::IpNet;

use crate::model::{Destination, Door, Family, Masquerade, Refusal, digest};

/// The bit that says: this packet gets the node's address as its source. The same one that upstream uses.
pub const MARK: u32 = 0x4000;
/// Before addresses are translated, at -100.
const BEFORE_TRANSLATION: i32 = -110;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: String,
    pub hook: Option<Hook>,
    pub rules: Vec<Rule>,
}

/// The steps are taken in order; one that does not hold ends the rule, and the next rule is tried.
pub type Rule = Vec<Step>;

/// Where the kernel hands packets to a chain. Translating chains see the first packet of a connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    TranslatePrerouting,
    TranslateOutput,
    TranslatePostrouting,
    FilterPrerouting(i32),
    FilterOutput(i32),
    FilterInput,
    FilterForward,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    // Conditions.
    NewConnection,
    Translated(bool),
    FromPod(bool),
    /// From an address of this node.
    FromNode(bool),
    From(IpNet),
    /// To an address of this node by which node ports are reached.
    ToNodePorts,
    Hairpin,
    Refused(Door, Refusal),
    ToClusterAddress,
    Marked,
    IsTcp,
    /// One time of so many.
    Chance(u32),
    /// The client is among these.
    IsAmong(u64),
    // What is done.
    /// The client is among these for so long.
    Remember {
        clients: u64,
        seconds: u32,
    },
    Jump(&'static str),
    /// Goes on in the chain that the destination has behind this door, if it has one.
    Enter(Door),
    /// Goes on in the chain of the sources that may reach the destination, if they are limited.
    Firewall,
    /// Translates to the endpoint of this number.
    Pick {
        service: Origin,
        choice: Choice,
    },
    To(SocketAddr),
    Mark,
    Unmark,
    Masquerade,
    /// The connection is reset.
    Reset,
    Reject,
    Drop,
    Return,
}

/// By whose address endpoints are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// That to which the packet is sent.
    Packet,
    Service(Destination),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One of so many, from this number on.
    Random {
        of: u32,
        from: u32,
    },
    Number(u32),
}

/// The chains that are always there. Those that others jump to come first.
pub fn chains() -> Vec<Chain> {
    let by = |name: &str, hook, rules: &[&[Step]]| Chain {
        name: name.to_owned(),
        hook,
        rules: rules.iter().map(|rule| rule.to_vec()).collect(),
    };
    let check = [Step::NewConnection, Step::Translated(false), Step::Jump("unserved")];
    let firewall = [Step::NewConnection, Step::Firewall];
    vec![
        by("services", None, &[&[Step::Enter(Door::Address)], &[Step::ToNodePorts, Step::Enter(Door::Port)]]),
        by(
            "outside",
            None,
            &[
                &[Step::Enter(Door::OutsideAddress)],
                &[Step::ToNodePorts, Step::Enter(Door::OutsidePort)],
                // Others may be served from other nodes; these must not.
                &[Step::Refused(Door::Address, Refusal::Drop), Step::Drop],
                &[Step::ToNodePorts, Step::Refused(Door::Port, Refusal::Drop), Step::Drop],
            ],
        ),
        by(
            "unserved",
            None,
            &[
                &[Step::Refused(Door::Address, Refusal::Reject), Step::Jump("refuse")],
                &[Step::Refused(Door::Address, Refusal::Drop), Step::Drop],
                &[Step::ToNodePorts, Step::Refused(Door::Port, Refusal::Reject), Step::Jump("refuse")],
                &[Step::ToNodePorts, Step::Refused(Door::Port, Refusal::Drop), Step::Drop],
                // A port that its Service does not have.
                &[Step::ToClusterAddress, Step::Jump("refuse")],
            ],
        ),
        // The kernel sends only a few messages a second that say so; connections are reset as often as they are tried.
        by("refuse", None, &[&[Step::IsTcp, Step::Reset], &[Step::Reject]]),
        by("firewall-prerouting", Some(Hook::FilterPrerouting(BEFORE_TRANSLATION)), &[&firewall]),
        by("firewall-output", Some(Hook::FilterOutput(BEFORE_TRANSLATION)), &[&firewall]),
        by(
            "translate-prerouting",
            Some(Hook::TranslatePrerouting),
            &[&[Step::FromPod(false), Step::FromNode(false), Step::Jump("outside")], &[Step::Jump("services")]],
        ),
        by("translate-output", Some(Hook::TranslateOutput), &[&[Step::Jump("services")]]),
        by(
            "translate-postrouting",
            Some(Hook::TranslatePostrouting),
            &[
                &[Step::Translated(true), Step::Hairpin, Step::Masquerade],
                &[Step::Marked, Step::Unmark, Step::Masquerade],
            ],
        ),
        by("filter-input", Some(Hook::FilterInput), &[&check]),
        by("filter-forward", Some(Hook::FilterForward), &[&check]),
        by("filter-output", Some(Hook::FilterOutput(0)), &[&check]),
    ]
}

/// Leads to one of so many endpoints of the Service, whose numbers begin with `from`.
pub(crate) fn picking_chain(name: String, masquerade: Masquerade, service: Origin, of: u32, from: u32) -> Chain {
    let mut rules: Vec<Rule> = marking_rule(masquerade).into_iter().collect();
    rules.push(vec![Step::Pick { service, choice: Choice::Random { of, from } }]);
    // A packet that meets a change of the rules halfway may have drawn a number that is no more. The first one is there
    // as long as there is any.
    rules.push(vec![Step::Pick { service, choice: Choice::Number(from) }]);
    Chain { name, hook: None, rules }
}

/// The name of the chain that Services with so many endpoints share.
pub fn shared_name(masquerade: Masquerade, of: u32) -> String {
    let masquerade = match masquerade {
        Masquerade::Never => "",
        Masquerade::UnlessFromPod => "-masquerade-others",
        Masquerade::Always => "-masquerade",
    };
    format!("endpoints-{of}{masquerade}")
}

/// Leads each client to the endpoint that it was led to before, and otherwise to any.
pub(crate) fn staying_chain(
    name: String,
    masquerade: Masquerade,
    seconds: u32,
    endpoints: &[(u64, SocketAddr)],
) -> Chain {
    let mut rules: Vec<Rule> = marking_rule(masquerade).into_iter().collect();
    for (clients, endpoint) in endpoints {
        let remember = Step::Remember { clients: *clients, seconds };
        rules.push(vec![Step::IsAmong(*clients), remember, Step::To(*endpoint)]);
    }
    for (index, (clients, endpoint)) in endpoints.iter().enumerate() {
        let left = (endpoints.len() - index) as u32;
        let mut rule = if left > 1 { vec![Step::Chance(left)] } else { Vec::new() };
        rule.extend([Step::Remember { clients: *clients, seconds }, Step::To(*endpoint)]);
        rules.push(rule);
    }
    // Where there is no room to remember one more client, it is led there all the same.
    rules.extend(endpoints.last().map(|(_, endpoint)| vec![Step::To(*endpoint)]));
    Chain { name, hook: None, rules }
}

fn marking_rule(masquerade: Masquerade) -> Option<Rule> {
    match masquerade {
        Masquerade::Never => None,
        Masquerade::UnlessFromPod => Some(vec![Step::FromPod(false), Step::Mark]),
        Masquerade::Always => Some(vec![Step::Mark]),
    }
}

/// Lets these sources pass and no other.
pub(crate) fn sources_chain(sources: &[IpNet]) -> Chain {
    let text: Vec<String> = sources.iter().map(|range| range.to_string()).collect();
    let name = format!("sources-{:016x}", digest(text.join(",").as_bytes()));
    let mut rules: Vec<Rule> = sources.iter().map(|range| vec![Step::From(*range), Step::Return]).collect();
    rules.push(vec![Step::Drop]);
    Chain { name, hook: None, rules }
}

/// Stands for a rule, so that one in the kernel can be told from another without reading what it does.
pub(crate) fn rule_digest(family: Family, rule: &Rule) -> String {
    format!("{:016x}", digest(format!("{family:?} {rule:?}").as_bytes()))
}
