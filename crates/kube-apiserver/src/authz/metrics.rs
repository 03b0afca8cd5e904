//! What authorizers decided and how webhooks answered, under upstream's names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Decision;
use crate::metrics::durations::{Buckets, Durations, SECONDS};
use crate::metrics::render::{head, line};

/// Upstream's buckets of match conditions.
const CONDITION_SECONDS: Buckets = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

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

#[derive(Debug, Default)]
struct Asked {
    times: Durations,
    failed_open: u64,
}

#[derive(Debug, Default)]
struct Conditions {
    times: Durations,
    excluded: u64,
    failed: u64,
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
        self.webhooks.lock().entry((webhook.to_owned(), outcome)).or_default().times.add(took);
    }

    pub fn failed_open(&self, webhook: &str, outcome: Outcome) {
        self.webhooks.lock().entry((webhook.to_owned(), outcome)).or_default().failed_open += 1;
    }

    /// `held` is none where an expression failed.
    pub fn conditions(&self, webhook: &str, took: Duration, held: Option<bool>) {
        let mut all = self.conditions.lock();
        let counted = all.entry(webhook.to_owned()).or_default();
        counted.times.add_to(CONDITION_SECONDS, took);
        match held {
            Some(true) => {}
            Some(false) => counted.excluded += 1,
            None => counted.failed += 1,
        }
    }

    pub fn render(&self, out: &mut String) {
        let name = "apiserver_authorization_decisions_total";
        let help =
            "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.";
        head(out, name, "counter", help);
        for ((kind, authorizer), decided) in self.decisions.lock().iter() {
            for (decision, count) in [("allowed", &decided.allowed), ("denied", &decided.denied)] {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("decision=\"{decision}\",name=\"{authorizer}\",type=\"{kind}\"");
                    line(out, name, &labels, count);
                }
            }
        }
        self.render_webhooks(out);
        self.render_conditions(out);
    }

    fn render_webhooks(&self, out: &mut String) {
        let all = self.webhooks.lock();
        if all.is_empty() {
            return;
        }
        let labels = |webhook: &str, outcome: Outcome| format!("name=\"{webhook}\",result=\"{}\"", outcome.name());
        let name = "apiserver_authorization_webhook_evaluations_total";
        head(out, name, "counter", "Round-trips to authorization webhooks.");
        for ((webhook, outcome), asked) in all.iter() {
            line(out, name, &labels(webhook, *outcome), asked.times.count());
        }
        let name = "apiserver_authorization_webhook_duration_seconds";
        head(out, name, "histogram", "Request latency in seconds.");
        for ((webhook, outcome), asked) in all.iter() {
            asked.times.render(out, name, &labels(webhook, *outcome), SECONDS);
        }
        let name = "apiserver_authorization_webhook_evaluations_fail_open_total";
        head(out, name, "counter", "NoOpinion results due to webhook timeout or error.");
        for ((webhook, outcome), asked) in all.iter().filter(|(_, asked)| asked.failed_open > 0) {
            line(out, name, &labels(webhook, *outcome), asked.failed_open);
        }
    }

    fn render_conditions(&self, out: &mut String) {
        let all = self.conditions.lock();
        if all.is_empty() {
            return;
        }
        let labels = |webhook: &str| format!("name=\"{webhook}\",type=\"Webhook\"");
        let name = "apiserver_authorization_match_condition_evaluation_seconds";
        head(
            out,
            name,
            "histogram",
            "Authorization match condition evaluation time in seconds, split by authorizer type and name.",
        );
        for (webhook, counted) in all.iter() {
            counted.times.render(out, name, &labels(webhook), CONDITION_SECONDS);
        }
        type Count = fn(&Conditions) -> u64;
        let families: [(&str, &str, Count); 2] = [
            (
                "apiserver_authorization_match_condition_exclusions_total",
                "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
                |counted| counted.excluded,
            ),
            (
                "apiserver_authorization_match_condition_evaluation_errors_total",
                "Total number of errors when an authorization webhook encounters a match condition error split by \
                 authorizer type and name.",
                |counted| counted.failed,
            ),
        ];
        for (name, help, value) in families {
            head(out, name, "counter", help);
            for (webhook, counted) in all.iter().filter(|(_, counted)| value(counted) > 0) {
                line(out, name, &labels(webhook), value(counted));
            }
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
        metrics.of("Webhook", "a").count(&Decision::Allow(String::new()));
        metrics.of("RBAC", "rbac").count(&Decision::Deny(String::new()));
        metrics.asked("a", Outcome::Success, Duration::from_millis(250));
        metrics.asked("a", Outcome::Timeout, Duration::from_secs(32));
        metrics.failed_open("a", Outcome::Timeout);
        metrics.conditions("a", Duration::from_millis(125), Some(false));
        metrics.conditions("a", Duration::from_millis(500), None);
        let mut text = String::new();
        metrics.render(&mut text);
        assert_eq!(text, include_str!("../metrics/testdata/authorization.txt"));
    }
}
