//! Counters under CoreDNS's names, so that its dashboards and alerts work. Counting a question costs a few atomic additions.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Labels, Metric, Page, exponential};
use parking_lot::Mutex;

use crate::wire::kind;

/// A quarter of a millisecond, and sixteen times the double.
const SECONDS: Bounds = &exponential::<16>(0.00025, 2.0);
const BYTES: Bounds =
    &[0.0, 100.0, 200.0, 300.0, 400.0, 511.0, 1023.0, 2047.0, 4095.0, 8291.0, 16000.0, 32000.0, 48000.0, 64000.0];
const CODES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
/// The types that are counted by name.
const KINDS: [(u16, &str); 16] = [
    (kind::A, "A"),
    (kind::AAAA, "AAAA"),
    (kind::SRV, "SRV"),
    (kind::PTR, "PTR"),
    (kind::CNAME, "CNAME"),
    (kind::TXT, "TXT"),
    (15, "MX"),
    (kind::NS, "NS"),
    (kind::SOA, "SOA"),
    (43, "DS"),
    (48, "DNSKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (50, "NSEC3"),
    (65, "HTTPS"),
    (255, "ANY"),
];
const PROTOCOLS: [&str; 2] = ["udp", "tcp"];
const SERVER: (&str, &str) = ("server", "dns://:53");
const VIEW: (&str, &str) = ("view", "");
const ZONE: (&str, &str) = ("zone", ".");
const ZONES: (&str, &str) = ("zones", ".");
/// Resolvers that are counted one by one.
const RESOLVERS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Datagram = 0,
    Stream = 1,
}

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Kubernetes = 0,
    Hosts = 1,
    Cache = 2,
    Forward = 3,
    /// What is no question that anybody could answer.
    Nobody = 4,
}

const SOURCES: [&str; 5] = ["kubernetes", "hosts", "cache", "forward", ""];

pub struct Metrics {
    /// By transport, family and type; the last type is all others.
    requests: [[[AtomicU64; KINDS.len() + 1]; 2]; 2],
    responses: [[AtomicU64; CODES.len()]; SOURCES.len()],
    durations: Histogram,
    request_sizes: [Histogram; 2],
    response_sizes: [Histogram; 2],
    cache_hits: [AtomicU64; 2],
    cache_misses: AtomicU64,
    rejected: AtomicU64,
    panics: AtomicU64,
    resolvers: Mutex<BTreeMap<SocketAddr, Resolver>>,
}

#[derive(Default)]
struct Resolver {
    failures: u64,
    /// Only how many there were, and how long they took together.
    by_code: BTreeMap<u8, Histogram>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let sizes = || [Histogram::new(BYTES), Histogram::new(BYTES)];
        Metrics {
            requests: Default::default(),
            responses: Default::default(),
            durations: Histogram::new(SECONDS),
            request_sizes: sizes(),
            response_sizes: sizes(),
            cache_hits: Default::default(),
            cache_misses: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            resolvers: Mutex::default(),
        }
    }
}

fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// One question and its answer.
pub struct Exchange {
    pub transport: Transport,
    pub ipv6: bool,
    pub kind: u16,
    pub asked_bytes: usize,
}

impl Metrics {
    pub fn answered(&self, exchange: &Exchange, source: Source, answer: &[u8], took: Duration) {
        let known = KINDS.iter().position(|(kind, _)| *kind == exchange.kind).unwrap_or(KINDS.len());
        add(&self.requests[exchange.transport as usize][usize::from(exchange.ipv6)][known], 1);
        let code = usize::from(answer.get(3).copied().unwrap_or(0) & 0xf);
        add(&self.responses[source as usize][code.min(CODES.len() - 1)], 1);
        self.durations.observe_time(took);
        let transport = exchange.transport as usize;
        self.request_sizes[transport].observe(exchange.asked_bytes as f64);
        self.response_sizes[transport].observe(answer.len() as f64);
    }

    /// A look into the cache: what was found, if it was a denial, or nothing.
    pub fn cache(&self, found: Option<bool>) {
        match found {
            Some(denial) => add(&self.cache_hits[usize::from(denial)], 1),
            None => add(&self.cache_misses, 1),
        }
    }

    pub fn forwarded(&self, resolver: SocketAddr, code: u8, took: Duration) {
        self.resolver(resolver, |found| {
            found.by_code.entry(code).or_insert_with(|| Histogram::new(&[])).observe_time(took);
        });
    }

    pub(crate) fn forward_failed(&self, resolver: SocketAddr) {
        self.resolver(resolver, |found| found.failures += 1);
    }

    pub(crate) fn forward_rejected(&self) {
        add(&self.rejected, 1);
    }

    fn resolver(&self, address: SocketAddr, change: impl FnOnce(&mut Resolver)) {
        let mut resolvers = self.resolvers.lock();
        if resolvers.len() < RESOLVERS_MAX || resolvers.contains_key(&address) {
            change(resolvers.entry(address).or_default());
        }
    }

    pub fn panicked(&self) {
        add(&self.panics, 1);
    }

    /// In the text form that Prometheus reads.
    pub fn text(&self, cached: (usize, usize)) -> String {
        let mut page = Page::default();
        let version = concat!("knarr ", env!("CARGO_PKG_VERSION"));
        page.family(&BUILD_INFO).sample(&[("goversion", ""), ("revision", ""), ("version", version)], 1);
        self.write_requests(&mut page);
        self.write_responses(&mut page);
        page.family(&DURATIONS).histogram(&[SERVER, VIEW, ZONE], &self.durations);
        for (metric, sizes) in [(&REQUEST_SIZES, &self.request_sizes), (&RESPONSE_SIZES, &self.response_sizes)] {
            for (proto, sizes) in PROTOCOLS.iter().zip(sizes) {
                page.family(metric).histogram(&[("proto", proto), SERVER, VIEW, ZONE], sizes);
            }
        }
        self.write_cache(&mut page, cached);
        page.value(&REJECTED, read(&self.rejected));
        self.write_resolvers(&mut page);
        page.value(&PANICS, read(&self.panics));
        page.text()
    }

    fn write_requests(&self, page: &mut Page) {
        let mut requests = page.family(&REQUESTS);
        for (proto, families) in PROTOCOLS.iter().zip(&self.requests) {
            for (family, kinds) in ["1", "2"].iter().zip(families) {
                for (index, count) in kinds.iter().map(read).enumerate().filter(|(_, count)| *count > 0) {
                    let kind = KINDS.get(index).map_or("other", |(_, text)| text);
                    let labels = [("family", *family), ("proto", proto), SERVER, ("type", kind), VIEW, ZONE];
                    requests.sample(&labels, count);
                }
            }
        }
    }

    fn write_responses(&self, page: &mut Page) {
        let mut responses = page.family(&RESPONSES);
        for (source, counters) in SOURCES.iter().zip(&self.responses) {
            for (code, count) in CODES.iter().zip(counters.iter().map(read)).filter(|(_, count)| *count > 0) {
                responses.sample(&[("plugin", source), ("rcode", code), SERVER, VIEW, ZONE], count);
            }
        }
    }

    fn write_cache(&self, page: &mut Page, (successes, denials): (usize, usize)) {
        let (hits, misses) = (self.cache_hits.each_ref().map(read), read(&self.cache_misses));
        for (metric, success, denial) in
            [(&CACHE_ENTRIES, successes as u64, denials as u64), (&CACHE_HITS, hits[0], hits[1])]
        {
            let mut family = page.family(metric);
            family.sample(&[SERVER, VIEW, ZONES, ("type", "denial")], denial);
            family.sample(&[SERVER, VIEW, ZONES, ("type", "success")], success);
        }
        let all: &Labels = &[SERVER, VIEW, ZONES];
        page.family(&CACHE_MISSES).sample(all, misses);
        page.family(&CACHE_REQUESTS).sample(all, hits[0] + hits[1] + misses);
    }

    fn write_resolvers(&self, page: &mut Page) {
        let resolvers = self.resolvers.lock();
        let mut forwarded = page.family(&FORWARDED);
        for (to, resolver) in resolvers.iter() {
            for (code, times) in &resolver.by_code {
                let code = CODES.get(usize::from(*code)).unwrap_or(&"OTHER");
                forwarded.histogram(&[FORWARD, ("rcode", code), ("to", &to.to_string())], times);
            }
        }
        let mut failures = page.family(&FORWARD_FAILURES);
        for (to, resolver) in resolvers.iter() {
            failures.sample(&[FORWARD, ("to", &to.to_string())], resolver.failures);
        }
    }
}

const FORWARD: (&str, &str) = ("proxy_name", "forward");

const BUILD_INFO: Metric =
    Metric::gauge("coredns_build_info", "A metric with a constant '1' value labeled by version.");
const REQUESTS: Metric =
    Metric::counter("coredns_dns_requests_total", "Counter of DNS requests made per zone, protocol and family.");
const RESPONSES: Metric = Metric::counter("coredns_dns_responses_total", "Counter of response status codes.");
const DURATIONS: Metric = Metric::histogram(
    "coredns_dns_request_duration_seconds",
    "Histogram of the time (in seconds) each request took per zone.",
);
const REQUEST_SIZES: Metric = Metric::histogram(
    "coredns_dns_request_size_bytes",
    "Size of the EDNS0 UDP buffer in bytes (64K for TCP) per zone and protocol.",
);
const RESPONSE_SIZES: Metric =
    Metric::histogram("coredns_dns_response_size_bytes", "Size of the returned response in bytes.");
const CACHE_ENTRIES: Metric = Metric::gauge("coredns_cache_entries", "The number of elements in the cache.");
const CACHE_HITS: Metric = Metric::counter("coredns_cache_hits_total", "The count of cache hits.");
const CACHE_MISSES: Metric = Metric::counter("coredns_cache_misses_total", "The count of cache misses.");
const CACHE_REQUESTS: Metric = Metric::counter("coredns_cache_requests_total", "The count of cache requests.");
const REJECTED: Metric = Metric::counter(
    "coredns_forward_max_concurrent_rejects_total",
    "Counter of the number of queries rejected because the concurrent queries were at maximum.",
);
const FORWARDED: Metric =
    Metric::histogram("coredns_proxy_request_duration_seconds", "Histogram of the time each request took.");
const FORWARD_FAILURES: Metric =
    Metric::counter("coredns_proxy_healthcheck_failures_total", "Counter of the number of failed healthchecks.");
const PANICS: Metric = Metric::counter("coredns_panics_total", "A metrics that counts the number of panics.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_counted_under_coredns_names() {
        let metrics = Metrics::default();
        let exchange = Exchange { transport: Transport::Datagram, ipv6: false, kind: kind::AAAA, asked_bytes: 40 };
        for micros in [1, 250, 251, 500, 501, 9_000_000] {
            metrics.answered(&exchange, Source::Kubernetes, &[0, 0, 0x84, 3], Duration::from_micros(micros));
        }
        let text = metrics.text((3, 1));
        for line in [
            "coredns_dns_requests_total{family=\"1\",proto=\"udp\",server=\"dns://:53\",type=\"AAAA\",view=\"\",zone=\".\"} 6",
            "coredns_dns_responses_total{plugin=\"kubernetes\",rcode=\"NXDOMAIN\",server=\"dns://:53\",view=\"\",zone=\".\"} 6",
            "coredns_dns_request_duration_seconds_bucket{server=\"dns://:53\",view=\"\",zone=\".\",le=\"0.00025\"} 2",
            "coredns_dns_request_duration_seconds_bucket{server=\"dns://:53\",view=\"\",zone=\".\",le=\"0.0005\"} 4",
            "coredns_dns_request_duration_seconds_bucket{server=\"dns://:53\",view=\"\",zone=\".\",le=\"8.192\"} 5",
            "coredns_dns_request_duration_seconds_count{server=\"dns://:53\",view=\"\",zone=\".\"} 6",
            "coredns_cache_entries{server=\"dns://:53\",view=\"\",zones=\".\",type=\"success\"} 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::default();
        for (transport, ipv6, kind, bytes) in [
            (Transport::Datagram, false, kind::A, 40),
            (Transport::Stream, true, kind::AAAA, 600),
            (Transport::Stream, true, 99, 70_000),
        ] {
            let exchange = Exchange { transport, ipv6, kind, asked_bytes: bytes };
            metrics.answered(&exchange, Source::Cache, &[0, 0, 0x84, 0], Duration::from_millis(250));
            metrics.answered(&exchange, Source::Forward, &[0, 0, 0x84, 2], Duration::from_secs(16));
        }
        metrics.cache(Some(true));
        metrics.cache(None);
        for resolver in ["192.0.2.1:53", "[fd00::1]:53"] {
            let resolver = resolver.parse().unwrap();
            metrics.forwarded(resolver, 0, Duration::from_millis(500));
            metrics.forwarded(resolver, 9, Duration::from_millis(250));
            metrics.forward_failed(resolver);
        }
        metrics.forward_rejected();
        metrics.panicked();
        let text = metrics.text((3, 1)).replace(env!("CARGO_PKG_VERSION"), "0.0.0");
        assert_eq!(text, include_str!("testdata/metrics.txt"));
    }
}
