//! How tokens of OpenID Connect and the keys of their providers are doing, under upstream's names. Issuers and keys are
//! shown as hashes.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::configuration::hash;
use crate::metrics::durations::{Buckets, Durations};
use crate::metrics::render::{head, line};

/// Upstream's buckets.
const SECONDS: Buckets = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Default)]
pub struct Metrics {
    issuers: Mutex<BTreeMap<String, Issuer>>,
}

#[derive(Default)]
struct Issuer {
    succeeded: Durations,
    failed: Durations,
    last_success: i64,
    last_failure: i64,
    /// The hash of the key set.
    keys: String,
}

impl Metrics {
    pub fn verified(&self, issuer: &str, good: bool, took: Duration) {
        let mut all = self.issuers.lock();
        let counted = all.entry(hash(issuer)).or_default();
        let times = if good { &counted.succeeded } else { &counted.failed };
        times.add_to(SECONDS, took);
    }

    /// `keys` is none where they could not be fetched.
    pub fn fetched(&self, issuer: &str, keys: Option<&[u8]>) {
        let mut all = self.issuers.lock();
        let counted = all.entry(hash(issuer)).or_default();
        let now = jiff::Timestamp::now().as_second();
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

    pub fn render(&self, out: &mut String, server: &str) {
        let all = self.issuers.lock();
        if all.is_empty() {
            return;
        }
        let name = "apiserver_authentication_jwt_authenticator_latency_seconds";
        let help = "Latency of jwt authentication operations in seconds. This is the time spent authenticating a token \
                    for cache miss only (i.e. when the token is not found in the cache).";
        head(out, name, "histogram", help);
        for (issuer, counted) in all.iter() {
            for (result, times) in [("failure", &counted.failed), ("success", &counted.succeeded)] {
                if times.count() > 0 {
                    times.render(out, name, &format!("jwt_issuer_hash=\"{issuer}\",result=\"{result}\""), SECONDS);
                }
            }
        }
        let name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
        let help = "Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt \
                    issuer for the JWT authenticator.";
        head(out, name, "gauge", help);
        for (issuer, counted) in all.iter() {
            for (result, at) in [("failure", counted.last_failure), ("success", counted.last_success)] {
                if at > 0 {
                    let labels =
                        format!("apiserver_id_hash=\"{server}\",jwt_issuer_hash=\"{issuer}\",result=\"{result}\"");
                    line(out, name, &labels, at);
                }
            }
        }
        let name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info";
        let help = "Information about the last JWKS fetched by the JWT authenticator with hash as label, split by api \
                    server identity and jwt issuer.";
        head(out, name, "gauge", help);
        for (issuer, counted) in all.iter().filter(|(_, counted)| !counted.keys.is_empty()) {
            let keys = &counted.keys;
            let labels = format!("apiserver_id_hash=\"{server}\",hash=\"{keys}\",jwt_issuer_hash=\"{issuer}\"");
            line(out, name, &labels, 1);
        }
    }
}

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
        let mut text = String::new();
        metrics.render(&mut text, "sha256:1");
        assert_eq!(text, include_str!("../../metrics/testdata/oidc.txt"));
    }
}
