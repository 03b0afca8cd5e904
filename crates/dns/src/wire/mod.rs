//! The form of packets: questions in, answers out. Whatever bytes come in, reading them ends and does not panic.

mod name;
mod read;
mod write;
#[cfg(test)]
pub mod text;

pub use name::Name;
pub use read::{Edns, Relayed};
pub use read::{Query, Refusal, read_query, read_response};
pub use write::{Section, Writer, question, refusal};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub mod kind {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const IXFR: u16 = 251;
    pub(crate) const AXFR: u16 = 252;
}

pub(crate) const CLASS_INTERNET: u16 = 1;

/// What an answer says about the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    /// Only with EDNS: its upper bits stand in the OPT record.
    BadVers = 16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nothing: the name of the question, in the letters in which it was asked.
    pub name: Option<Name>,
    pub ttl: u32,
    pub data: Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(Name),
    Ptr(Name),
    Ns(Name),
    Srv { priority: u16, weight: u16, port: u16, target: Name },
    Txt(Box<str>),
    Soa { server: Name, mailbox: Name, serial: u32, refresh: u32, retry: u32, expire: u32, minimum: u32 },
}

impl Data {
    pub fn address(address: IpAddr) -> Data {
        match address {
            IpAddr::V4(address) => Data::A(address),
            IpAddr::V6(address) => Data::Aaaa(address),
        }
    }

    pub fn kind(&self) -> u16 {
        match self {
            Data::A(_) => kind::A,
            Data::Aaaa(_) => kind::AAAA,
            Data::Cname(_) => kind::CNAME,
            Data::Ptr(_) => kind::PTR,
            Data::Ns(_) => kind::NS,
            Data::Srv { .. } => kind::SRV,
            Data::Txt(_) => kind::TXT,
            Data::Soa { .. } => kind::SOA,
        }
    }
}

mod flag {
    pub(crate) const RESPONSE: u16 = 0x8000;
    pub(crate) const OPCODE: u16 = 0x7800;
    pub(crate) const AUTHORITATIVE: u16 = 0x0400;
    pub const TRUNCATED: u16 = 0x0200;
    pub(crate) const RECURSION_DESIRED: u16 = 0x0100;
    pub(crate) const RECURSION_AVAILABLE: u16 = 0x0080;
    pub(crate) const AUTHENTIC: u16 = 0x0020;
    pub(crate) const CHECKING_DISABLED: u16 = 0x0010;
}

const HEADER_BYTES: usize = 12;
