//! `apiserver_flowcontrol_*`: what people watch of priority and fairness. Counting takes no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::FlowControl;
use super::queues::Refusal;
use crate::metrics::render::{head, line};

const SECONDS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 10.0];
const REFUSALS: [(Refusal, &str); 3] = [
    (Refusal::QueueFull, "queue-full"),
    (Refusal::ConcurrencyLimit, "concurrency-limit"),
    (Refusal::TimeOut, "time-out"),
];

/// The requests of one schema.
#[derive(Default)]
pub struct Counts {
    dispatched: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
    running: AtomicI64,
    waiting: AtomicI64,
    waited: [Histogram<14>; 2],
    ran: Histogram<14>,
    seats: Histogram<5>,
}

/// Counted while it lives.
pub struct Waiting(Arc<Counts>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Counts {
    pub fn waits(self: &Arc<Counts>) -> Waiting {
        self.waiting.fetch_add(1, Relaxed);
        Waiting(self.clone())
    }

    pub fn begins(&self, waited: Duration, seats: u32) {
        self.dispatched.fetch_add(1, Relaxed);
        self.running.fetch_add(1, Relaxed);
        self.waited[1].add(SECONDS, waited.as_secs_f64());
        self.seats.add(SEATS, f64::from(seats));
    }

    pub fn ended(&self, ran: Duration) {
        self.running.fetch_sub(1, Relaxed);
        self.ran.add(SECONDS, ran.as_secs_f64());
    }

    pub fn refused(&self, refusal: Refusal, waited: Duration) {
        if let Some(at) = REFUSALS.iter().position(|(known, _)| *known == refusal) {
            self.refused[at].fetch_add(1, Relaxed);
        }
        self.waited[0].add(SECONDS, waited.as_secs_f64());
    }
}

/// The last bucket has no bound. The sum is in millionths.
struct Histogram<const N: usize> {
    buckets: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Histogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> Histogram<N> {
    fn add(&self, bounds: &[f64], value: f64) {
        let bucket = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.buckets[bucket.min(N - 1)].fetch_add(1, Relaxed);
        self.sum.fetch_add((value * 1e6) as u64, Relaxed);
    }

    fn render(&self, out: &mut String, name: &str, labels: &str, bounds: &[f64]) {
        let mut count = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            match bounds.get(index) {
                Some(bound) => line(out, &format!("{name}_bucket"), &format!("{labels},le=\"{bound}\""), count),
                None => line(out, &format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), count),
            }
        }
        line(out, &format!("{name}_sum"), labels, self.sum.load(Relaxed) as f64 / 1e6);
        line(out, &format!("{name}_count"), labels, count);
    }

    fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.load(Relaxed) == 0)
    }
}

impl FlowControl {
    pub fn render(&self, out: &mut String) {
        if !self.config.enabled {
            return;
        }
        self.render_schemas(out);
        self.render_levels(out);
    }

    fn render_schemas(&self, out: &mut String) {
        let configuration = self.configuration.load();
        let entries: Vec<(String, &Counts)> = configuration
            .entries()
            .iter()
            .map(|entry| {
                let labels = format!("flow_schema=\"{}\",priority_level=\"{}\"", entry.schema.name, entry.schema.level);
                (labels, &*entry.counts)
            })
            .collect();
        let name = "apiserver_flowcontrol_dispatched_requests_total";
        head(out, name, "counter", "Number of requests executed by API Priority and Fairness subsystem");
        for (labels, counts) in &entries {
            line(out, name, labels, counts.dispatched.load(Relaxed));
        }
        let name = "apiserver_flowcontrol_rejected_requests_total";
        head(out, name, "counter", "Number of requests rejected by API Priority and Fairness subsystem");
        for (labels, counts) in &entries {
            for ((_, reason), count) in REFUSALS.iter().zip(&counts.refused) {
                let count = count.load(Relaxed);
                if count > 0 {
                    line(out, name, &format!("{labels},reason=\"{reason}\""), count);
                }
            }
        }
        let name = "apiserver_flowcontrol_current_inqueue_requests";
        let help = "Number of requests currently pending in queues of the API Priority and Fairness subsystem";
        head(out, name, "gauge", help);
        for (labels, counts) in &entries {
            line(out, name, labels, counts.waiting.load(Relaxed));
        }
        let name = "apiserver_flowcontrol_current_executing_requests";
        let help = "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API \
                    Priority and Fairness subsystem";
        head(out, name, "gauge", help);
        for (labels, counts) in &entries {
            line(out, name, labels, counts.running.load(Relaxed));
        }
        let name = "apiserver_flowcontrol_request_wait_duration_seconds";
        head(out, name, "histogram", "Length of time a request spent waiting in its queue");
        for (labels, counts) in &entries {
            for (executed, waited) in ["false", "true"].iter().zip(&counts.waited) {
                if !waited.is_empty() {
                    waited.render(out, name, &format!("execute=\"{executed}\",{labels}"), SECONDS);
                }
            }
        }
        let name = "apiserver_flowcontrol_request_execution_seconds";
        let help = "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the \
                    API Priority and Fairness subsystem";
        head(out, name, "histogram", help);
        for (labels, counts) in entries.iter().filter(|(_, counts)| !counts.ran.is_empty()) {
            counts.ran.render(out, name, labels, SECONDS);
        }
        let name = "apiserver_flowcontrol_work_estimated_seats";
        let help = "Number of estimated seats (maximum of initial and final seats) associated with requests in API \
                    Priority and Fairness";
        head(out, name, "histogram", help);
        for (labels, counts) in entries.iter().filter(|(_, counts)| !counts.seats.is_empty()) {
            counts.seats.render(out, name, labels, SEATS);
        }
    }

    fn render_levels(&self, out: &mut String) {
        let configuration = self.configuration.load();
        let levels: Vec<_> = configuration.levels().map(|level| (&level.name, level.seen())).collect();
        type Value = fn(&super::level::Seen) -> f64;
        let values: [(&str, &str, Value); 11] = [
            ("nominal_limit_seats", "Nominal number of execution seats configured for each priority level", |seen| {
                seen.range.nominal.into()
            }),
            (
                "lower_limit_seats",
                "Configured lower bound on number of execution seats available to each priority level",
                { |seen| seen.range.lower.into() },
            ),
            (
                "upper_limit_seats",
                "Configured upper bound on number of execution seats available to each priority level",
                { |seen| seen.range.upper.into() },
            ),
            (
                "current_limit_seats",
                "current derived number of execution seats available to each priority level",
                |seen| seen.limit.into(),
            ),
            (
                "current_executing_seats",
                {
                    "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage \
                 otherwise) requests in the API Priority and Fairness subsystem"
                },
                |seen| seen.seats.into(),
            ),
            (
                "current_inqueue_seats",
                { "Number of seats currently pending in queues of the API Priority and Fairness subsystem" },
                |seen| seen.waiting_seats.into(),
            ),
            (
                "demand_seats_high_watermark",
                { "High watermark, over last adjustment period, of (seats used plus seats queued) / nominal" },
                |seen| seen.demand.highest.into(),
            ),
            ("demand_seats_average", "Time-weighted average, over last adjustment period, of demand_seats", |seen| {
                seen.demand.average
            }),
            ("demand_seats_stdev", "Time-weighted standard deviation, over last adjustment period, of demand_seats", {
                |seen| seen.demand.deviation
            }),
            ("demand_seats_smoothed", "Smoothed seat demands", |seen| seen.demand.smoothed),
            ("target_seats", "Seat allocation targets", |seen| {
                f64::from(seen.range.lower.max(seen.range.nominal.min(seen.demand.highest))).max(seen.demand.smoothed)
            }),
        ];
        for (name, help, value) in values {
            let name = format!("apiserver_flowcontrol_{name}");
            head(out, &name, "gauge", help);
            for (level, seen) in &levels {
                line(out, &name, &format!("priority_level=\"{level}\""), value(seen));
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
        let flow = FlowControl::new(super::super::Config::default());
        let counts = flow.configuration.load().entries()[0].counts.clone();
        counts.begins(Duration::from_millis(250), 3);
        counts.begins(Duration::ZERO, 16);
        counts.ended(Duration::from_secs(64));
        counts.refused(Refusal::TimeOut, Duration::from_secs(15));
        let _waiting = counts.waits();
        let mut text = String::new();
        flow.render(&mut text);
        // How many seats a level has is for other tests.
        let is_of_schema = |line: &&str| !line.contains("{priority_level=");
        let text: String = text.lines().filter(is_of_schema).flat_map(|line| [line, "\n"]).collect();
        assert_eq!(text, include_str!("../metrics/testdata/flowcontrol.txt"));
    }
}
