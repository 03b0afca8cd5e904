//! How tokens of OpenID Connect and the keys of their providers are doing, under upstream's names. Issuers and keys are
//! shown as hashes.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Metric, Page};
use parking_lot::Mutex;

use crate::app::Clock;
use crate::configuration::hash;

/// Upstream's buckets.
const SECONDS: Bounds = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Default)]
pub struct Metrics {
    clock: Clock,
    issuers: Mutex<BTreeMap<String, Issuer>>,
}

struct Issuer {
    succeeded: Histogram,
    failed: Histogram,
    last_success: i64,
    last_failure: i64,
    /// The hash of the key set.
    keys: String,
}

impl Default for Issuer {
    fn default() -> Issuer {
        let (succeeded, failed) = (Histogram::new(SECONDS), Histogram::new(SECONDS));
        Issuer { succeeded, failed, last_success: 0, last_failure: 0, keys: String::new() }
    }
}

impl Metrics {
    pub fn new(clock: Clock) -> Metrics {
        Metrics { clock, issuers: Mutex::default() }
    }

    pub fn verified(&self, issuer: &str, good: bool, took: Duration) {
        let mut all = self.issuers.lock();
        let counted = all.entry(hash(issuer)).or_default();
        let times = if good { &counted.succeeded } else { &counted.failed };
        times.observe_time(took);
    }

    /// `keys` is none where they could not be fetched.
    pub fn fetched(&self, issuer: &str, keys: Option<&[u8]>) {
        let mut all = self.issuers.lock();
        let counted = all.entry(hash(issuer)).or_default();
        let now = self.clock.now().as_second();
        match keys {
            Some(keys) => {
                counted.last_success = now;
                counted.keys = hash(&String::from_utf8_lossy(keys));
            }
            None => counted.last_failure = now,
        }
    }

    /// Forgets issuers that are configured no more.
    pub fn retain(&self, issuers: &[&str]) {
        let kept: Vec<String> = issuers.iter().map(|issuer| hash(issuer)).collect();
        self.issuers.lock().retain(|issuer, _| kept.contains(issuer));
    }

    pub fn render(&self, page: &mut Page, server: &str) {
        let all = self.issuers.lock();
        if all.is_empty() {
            return;
        }
        let mut latency = page.family(&LATENCY);
        for (issuer, counted) in all.iter() {
            for (result, times) in [("failure", &counted.failed), ("success", &counted.succeeded)] {
                if times.count() > 0 {
                    latency.histogram(&[("jwt_issuer_hash", issuer), ("result", result)], times);
                }
            }
        }
        let server = ("apiserver_id_hash", server);
        let mut fetched = page.family(&FETCHED);
        for (issuer, counted) in all.iter() {
            for (result, at) in [("failure", counted.last_failure), ("success", counted.last_success)] {
                if at > 0 {
                    fetched.sample(&[server, ("jwt_issuer_hash", issuer), ("result", result)], at);
                }
            }
        }
        let mut keys = page.family(&KEYS);
        for (issuer, counted) in all.iter().filter(|(_, counted)| !counted.keys.is_empty()) {
            keys.sample(&[server, ("hash", &counted.keys), ("jwt_issuer_hash", issuer)], 1);
        }
    }
}

const LATENCY: Metric = Metric::histogram(
    "apiserver_authentication_jwt_authenticator_latency_seconds",
    "Latency of jwt authentication operations in seconds. This is the time spent authenticating a token for cache miss only \
     (i.e. when the token is not found in the cache).",
);
const FETCHED: Metric = Metric::gauge(
    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
    "Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt issuer for the JWT \
     authenticator.",
);
const KEYS: Metric = Metric::gauge(
    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
    "Information about the last JWKS fetched by the JWT authenticator with hash as label, split by api server identity and \
     jwt issuer.",
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::default();
        metrics.verified("https://issuer.example", true, Duration::from_millis(250));
        metrics.verified("https://issuer.example", false, Duration::from_secs(32));
        metrics.fetched("https://issuer.example", Some(b"{}"));
        metrics.issuers.lock().values_mut().for_each(|issuer| issuer.last_success = 1_800_000_000);
        let mut page = Page::default();
        metrics.render(&mut page, "sha256:1");
        let text = page.text();
        assert_eq!(text, include_str!("../../metrics/testdata/oidc.txt"));
    }
}
