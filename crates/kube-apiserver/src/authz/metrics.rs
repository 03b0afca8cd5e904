//! What authorizers decided and how webhooks answered, under upstream's names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::metrics::{Bounds, DEFAULT_SECONDS, Histogram, Metric, Page};
use parking_lot::Mutex;

use super::Decision;

/// Upstream's buckets of match conditions.
const CONDITION_SECONDS: Bounds = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

#[derive(Debug, Default)]
pub struct Metrics {
    /// By type and name of the authorizer, both from the operator.
    decisions: Mutex<BTreeMap<(&'static str, String), Arc<Decided>>>,
    webhooks: Mutex<BTreeMap<(String, Outcome), Asked>>,
    conditions: Mutex<BTreeMap<String, Conditions>>,
}

/// The decisions of one authorizer; counting costs no lock.
#[derive(Debug, Default)]
pub struct Decided {
    allowed: AtomicU64,
    denied: AtomicU64,
}

/// How a round trip to a webhook went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Success,
    Timeout,
    Error,
}

#[derive(Debug)]
struct Asked {
    times: Histogram,
    failed_open: u64,
}

#[derive(Debug)]
struct Conditions {
    times: Histogram,
    excluded: u64,
    failed: u64,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked { times: Histogram::new(DEFAULT_SECONDS), failed_open: 0 }
    }
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions { times: Histogram::new(CONDITION_SECONDS), excluded: 0, failed: 0 }
    }
}

impl Decided {
    pub fn count(&self, decision: &Decision) {
        let counter = match decision {
            Decision::Allow(_) => &self.allowed,
            Decision::Deny(_) | Decision::Failed { denied: true, .. } => &self.denied,
            Decision::NoOpinion(_) | Decision::Failed { denied: false, .. } => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Timeout => "timeout",
            Outcome::Error => "error",
        }
    }
}

impl Metrics {
    /// The counters of that authorizer, the same ones after a reload.
    pub fn of(&self, kind: &'static str, name: &str) -> Arc<Decided> {
        self.decisions.lock().entry((kind, name.to_owned())).or_default().clone()
    }

    pub fn asked(&self, webhook: &str, outcome: Outcome, took: Duration) {
        self.webhooks.lock().entry((webhook.to_owned(), outcome)).or_default().times.observe_time(took);
    }

    pub(crate) fn failed_open(&self, webhook: &str, outcome: Outcome) {
        self.webhooks.lock().entry((webhook.to_owned(), outcome)).or_default().failed_open += 1;
    }

    /// `held` is none where an expression failed.
    pub fn conditions(&self, webhook: &str, took: Duration, held: Option<bool>) {
        let mut all = self.conditions.lock();
        let counted = all.entry(webhook.to_owned()).or_default();
        counted.times.observe_time(took);
        match held {
            Some(true) => {}
            Some(false) => counted.excluded += 1,
            None => counted.failed += 1,
        }
    }

    pub fn render(&self, page: &mut Page) {
        let mut family = page.family(&DECISIONS);
        for ((kind, authorizer), decided) in self.decisions.lock().iter() {
            for (decision, count) in [("allowed", &decided.allowed), ("denied", &decided.denied)] {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    family.sample(&[("decision", decision), ("name", authorizer), ("type", kind)], count);
                }
            }
        }
        self.render_webhooks(page);
        self.render_conditions(page);
    }

    fn render_webhooks(&self, page: &mut Page) {
        let all = self.webhooks.lock();
        if all.is_empty() {
            return;
        }
        fn labels((webhook, outcome): &(String, Outcome)) -> [(&str, &str); 2] {
            [("name", webhook), ("result", outcome.name())]
        }
        let mut family = page.family(&WEBHOOK_EVALUATIONS);
        all.iter().for_each(|(key, asked)| family.sample(&labels(key), asked.times.count()));
        let mut family = page.family(&WEBHOOK_DURATIONS);
        all.iter().for_each(|(key, asked)| family.histogram(&labels(key), &asked.times));
        let mut family = page.family(&WEBHOOK_FAIL_OPEN);
        for (key, asked) in all.iter().filter(|(_, asked)| asked.failed_open > 0) {
            family.sample(&labels(key), asked.failed_open);
        }
    }

    fn render_conditions(&self, page: &mut Page) {
        let all = self.conditions.lock();
        if all.is_empty() {
            return;
        }
        let kind = ("type", "Webhook");
        let mut family = page.family(&CONDITION_DURATIONS);
        all.iter().for_each(|(webhook, counted)| family.histogram(&[("name", webhook), kind], &counted.times));
        type Count = fn(&Conditions) -> u64;
        let counts: [(&Metric, Count); 2] =
            [(&CONDITION_EXCLUSIONS, |counted| counted.excluded), (&CONDITION_ERRORS, |counted| counted.failed)];
        for (metric, value) in counts {
            let mut family = page.family(metric);
            for (webhook, counted) in all.iter().filter(|(_, counted)| value(counted) > 0) {
                family.sample(&[("name", webhook), kind], value(counted));
            }
        }
    }
}

const DECISIONS: Metric = Metric::counter(
    "apiserver_authorization_decisions_total",
    "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
);
const WEBHOOK_EVALUATIONS: Metric =
    Metric::counter("apiserver_authorization_webhook_evaluations_total", "Round-trips to authorization webhooks.");
const WEBHOOK_DURATIONS: Metric =
    Metric::histogram("apiserver_authorization_webhook_duration_seconds", "Request latency in seconds.");
const WEBHOOK_FAIL_OPEN: Metric = Metric::counter(
    "apiserver_authorization_webhook_evaluations_fail_open_total",
    "NoOpinion results due to webhook timeout or error.",
);
const CONDITION_DURATIONS: Metric = Metric::histogram(
    "apiserver_authorization_match_condition_evaluation_seconds",
    "Authorization match condition evaluation time in seconds, split by authorizer type and name.",
);
const CONDITION_EXCLUSIONS: Metric = Metric::counter(
    "apiserver_authorization_match_condition_exclusions_total",
    "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
);
const CONDITION_ERRORS: Metric = Metric::counter(
    "apiserver_authorization_match_condition_evaluation_errors_total",
    "Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and \
     name.",
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::default();
        metrics.of("Webhook", "a").count(&Decision::Allow(String::new()));
        metrics.of("RBAC", "rbac").count(&Decision::Deny(String::new()));
        metrics.asked("a", Outcome::Success, Duration::from_millis(250));
        metrics.asked("a", Outcome::Timeout, Duration::from_secs(32));
        metrics.failed_open("a", Outcome::Timeout);
        metrics.conditions("a", Duration::from_millis(125), Some(false));
        metrics.conditions("a", Duration::from_millis(500), None);
        let mut page = Page::default();
        metrics.render(&mut page);
        let text = page.text();
        assert_eq!(text, include_str!("../metrics/testdata/authorization.txt"));
    }
}
