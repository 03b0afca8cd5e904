//! Writing answers, with names that were written before replaced by pointers, and never more bytes than the asker takes.

use super::read::{Query, Refusal, Relayed};
use super::{CLASS_INTERNET, Code, Data, HEADER_BYTES, Record, flag, kind};

/// So many places of labels are remembered for pointers; the question's and the zone's are among the first.
const PLACES_MAX: usize = 24;
const OPT_BYTES: usize = 11;
/// The largest datagram: it fits any link of the cluster, so that none is ever sent in parts.
const DATAGRAM_BYTES_MAX: usize = 1232;
const DATAGRAM_BYTES_MIN: usize = 512;
/// What we tell others to send us.
const PAYLOAD: u16 = DATAGRAM_BYTES_MAX as u16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Answer = 0,
    Authority = 1,
    Additional = 2,
}

pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    limit: usize,
    /// Where labels begin that others may point to.
    places: Vec<u16>,
    counts: [u16; 3],
    truncated: bool,
}

/// How large the answer may be.
fn limit(query: &Query, stream: bool) -> usize {
    match (stream, query.edns) {
        (true, _) => usize::from(u16::MAX),
        (false, None) => DATAGRAM_BYTES_MIN,
        (false, Some(edns)) => usize::from(edns.payload).clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX),
    }
}

fn opt_record(code: u16, dnssec_ok: bool) -> [u8; OPT_BYTES] {
    let [high, low] = PAYLOAD.to_be_bytes();
    let flags = if dnssec_ok { 0x80 } else { 0 };
    [0, 0, kind::OPT as u8, high, low, (code >> 4) as u8, 0, flags, 0, 0, 0]
}

impl<'a> Writer<'a> {
    /// The beginning of an answer that we give ourselves: the question as it was asked.
    pub fn new(bytes: &'a mut Vec<u8>, query: &Query, stream: bool) -> Writer<'a> {
        bytes.clear();
        bytes.extend_from_slice(&query.packet[..query.question_end]);
        let mut limit = limit(query, stream);
        if query.edns.is_some() {
            limit -= OPT_BYTES;
        }
        let mut places = Vec::with_capacity(PLACES_MAX);
        let mut at = HEADER_BYTES;
        while bytes[at] != 0 && places.len() < PLACES_MAX {
            places.push(at as u16);
            at += 1 + usize::from(bytes[at]);
        }
        Writer { bytes, limit, places, counts: [0; 3], truncated: false }
    }

    /// Adds a record, or says that it did not fit.
    pub fn add(&mut self, section: Section, record: &Record) -> bool {
        let (start, places) = (self.bytes.len(), self.places.len());
        match &record.name {
            None => self.bytes.extend([0xc0, HEADER_BYTES as u8]),
            Some(name) => self.name(name.bytes(), true),
        }
        self.bytes.extend(record.data.kind().to_be_bytes());
        self.bytes.extend(CLASS_INTERNET.to_be_bytes());
        self.bytes.extend(record.ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.data(&record.data);
        let length = (self.bytes.len() - length_at - 2) as u16;
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        let fits = self.bytes.len() <= self.limit;
        if fits {
            self.counts[section as usize] += 1;
        } else {
            self.bytes.truncate(start);
            self.places.truncate(places);
            self.truncated = true;
        }
        fits
    }

    fn data(&mut self, data: &Data) {
        match data {
            Data::A(address) => self.bytes.extend(address.octets()),
            Data::Aaaa(address) => self.bytes.extend(address.octets()),
            Data::Cname(name) | Data::Ptr(name) | Data::Ns(name) => self.name(name.bytes(), true),
            Data::Srv { priority, weight, port, target } => {
                for number in [priority, weight, port] {
                    self.bytes.extend(number.to_be_bytes());
                }
                // RFC 2782 wants it whole.
                self.name(target.bytes(), false);
            }
            Data::Txt(text) => {
                let text = &text.as_bytes()[..text.len().min(255)];
                self.bytes.push(text.len() as u8);
                self.bytes.extend_from_slice(text);
            }
            Data::Soa { server, mailbox, serial, refresh, retry, expire, minimum } => {
                self.name(server.bytes(), true);
                self.name(mailbox.bytes(), true);
                for number in [serial, refresh, retry, expire, minimum] {
                    self.bytes.extend(number.to_be_bytes());
                }
            }
        }
    }

    fn name(&mut self, mut rest: &[u8], compressed: bool) {
        while rest[0] != 0 {
            let known = compressed.then(|| self.places.iter().find(|place| self.is_at(usize::from(**place), rest)));
            if let Some(place) = known.flatten() {
                let pointer = 0xc000 | *place;
                self.bytes.extend(pointer.to_be_bytes());
                return;
            }
            // Pointers have 14 bits.
            if self.places.len() < PLACES_MAX && self.bytes.len() < 0x4000 {
                self.places.push(self.bytes.len() as u16);
            }
            let label = 1 + usize::from(rest[0]);
            self.bytes.extend_from_slice(&rest[..label]);
            rest = &rest[label..];
        }
        self.bytes.push(0);
    }

    /// Whether the name that begins at that place of the answer is this one, in whatever letters.
    fn is_at(&self, mut at: usize, mut name: &[u8]) -> bool {
        loop {
            let Some(&length) = self.bytes.get(at) else { return false };
            if length >= 0xc0 {
                // Written by ourselves, so it leads back to a whole name.
                let Some(&low) = self.bytes.get(at + 1) else { return false };
                at = usize::from(length & 0x3f) << 8 | usize::from(low);
                continue;
            }
            let label = 1 + usize::from(length);
            let same = name.len() >= label
                && self.bytes.get(at..at + label).is_some_and(|bytes| bytes.eq_ignore_ascii_case(&name[..label]));
            if !same || length == 0 {
                return same;
            }
            (at, name) = (at + label, &name[label..]);
        }
    }

    /// Completes an answer of our own. Answers that come from elsewhere in part are not authoritative.
    pub fn finish(self, query: &Query, code: Code, authoritative: bool) {
        let more = if authoritative { flag::AUTHORITATIVE } else { flag::RECURSION_AVAILABLE };
        self.finish_with(query, code as u16, more);
    }

    fn finish_with(self, query: &Query, code: u16, more: u16) {
        let mut flags = flag::RESPONSE | more | (code & 0xf);
        flags |= query.flags & (flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
        if self.truncated {
            flags |= flag::TRUNCATED;
        }
        let mut counts = self.counts;
        if let Some(edns) = query.edns {
            self.bytes.extend(opt_record(code, edns.dnssec_ok));
            counts[Section::Additional as usize] += 1;
        }
        self.bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        for (index, count) in [1, counts[0], counts[1], counts[2]].into_iter().enumerate() {
            self.bytes[4 + 2 * index..6 + 2 * index].copy_from_slice(&u16::to_be_bytes(count));
        }
    }
}

/// The answer to what is no question; empty when there is none.
pub fn refusal(bytes: &mut Vec<u8>, packet: &[u8], refusal: Refusal) {
    bytes.clear();
    let Refusal::With(code) = refusal else { return };
    bytes.extend_from_slice(&packet[..2]);
    let asked = u16::from_be_bytes([packet[2], packet[3]]);
    let flags = flag::RESPONSE | (asked & (flag::OPCODE | flag::RECURSION_DESIRED)) | code as u16;
    bytes.extend(flags.to_be_bytes());
    bytes.resize(HEADER_BYTES, 0);
}

impl Query<'_> {
    /// An answer without records.
    pub fn reply(&self, bytes: &mut Vec<u8>, code: Code) {
        let writer = Writer::new(bytes, self, true);
        writer.finish_with(self, code as u16, flag::RECURSION_AVAILABLE);
    }

    /// Hands on what another resolver said, with so many seconds left to live.
    pub fn relay(&self, bytes: &mut Vec<u8>, relayed: &Relayed, seconds: Option<u32>, stream: bool) {
        let limit = limit(self, stream) - if self.edns.is_some() { OPT_BYTES } else { 0 };
        if relayed.question_end != self.question_end {
            return self.reply(bytes, Code::ServFail);
        }
        bytes.clear();
        let theirs = u16::from_be_bytes([relayed.packet[2], relayed.packet[3]]);
        let mut flags = theirs & (flag::AUTHENTIC | flag::AUTHORITATIVE | flag::TRUNCATED | 0xf);
        flags |= flag::RESPONSE | flag::RECURSION_AVAILABLE;
        flags |= self.flags & (flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
        bytes.extend_from_slice(&self.packet[..self.question_end]);
        if relayed.packet.len() <= limit {
            bytes[6..12].copy_from_slice(&relayed.packet[6..12]);
            bytes.extend_from_slice(&relayed.packet[self.question_end..]);
            if let Some(seconds) = seconds {
                for at in &relayed.ttls {
                    let at = usize::from(*at);
                    bytes[at..at + 4].copy_from_slice(&seconds.to_be_bytes());
                }
            }
        } else {
            // Whoever wants it all comes back by TCP; half of it would be taken for all by some.
            flags |= flag::TRUNCATED;
            bytes[6..12].fill(0);
        }
        if let Some(edns) = self.edns {
            bytes.extend(opt_record(0, edns.dnssec_ok));
            let count = u16::from_be_bytes([bytes[10], bytes[11]]).saturating_add(1);
            bytes[10..12].copy_from_slice(&count.to_be_bytes());
        }
        bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        bytes[4..6].copy_from_slice(&[0, 1]);
    }
}

/// A question of ours to another resolver. Some old ones do not know EDNS.
pub fn question(id: u16, name: &super::Name, kind: u16, checking_disabled: bool, edns: Option<bool>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + name.bytes().len() + 4 + OPT_BYTES);
    bytes.extend(id.to_be_bytes());
    let flags = flag::RECURSION_DESIRED | if checking_disabled { flag::CHECKING_DISABLED } else { 0 };
    bytes.extend(flags.to_be_bytes());
    for count in [1, 0, 0, u16::from(edns.is_some())] {
        bytes.extend(u16::to_be_bytes(count));
    }
    bytes.extend_from_slice(name.bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(CLASS_INTERNET.to_be_bytes());
    if let Some(dnssec_ok) = edns {
        bytes.extend(opt_record(0, dnssec_ok));
    }
    bytes
}
