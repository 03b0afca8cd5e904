//! How webhooks were asked and what they answered, under upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::metrics::render::{head, line};

/// Upstream's, in seconds.
const BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

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

#[derive(Default)]
struct Counted {
    /// By whether the request was refused: buckets, count and sum.
    durations: [([u64; BUCKETS.len()], u64, f64); 2],
    /// By code and whether the request was refused.
    requests: BTreeMap<(u16, bool), u64>,
    rejections: BTreeMap<(&'static str, u16), u64>,
    open: u64,
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
        let (buckets, count, sum) = &mut counted.durations[usize::from(rejected)];
        let seconds = took.as_secs_f64();
        if let Some(place) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            buckets[place] += 1;
        }
        *count += 1;
        *sum += seconds;
        *counted.requests.entry((code, rejected)).or_default() += 1;
        if let Some(how) = rejection {
            *counted.rejections.entry(how).or_default() += 1;
        }
        counted.open += u64::from(matches!(outcome, Outcome::FailedOpen(_)));
    }

    pub fn render(&self, out: &mut String) {
        let all = self.counted.lock();
        if all.is_empty() {
            return;
        }
        let labels = |(name, kind, operation): &Labels| {
            (format!("name=\"{name}\",operation=\"{operation}\""), format!("type=\"{}\"", kind.name()))
        };
        let name = "apiserver_admission_webhook_admission_duration_seconds";
        let help = "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for \
                    each operation and API resource and type (validate or admit).";
        head(out, name, "histogram", help);
        for (key, counted) in all.iter() {
            for (rejected, (buckets, count, total)) in [false, true].into_iter().zip(&counted.durations) {
                if *count == 0 {
                    continue;
                }
                let (first, last) = labels(key);
                let labels = format!("{first},rejected=\"{rejected}\",{last}");
                let mut sum = 0;
                for (bound, found) in BUCKETS.iter().zip(buckets) {
                    sum += found;
                    line(out, &format!("{name}_bucket"), &format!("{labels},le=\"{bound}\""), sum);
                }
                line(out, &format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), count);
                line(out, &format!("{name}_sum"), &labels, total);
                line(out, &format!("{name}_count"), &labels, count);
            }
        }
        let name = "apiserver_admission_webhook_fail_open_count";
        let help = "Admission webhook fail open count, identified by name and broken out for each admission type \
                    (validating or admit).";
        head(out, name, "counter", help);
        let mut open: BTreeMap<(&str, Kind), u64> = BTreeMap::new();
        for ((webhook, kind, _), counted) in all.iter().filter(|(_, counted)| counted.open > 0) {
            *open.entry((webhook, *kind)).or_default() += counted.open;
        }
        for ((webhook, kind), count) in open {
            line(out, name, &format!("name=\"{webhook}\",type=\"{}\"", kind.name()), count);
        }
        let name = "apiserver_admission_webhook_rejection_count";
        let help = "Admission webhook rejection count, identified by name and broken out for each admission type \
                    (validating or admit) and operation. Additional labels specify an error type \
                    (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and \
                    optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code \
                    (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are \
                    truncated to 600, to keep the metrics cardinality bounded.";
        head(out, name, "counter", help);
        for (key, counted) in all.iter() {
            for ((error, code), count) in &counted.rejections {
                let (first, last) = labels(key);
                line(out, name, &format!("error_type=\"{error}\",{first},rejection_code=\"{code}\",{last}"), count);
            }
        }
        let name = "apiserver_admission_webhook_request_total";
        let help = "Admission webhook request total, identified by name and broken out for each admission type \
                    (validating or mutating) and operation. Additional labels specify whether the request was rejected \
                    or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics \
                    cardinality bounded.";
        head(out, name, "counter", help);
        for (key, counted) in all.iter() {
            for ((code, rejected), count) in &counted.requests {
                let (first, last) = labels(key);
                line(out, name, &format!("code=\"{code}\",{first},rejected=\"{rejected}\",{last}"), count);
            }
        }
    }
}

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
        let mut text = String::new();
        webhooks.render(&mut text);
        assert_eq!(text, "");
        webhooks.count("a.example", Kind::Admit, "CREATE", Outcome::Allowed, Duration::from_millis(250));
        webhooks.count("a.example", Kind::Admit, "UPDATE", Outcome::FailedOpen(500), Duration::from_secs(32));
        webhooks.count("b.example", Kind::Validating, "CREATE", Outcome::Denied(403), Duration::from_millis(500));
        webhooks.count("b.example", Kind::Validating, "CREATE", Outcome::Failed(500), Duration::from_millis(125));
        webhooks.count("b.example", Kind::Validating, "CREATE", Outcome::Internal, Duration::ZERO);
        webhooks.render(&mut text);
        assert_eq!(text, include_str!("../../metrics/testdata/webhooks.txt"));
    }
}
