//! How the scheduler is doing, in upstream's names.

use std::fmt::Write;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Pods to be tried, in back-off, that no node takes, and gated.
    pub pending: [usize; 4],
    pub attempts: Attempts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    pub scheduled: u64,
    pub unschedulable: u64,
    pub error: u64,
}

/// The text that monitoring reads.
pub fn text(metrics: &Metrics) -> String {
    let mut text = String::new();
    let mut family = |name: &str, help: &str, kind: &str, label: &str, values: &[(&str, u64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (value, number) in values {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}{{{label}=\"{value}\"}} {number}");
        }
    };
    let [active, backoff, waiting, gated] = metrics.pending.map(|count| count as u64);
    family(
        "scheduler_pending_pods",
        "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of \
         pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule \
         and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they \
         are gated.",
        "gauge",
        "queue",
        &[("active", active), ("backoff", backoff), ("gated", gated), ("unschedulable", waiting)],
    );
    family(
        "scheduler_schedule_attempts_total",
        "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while \
         'error' means an internal scheduler problem.",
        "counter",
        "result",
        &[
            ("error", metrics.attempts.error),
            ("scheduled", metrics.attempts.scheduled),
            ("unschedulable", metrics.attempts.unschedulable),
        ],
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_upstreams_names() {
        let attempts = Attempts { scheduled: 7, unschedulable: 2, error: 1 };
        let text = text(&Metrics { pending: [1, 2, 3, 4], attempts });
        for line in [
            r#"scheduler_pending_pods{queue="active"} 1"#,
            r#"scheduler_pending_pods{queue="backoff"} 2"#,
            r#"scheduler_pending_pods{queue="unschedulable"} 3"#,
            r#"scheduler_pending_pods{queue="gated"} 4"#,
            r#"scheduler_schedule_attempts_total{result="scheduled"} 7"#,
            "# TYPE scheduler_schedule_attempts_total counter",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
    }
}
