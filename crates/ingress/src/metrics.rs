//! Metrics of the ingress in Prometheus text format. Requests have the names that ingress-nginx gave them, so that its
//! dashboards go on working; what it does not have is called `knarr_ingress_...`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::metrics::{DEFAULT_SECONDS, Histogram, Metric, Page};
use parking_lot::Mutex;
use reconcile::Key;

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
pub struct Counters {
    durations: Histogram,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// By method and status.
    ended: Vec<(&'static str, u16, u64)>,
    bytes: u64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { durations: Histogram::new(DEFAULT_SECONDS), counts: Mutex::default() }
    }
}

impl Counters {
    pub fn add(&self, method: &http::Method, status: u16, took: Duration, bytes: u64) {
        let method = known(method);
        self.durations.observe_time(took);
        let mut counts = self.counts.lock();
        match counts.ended.iter_mut().find(|(known, code, _)| *code == status && *known == method) {
            Some((_, _, count)) => *count += 1,
            None => counts.ended.push((method, status, 1)),
        }
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
        let mut page = Page::default();
        self.write_requests(&mut page);
        let gauges = [
            ("nginx_ingress_controller_nginx_process_connections", "Connections that are open.", &self.connections),
            ("knarr_ingress_tunnels", "Connections that were upgraded, to WebSocket say.", &self.tunnels),
        ];
        for (name, help, value) in gauges {
            page.value(&Metric::gauge(name, help), value.load(Ordering::Relaxed));
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
            page.value(&Metric::counter(name, help), value.load(Ordering::Relaxed));
        }
        page.text()
    }

    fn write_requests(&self, page: &mut Page) {
        let routes = self.routes.lock();
        let mut requests = page.family(&REQUESTS);
        for (route, counters) in routes.iter() {
            let [namespace, ingress, service] = labels(route);
            for (method, status, count) in &counters.counts.lock().ended {
                let (method, status) = (("method", *method), ("status", &*status.to_string()));
                requests.sample(&[namespace, ingress, service, method, status], count);
            }
        }
        let mut durations = page.family(&DURATIONS);
        routes.iter().for_each(|(route, counters)| durations.histogram(&labels(route), &counters.durations));
        let mut bytes = page.family(&BYTES);
        routes.iter().for_each(|(route, counters)| bytes.sample(&labels(route), counters.counts.lock().bytes));
    }
}

const REQUESTS: Metric = Metric::counter("nginx_ingress_controller_requests", "Requests that were answered.");
const DURATIONS: Metric = Metric::histogram(
    "nginx_ingress_controller_request_duration_seconds",
    "From the head of a request to the end of its answer.",
);
const BYTES: Metric = Metric::counter("knarr_ingress_response_bytes_total", "Bytes of the bodies of answers.");

fn labels((ingress, service): &(Key, String)) -> [(&str, &str); 3] {
    [("namespace", &ingress.namespace), ("ingress", &ingress.name), ("service", service)]
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
