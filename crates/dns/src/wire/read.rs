//! Reading: questions of clients, and responses of other resolvers.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::name::Name;
use super::{Code, Data, HEADER_BYTES, Record, flag, kind};

/// A question, and what the asker can take.
pub struct Query<'a> {
    pub packet: &'a [u8],
    pub id: u16,
    /// As in the packet's header.
    pub flags: u16,
    /// In lower case.
    pub name: Name,
    pub kind: u16,
    pub class: u16,
    /// Header and question together are so many bytes.
    pub question_end: usize,
    pub edns: Option<Edns>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// The largest datagram the asker takes.
    pub payload: u16,
    pub version: u8,
    pub dnssec_ok: bool,
}

impl Query<'_> {
    pub(crate) fn checking_disabled(&self) -> bool {
        self.flags & flag::CHECKING_DISABLED != 0
    }

    pub(crate) fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }
}

/// What becomes of a packet that is no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Answering could make two servers talk for ever.
    Silent,
    With(Code),
}

/// Counts beyond these have no use in a question.
const RECORDS_MAX: [u16; 3] = [1, 1, 2];

pub fn read_query(packet: &[u8]) -> Result<Query<'_>, Refusal> {
    let malformed = Refusal::With(Code::FormErr);
    if packet.len() < HEADER_BYTES {
        return Err(Refusal::Silent);
    }
    let header = |index: usize| u16::from_be_bytes([packet[2 * index], packet[2 * index + 1]]);
    let flags = header(1);
    if flags & flag::RESPONSE != 0 {
        return Err(Refusal::Silent);
    }
    if flags & flag::OPCODE != 0 {
        return Err(Refusal::With(Code::NotImp));
    }
    if header(2) != 1 || (0..3).any(|section| header(3 + section) > RECORDS_MAX[section]) {
        return Err(malformed);
    }
    let (name, end) = Name::read_plain(packet, HEADER_BYTES).ok_or(malformed)?;
    let number = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    let (kind, class) = (number(end).ok_or(malformed)?, number(end + 2).ok_or(malformed)?);
    let question_end = end + 4;
    let (mut at, mut edns) = (question_end, None);
    for section in 0..3 {
        for _ in 0..header(3 + section) {
            let place = Place::read(packet, at).ok_or(malformed)?;
            at = place.end;
            if place.kind != kind::OPT {
                continue;
            }
            if edns.is_some() || section != 2 || packet[place.start] != 0 {
                return Err(malformed);
            }
            edns = Some(Edns {
                payload: place.class,
                version: (place.ttl >> 16) as u8,
                dnssec_ok: place.ttl & 0x8000 != 0,
            });
        }
    }
    Ok(Query { packet, id: header(0), flags, name, kind, class, question_end, edns })
}

/// Where the parts of a record are.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    kind: u16,
    class: u16,
    ttl: u32,
    ttl_at: usize,
    data: usize,
    end: usize,
}

impl Place {
    fn read(packet: &[u8], start: usize) -> Option<Place> {
        let fixed = skip_name(packet, start)?;
        let bytes = packet.get(fixed..fixed + 10)?;
        let length = usize::from(u16::from_be_bytes([bytes[8], bytes[9]]));
        let data = fixed + 10;
        (data + length <= packet.len()).then_some(Place {
            start,
            kind: u16::from_be_bytes([bytes[0], bytes[1]]),
            class: u16::from_be_bytes([bytes[2], bytes[3]]),
            ttl: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            ttl_at: fixed + 4,
            data,
            end: data + length,
        })
    }
}

fn skip_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match usize::from(*packet.get(at)?) {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + length,
            0xc0.. => return (at + 2 <= packet.len()).then_some(at + 2),
            _ => return None,
        }
    }
}

/// Another resolver's response, ready to be handed on under any id, with the letters of any question and any time to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Without its OPT record, which was meant for us.
    pub packet: Box<[u8]>,
    pub code: u8,
    pub truncated: bool,
    pub question_end: usize,
    /// Where times to live stand.
    pub ttls: Box<[u16]>,
    /// How long it may be kept, by its own word; nothing when it says nothing of that.
    pub ttl: Option<u32>,
    pub answers: u16,
}

/// Reads a response to that question; nothing when it is none, or broken.
pub fn read_response(packet: &[u8], id: u16, name: &Name, asked: u16) -> Option<Relayed> {
    let header = |index: usize| Some(u16::from_be_bytes([*packet.get(2 * index)?, *packet.get(2 * index + 1)?]));
    let flags = header(1)?;
    if packet.len() < HEADER_BYTES || header(0)? != id || flags & flag::RESPONSE == 0 {
        return None;
    }
    let code = (flags & 0xf) as u8;
    if header(2)? == 0 && code == Code::FormErr as u8 {
        // Some say so without repeating the question.
        let ttls = Box::default();
        let packet = packet[..HEADER_BYTES].into();
        return Some(Relayed {
            packet,
            code,
            truncated: false,
            question_end: HEADER_BYTES,
            ttls,
            ttl: None,
            answers: 0,
        });
    }
    let (same, end) = Name::read_plain(packet, HEADER_BYTES)?;
    let number = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    if header(2)? != 1 || same != *name || number(end)? != asked {
        return None;
    }
    let question_end = end + 4;
    let mut counts = [header(3)?, header(4)?, header(5)?];
    let (mut at, mut ttls, mut lowest, mut negative) = (question_end, Vec::new(), None::<u32>, None);
    let mut cut = None;
    'sections: for section in 0..3 {
        for index in 0..counts[section] {
            let place = Place::read(packet, at)?;
            if place.kind == kind::OPT {
                // It comes last. What should come after it is additional, and not worth new pointers.
                counts[section] = index;
                counts[section + 1..].fill(0);
                cut = Some(place.start);
                break 'sections;
            }
            if section < 2 {
                lowest = Some(lowest.map_or(place.ttl, |lowest| lowest.min(place.ttl)));
            }
            if section == 1 && place.kind == kind::SOA {
                let minimum = packet.get(place.end.checked_sub(4)?..place.end)?;
                negative = Some(place.ttl.min(u32::from_be_bytes(minimum.try_into().ok()?)));
            }
            // A packet has no more bytes than these numbers can say.
            ttls.push(place.ttl_at as u16);
            at = place.end;
        }
    }
    let mut kept = packet[..cut.unwrap_or(at)].to_vec();
    for (section, count) in counts.iter().enumerate() {
        kept[6 + 2 * section..8 + 2 * section].copy_from_slice(&count.to_be_bytes());
    }
    let ttl = if counts[0] > 0 { lowest } else { negative };
    Some(Relayed {
        packet: kept.into(),
        code,
        truncated: flags & flag::TRUNCATED != 0,
        question_end,
        ttls: ttls.into(),
        ttl,
        answers: counts[0],
    })
}

impl Relayed {
    /// The answers about addresses and the names that lead to them; others cannot be moved into another packet.
    pub(crate) fn address_records(&self) -> Vec<Record> {
        let (packet, mut at, mut records) = (&self.packet, self.question_end, Vec::new());
        for _ in 0..self.answers {
            let Some(place) = Place::read(packet, at) else { break };
            at = place.end;
            let bytes = &packet[place.data..place.end];
            let data = match place.kind {
                kind::A => <[u8; 4]>::try_from(bytes).ok().map(|bytes| Data::A(Ipv4Addr::from(bytes))),
                kind::AAAA => <[u8; 16]>::try_from(bytes).ok().map(|bytes| Data::Aaaa(Ipv6Addr::from(bytes))),
                kind::CNAME => Name::read(packet, place.data).map(Data::Cname),
                _ => None,
            };
            if let (Some(name), Some(data)) = (Name::read(packet, place.start), data) {
                records.push(Record { name: Some(name), ttl: place.ttl, data });
            }
        }
        records
    }
}
