//! The steps of a rule in the kernel's own expressions.
//!
//! The kernel has sixteen words to work with. A key is read into words from 0, what it leads to stands in words from 8. The
//! key of a look-up never comes from another look-up: `nft` could not print that, and ends itself when it meets one.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use nlink::netlink::nftables::{
    ChainName, CmpOp, CtKey, CtState, CtStatus, DynsetExpr, DynsetOp, Expr, FibFlags, FibResult, LookupExpr, MetaKey,
    NumgenKind, PayloadBase, RawExpr, Register, Verdict,
};

use super::encode;
use crate::layout::{Choice, MARK, Origin, Rule, Step};
use crate::model::{Door, Family, Protocol};

const FOUND: usize = 8;
/// `RTN_LOCAL`: an address of this machine.
const LOCAL_ADDRESS: u32 = 2;

pub fn expressions(family: Family, rule: &Rule) -> Vec<Expr> {
    rule.iter().flat_map(|step| Words(family).step(step)).collect()
}

/// How wide things are in a family.
#[derive(Clone, Copy)]
struct Words(Family);

impl Words {
    fn step(self, step: &Step) -> Vec<Expr> {
        match step {
            Step::NewConnection => bit(CtKey::State, CtState::NEW.bits(), true),
            Step::Translated(is) => bit(CtKey::Status, CtStatus::DST_NAT.bits(), *is),
            Step::FromPod(is) => {
                let found = LookupExpr::new(encode::POD_RANGES, word(0));
                vec![self.source(0), (if *is { found } else { found.invert() }).into()]
            }
            Step::FromNode(is) => is_local(FibFlags::SADDR, *is),
            Step::From(range) => self.from(range),
            Step::ToNodePorts => {
                let mut steps = vec![self.destination(0), LookupExpr::new(encode::NODE_PORT_RANGES, word(0)).into()];
                steps.extend(is_local(FibFlags::DADDR, true));
                steps
            }
            Step::Hairpin => vec![
                self.source(0),
                self.destination(self.address_words()),
                LookupExpr::new(encode::HAIRPIN, word(0)).into(),
            ],
            Step::Refused(door, refusal) => {
                let mut steps = self.key(*door);
                steps.push(LookupExpr::new(encode::refused(*door, *refusal), word(0)).into());
                steps
            }
            Step::ToClusterAddress => {
                vec![self.destination(0), LookupExpr::new(encode::CLUSTER_ADDRESSES, word(0)).into()]
            }
            Step::Marked => {
                let mut steps = vec![Expr::Meta { dreg: word(0), key: MetaKey::Mark }];
                steps.extend(masked(MARK, true));
                steps
            }
            Step::Jump(chain) => {
                let chain = ChainName::new(*chain).expect("our names of chains are short words");
                vec![Expr::Verdict(Verdict::JumpTo(chain))]
            }
            Step::Enter(door) => {
                let mut steps = self.key(*door);
                steps.push(LookupExpr::new(encode::door(*door), word(0)).dreg(Register::Verdict).into());
                steps
            }
            Step::Firewall => {
                let mut steps = self.key(Door::Address);
                steps.push(LookupExpr::new(encode::FIREWALLS, word(0)).dreg(Register::Verdict).into());
                steps
            }
            Step::Pick { service, choice } => self.pick(service, *choice),
            Step::To(endpoint) => self.to(endpoint),
            Step::Chance(of) => vec![
                Expr::Numgen { dreg: word(0), kind: NumgenKind::Random, modulus: *of, offset: 0 },
                Expr::Cmp { sreg: word(0), op: CmpOp::Eq, data: 0_u32.to_ne_bytes().to_vec() },
            ],
            Step::IsAmong(clients) => {
                vec![self.source(0), LookupExpr::new(encode::clients_name(*clients), word(0)).into()]
            }
            Step::Remember { clients, seconds } => {
                let remember = DynsetExpr::new(DynsetOp::Update, encode::clients_name(*clients), word(0));
                vec![self.source(0), remember.timeout(Duration::from_secs((*seconds).into())).into()]
            }
            Step::Mark => set_mark(MARK),
            Step::Unmark => set_mark(0),
            Step::Masquerade => vec![Expr::Raw(RawExpr::new("masq", attribute(NFTA_MASQ_FLAGS, FULLY_RANDOM)))],
            Step::IsTcp => vec![
                Expr::Meta { dreg: word(0), key: MetaKey::L4Proto },
                Expr::Cmp { sreg: word(0), op: CmpOp::Eq, data: vec![Protocol::Tcp.number()] },
            ],
            Step::Reset => vec![Expr::Reject { reject_type: TCP_RESET, icmp_code: 0 }],
            Step::Reject => vec![Expr::Reject { reject_type: ICMP_UNREACHABLE, icmp_code: self.port_unreachable() }],
            Step::Drop => vec![Expr::Verdict(Verdict::Drop)],
            Step::Return => vec![Expr::Verdict(Verdict::Return)],
        }
    }

    fn to(self, endpoint: &SocketAddr) -> Vec<Expr> {
        let port = endpoint.port().to_be_bytes().to_vec();
        let port_word = FOUND + self.address_words();
        vec![
            Expr::Immediate { dreg: word(FOUND), data: encode::address(&endpoint.ip()) },
            Expr::Immediate { dreg: word(port_word), data: port },
            self.to_endpoint(),
        ]
    }

    fn pick(self, service: &Origin, choice: Choice) -> Vec<Expr> {
        let mut steps = match service {
            Origin::Packet => self.key(Door::Address),
            Origin::Service(destination) => {
                let key = encode::destination_key(destination);
                let parts = [(0, self.address_words() * 4), (self.address_words(), 1), (self.address_words() + 1, 2)];
                let load = |(at, length): (usize, usize)| Expr::Immediate {
                    dreg: word(at),
                    data: key[at * 4..at * 4 + length].to_vec(),
                };
                parts.into_iter().map(load).collect()
            }
        };
        let number = word(self.address_words() + 2);
        let (modulus, offset) = match choice {
            Choice::Random { of, from } => (of, from),
            // One of one, which `nft` can print, as it cannot print a number here.
            Choice::Number(number) => (1, number),
        };
        steps.push(Expr::Numgen { dreg: number, kind: NumgenKind::Random, modulus, offset });
        steps.push(LookupExpr::new(encode::ENDPOINTS, word(0)).dreg(word(FOUND)).into());
        steps.push(self.to_endpoint());
        steps
    }

    fn key(self, door: Door) -> Vec<Expr> {
        let (mut steps, next) = match door {
            Door::Address | Door::OutsideAddress => (vec![self.destination(0)], self.address_words()),
            Door::Port | Door::OutsidePort => (Vec::new(), 0),
        };
        steps.push(Expr::Meta { dreg: word(next), key: MetaKey::L4Proto });
        // The destination port is at the same place in TCP, UDP and SCTP.
        steps.push(Expr::Payload { dreg: word(next + 1), base: PayloadBase::Transport, offset: 2, len: 2 });
        steps
    }

    fn to_endpoint(self) -> Expr {
        let (address, port) = (word(FOUND).wire(), word(FOUND + self.address_words()).wire());
        let family = encode::nft_family(self.0) as u32;
        let attributes = [
            attribute(NFTA_NAT_TYPE, DESTINATION_NAT),
            attribute(NFTA_NAT_FAMILY, family),
            attribute(NFTA_NAT_REG_ADDR_MIN, address),
            attribute(NFTA_NAT_REG_PROTO_MIN, port),
        ];
        Expr::Raw(RawExpr::new("nat", attributes.concat()))
    }

    fn from(self, range: &IpNet) -> Vec<Expr> {
        let (mask, wanted) = (encode::address(&range.netmask()), encode::address(&range.network()));
        let xor = vec![0; mask.len()];
        vec![
            self.source(0),
            Expr::Bitwise { sreg: word(0), dreg: word(0), len: mask.len() as u32, mask, xor },
            Expr::Cmp { sreg: word(0), op: CmpOp::Eq, data: wanted },
        ]
    }

    fn source(self, at: usize) -> Expr {
        let offset = if self.0 == Family::V4 { 12 } else { 8 };
        Expr::Payload { dreg: word(at), base: PayloadBase::Network, offset, len: self.address_words() as u32 * 4 }
    }

    fn destination(self, at: usize) -> Expr {
        let offset = if self.0 == Family::V4 { 16 } else { 24 };
        Expr::Payload { dreg: word(at), base: PayloadBase::Network, offset, len: self.address_words() as u32 * 4 }
    }

    fn address_words(self) -> usize {
        if self.0 == Family::V4 { 1 } else { 4 }
    }

    fn port_unreachable(self) -> u8 {
        if self.0 == Family::V4 { 3 } else { 4 }
    }
}

const NFTA_NAT_TYPE: u16 = 1;
const NFTA_NAT_FAMILY: u16 = 2;
const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
const NFTA_NAT_REG_PROTO_MIN: u16 = 5;
const DESTINATION_NAT: u32 = 1;
const NFTA_MASQ_FLAGS: u16 = 1;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`: two clients that begin at once do not compete for one source port.
const FULLY_RANDOM: u32 = 1 << 4;
const ICMP_UNREACHABLE: u32 = 0;
const TCP_RESET: u32 = 1;

/// A netlink attribute that holds a number, as nftables wants it.
fn attribute(kind: u16, value: u32) -> Vec<u8> {
    let mut bytes = [8_u16.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value.to_be_bytes());
    bytes
}

fn word(at: usize) -> Register {
    Register::word(at).expect("the kernel has sixteen words")
}

fn is_local(flags: FibFlags, is: bool) -> Vec<Expr> {
    let op = if is { CmpOp::Eq } else { CmpOp::Neq };
    vec![
        Expr::Fib { dreg: word(0), result: FibResult::AddrType, flags },
        Expr::Cmp { sreg: word(0), op, data: LOCAL_ADDRESS.to_ne_bytes().to_vec() },
    ]
}

fn bit(key: CtKey, mask: u32, is: bool) -> Vec<Expr> {
    let mut steps = vec![Expr::Ct { dreg: word(0), key }];
    steps.extend(masked(mask, is));
    steps
}

fn masked(mask: u32, is: bool) -> Vec<Expr> {
    let op = if is { CmpOp::Neq } else { CmpOp::Eq };
    let (mask, zero) = (mask.to_ne_bytes().to_vec(), vec![0; 4]);
    vec![
        Expr::Bitwise { sreg: word(0), dreg: word(0), len: 4, mask, xor: zero.clone() },
        Expr::Cmp { sreg: word(0), op, data: zero },
    ]
}

/// Sets our bit of the mark to this, and leaves the others.
fn set_mark(bit: u32) -> Vec<Expr> {
    let (mask, xor) = ((!MARK).to_ne_bytes().to_vec(), bit.to_ne_bytes().to_vec());
    vec![
        Expr::Meta { dreg: word(0), key: MetaKey::Mark },
        Expr::Bitwise { sreg: word(0), dreg: word(0), len: 4, mask, xor },
        Expr::MetaSet { key: MetaKey::Mark, sreg: word(0) },
    ]
}
