//! Counters under CoreDNS's names, so that its dashboards and alerts work. Counting a question costs a few atomic additions.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::wire::kind;

/// In seconds: a quarter of a millisecond, and sixteen times the double.
const DURATION_BUCKETS: usize = 16;
const DURATION_FIRST: f64 = 0.00025;
const SIZE_BUCKETS: &[u64] = &[0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16000, 32000, 48000, 64000];
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
const SERVER: &str = "server=\"dns://:53\"";
const ZONE: &str = "zone=\".\"";
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

#[derive(Default)]
pub struct Metrics {
    /// By transport, family and type; the last type is all others.
    requests: [[[AtomicU64; KINDS.len() + 1]; 2]; 2],
    responses: [[AtomicU64; CODES.len()]; SOURCES.len()],
    durations: Histogram<{ DURATION_BUCKETS + 1 }>,
    request_sizes: [Histogram<{ SIZE_BUCKETS.len() + 1 }>; 2],
    response_sizes: [Histogram<{ SIZE_BUCKETS.len() + 1 }>; 2],
    cache_hits: [AtomicU64; 2],
    cache_misses: AtomicU64,
    rejected: AtomicU64,
    panics: AtomicU64,
    resolvers: Mutex<BTreeMap<SocketAddr, Resolver>>,
}

#[derive(Default)]
struct Resolver {
    failures: u64,
    by_code: BTreeMap<u8, (u64, f64)>,
}

struct Histogram<const BUCKETS: usize> {
    counts: [AtomicU64; BUCKETS],
    /// In millionths, for durations.
    sum: AtomicU64,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Histogram { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    fn add(&self, bucket: usize, value: u64) {
        add(&self.counts[bucket], 1);
        add(&self.sum, value);
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
        let micros = took.as_micros() as u64;
        // The bound of each bucket is twice that of the one before.
        let bucket = (micros.saturating_sub(1) / 250).checked_ilog2().map_or(0, |power| power as usize + 1);
        self.durations.add(bucket.min(DURATION_BUCKETS), micros);
        let size =
            |bytes: usize| SIZE_BUCKETS.iter().position(|bound| bytes as u64 <= *bound).unwrap_or(SIZE_BUCKETS.len());
        let transport = exchange.transport as usize;
        self.request_sizes[transport].add(size(exchange.asked_bytes), exchange.asked_bytes as u64);
        self.response_sizes[transport].add(size(answer.len()), answer.len() as u64);
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
            let entry = found.by_code.entry(code).or_default();
            *entry = (entry.0 + 1, entry.1 + took.as_secs_f64());
        });
    }

    pub fn forward_failed(&self, resolver: SocketAddr) {
        self.resolver(resolver, |found| found.failures += 1);
    }

    pub fn forward_rejected(&self) {
        add(&self.rejected, 1);
    }

    fn resolver(&self, address: SocketAddr, change: impl FnOnce(&mut Resolver)) {
        let mut resolvers = self.resolvers.lock();
        if resolvers.len() < RESOLVERS_MAX || resolvers.contains_key(&address) {
            change(resolvers.entry(address).or_default());
        }
    }

    /// In the text form that Prometheus reads.
    pub fn text(&self, cached: (usize, usize)) -> String {
        let mut out = String::new();
        let family = |out: &mut String, name: &str, kind: &str, help: &str| {
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        };
        family(&mut out, "coredns_build_info", "gauge", "A metric with a constant '1' value labeled by version.");
        let _ = writeln!(
            out,
            "coredns_build_info{{goversion=\"\",revision=\"\",version=\"knarr {}\"}} 1",
            env!("CARGO_PKG_VERSION")
        );
        family(
            &mut out,
            "coredns_dns_requests_total",
            "counter",
            "Counter of DNS requests made per zone, protocol and family.",
        );
        for (transport, proto) in ["udp", "tcp"].iter().enumerate() {
            for (address, name) in ["1", "2"].iter().enumerate() {
                for (index, counter) in
                    self.requests[transport][address].iter().enumerate().filter(|(_, one)| read(one) > 0)
                {
                    let kind = KINDS.get(index).map_or("other", |(_, text)| text);
                    let _ = writeln!(
                        out,
                        "coredns_dns_requests_total{{family=\"{name}\",proto=\"{proto}\",{SERVER},type=\"{kind}\",view=\"\",{ZONE}}} {}",
                        read(counter)
                    );
                }
            }
        }
        family(&mut out, "coredns_dns_responses_total", "counter", "Counter of response status codes.");
        for (source, counters) in SOURCES.iter().zip(&self.responses) {
            for (code, counter) in CODES.iter().zip(counters).filter(|(_, one)| read(one) > 0) {
                let _ = writeln!(
                    out,
                    "coredns_dns_responses_total{{plugin=\"{source}\",rcode=\"{code}\",{SERVER},view=\"\",{ZONE}}} {}",
                    read(counter)
                );
            }
        }
        let bounds: Vec<String> =
            (0..DURATION_BUCKETS as i32).map(|power| (DURATION_FIRST * 2_f64.powi(power)).to_string()).collect();
        let name = "coredns_dns_request_duration_seconds";
        family(&mut out, name, "histogram", "Histogram of the time (in seconds) each request took per zone.");
        let labels = format!("{SERVER},view=\"\",{ZONE}");
        histogram(&mut out, name, &labels, &bounds, &self.durations, 1e-6);
        let bounds: Vec<String> = SIZE_BUCKETS.iter().map(u64::to_string).collect();
        for (name, help, sizes) in [
            (
                "coredns_dns_request_size_bytes",
                "Size of the EDNS0 UDP buffer in bytes (64K for TCP) per zone and protocol.",
                &self.request_sizes,
            ),
            ("coredns_dns_response_size_bytes", "Size of the returned response in bytes.", &self.response_sizes),
        ] {
            family(&mut out, name, "histogram", help);
            for (proto, one) in ["udp", "tcp"].iter().zip(sizes) {
                let labels = format!("proto=\"{proto}\",{SERVER},view=\"\",{ZONE}");
                histogram(&mut out, name, &labels, &bounds, one, 1.0);
            }
        }
        let cache = format!("{SERVER},view=\"\",zones=\".\"");
        family(&mut out, "coredns_cache_entries", "gauge", "The number of elements in the cache.");
        family_lines(&mut out, "coredns_cache_entries", &cache, [cached.0 as u64, cached.1 as u64]);
        family(&mut out, "coredns_cache_hits_total", "counter", "The count of cache hits.");
        family_lines(
            &mut out,
            "coredns_cache_hits_total",
            &cache,
            [read(&self.cache_hits[0]), read(&self.cache_hits[1])],
        );
        let hits: u64 = self.cache_hits.iter().map(read).sum();
        for (name, help, value) in [
            ("coredns_cache_misses_total", "The count of cache misses.", read(&self.cache_misses)),
            ("coredns_cache_requests_total", "The count of cache requests.", hits + read(&self.cache_misses)),
        ] {
            family(&mut out, name, "counter", help);
            let _ = writeln!(out, "{name}{{{cache}}} {value}");
        }
        family(
            &mut out,
            "coredns_forward_max_concurrent_rejects_total",
            "counter",
            "Counter of the number of queries rejected because the concurrent queries were at maximum.",
        );
        let _ = writeln!(out, "coredns_forward_max_concurrent_rejects_total {}", read(&self.rejected));
        self.resolvers_text(&mut out, family);
        family(&mut out, "coredns_panics_total", "counter", "A metrics that counts the number of panics.");
        let _ = writeln!(out, "coredns_panics_total {}", read(&self.panics));
        out
    }

    fn resolvers_text(&self, out: &mut String, family: impl Fn(&mut String, &str, &str, &str)) {
        let resolvers = self.resolvers.lock();
        let name = "coredns_proxy_request_duration_seconds";
        family(out, name, "histogram", "Histogram of the time each request took.");
        for (to, resolver) in resolvers.iter() {
            for (code, (count, seconds)) in &resolver.by_code {
                let code = CODES.get(usize::from(*code)).unwrap_or(&"OTHER");
                let labels = format!("proxy_name=\"forward\",rcode=\"{code}\",to=\"{to}\"");
                let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
                let _ = writeln!(out, "{name}_sum{{{labels}}} {seconds}\n{name}_count{{{labels}}} {count}");
            }
        }
        let name = "coredns_proxy_healthcheck_failures_total";
        family(out, name, "counter", "Counter of the number of failed healthchecks.");
        for (to, resolver) in resolvers.iter() {
            let _ = writeln!(out, "{name}{{proxy_name=\"forward\",to=\"{to}\"}} {}", resolver.failures);
        }
    }

    pub fn panicked(&self) {
        add(&self.panics, 1);
    }
}

fn family_lines(out: &mut String, name: &str, labels: &str, [success, denial]: [u64; 2]) {
    let _ = writeln!(out, "{name}{{{labels},type=\"denial\"}} {denial}");
    let _ = writeln!(out, "{name}{{{labels},type=\"success\"}} {success}");
}

fn histogram<const BUCKETS: usize>(
    out: &mut String,
    name: &str,
    labels: &str,
    bounds: &[String],
    histogram: &Histogram<BUCKETS>,
    unit: f64,
) {
    let mut total = 0;
    for (index, counter) in histogram.counts.iter().enumerate() {
        total += read(counter);
        let bound = bounds.get(index).map_or("+Inf", String::as_str);
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
    }
    let _ = writeln!(out, "{name}_sum{{{labels}}} {}", read(&histogram.sum) as f64 * unit);
    let _ = writeln!(out, "{name}_count{{{labels}}} {total}");
}

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
