//! Answers queries for names of the cluster, as CoreDNS does for the Kubernetes DNS specification 1.1.
//! Pure: no sockets, no clock. `index.rs` knows the objects.

pub mod index;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::wire::{Data, Name, Record, kind};
use index::{Endpoint, Index, Kind, Served};

/// The version of the specification, and how long it may be remembered.
const SPECIFICATION: &str = "1.1.0";
const SPECIFICATION_TTL: u32 = 28800;
/// So many names may lead on to the next.
const ALIASES_MAX: usize = 8;
/// The cluster's DNS is itself a Service.
const OWN_SERVICE: &[u8] = b"\x08kube-dns\x0bkube-system";

pub struct Zone {
    pub index: Index,
    domain: Name,
    services: Name,
    pods: Name,
    ttl: u32,
    /// Addresses about which nobody outside knows anything.
    ranges: Vec<IpNet>,
    /// When something last changed, in seconds.
    pub serial: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not for us to say.
    Elsewhere,
    Records {
        answers: Vec<Record>,
        additional: Vec<Record>,
    },
    /// The name exists, but nothing of this type.
    NoData,
    NoName,
    /// The name is another one outside the cluster, whose addresses are asked for.
    Alias {
        chain: Vec<Record>,
        target: Name,
    },
    Refused,
}

/// What a name leads to.
enum Found<'a> {
    Address { address: IpAddr, port: Option<u16>, endpoint: Option<&'a Endpoint>, key: &'a [u8] },
    Alias(&'a Name),
}

struct NoName;

impl Zone {
    pub fn new(domain: Name, ttl: u32, ranges: Vec<IpNet>) -> Zone {
        let below = |label: &'static [u8]| Name::below([label], &domain).expect("the cluster's domain is short");
        let (services, pods) = (below(b"svc"), below(b"pod"));
        Zone { index: Index::default(), services, pods, domain, ttl, ranges, serial: 0 }
    }

    pub fn domain(&self) -> &Name {
        &self.domain
    }

    pub fn answer(&self, name: &Name, asked: u16) -> Answer {
        if !name.is_within(&self.domain) {
            return self.reverse(name, asked);
        }
        match asked {
            kind::A | kind::AAAA => self.addresses(name, asked),
            kind::AXFR | kind::IXFR => Answer::Refused,
            kind::SOA if *name == self.domain => Answer::records(vec![self.authority(name)]),
            kind::NS if *name == self.domain => self.name_servers(),
            kind::TXT if self.is_version(name) => {
                let data = Data::Txt(SPECIFICATION.into());
                Answer::records(vec![Record { name: None, ttl: SPECIFICATION_TTL, data }])
            }
            _ => match self.find(name) {
                Err(NoName) => Answer::NoName,
                Ok(found) => match asked {
                    kind::SRV => self.ports(found),
                    kind::CNAME => self.alias(found),
                    _ => Answer::NoData,
                },
            },
        }
    }

    /// The record that negative answers carry.
    pub fn authority(&self, name: &Name) -> Record {
        let arpa =
            [&b"in-addr"[..], b"ip6"].map(|label| Name::below([label, b"arpa"], &Name::root()).expect("a short name"));
        let zone = arpa.into_iter().find(|zone| name.is_within(zone)).unwrap_or_else(|| self.domain.clone());
        let below = |labels: &[&'static [u8]]| Name::below(labels.iter().copied(), &zone).unwrap_or_else(Name::root);
        let data = Data::Soa {
            server: below(&[b"ns", b"dns"]),
            mailbox: below(&[b"hostmaster"]),
            serial: self.serial,
            refresh: 7200,
            retry: 1800,
            expire: 86400,
            minimum: self.ttl,
        };
        Record { name: Some(zone), ttl: self.ttl.min(300), data }
    }

    /// Addresses, through as many names as lead to them.
    fn addresses(&self, name: &Name, asked: u16) -> Answer {
        let mut chain: Vec<Record> = Vec::new();
        let mut current = name.clone();
        loop {
            let found = match self.find(&current) {
                // A name that leads nowhere exists nevertheless.
                Err(NoName) if chain.is_empty() => return Answer::NoName,
                Err(NoName) => return Answer::NoData,
                Ok(found) => found,
            };
            let owner = (!chain.is_empty()).then(|| current.clone());
            if let Some(Found::Alias(target)) = found.first() {
                let again = chain.iter().any(|record| record.data == Data::Cname((*target).clone()));
                if again || **target == *name || chain.len() >= ALIASES_MAX {
                    return Answer::NoData;
                }
                chain.push(Record { name: owner, ttl: self.ttl, data: Data::Cname((*target).clone()) });
                if !target.is_within(&self.domain) {
                    return Answer::Alias { chain, target: (*target).clone() };
                }
                current = (*target).clone();
                continue;
            }
            let mut seen = HashSet::new();
            let many = found.len() > 1;
            let before = chain.len();
            for one in &found {
                let Found::Address { address, .. } = one else { continue };
                if address.is_ipv4() == (asked == kind::A) && (!many || seen.insert(*address)) {
                    chain.push(Record { name: owner.clone(), ttl: self.ttl, data: Data::address(*address) });
                }
            }
            return if chain.len() == before { Answer::NoData } else { Answer::records(chain) };
        }
    }

    /// SRV records, and the addresses of what they name.
    fn ports(&self, found: Vec<Found>) -> Answer {
        let (mut answers, mut additional) = (Vec::new(), Vec::new());
        let (mut targets, mut hosts) = (HashSet::new(), HashSet::new());
        // All are as good as each other; the weights add up to 100 as far as whole numbers can.
        let weight = u16::try_from(100 / found.len().max(1)).unwrap_or(1).max(1);
        for one in found {
            let Found::Address { address, port: Some(port), endpoint, key } = one else { continue };
            let label = endpoint.map(Endpoint::label);
            let labels = label.as_deref().map(str::as_bytes).into_iter().chain(labels(key));
            let Some(target) = Name::below(labels, &self.services) else { continue };
            if targets.insert((target.clone(), port)) {
                let data = Data::Srv { priority: 0, weight, port, target: target.clone() };
                answers.push(Record { name: None, ttl: self.ttl, data });
            }
            if hosts.insert((target.clone(), address)) {
                additional.push(Record { name: Some(target), ttl: self.ttl, data: Data::address(address) });
            }
        }
        if answers.is_empty() { Answer::NoData } else { Answer::Records { answers, additional } }
    }

    fn alias(&self, found: Vec<Found>) -> Answer {
        match found.first() {
            Some(Found::Alias(target)) => {
                Answer::records(vec![Record { name: None, ttl: self.ttl, data: Data::Cname((*target).clone()) }])
            }
            _ => Answer::NoData,
        }
    }

    fn name_servers(&self) -> Answer {
        let Some(server) = Name::below(labels(OWN_SERVICE), &self.services) else { return Answer::NoData };
        let own = self.own_addresses().iter();
        let additional =
            own.map(|address| Record { name: Some(server.clone()), ttl: self.ttl, data: Data::address(*address) });
        let additional: Vec<Record> = additional.collect();
        if additional.is_empty() {
            return Answer::NoData;
        }
        Answer::Records { answers: vec![Record { name: None, ttl: self.ttl, data: Data::Ns(server) }], additional }
    }

    fn own_addresses(&self) -> &[IpAddr] {
        match self.index.get(OWN_SERVICE).and_then(|served| served.service.as_ref()) {
            Some(Kind::Cluster { addresses, .. }) => addresses,
            _ => &[],
        }
    }

    fn is_version(&self, name: &Name) -> bool {
        name.without(&self.domain) == Some(b"\x0bdns-version")
    }

    /// What stands under a name of the cluster. Names above Services exist but hold nothing.
    fn find(&self, name: &Name) -> Result<Vec<Found<'_>>, NoName> {
        if let Some(front) = name.without(&self.services) {
            return self.find_service(front);
        }
        if let Some(front) = name.without(&self.pods) {
            return self.find_pod(front);
        }
        match name.without(&self.domain) {
            Some(b"") => Ok(Vec::new()),
            Some(b"\x02ns\x03dns") => {
                let address =
                    |address: &IpAddr| Found::Address { address: *address, port: None, endpoint: None, key: b"" };
                Ok(self.own_addresses().iter().map(address).collect())
            }
            _ => Err(NoName),
        }
    }

    /// `[[_port._protocol.]|[endpoint.]]service.namespace`.
    fn find_service(&self, front: &[u8]) -> Result<Vec<Found<'_>>, NoName> {
        let parts: Vec<&[u8]> = labels(front).collect();
        let Some(namespace) = parts.last() else { return Ok(Vec::new()) };
        if !self.index.has_namespace(namespace) {
            return Err(NoName);
        }
        let (endpoint, port, protocol) = match parts.len() {
            1 => return Ok(Vec::new()),
            2 => (None, None, None),
            3 => (Some(parts[0]), None, None),
            4 => (None, Some(without_underscore(parts[0])), Some(without_underscore(parts[1]))),
            _ => return Err(NoName),
        };
        let before: usize = parts[..parts.len() - 2].iter().map(|part| 1 + part.len()).sum();
        let key = &front[before..];
        let Some((key, served)) = self.index.get_with_key(key) else { return Err(NoName) };
        let mut found = Vec::new();
        match served.service.as_ref().ok_or(NoName)? {
            Kind::Nameless => return Err(NoName),
            Kind::External(target) => {
                if endpoint.is_some() || port.is_some() {
                    return Err(NoName);
                }
                return Ok(vec![Found::Alias(target)]);
            }
            Kind::Cluster { addresses, ports } if endpoint.is_none() => {
                let mut any = false;
                for one in ports.iter().filter(|one| one.is(port, protocol)) {
                    any = true;
                    let address =
                        |address: &IpAddr| Found::Address { address: *address, port: one.number, endpoint: None, key };
                    found.extend(addresses.iter().map(address));
                }
                return if any { Ok(found) } else { Err(NoName) };
            }
            Kind::Cluster { .. } | Kind::Headless => endpoints(served, key, endpoint, port, protocol, &mut found),
        }
        if found.is_empty() { Err(NoName) } else { Ok(found) }
    }

    /// `a-b-c-d.namespace`: the address in the name itself, whether or not such a pod exists.
    fn find_pod(&self, front: &[u8]) -> Result<Vec<Found<'_>>, NoName> {
        let parts: Vec<&[u8]> = labels(front).collect();
        let Some(namespace) = parts.last() else { return Ok(Vec::new()) };
        if !self.index.has_namespace(namespace) || parts.len() > 4 {
            return Err(NoName);
        }
        let Some(pod) = parts.len().checked_sub(2).map(|at| parts[at]) else { return Ok(Vec::new()) };
        let text = std::str::from_utf8(pod).map_err(|_| NoName)?;
        let four = text.bytes().filter(|byte| *byte == b'-').count() == 3 && !text.contains("--");
        let address = text.replace('-', if four { "." } else { ":" }).parse().map_err(|_| NoName)?;
        Ok(vec![Found::Address { address, port: None, endpoint: None, key: b"" }])
    }

    /// Names of addresses. Those outside the cluster are known elsewhere, if anywhere.
    fn reverse(&self, name: &Name, asked: u16) -> Answer {
        let Some(address) = name.reverse_address() else { return Answer::Elsewhere };
        let pointer = |labels: &mut dyn Iterator<Item = &[u8]>| {
            let target = Name::below(labels, &self.services)?;
            Some(Record { name: None, ttl: self.ttl, data: Data::Ptr(target) })
        };
        let records: Vec<Record> = match self.index.with_address(&address) {
            Some(key) => pointer(&mut labels(key)).into_iter().collect(),
            None => {
                let names = self.index.host_names(address).into_iter();
                names.filter_map(|(host, key)| pointer(&mut [host.as_bytes()].into_iter().chain(labels(key)))).collect()
            }
        };
        if !records.is_empty() {
            return if asked == kind::PTR { Answer::records(records) } else { Answer::NoData };
        }
        let ours = self.ranges.iter().any(|range| range.contains(&address));
        if ours { Answer::NoName } else { Answer::Elsewhere }
    }
}

impl Answer {
    fn records(answers: Vec<Record>) -> Answer {
        Answer::Records { answers, additional: Vec::new() }
    }
}

fn endpoints<'a>(
    served: &'a Served,
    key: &'a [u8],
    asked: Option<&[u8]>,
    port: Option<&[u8]>,
    protocol: Option<&[u8]>,
    found: &mut Vec<Found<'a>>,
) {
    for slice in served.slices() {
        for endpoint in &slice.endpoints {
            if asked.is_some_and(|asked| !asked.eq_ignore_ascii_case(endpoint.label().as_bytes())) {
                continue;
            }
            for one in slice.ports.iter().filter(|one| one.is(port, protocol)) {
                let (address, port, endpoint) = (endpoint.address, one.number, Some(endpoint));
                found.push(Found::Address { address, port, endpoint, key });
            }
        }
    }
}

/// The labels of a part of a name.
fn labels(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = usize::from(*rest.first()?);
        let label = rest.get(1..1 + length)?;
        rest = &rest[1 + length..];
        Some(label)
    })
}

fn without_underscore(label: &[u8]) -> &[u8] {
    label.strip_prefix(b"_").unwrap_or(label)
}
