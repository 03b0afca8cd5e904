//! How webhooks were asked and what they answered, under upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Metric, Page};
use parking_lot::Mutex;

/// Upstream's, in seconds.
const SECONDS: Bounds = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Admit,
    Validating,
}

/// How it went; codes are those the client, or nobody, was told.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    Allowed,
    Denied(u16),
    /// It could not be asked.
    Failed(u16),
    FailedOpen(u16),
    /// It was not asked, because of the request itself.
    Internal,
}

#[derive(Default)]
pub struct Webhooks {
    counted: Mutex<BTreeMap<Labels, Counted>>,
}

/// The name of a webhook, how it is asked, and about which operation.
type Labels = (String, Kind, &'static str);

struct Counted {
    /// By whether the request was refused.
    durations: [Histogram; 2],
    /// By code and whether the request was refused.
    requests: BTreeMap<(u16, bool), u64>,
    rejections: BTreeMap<(&'static str, u16), u64>,
    open: u64,
}

impl Default for Counted {
    fn default() -> Counted {
        Counted {
            durations: [Histogram::new(SECONDS), Histogram::new(SECONDS)],
            requests: BTreeMap::new(),
            rejections: BTreeMap::new(),
            open: 0,
        }
    }
}

impl Webhooks {
    pub fn count(&self, name: &str, kind: Kind, operation: &'static str, outcome: Outcome, took: Duration) {
        let (code, rejected, rejection) = match outcome {
            Outcome::Allowed => (200, false, None),
            Outcome::Denied(code) => (code, true, Some(("no_error", code))),
            Outcome::Failed(code) => (code, true, Some(("calling_webhook_error", code))),
            Outcome::FailedOpen(code) => (code, false, None),
            Outcome::Internal => (400, true, Some(("apiserver_internal_error", 0))),
        };
        let mut all = self.counted.lock();
        let counted = all.entry((name.to_string(), kind, operation)).or_default();
        counted.durations[usize::from(rejected)].observe_time(took);
        *counted.requests.entry((code, rejected)).or_default() += 1;
        if let Some(how) = rejection {
            *counted.rejections.entry(how).or_default() += 1;
        }
        counted.open += u64::from(matches!(outcome, Outcome::FailedOpen(_)));
    }

    pub fn render(&self, page: &mut Page) {
        let all = self.counted.lock();
        if all.is_empty() {
            return;
        }
        let labels = |(name, kind, operation): &Labels| (name.clone(), *operation, kind.name());
        let mut family = page.family(&DURATIONS);
        for (key, counted) in all.iter() {
            let (name, operation, kind) = labels(key);
            for (rejected, times) in ["false", "true"].iter().zip(&counted.durations).filter(|(_, it)| it.count() > 0) {
                let labels = [("name", &*name), ("operation", operation), ("rejected", rejected), ("type", kind)];
                family.histogram(&labels, times);
            }
        }
        let mut open: BTreeMap<(&str, Kind), u64> = BTreeMap::new();
        for ((webhook, kind, _), counted) in all.iter().filter(|(_, counted)| counted.open > 0) {
            *open.entry((webhook, *kind)).or_default() += counted.open;
        }
        let mut family = page.family(&FAIL_OPEN);
        for ((webhook, kind), count) in open {
            family.sample(&[("name", webhook), ("type", kind.name())], count);
        }
        let mut family = page.family(&REJECTIONS);
        for (key, counted) in all.iter() {
            let (name, operation, kind) = labels(key);
            for ((error, code), count) in &counted.rejections {
                let code = code.to_string();
                let labels = [("error_type", *error), ("name", &name), ("operation", operation)];
                family.sample(&[&labels[..], &[("rejection_code", &code), ("type", kind)]].concat(), count);
            }
        }
        let mut family = page.family(&REQUESTS);
        for (key, counted) in all.iter() {
            let (name, operation, kind) = labels(key);
            for ((code, rejected), count) in &counted.requests {
                let (code, rejected) = (code.to_string(), rejected.to_string());
                let labels = [("code", &*code), ("name", &name), ("operation", operation)];
                family.sample(&[&labels[..], &[("rejected", &rejected), ("type", kind)]].concat(), count);
            }
        }
    }
}

const DURATIONS: Metric = Metric::histogram(
    "apiserver_admission_webhook_admission_duration_seconds",
    "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API \
     resource and type (validate or admit).",
);
const FAIL_OPEN: Metric = Metric::counter(
    "apiserver_admission_webhook_fail_open_count",
    "Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).",
);
const REJECTIONS: Metric = Metric::counter(
    "apiserver_admission_webhook_rejection_count",
    "Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) \
     and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error \
     occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP \
     status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated \
     to 600, to keep the metrics cardinality bounded.",
);
const REQUESTS: Metric = Metric::counter(
    "apiserver_admission_webhook_request_total",
    "Admission webhook request total, identified by name and broken out for each admission type (validating or mutating) \
     and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes \
     greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
);

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Admit => "admit",
            Kind::Validating => "validating",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let webhooks = Webhooks::default();
        let mut page = Page::default();
        webhooks.render(&mut page);
        assert_eq!(page.text(), "");
        webhooks.count("a.example", Kind::Admit, "CREATE", Outcome::Allowed, Duration::from_millis(250));
        webhooks.count("a.example", Kind::Admit, "UPDATE", Outcome::FailedOpen(500), Duration::from_secs(32));
        webhooks.count("b.example", Kind::Validating, "CREATE", Outcome::Denied(403), Duration::from_millis(500));
        webhooks.count("b.example", Kind::Validating, "CREATE", Outcome::Failed(500), Duration::from_millis(125));
        webhooks.count("b.example", Kind::Validating, "CREATE", Outcome::Internal, Duration::ZERO);
        let mut page = Page::default();
        webhooks.render(&mut page);
        let text = page.text();
        assert_eq!(text, include_str!("../../metrics/testdata/webhooks.txt"));
    }
}
