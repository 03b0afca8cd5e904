//! Requests to the kubelet's server, by method and first part of the path, of which only those that are served have a name.

use std::collections::BTreeMap;

use component_base::metrics::{DEFAULT_SECONDS, Histogram, Metric, Page};
use http::Method;
use parking_lot::Mutex;
use tokio::time::Instant;

static PATHS: [&str; 18] = [
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "exec",
    "flagz",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "run",
    "runningpods",
    "stats",
    "statusz",
];
static METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
const OTHER: &str = "other";

/// By method and path.
#[derive(Default)]
pub struct Requests {
    counts: Mutex<BTreeMap<Key, Counts>>,
}

type Key = (&'static str, &'static str);

struct Counts {
    total: u64,
    under_way: u64,
    seconds: Histogram,
}

/// A request that is being answered; it has ended when this is dropped.
pub(super) struct Request<'a> {
    requests: &'a Requests,
    key: Key,
    began_at: Instant,
}

impl Requests {
    pub(super) fn begin(&self, method: &Method, path: &str) -> Request<'_> {
        let key = (known(&METHODS, method.as_str()), known(&PATHS, &root(path)));
        let mut all = self.counts.lock();
        let new = || Counts { total: 0, under_way: 0, seconds: Histogram::new(DEFAULT_SECONDS) };
        let counts = all.entry(key).or_insert_with(new);
        counts.total += 1;
        counts.under_way += 1;
        Request { requests: self, key, began_at: Instant::now() }
    }

    pub(crate) fn write(&self, page: &mut Page) {
        let all = self.counts.lock();
        for (key, counts) in all.iter() {
            page.family(&UNDER_WAY).sample(&labels(key), counts.under_way);
        }
        for (key, counts) in all.iter() {
            page.family(&SECONDS).histogram(&labels(key), &counts.seconds);
        }
        for (key, counts) in all.iter() {
            page.family(&TOTAL).sample(&labels(key), counts.total);
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if let Some(counts) = self.requests.counts.lock().get_mut(&self.key) {
            counts.under_way -= 1;
            counts.seconds.observe_time(self.began_at.elapsed());
        }
    }
}

fn known(names: &[&'static str], name: &str) -> &'static str {
    names.iter().find(|known| **known == name).copied().unwrap_or(OTHER)
}

/// The first part of a path, and of metrics the second one too.
fn root(path: &str) -> String {
    let mut parts = path.trim_start_matches('/').split('/');
    let first = parts.next().unwrap_or_default();
    match parts.next().filter(|_| first == "metrics") {
        Some(second) => format!("{first}/{second}"),
        None => first.to_owned(),
    }
}

fn labels(&(method, path): &Key) -> [(&'static str, &'static str); 4] {
    // Upstream looks for `portforward` here, which no path is, so forwarded ports do not count as long.
    let is_long = matches!(path, "exec" | "attach");
    let long_running = if is_long { "true" } else { "false" };
    [("long_running", long_running), ("method", method), ("path", path), ("server_type", "readwrite")]
}

const UNDER_WAY: Metric = Metric::gauge(
    "kubelet_http_inflight_requests",
    "[ALPHA] Requests to the kubelet's server that are being answered.",
);
const SECONDS: Metric = Metric::histogram(
    "kubelet_http_requests_duration_seconds",
    "[ALPHA] How long requests to the kubelet's server take to be answered, in seconds.",
);
const TOTAL: Metric = Metric::counter("kubelet_http_requests_total", "[ALPHA] Requests to the kubelet's server.");

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_count_by_known_paths_only() {
        let requests = Requests::default();
        let followed = requests.begin(&Method::GET, "/containerLogs/n/p/c");
        for path in ["/metrics/cadvisor", "/metrics/whatever", "/wp-login.php", "/exec/n/p/c"] {
            drop(requests.begin(&Method::GET, path));
        }
        drop(requests.begin(&Method::from_bytes(b"BREW").unwrap(), "/"));
        let text = || {
            let mut page = Page::default();
            requests.write(&mut page);
            page.text()
        };
        let of = |long: &str, method: &str, path: &str| {
            format!("{{long_running=\"{long}\",method=\"{method}\",path=\"{path}\",server_type=\"readwrite\"}}")
        };
        let logs = of("false", "GET", "containerLogs");
        let before = text();
        for line in [
            format!("kubelet_http_inflight_requests{logs} 1"),
            format!("kubelet_http_requests_duration_seconds_count{logs} 0"),
            format!("kubelet_http_requests_total{logs} 1"),
            format!("kubelet_http_requests_total{} 1", of("false", "GET", "metrics/cadvisor")),
            format!("kubelet_http_requests_total{} 2", of("false", "GET", "other")),
            format!("kubelet_http_requests_total{} 1", of("true", "GET", "exec")),
            format!("kubelet_http_requests_total{} 1", of("false", "other", "other")),
        ] {
            assert!(before.lines().any(|found| found == line), "{line} in\n{before}");
        }
        drop(followed);
        let after = text();
        for line in [
            format!("kubelet_http_inflight_requests{logs} 0"),
            format!("kubelet_http_requests_duration_seconds_count{logs} 1"),
        ] {
            assert!(after.lines().any(|found| found == line), "{line} in\n{after}");
        }
    }
}
