//! Metrics of the proxy under upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::clock::Clock;
use component_base::metrics::{Bounds, Histogram, Metric, Page, exponential};
use parking_lot::Mutex;

use crate::model::Family;

pub struct Metrics {
    /// Those that this proxy writes rules for, all in one transaction: a sync is one of each.
    families: Vec<Family>,
    syncs: Histogram,
    full_syncs: Histogram,
    partial_syncs: Histogram,
    programming: Histogram,
    state: Mutex<State>,
    clock: Clock,
}

#[derive(Default)]
struct State {
    queued: f64,
    synced: f64,
    service_changes: u64,
    endpoint_changes: u64,
    pending: [u64; 2],
    /// Services without an endpoint here, by family: for traffic from inside, and from outside.
    without_local: BTreeMap<Family, (u64, u64)>,
    failures: u64,
    conntrack_deleted: u64,
    healthz: [u64; 2],
    livez: [u64; 2],
}

impl Metrics {
    pub fn new(families: &[Family], clock: Clock) -> Metrics {
        Metrics {
            families: families.to_vec(),
            syncs: Histogram::new(SYNC_SECONDS),
            full_syncs: Histogram::new(SYNC_SECONDS),
            partial_syncs: Histogram::new(SYNC_SECONDS),
            programming: Histogram::new(PROGRAMMING_SECONDS),
            state: Mutex::default(),
            clock,
        }
    }

    pub fn queued(&self, is_service: bool) {
        let mut state = self.state.lock();
        state.queued = self.now();
        if is_service {
            (state.service_changes += 1, state.pending[0] += 1)
        } else {
            (state.endpoint_changes += 1, state.pending[1] += 1)
        };
    }

    /// What was queued has been taken up.
    pub fn taken(&self) {
        self.state.lock().pending = [0, 0];
    }

    pub fn synced(&self, took: Duration, is_full: bool) {
        self.state.lock().synced = self.now();
        self.syncs.observe_time(took);
        let syncs = if is_full { &self.full_syncs } else { &self.partial_syncs };
        syncs.observe_time(took);
    }

    /// From the change that made an EndpointSlice be written until the kernel had it.
    pub(crate) fn programmed(&self, seconds: f64) {
        self.programming.observe(seconds);
    }

    pub fn failed(&self) {
        self.state.lock().failures += 1;
    }

    pub(crate) fn set_without_local(&self, family: Family, internal: u64, external: u64) {
        self.state.lock().without_local.insert(family, (internal, external));
    }

    pub(crate) fn conntrack_deleted(&self, count: usize) {
        self.state.lock().conntrack_deleted += count as u64;
    }

    pub(crate) fn count_healthz(&self, is_good: bool) {
        self.state.lock().healthz[usize::from(!is_good)] += 1;
    }

    pub(crate) fn count_livez(&self, is_good: bool) {
        self.state.lock().livez[usize::from(!is_good)] += 1;
    }

    /// The text that monitoring reads.
    pub fn text(&self) -> String {
        let mut page = Page::default();
        for (metric, times) in [
            (&SYNCS, &self.syncs),
            (&FULL_SYNCS, &self.full_syncs),
            (&PARTIAL_SYNCS, &self.partial_syncs),
            (&PROGRAMMING, &self.programming),
        ] {
            let mut out = page.family(metric);
            self.families.iter().for_each(|family| out.histogram(&[label(*family)], times));
        }
        let state = self.state.lock();
        page.value(&LAST_QUEUED, state.queued);
        page.value(&LAST_SYNCED, state.synced);
        page.value(&ENDPOINTS_PENDING, state.pending[1]);
        page.value(&ENDPOINT_CHANGES, state.endpoint_changes);
        page.value(&SERVICES_PENDING, state.pending[0]);
        page.value(&SERVICE_CHANGES, state.service_changes);
        let mut without_local = page.family(&NO_LOCAL_ENDPOINTS);
        for family in &self.families {
            let (internal, external) = state.without_local.get(family).copied().unwrap_or_default();
            without_local.sample(&[label(*family), ("traffic_policy", "external")], external);
            without_local.sample(&[label(*family), ("traffic_policy", "internal")], internal);
        }
        page.value(&SYNC_FAILURES, state.failures);
        page.value(&CONNTRACK_DELETED, state.conntrack_deleted);
        for (metric, counts) in [(&HEALTHZ, state.healthz), (&LIVEZ, state.livez)] {
            for (code, count) in ["200", "503"].iter().zip(counts) {
                page.family(metric).sample(&[("code", code)], count);
            }
        }
        page.text()
    }

    fn now(&self) -> f64 {
        self.clock.now().as_millisecond() as f64 / 1000.0
    }
}

fn label(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::V4 => ("ip_family", "IPv4"),
        Family::V6 => ("ip_family", "IPv6"),
    }
}

const SYNC_SECONDS: Bounds = &exponential::<15>(0.001, 2.0);
const PROGRAMMING_SECONDS: Bounds = &programming_seconds();

/// Finer where it matters, up to five minutes.
const fn programming_seconds() -> [f64; 80] {
    const STEPS: [(f64, f64, usize); 4] = [(0.25, 0.25, 2), (1.0, 1.0, 59), (60.0, 5.0, 12), (120.0, 30.0, 7)];
    let mut bounds = [0.0; 80];
    let (mut filled, mut part) = (0, 0);
    while part < STEPS.len() {
        let (first, step, count) = STEPS[part];
        let mut number = 0;
        while number < count {
            bounds[filled] = first + step * number as f64;
            filled += 1;
            number += 1;
        }
        part += 1;
    }
    bounds
}

const SYNCS: Metric = Metric::histogram(
    "kubeproxy_sync_proxy_rules_duration_seconds",
    "[ALPHA] SyncProxyRules latency in seconds of syncing proxy rules",
);
const FULL_SYNCS: Metric = Metric::histogram(
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "[ALPHA] SyncProxyRules latency in seconds for full resyncs",
);
const PARTIAL_SYNCS: Metric = Metric::histogram(
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "[ALPHA] SyncProxyRules latency in seconds for partial resyncs",
);
const PROGRAMMING: Metric = Metric::histogram(
    "kubeproxy_network_programming_duration_seconds",
    "[ALPHA] In Cluster Network Programming Latency in seconds",
);
const LAST_QUEUED: Metric = Metric::gauge(
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    "[ALPHA] The last time a sync of proxy rules was queued",
);
const LAST_SYNCED: Metric = Metric::gauge(
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    "[ALPHA] The last time proxy rules were successfully synced",
);
const ENDPOINTS_PENDING: Metric = Metric::gauge(
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    "[ALPHA] Pending proxy rules Endpoint changes",
);
const ENDPOINT_CHANGES: Metric = Metric::counter(
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "[ALPHA] Cumulative proxy rules Endpoint changes",
);
const SERVICES_PENDING: Metric =
    Metric::gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "[ALPHA] Pending proxy rules Service changes");
const SERVICE_CHANGES: Metric = Metric::counter(
    "kubeproxy_sync_proxy_rules_service_changes_total",
    "[ALPHA] Cumulative proxy rules Service changes",
);
const NO_LOCAL_ENDPOINTS: Metric = Metric::gauge(
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    "[ALPHA] Number of services with a Local traffic policy and no endpoints",
);
const SYNC_FAILURES: Metric = Metric::counter(
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
    "[ALPHA] Cumulative proxy nftables sync failures",
);
const CONNTRACK_DELETED: Metric = Metric::counter(
    "kubeproxy_conntrack_reconciler_deleted_entries_total",
    "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler",
);
const HEALTHZ: Metric =
    Metric::counter("kubeproxy_proxy_healthz_total", "[ALPHA] Cumulative proxy healthz HTTP status");
const LIVEZ: Metric = Metric::counter("kubeproxy_proxy_livez_total", "[ALPHA] Cumulative proxy livez HTTP status");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_upstreams_names() {
        let metrics = Metrics::new(
            &[Family::V4],
            Clock::from_fn(|| jiff::Timestamp::from_millisecond(1_800_000_000_500).unwrap()),
        );
        metrics.synced(Duration::from_millis(3), true);
        metrics.synced(Duration::from_millis(1), false);
        metrics.programmed(0.3);
        metrics.queued(true);
        metrics.count_healthz(false);
        let text = metrics.text();
        for line in [
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.002\"} 1",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.004\"} 2",
            "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1",
            "kubeproxy_network_programming_duration_seconds_bucket{ip_family=\"IPv4\",le=\"0.5\"} 1",
            "kubeproxy_sync_proxy_rules_service_changes_total 1",
            "kubeproxy_sync_proxy_rules_service_changes_pending 1",
            "kubeproxy_proxy_healthz_total{code=\"503\"} 1",
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1800000000.5",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::new(&[Family::V4], Clock::system());
        metrics.synced(Duration::from_millis(3), true);
        metrics.synced(Duration::from_millis(1), false);
        metrics.synced(Duration::from_secs(20), false);
        metrics.programmed(0.5);
        metrics.programmed(400.0);
        metrics.queued(true);
        metrics.queued(false);
        metrics.failed();
        metrics.set_without_local(Family::V4, 2, 3);
        metrics.conntrack_deleted(4);
        metrics.count_healthz(false);
        metrics.count_livez(true);
        {
            let mut state = metrics.state.lock();
            (state.queued, state.synced) = (1_800_000_000.5, 1_800_000_001.25);
        }
        let text = metrics.text();
        assert_eq!(text, include_str!("testdata/metrics.txt"));
    }

    /// A node with IPv6 alone says so, and one with both tells of each.
    #[test]
    fn families_of_addresses_are_told_apart() {
        let check = |families: &[Family], expected: &[&str]| {
            let metrics = Metrics::new(families, Clock::system());
            metrics.synced(Duration::from_millis(1), true);
            metrics.set_without_local(Family::V6, 2, 3);
            let text = metrics.text();
            let found: Vec<&str> = text.lines().filter(|line| line.contains("_no_local_endpoints_total{")).collect();
            assert_eq!(found, expected);
            for family in ["IPv4", "IPv6"] {
                let count = format!("kubeproxy_sync_proxy_rules_duration_seconds_count{{ip_family=\"{family}\"}} 1\n");
                assert_eq!(text.contains(&count), expected.iter().any(|line| line.contains(family)), "{text}");
            }
        };
        let v4 = [
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=\"IPv4\",traffic_policy=\"external\"} 0",
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=\"IPv4\",traffic_policy=\"internal\"} 0",
        ];
        let v6 = [
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=\"IPv6\",traffic_policy=\"external\"} 3",
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=\"IPv6\",traffic_policy=\"internal\"} 2",
        ];
        check(&[Family::V6], &v6);
        check(&[Family::V4, Family::V6], &[v4, v6].concat());
    }
}
