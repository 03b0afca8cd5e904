//! What was counted, in the text form that monitoring reads. Requests have the names that ingress-nginx gave them, so that its
//! dashboards go on working; what it does not have is called `knarr_ingress_...`.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reconcile::Key;

/// Seconds; those of Prometheus' own default.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Default)]
pub struct Metrics {
    routes: Mutex<BTreeMap<(Key, String), Arc<Counters>>>,
    pub connections: AtomicU64,
    pub connections_total: AtomicU64,
    pub connections_refused: AtomicU64,
    pub handshakes_failed: AtomicU64,
    pub bad_requests: AtomicU64,
    pub retries: AtomicU64,
    pub endpoints_failed: AtomicU64,
    pub tunnels: AtomicU64,
    pub reloads: AtomicU64,
    /// Lines of the access log that nobody could write in time.
    pub log_dropped: AtomicU64,
}

/// The requests of one Ingress to one Service.
#[derive(Default)]
pub struct Counters(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// By method and status.
    ended: Vec<(&'static str, u16, u64)>,
    durations: [u64; BUCKETS.len()],
    seconds: f64,
    bytes: u64,
}

impl Counters {
    pub fn add(&self, method: &http::Method, status: u16, took: Duration, bytes: u64) {
        let method = known(method);
        let seconds = took.as_secs_f64();
        let mut counts = self.0.lock();
        match counts.ended.iter_mut().find(|(known, code, _)| *code == status && *known == method) {
            Some((_, _, count)) => *count += 1,
            None => counts.ended.push((method, status, 1)),
        }
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            counts.durations[bucket] += 1;
        }
        counts.seconds += seconds;
        counts.bytes += bytes;
    }
}

/// Methods are chosen by clients, and a label must not be.
fn known(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "PATCH" => "PATCH",
        "OPTIONS" => "OPTIONS",
        _ => "OTHER",
    }
}

impl Metrics {
    /// The counters of these routes, in their order. Those of routes that are gone are forgotten.
    pub fn counters(&self, routes: &[(Key, String)]) -> Vec<Arc<Counters>> {
        let mut known = self.routes.lock();
        let counters: Vec<Arc<Counters>> =
            routes.iter().map(|route| known.entry(route.clone()).or_default().clone()).collect();
        let wanted: HashSet<&(Key, String)> = routes.iter().collect();
        let nobody = (Key::default(), String::new());
        known.retain(|route, _| *route == nobody || wanted.contains(route));
        counters
    }

    /// Of requests that no Ingress wants.
    pub fn nobody(&self) -> Arc<Counters> {
        self.routes.lock().entry((Key::default(), String::new())).or_default().clone()
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        self.requests(&mut text);
        let gauges = [
            ("nginx_ingress_controller_nginx_process_connections", "Connections that are open.", &self.connections),
            ("knarr_ingress_tunnels", "Connections that were upgraded, to WebSocket say.", &self.tunnels),
        ];
        for (name, help, value) in gauges {
            single(&mut text, name, "gauge", help, value);
        }
        let counters = [
            ("knarr_ingress_connections_total", "Connections that were accepted.", &self.connections_total),
            ("knarr_ingress_connections_refused_total", "Connections beyond the limit.", &self.connections_refused),
            ("knarr_ingress_tls_handshakes_failed_total", "TLS handshakes that failed.", &self.handshakes_failed),
            ("knarr_ingress_bad_requests_total", "Requests that were refused for their form.", &self.bad_requests),
            ("knarr_ingress_retries_total", "Requests that were sent once more.", &self.retries),
            ("knarr_ingress_endpoint_failures_total", "Endpoints that could not be reached.", &self.endpoints_failed),
            ("knarr_ingress_table_reloads_total", "Tables of routes that were put in place.", &self.reloads),
            ("knarr_ingress_access_log_dropped_total", "Lines of the access log that were lost.", &self.log_dropped),
        ];
        for (name, help, value) in counters {
            single(&mut text, name, "counter", help, value);
        }
        text
    }

    fn requests(&self, text: &mut String) {
        const REQUESTS: &str = "nginx_ingress_controller_requests";
        const DURATION: &str = "nginx_ingress_controller_request_duration_seconds";
        const BYTES: &str = "knarr_ingress_response_bytes_total";
        let (mut requests, mut durations, mut bytes) = (String::new(), String::new(), String::new());
        head(&mut requests, REQUESTS, "counter", "Requests that were answered.");
        head(&mut durations, DURATION, "histogram", "From the head of a request to the end of its answer.");
        head(&mut bytes, BYTES, "counter", "Bytes of the bodies of answers.");
        for ((ingress, service), counters) in self.routes.lock().iter() {
            // Names of objects need no escapes.
            let labels =
                format!("namespace=\"{}\",ingress=\"{}\",service=\"{service}\"", ingress.namespace, ingress.name);
            let counts = counters.0.lock();
            let mut total = 0;
            for (method, status, count) in &counts.ended {
                total += count;
                let _ = writeln!(requests, "{REQUESTS}{{{labels},method=\"{method}\",status=\"{status}\"}} {count}");
            }
            let mut below = 0;
            for (bound, count) in BUCKETS.iter().zip(counts.durations) {
                below += count;
                let _ = writeln!(durations, "{DURATION}_bucket{{{labels},le=\"{bound}\"}} {below}");
            }
            let _ = writeln!(durations, "{DURATION}_bucket{{{labels},le=\"+Inf\"}} {total}");
            let _ = writeln!(durations, "{DURATION}_sum{{{labels}}} {}", counts.seconds);
            let _ = writeln!(durations, "{DURATION}_count{{{labels}}} {total}");
            let _ = writeln!(bytes, "{BYTES}{{{labels}}} {}", counts.bytes);
        }
        text.extend([requests, durations, bytes]);
    }
}

fn single(text: &mut String, name: &str, kind: &str, help: &str, value: &AtomicU64) {
    head(text, name, kind, help);
    let _ = writeln!(text, "{name} {}", value.load(Ordering::Relaxed));
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Counted while it lives.
pub struct Gauge(Arc<Metrics>, fn(&Metrics) -> &AtomicU64);

impl Gauge {
    pub fn new(metrics: &Arc<Metrics>, which: fn(&Metrics) -> &AtomicU64) -> Gauge {
        which(metrics).fetch_add(1, Ordering::Relaxed);
        Gauge(metrics.clone(), which)
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::default();
        let key = Key { namespace: "default".into(), name: "web".into() };
        let counters = metrics.counters(&[(key, "shop".into())]);
        counters[0].add(&http::Method::GET, 200, Duration::from_millis(250), 100);
        counters[0].add(&http::Method::GET, 200, Duration::from_secs(16), 1);
        counters[0].add(&http::Method::TRACE, 502, Duration::from_millis(500), 0);
        metrics.nobody().add(&http::Method::POST, 404, Duration::from_millis(5), 7);
        metrics.connections.store(3, Ordering::Relaxed);
        metrics.retries.store(2, Ordering::Relaxed);
        let text = metrics.text();
        assert_eq!(text, include_str!("testdata/metrics.txt"));
    }
}
