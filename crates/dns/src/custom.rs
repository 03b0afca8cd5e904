//! What a cluster's administrator adds: stub domains, hosts and other upstream resolvers, in the words of CoreDNS's Corefile.
//!
//! The ConfigMap `coredns-custom` in `kube-system` holds them, as users of k3s know it: keys that end in `.server` are whole
//! server blocks, keys that end in `.override` are lines for the cluster's own block. `docs/dns.md` says which words are
//! understood; others are named in the log and change nothing.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use crate::wire::{Data, Name, Record, kind};

const HOSTS_TTL: u32 = 3600;
/// So much of a ConfigMap is used, of each sort.
const STUBS_MAX: usize = 256;
const HOSTS_MAX: usize = 10_000;
const UPSTREAMS_MAX: usize = 15;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Custom {
    /// The longest zone first.
    pub stubs: Vec<Stub>,
    pub hosts: Hosts,
    /// Instead of those of resolv.conf.
    pub upstreams: Option<Vec<SocketAddr>>,
    /// What was not understood.
    pub problems: Vec<String>,
}

/// A domain that others answer for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stub {
    pub zone: Name,
    pub hosts: Hosts,
    pub upstreams: Vec<SocketAddr>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    addresses: HashMap<Name, Vec<(IpAddr, u32)>>,
    names: HashMap<IpAddr, Vec<(Name, u32)>>,
}

impl Custom {
    pub fn read(data: &BTreeMap<String, String>) -> Custom {
        let mut custom = Custom::default();
        for (key, text) in data {
            let lines = tokens(text);
            match key.rsplit('.').next() {
                Some("override") => custom.read_override(key, &lines),
                Some("server") => custom.read_servers(key, &lines),
                _ => custom.problems.push(format!("{key}: keys end in .server or .override")),
            }
        }
        custom.stubs.sort_by_key(|stub| std::cmp::Reverse(stub.zone.bytes().len()));
        if custom.stubs.len() > STUBS_MAX {
            custom.problems.push(format!("no more than {STUBS_MAX} stub domains are used"));
            custom.stubs.truncate(STUBS_MAX);
        }
        custom
    }

    /// The stub domain that a name belongs to.
    pub fn stub(&self, name: &Name) -> Option<&Stub> {
        self.stubs.iter().find(|stub| name.is_within(&stub.zone))
    }

    fn read_override(&mut self, key: &str, lines: &[Vec<String>]) {
        let mut directives = Directives::default();
        directives.read(key, lines, &mut self.problems);
        self.hosts.extend(directives.hosts);
        if !directives.upstreams.is_empty() {
            self.upstreams = Some(directives.upstreams);
        }
    }

    fn read_servers(&mut self, key: &str, lines: &[Vec<String>]) {
        let mut at = 0;
        while at < lines.len() {
            let Some((open, zones)) = lines[at].split_last().filter(|(last, _)| *last == "{") else {
                self.problems.push(format!("{key}: {:?} opens no block", lines[at].join(" ")));
                at += 1;
                continue;
            };
            debug_assert_eq!(open, "{");
            let end = block_end(lines, at);
            let mut directives = Directives::default();
            directives.read(key, &lines[at + 1..end], &mut self.problems);
            for zone in zones {
                match zone_name(zone) {
                    Some(zone) => self.stubs.push(Stub {
                        zone,
                        hosts: directives.hosts.clone(),
                        upstreams: directives.upstreams.clone(),
                    }),
                    None => self.problems.push(format!("{key}: {zone:?} is not a zone")),
                }
            }
            at = end + 1;
        }
    }
}

#[derive(Default)]
struct Directives {
    hosts: Hosts,
    upstreams: Vec<SocketAddr>,
}

/// What we do anyhow, each in our own way.
const GRANTED: &[&str] =
    &["errors", "log", "cache", "loop", "reload", "loadbalance", "health", "ready", "prometheus", "bufsize"];

impl Directives {
    fn read(&mut self, key: &str, lines: &[Vec<String>], problems: &mut Vec<String>) {
        let mut at = 0;
        while at < lines.len() {
            let line = &lines[at];
            let block = line.last().is_some_and(|last| last == "{");
            let end = if block { block_end(lines, at) } else { at };
            let inner = if block { &lines[at + 1..end] } else { &[] };
            let arguments = &line[1..line.len() - usize::from(block && line.len() > 1)];
            match line[0].as_str() {
                "forward" | "proxy" => self.read_forward(key, arguments, problems),
                "hosts" => self.read_hosts(key, arguments, inner, problems),
                granted if GRANTED.contains(&granted) => {}
                other => problems.push(format!("{key}: {other} is not supported")),
            }
            at = end + 1;
        }
    }

    fn read_forward(&mut self, key: &str, arguments: &[String], problems: &mut Vec<String>) {
        for target in arguments.iter().skip(1) {
            match upstream(target) {
                Some(address) if self.upstreams.len() < UPSTREAMS_MAX => self.upstreams.push(address),
                Some(_) => problems.push(format!("{key}: no more than {UPSTREAMS_MAX} resolvers are used")),
                None => problems.push(format!("{key}: {target:?} is not a resolver address")),
            }
        }
    }

    fn read_hosts(&mut self, key: &str, files: &[String], lines: &[Vec<String>], problems: &mut Vec<String>) {
        if !files.is_empty() {
            problems.push(format!("{key}: files of hosts are not read, only lines in the block"));
        }
        let number = |line: &&Vec<String>| line.first().is_some_and(|word| word == "ttl");
        let ttl = lines.iter().find(number).and_then(|line| line.get(1)?.parse().ok()).unwrap_or(HOSTS_TTL);
        let reverse = !lines.iter().any(|line| line.first().is_some_and(|word| word == "no_reverse"));
        for line in lines {
            let word = line[0].as_str();
            if matches!(word, "ttl" | "no_reverse" | "reload" | "fallthrough") {
                continue;
            }
            let Ok(address) = word.parse::<IpAddr>() else {
                problems.push(format!("{key}: {word:?} is not an IP address"));
                continue;
            };
            for text in &line[1..] {
                match Name::parse(text) {
                    Some(name) if self.hosts.addresses.len() < HOSTS_MAX => self.hosts.add(address, name, ttl, reverse),
                    Some(_) => return problems.push(format!("{key}: no more than {HOSTS_MAX} hosts are used")),
                    None => problems.push(format!("{key}: {text:?} is not a DNS name")),
                }
            }
        }
    }
}

impl Hosts {
    fn add(&mut self, address: IpAddr, name: Name, ttl: u32, reverse: bool) {
        if reverse {
            self.names.entry(address).or_default().push((name.clone(), ttl));
        }
        self.addresses.entry(name).or_default().push((address, ttl));
    }

    fn extend(&mut self, other: Hosts) {
        for (name, addresses) in other.addresses {
            self.addresses.entry(name).or_default().extend(addresses);
        }
        for (address, names) in other.names {
            self.names.entry(address).or_default().extend(names);
        }
    }

    /// What is written down about a name; nothing when it is not here. A name may be here without an address of that sort.
    pub fn answer(&self, name: &Name, asked: u16) -> Option<Vec<Record>> {
        if asked == kind::PTR && !self.names.is_empty() {
            let names = self.names.get(&name.reverse_address()?)?.iter();
            return Some(
                names.map(|(name, ttl)| Record { name: None, ttl: *ttl, data: Data::Ptr(name.clone()) }).collect(),
            );
        }
        let found = self.addresses.get(name)?.iter();
        let wanted = found.filter(|(address, _)| match asked {
            kind::A => address.is_ipv4(),
            kind::AAAA => address.is_ipv6(),
            _ => false,
        });
        Some(wanted.map(|(address, ttl)| Record { name: None, ttl: *ttl, data: Data::address(*address) }).collect())
    }
}

/// `example.com:53`, `dns://example.com`, `10.0.0.0/24` for names of addresses.
fn zone_name(text: &str) -> Option<Name> {
    let text = text.trim_end_matches(',');
    let text = text.strip_prefix("dns://").unwrap_or(text);
    if let Ok(range) = text.parse::<ipnet::Ipv4Net>() {
        let octets = usize::from(range.prefix_len().div_ceil(8).max(1));
        let kept: Vec<String> = range.network().octets()[..octets].iter().rev().map(u8::to_string).collect();
        return Name::parse(&format!("{}.in-addr.arpa", kept.join(".")));
    }
    let zone = match text.rsplit_once(':') {
        Some((zone, port)) if port.parse::<u16>().is_ok() => zone,
        Some(_) => return None,
        None => text,
    };
    // The root is the cluster's own block, which overrides are for.
    Name::parse(zone).filter(|name| *name != Name::root())
}

/// `10.0.0.1`, `10.0.0.1:5353`, `[fd00::1]:53`, `dns://10.0.0.1`.
fn upstream(text: &str) -> Option<SocketAddr> {
    let text = text.strip_prefix("dns://").unwrap_or(text);
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse().ok()?, 53)))
}

/// The words of every line that has some. Comments are gone; braces are words.
fn tokens(text: &str) -> Vec<Vec<String>> {
    let words = |line: &str| -> Vec<String> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words: Vec<String> = line.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect();
        // `name{` is seen, too.
        if let Some(last) = words.last_mut()
            && last.len() > 1
            && last.ends_with('{')
        {
            last.pop();
            words.push("{".into());
        }
        words
    };
    text.lines().map(words).filter(|words| !words.is_empty()).collect()
}

/// The line that closes the block which that line opens; the end of all lines when none does.
fn block_end(lines: &[Vec<String>], start: usize) -> usize {
    let mut depth = 1;
    for (at, line) in lines.iter().enumerate().skip(start + 1) {
        if line[0] == "}" {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
        depth += usize::from(line.last().is_some_and(|word| word == "{"));
    }
    lines.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, &str)]) -> Custom {
        Custom::read(&entries.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect())
    }

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    #[test]
    fn a_server_block_is_a_stub_domain() {
        let text = "# ours\ncorp.example:53 other.example {\n  errors\n  cache 30\n  forward . 10.0.0.1 10.0.0.2:5353 {\n    max_concurrent 9\n  }\n}\n";
        let custom = read(&[("corp.server", text), ("long.server", "a.corp.example {\n forward . [fd00::1]:53\n}")]);
        assert_eq!(custom.problems, Vec::<String>::new());
        let upstreams = |text: &str| {
            let stub = custom.stub(&name(text));
            stub.map(|stub| stub.upstreams.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(upstreams("www.corp.example"), Some(vec!["10.0.0.1:53".into(), "10.0.0.2:5353".into()]));
        assert_eq!(upstreams("other.example"), upstreams("corp.example"));
        assert_eq!(upstreams("x.a.corp.example"), Some(vec!["[fd00::1]:53".into()]));
        assert_eq!(upstreams("xcorp.example"), None);
    }

    #[test]
    fn hosts_are_looked_up_both_ways() {
        let text = "hosts {\n  192.0.2.7 printer.office Printer\n  fd00::7 printer.office\n  ttl 60\n  fallthrough\n}\nforward . 192.0.2.1\n";
        let custom = read(&[("office.override", text)]);
        assert_eq!(custom.problems, Vec::<String>::new());
        assert_eq!(custom.upstreams, Some(vec!["192.0.2.1:53".parse().unwrap()]));
        let answer = |text: &str, asked| custom.hosts.answer(&name(text), asked);
        let one = |data| Some(vec![Record { name: None, ttl: 60, data }]);
        assert_eq!(answer("printer.office", kind::A), one(Data::A([192, 0, 2, 7].into())));
        assert_eq!(answer("printer", kind::A), one(Data::A([192, 0, 2, 7].into())));
        assert_eq!(answer("printer", kind::AAAA), Some(vec![]));
        assert_eq!(answer("scanner", kind::A), None);
        let names = answer("7.2.0.192.in-addr.arpa", kind::PTR).expect("two names");
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn what_is_not_understood_is_named_and_the_rest_is_used() {
        let text =
            "rewrite name a b\nhosts /etc/hosts {\n nonsense x\n 192.0.2.1 good\n}\nforward . /etc/resolv.conf\n";
        let custom = read(&[("a.override", text), ("b.server", "}\nx:y {\n"), ("c.txt", "")]);
        assert_eq!(custom.problems.len(), 7, "{:#?}", custom.problems);
        assert!(custom.hosts.answer(&name("good"), kind::A).is_some());
        assert_eq!(custom.upstreams, None);
    }

    #[test]
    fn no_text_makes_it_panic() {
        use rand::{Rng, SeedableRng};
        let mut random = rand::rngs::SmallRng::seed_from_u64(7);
        let words = ["{", "}", "hosts", "forward", "\n", " ", ".", "a.b:53", "1.2.3.4", "#", "\"", "{\n", "}\n", "x{"];
        for _ in 0..2000 {
            let text: String = (0..random.random_range(0..30))
                .flat_map(|_| [words[random.random_range(0..words.len())], " "])
                .collect();
            read(&[("a.server", &text), ("b.override", &text)]);
        }
    }
}
