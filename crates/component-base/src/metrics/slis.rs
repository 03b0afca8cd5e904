//! Results of health checks, as every component serves them at `/metrics/slis` under upstream's names.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{Metric, Page};

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
        let mut checks = self.checks.lock();
        let results = checks.entry((check, endpoint)).or_default();
        results.is_good = passed;
        if passed {
            results.passed += 1;
        } else {
            results.failed += 1;
        }
    }

    /// What a `DELETE` of the page does.
    pub fn reset(&self) {
        self.checks.lock().clear();
    }

    pub fn text(&self) -> String {
        let mut page = Page::default();
        self.write(&mut page);
        page.text()
    }

    /// Nothing where no check has run yet.
    pub fn write(&self, page: &mut Page) {
        let checks = self.checks.lock();
        for ((name, endpoint), results) in &*checks {
            page.family(&HEALTHCHECK).sample(&[("name", name), ("type", endpoint)], u8::from(results.is_good));
        }
        for ((name, endpoint), results) in &*checks {
            for (status, count) in [("error", results.failed), ("success", results.passed)] {
                if count > 0 {
                    page.family(&HEALTHCHECKS).sample(&[("name", name), ("status", status), ("type", endpoint)], count);
                }
            }
        }
    }
}

const HEALTHCHECK: Metric =
    Metric::gauge("kubernetes_healthcheck", "[STABLE] This metric records the result of a single healthcheck.");
const HEALTHCHECKS: Metric =
    Metric::counter("kubernetes_healthchecks_total", "[STABLE] This metric records the results of all healthcheck.");

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
        let heads = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
        assert_eq!(heads, 2, "{text}");
        slis.reset();
        assert_eq!(slis.text(), "");
    }
}
