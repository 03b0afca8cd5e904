//! How health checks went, one by one, as every component tells at `/metrics/slis` in upstream's words.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The results of one check at one endpoint.
#[derive(Clone, Copy, Debug, Default)]
struct Results {
    passed: u64,
    failed: u64,
    is_good: bool,
}

/// Counts results since the start, or since the last reset.
#[derive(Debug, Default)]
pub struct Slis {
    /// By the check's name and the endpoint that asked for it: healthz, livez or readyz.
    checks: Mutex<BTreeMap<(&'static str, &'static str), Results>>,
}

impl Slis {
    pub fn observe(&self, check: &'static str, endpoint: &'static str, passed: bool) {
        let mut checks = self.checks();
        let results = checks.entry((check, endpoint)).or_default();
        results.is_good = passed;
        match passed {
            true => results.passed += 1,
            false => results.failed += 1,
        }
    }

    /// What a `DELETE` of the page does.
    pub fn reset(&self) {
        self.checks().clear();
    }

    pub fn text(&self) -> String {
        let checks = self.checks();
        let (mut gauges, mut counters) = (String::new(), String::new());
        for ((name, endpoint), results) in &*checks {
            let labels = format!("name=\"{name}\",type=\"{endpoint}\"");
            // Writing to a text cannot fail.
            let _ = writeln!(gauges, "kubernetes_healthcheck{{{labels}}} {}", u8::from(results.is_good));
            for (status, count) in [("error", results.failed), ("success", results.passed)] {
                if count > 0 {
                    let labels = format!("name=\"{name}\",status=\"{status}\",type=\"{endpoint}\"");
                    let _ = writeln!(counters, "kubernetes_healthchecks_total{{{labels}}} {count}");
                }
            }
        }
        if checks.is_empty() {
            return String::new();
        }
        format!(
            "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n\
             # TYPE kubernetes_healthcheck gauge\n{gauges}\
             # HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.\n\
             # TYPE kubernetes_healthchecks_total counter\n{counters}"
        )
    }

    fn checks(&self) -> MutexGuard<'_, BTreeMap<(&'static str, &'static str), Results>> {
        // Counters are whole after every step, so those of a panicked thread are good.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_by_check_and_endpoint() {
        let slis = Slis::default();
        assert_eq!(slis.text(), "");
        slis.observe("etcd", "readyz", true);
        slis.observe("etcd", "readyz", false);
        slis.observe("ping", "livez", true);
        let text = slis.text();
        for line in [
            "kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 0",
            "kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1",
            "kubernetes_healthchecks_total{name=\"etcd\",status=\"error\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"readyz\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        slis.reset();
        assert_eq!(slis.text(), "");
    }
}
