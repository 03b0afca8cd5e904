//! How the proxy is doing, in upstream's names.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

#[derive(Default)]
pub struct Metrics {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    full_sync: Histogram,
    partial_sync: Histogram,
    programming: Histogram,
    queued: f64,
    synced: f64,
    service_changes: u64,
    endpoint_changes: u64,
    pending: [u64; 2],
    no_local_internal: u64,
    no_local_external: u64,
    failures: u64,
    conntrack_deleted: u64,
    healthz: [u64; 2],
    livez: [u64; 2],
}

impl Metrics {
    pub fn queued(&self, is_service: bool) {
        let mut state = self.state.lock();
        state.queued = now();
        match is_service {
            true => (state.service_changes += 1, state.pending[0] += 1),
            false => (state.endpoint_changes += 1, state.pending[1] += 1),
        };
    }

    /// What was queued has been taken up.
    pub fn taken(&self) {
        self.state.lock().pending = [0, 0];
    }

    pub fn synced(&self, took: Duration, is_full: bool) {
        let mut state = self.state.lock();
        state.synced = now();
        match is_full {
            true => state.full_sync.observe(took.as_secs_f64(), &SYNC_BUCKETS),
            false => state.partial_sync.observe(took.as_secs_f64(), &SYNC_BUCKETS),
        }
    }

    /// From the change that made an EndpointSlice be written until the kernel had it.
    pub fn programmed(&self, seconds: f64) {
        self.state.lock().programming.observe(seconds, &programming_buckets());
    }

    pub fn failed(&self) {
        self.state.lock().failures += 1;
    }

    pub fn set_without_local(&self, internal: u64, external: u64) {
        let mut state = self.state.lock();
        (state.no_local_internal, state.no_local_external) = (internal, external);
    }

    pub fn conntrack_deleted(&self, count: usize) {
        self.state.lock().conntrack_deleted += count as u64;
    }

    pub fn count_healthz(&self, is_good: bool) {
        self.state.lock().healthz[usize::from(!is_good)] += 1;
    }

    pub fn count_livez(&self, is_good: bool) {
        self.state.lock().livez[usize::from(!is_good)] += 1;
    }

    /// The text that monitoring reads.
    pub fn text(&self) -> String {
        let state = self.state.lock();
        let mut text = String::new();
        let mut all = state.full_sync.clone();
        all.merge(&state.partial_sync);
        let sync = "in seconds of syncing proxy rules";
        let mut histogram = |name: &str, help: &str, values: &Histogram, buckets: &[f64]| {
            values.write(&mut text, name, help, buckets);
        };
        histogram(
            "kubeproxy_sync_proxy_rules_duration_seconds",
            &format!("[ALPHA] SyncProxyRules latency {sync}"),
            &all,
            &SYNC_BUCKETS,
        );
        histogram(
            "kubeproxy_sync_full_proxy_rules_duration_seconds",
            "[ALPHA] SyncProxyRules latency in seconds for full resyncs",
            &state.full_sync,
            &SYNC_BUCKETS,
        );
        histogram(
            "kubeproxy_sync_partial_proxy_rules_duration_seconds",
            "[ALPHA] SyncProxyRules latency in seconds for partial resyncs",
            &state.partial_sync,
            &SYNC_BUCKETS,
        );
        histogram(
            "kubeproxy_network_programming_duration_seconds",
            "[ALPHA] In Cluster Network Programming Latency in seconds",
            &state.programming,
            &programming_buckets(),
        );
        let mut family = |name: &str, help: &str, kind: &str, values: &[(&str, f64)]| {
            let _ = writeln!(text, "# HELP {name} [ALPHA] {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let rules = |name: &str| format!("kubeproxy_sync_proxy_rules_{name}");
        let one = |value: u64| [("", value as f64)];
        let times = "The last time a sync of proxy rules was queued";
        family(&rules("last_queued_timestamp_seconds"), times, "gauge", &[("", state.queued)]);
        family(
            &rules("last_timestamp_seconds"),
            "The last time proxy rules were successfully synced",
            "gauge",
            &[("", state.synced)],
        );
        family(
            &rules("endpoint_changes_pending"),
            "Pending proxy rules Endpoint changes",
            "gauge",
            &one(state.pending[1]),
        );
        family(
            &rules("endpoint_changes_total"),
            "Cumulative proxy rules Endpoint changes",
            "counter",
            &one(state.endpoint_changes),
        );
        family(
            &rules("service_changes_pending"),
            "Pending proxy rules Service changes",
            "gauge",
            &one(state.pending[0]),
        );
        family(
            &rules("service_changes_total"),
            "Cumulative proxy rules Service changes",
            "counter",
            &one(state.service_changes),
        );
        family(
            &rules("no_local_endpoints_total"),
            "Number of services with a Local traffic policy and no endpoints",
            "gauge",
            &[
                ("{ip_family=\"IPv4\",traffic_policy=\"external\"}", state.no_local_external as f64),
                ("{ip_family=\"IPv4\",traffic_policy=\"internal\"}", state.no_local_internal as f64),
            ],
        );
        family(
            &rules("nftables_sync_failures_total"),
            "Cumulative proxy nftables sync failures",
            "counter",
            &one(state.failures),
        );
        family(
            "kubeproxy_conntrack_reconciler_deleted_entries_total",
            "Cumulative conntrack flows deleted by conntrack reconciler",
            "counter",
            &one(state.conntrack_deleted),
        );
        let codes = |counts: [u64; 2]| [("{code=\"200\"}", counts[0] as f64), ("{code=\"503\"}", counts[1] as f64)];
        family(
            "kubeproxy_proxy_healthz_total",
            "Cumulative proxy healthz HTTP status",
            "counter",
            &codes(state.healthz),
        );
        family("kubeproxy_proxy_livez_total", "Cumulative proxy livez HTTP status", "counter", &codes(state.livez));
        text
    }
}

fn now() -> f64 {
    Timestamp::now().as_millisecond() as f64 / 1000.0
}

const SYNC_BUCKETS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// Finer where it matters, up to five minutes.
fn programming_buckets() -> Vec<f64> {
    let steps = |first: f64, step: f64, count: u32| (0..count).map(move |number| first + step * f64::from(number));
    steps(0.25, 0.25, 2).chain(steps(1.0, 1.0, 59)).chain(steps(60.0, 5.0, 12)).chain(steps(120.0, 30.0, 7)).collect()
}

#[derive(Clone, Default)]
struct Histogram {
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn observe(&mut self, value: f64, buckets: &[f64]) {
        self.counts.resize(buckets.len(), 0);
        if let Some(bucket) = buckets.iter().position(|bound| value <= *bound) {
            self.counts[bucket] += 1;
        }
        self.sum += value;
        self.count += 1;
    }

    fn merge(&mut self, other: &Histogram) {
        let length = self.counts.len().max(other.counts.len());
        self.counts.resize(length, 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
        self.count += other.count;
    }

    fn write(&self, text: &mut String, name: &str, help: &str, buckets: &[f64]) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut sum = 0;
        for (index, bound) in buckets.iter().enumerate() {
            sum += self.counts.get(index).unwrap_or(&0);
            let _ = writeln!(text, "{name}_bucket{{ip_family=\"IPv4\",le=\"{bound}\"}} {sum}");
        }
        let _ = writeln!(text, "{name}_bucket{{ip_family=\"IPv4\",le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum{{ip_family=\"IPv4\"}} {}", self.sum);
        let _ = writeln!(text, "{name}_count{{ip_family=\"IPv4\"}} {}", self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_upstreams_names() {
        let metrics = Metrics::default();
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
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::default();
        metrics.synced(Duration::from_millis(3), true);
        metrics.synced(Duration::from_millis(1), false);
        metrics.synced(Duration::from_secs(20), false);
        metrics.programmed(0.5);
        metrics.programmed(400.0);
        metrics.queued(true);
        metrics.queued(false);
        metrics.failed();
        metrics.set_without_local(2, 3);
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
}
