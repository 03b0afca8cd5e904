//! Names as packets carry them: labels with their lengths, ended by the empty label of the root.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// No name is longer, no label is longer.
pub const NAME_BYTES_MAX: usize = 255;
pub(crate) const LABEL_BYTES_MAX: usize = 63;
/// How often a name may jump to an earlier place. More is an attack, not a name.
const JUMPS_MAX: usize = 16;

/// A whole name in lower case. Upper case in a question is kept by copying the question, never by keeping the name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

impl Name {
    pub fn root() -> Name {
        Name(Box::new([0]))
    }

    /// From text such as `kubernetes.default.svc`, with or without the last dot.
    pub fn parse(text: &str) -> Option<Name> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Some(Name::root());
        }
        let mut bytes = Vec::with_capacity(text.len() + 2);
        for label in text.split('.') {
            push_label(&mut bytes, label)?;
        }
        bytes.push(0);
        (bytes.len() <= NAME_BYTES_MAX).then(|| Name(bytes.into()))
    }

    /// Labels in front of a name.
    pub fn below<'a>(labels: impl IntoIterator<Item = &'a [u8]>, parent: &Name) -> Option<Name> {
        let mut bytes = Vec::with_capacity(NAME_BYTES_MAX);
        for label in labels {
            if label.is_empty() || label.len() > LABEL_BYTES_MAX {
                return None;
            }
            bytes.push(label.len() as u8);
            bytes.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        bytes.extend_from_slice(&parent.0);
        (bytes.len() <= NAME_BYTES_MAX).then(|| Name(bytes.into()))
    }

    /// The name of a question, which nothing stands before that it could point to, and where the bytes after it begin.
    pub(crate) fn read_plain(packet: &[u8], start: usize) -> Option<(Name, usize)> {
        let mut at = start;
        loop {
            let length = usize::from(*packet.get(at)?);
            if length > LABEL_BYTES_MAX {
                return None;
            }
            at += 1 + length;
            if length == 0 {
                break;
            }
            if at - start >= NAME_BYTES_MAX {
                return None;
            }
        }
        // Lengths are below the letters, so that they stay what they are.
        Some((Name(packet.get(start..at)?.to_ascii_lowercase().into()), at))
    }

    /// A name anywhere in a packet, parts of which may stand at an earlier place.
    pub fn read(packet: &[u8], start: usize) -> Option<Name> {
        let (mut bytes, mut at, mut jumps) = (Vec::new(), start, 0);
        loop {
            let length = usize::from(*packet.get(at)?);
            match length {
                0 => break,
                1..=LABEL_BYTES_MAX => {
                    bytes.extend(packet.get(at..at + 1 + length)?.iter().map(u8::to_ascii_lowercase));
                    at += 1 + length;
                }
                0xc0.. => {
                    let target = (length & 0x3f) << 8 | usize::from(*packet.get(at + 1)?);
                    jumps += 1;
                    // Only backwards: a name cannot come by the same place twice.
                    if target >= at || jumps > JUMPS_MAX {
                        return None;
                    }
                    at = target;
                }
                _ => return None,
            }
            if bytes.len() >= NAME_BYTES_MAX {
                return None;
            }
        }
        bytes.push(0);
        Some(Name(bytes.into()))
    }

    /// The wire form.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let length = usize::from(rest[0]);
            if length == 0 {
                return None;
            }
            let label = &rest[1..1 + length];
            rest = &rest[1 + length..];
            Some(label)
        })
    }

    /// Whether it is that name or below it.
    pub(crate) fn is_within(&self, parent: &Name) -> bool {
        self.without(parent).is_some()
    }

    /// The labels before a parent, in wire form; nothing when it is not below it.
    pub fn without<'a>(&'a self, parent: &Name) -> Option<&'a [u8]> {
        let front = self.0.strip_suffix(&*parent.0)?;
        // The same bytes may also be the end of a longer label.
        let mut at = 0;
        while at < front.len() {
            at += 1 + usize::from(front[at]);
        }
        (at == front.len()).then_some(front)
    }

    /// The name under which an address is looked up backwards.
    pub fn reverse(address: IpAddr) -> Name {
        let text = match address {
            IpAddr::V4(address) => {
                let [a, b, c, d] = address.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            IpAddr::V6(address) => {
                let digits = address.octets().into_iter().rev().flat_map(|byte| [byte & 0xf, byte >> 4]);
                digits.map(|digit| format!("{digit:x}.")).collect::<String>() + "ip6.arpa"
            }
        };
        Name::parse(&text).expect("an address makes a name of few short labels")
    }

    /// The address of a name like `1.0.43.10.in-addr.arpa`.
    pub(crate) fn reverse_address(&self) -> Option<IpAddr> {
        let labels: Vec<&str> = self.labels().map(|label| std::str::from_utf8(label).unwrap_or("")).collect();
        match labels.as_slice() {
            [digits @ .., "in-addr", "arpa"] if digits.len() == 4 => {
                let text: Vec<&str> = digits.iter().rev().copied().collect();
                text.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4)
            }
            [digits @ .., "ip6", "arpa"] if digits.len() == 32 => {
                let mut address = 0_u128;
                for digit in digits.iter().rev() {
                    let value = u128::from_str_radix(digit, 16).ok().filter(|_| digit.len() == 1)?;
                    address = address << 4 | value;
                }
                Some(IpAddr::V6(Ipv6Addr::from(address)))
            }
            _ => None,
        }
    }
}

fn push_label(bytes: &mut Vec<u8>, label: &str) -> Option<()> {
    if label.is_empty() || label.len() > LABEL_BYTES_MAX {
        return None;
    }
    bytes.push(label.len() as u8);
    bytes.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    Some(())
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() == 1 {
            return formatter.write_str(".");
        }
        for label in self.labels() {
            for byte in label {
                match byte {
                    b'.' | b'\\' => write!(formatter, "\\{}", *byte as char)?,
                    0x21..=0x7e => write!(formatter, "{}", *byte as char)?,
                    _ => write!(formatter, "\\{byte:03}")?,
                }
            }
            formatter.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        let name = Name::parse("Kubernetes.Default.svc").expect("a name");
        assert_eq!(name.to_string(), "kubernetes.default.svc.");
        assert_eq!(name.bytes(), b"\x0akubernetes\x07default\x03svc\0");
        assert_eq!(Name::parse(".").expect("the root").to_string(), ".");
        assert_eq!(Name::parse("a..b"), None);
        assert_eq!(Name::parse(&"a".repeat(64)), None);
        assert_eq!(Name::parse(&"abcdefg.".repeat(32)), None);
        assert!(Name::parse(&"abcdefg.".repeat(31)).is_some());
    }

    #[test]
    fn a_name_is_below_another_only_at_a_label() {
        let within = |name: &str, parent: &str| Name::parse(name).unwrap().is_within(&Name::parse(parent).unwrap());
        assert!(within("a.cluster.local", "cluster.local"));
        assert!(within("cluster.local", "cluster.local"));
        assert!(within("a", "."));
        assert!(!within("local", "cluster.local"));
        // A label whose last bytes look like the wire form of the zone.
        let odd = Name::below([&b"x\x07cluster\x05local"[..]], &Name::root()).unwrap();
        assert!(!odd.is_within(&Name::parse("cluster.local").unwrap()));
    }

    #[test]
    fn addresses_backwards() {
        for text in ["10.43.0.1", "fd00::1:2", "255.255.255.255"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(Name::reverse(address).reverse_address(), Some(address));
        }
        let none = |text: &str| assert_eq!(Name::parse(text).unwrap().reverse_address(), None);
        none("0.43.10.in-addr.arpa");
        none("x.1.0.43.10.in-addr.arpa");
        none("256.0.43.10.in-addr.arpa");
        none("10.in-addr.arpa.example");
    }

    #[test]
    fn pointers_go_back_and_end() {
        let packet = b"\x01a\0\x01b\xc0\x00\xc0\x07\xc0\x09";
        assert_eq!(Name::read(packet, 3).unwrap().to_string(), "b.a.");
        assert_eq!(Name::read(packet, 7), None);
        assert_eq!(Name::read(packet, 9), None);
        assert_eq!(Name::read_plain(packet, 3), None);
    }
}
