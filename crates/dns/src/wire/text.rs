//! Packets as text, for tests. It shares no code with the writer, so that it notices what the writer does wrong.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Flags and code in the first line, then every record, one a line, with its section's letter.
pub fn describe(packet: &[u8]) -> String {
    let number = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let flags = number(2);
    let mut out = String::new();
    for (bit, name) in [(0x8000, "qr"), (0x400, "aa"), (0x200, "tc"), (0x100, "rd"), (0x80, "ra"), (0x10, "cd")] {
        if flags & bit != 0 {
            write!(out, "{name} ").unwrap();
        }
    }
    let codes = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
    writeln!(out, "{}", codes.get(usize::from(flags & 0xf)).unwrap_or(&"?")).unwrap();
    let mut at = 12;
    for _ in 0..number(4) {
        let (name, next) = name_at(packet, at);
        writeln!(out, "? {name} {}", kind_text(number(next))).unwrap();
        at = next + 4;
    }
    for (section, letter) in ["=", "@", "+"].into_iter().enumerate() {
        for _ in 0..number(6 + 2 * section) {
            let (name, next) = name_at(packet, at);
            let (kind, class, length) = (number(next), number(next + 2), usize::from(number(next + 8)));
            let ttl = u32::from_be_bytes(packet[next + 4..next + 8].try_into().unwrap());
            let data = next + 10;
            let bytes = &packet[data..data + length];
            let text = match kind {
                1 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).unwrap()).to_string(),
                28 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).to_string(),
                2 | 5 | 12 => name_at(packet, data).0,
                16 => String::from_utf8_lossy(&bytes[1..]).into_owned(),
                33 => {
                    let [a, b, c] = [0, 2, 4].map(|more| number(data + more));
                    format!("{a} {b} {c} {}", name_at(packet, data + 6).0)
                }
                6 => {
                    let (server, next) = name_at(packet, data);
                    let (mailbox, next) = name_at(packet, next);
                    let numbers =
                        packet[next..next + 20].chunks(4).map(|four| u32::from_be_bytes(four.try_into().unwrap()));
                    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
                    format!("{server} {mailbox} {}", numbers.join(" "))
                }
                41 => format!("payload {class} extended {ttl:08x}"),
                _ => format!("{bytes:02x?}"),
            };
            match kind {
                41 => writeln!(out, "{letter} OPT {text}").unwrap(),
                _ => writeln!(out, "{letter} {name} {ttl} {} {text}", kind_text(kind)).unwrap(),
            }
            at = data + length;
        }
    }
    assert_eq!(at, packet.len(), "nothing follows the last record");
    out
}

fn kind_text(kind: u16) -> String {
    let known = [(1, "A"), (2, "NS"), (5, "CNAME"), (6, "SOA"), (12, "PTR"), (15, "MX"), (16, "TXT"), (28, "AAAA")];
    let more = [(33, "SRV"), (252, "AXFR"), (255, "ANY")];
    let found = known.iter().chain(&more).find(|(number, _)| *number == kind);
    found.map_or_else(|| format!("TYPE{kind}"), |(_, text)| text.to_string())
}

pub fn kind_number(text: &str) -> u16 {
    (0..256).find(|kind| kind_text(*kind) == text).unwrap_or_else(|| panic!("no type {text}"))
}

fn name_at(packet: &[u8], mut at: usize) -> (String, usize) {
    let (mut text, mut after) = (String::new(), None);
    loop {
        let length = usize::from(packet[at]);
        if length == 0 {
            return (if text.is_empty() { ".".into() } else { text }, after.unwrap_or(at + 1));
        }
        if length >= 0xc0 {
            after = after.or(Some(at + 2));
            at = (length & 0x3f) << 8 | usize::from(packet[at + 1]);
            continue;
        }
        text += &String::from_utf8_lossy(&packet[at + 1..at + 1 + length]);
        text += ".";
        at += 1 + length;
    }
}

/// A question as a client would send it. Letters stay as they are.
pub fn ask(name: &str, kind: &str, payload: Option<u16>) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(payload.is_some())];
    for label in name.trim_end_matches('.').split('.').filter(|label| !label.is_empty()) {
        packet.push(label.len() as u8);
        packet.extend(label.bytes());
    }
    packet.push(0);
    packet.extend(kind_number(kind).to_be_bytes());
    packet.extend([0, 1]);
    if let Some(payload) = payload {
        packet.extend([0, 0, 41]);
        packet.extend(payload.to_be_bytes());
        packet.extend([0; 6]);
    }
    packet
}
