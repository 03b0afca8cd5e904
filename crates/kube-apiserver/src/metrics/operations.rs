//! What operators' alerts look at beside requests: certificates of clients that end soon, requests that were cut off, old
//! versions that are still asked for, handshakes that failed. Labels come from the table of kinds, so there are few.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use component_base::metrics::{Bounds, Histogram, Metric, Page};
use parking_lot::Mutex;

use super::Labels;
use crate::target::Target;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
/// Upstream's, in seconds.
const CERTIFICATE_LIFE: Bounds = &[
    0.0,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    4.0 * DAY,
    7.0 * DAY,
    30.0 * DAY,
    90.0 * DAY,
    180.0 * DAY,
    360.0 * DAY,
];

pub struct Operations {
    certificates: Histogram,
    handshake_errors: AtomicU64,
    terminated: Mutex<BTreeMap<(Labels<String>, u16), u64>>,
    deprecated: Mutex<BTreeSet<[String; 5]>>,
}

impl Default for Operations {
    fn default() -> Operations {
        Operations {
            certificates: Histogram::new(CERTIFICATE_LIFE),
            handshake_errors: AtomicU64::new(0),
            terminated: Mutex::default(),
            deprecated: Mutex::default(),
        }
    }
}

impl Operations {
    /// A request was believed because of a certificate that has so many seconds left.
    pub fn certificate(&self, seconds_left: i64) {
        self.certificates.observe(seconds_left as f64);
    }

    pub fn handshake_failed(&self) {
        self.handshake_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The server ended a request in self-defence: too many, too slow, or a panic.
    pub fn terminated(&self, target: &Target, code: u16) {
        *self.terminated.lock().entry((Labels::of(target).owned(), code)).or_default() += 1;
    }

    /// A version was asked for that `removed` does not have any more.
    pub fn deprecated(&self, target: &Target, removed: String) {
        let labels = [&target.group, &target.version, &target.resource, &target.subresource].map(ToString::to_string);
        let [group, version, resource, subresource] = labels;
        self.deprecated.lock().insert([group, version, resource, subresource, removed]);
    }

    pub fn render(&self, page: &mut Page) {
        page.family(&CERTIFICATES).histogram(&[], &self.certificates);
        page.value(&HANDSHAKE_ERRORS, self.handshake_errors.load(Ordering::Relaxed));
        let mut family = page.family(&TERMINATED);
        for ((labels, code), count) in self.terminated.lock().iter() {
            family.sample(&[&[("code", &*code.to_string())], &labels.written()[..]].concat(), count);
        }
        let mut family = page.family(&DEPRECATED);
        for [group, version, resource, subresource, removed] in self.deprecated.lock().iter() {
            let labels = [
                ("group", &**group),
                ("removed_release", removed),
                ("resource", resource),
                ("subresource", subresource),
                ("version", version),
            ];
            family.sample(&labels, 1);
        }
    }
}

const CERTIFICATES: Metric = Metric::histogram(
    "apiserver_client_certificate_expiration_seconds",
    "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
);
const HANDSHAKE_ERRORS: Metric = Metric::counter(
    "apiserver_tls_handshake_errors_total",
    "Number of requests dropped with 'TLS handshake error from' error",
);
const TERMINATED: Metric = Metric::counter(
    "apiserver_request_terminations_total",
    "Number of requests which apiserver terminated in self-defense.",
);
const DEPRECATED: Metric = Metric::gauge(
    "apiserver_requested_deprecated_apis",
    "Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and \
     removed_release.",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    #[test]
    fn what_alerts_look_at() {
        let operations = Operations::default();
        operations.certificate(3 * 24 * 3600);
        operations.handshake_failed();
        let path = "/apis/resource.k8s.io/v1beta1/resourceslices";
        let target = crate::target::parse(&http::Method::GET, path, &Query::parse(None)).expect("a path");
        operations.terminated(&target, 504);
        operations.deprecated(&target, "1.38".into());
        operations.deprecated(&target, "1.38".into());
        let mut page = Page::default();
        operations.render(&mut page);
        let text = page.text();
        for line in [
            "apiserver_client_certificate_expiration_seconds_bucket{le=\"172800\"} 0",
            "apiserver_client_certificate_expiration_seconds_bucket{le=\"345600\"} 1",
            "apiserver_tls_handshake_errors_total 1",
            "apiserver_request_terminations_total{code=\"504\",component=\"apiserver\",group=\"resource.k8s.io\",resource=\"resourceslices\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1beta1\"} 1",
            "apiserver_requested_deprecated_apis{group=\"resource.k8s.io\",removed_release=\"1.38\",resource=\"resourceslices\",subresource=\"\",version=\"v1beta1\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
