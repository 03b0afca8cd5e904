//! `apiserver_flowcontrol_*`: what people watch of priority and fairness. Counting takes no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Metric, Page};

use super::FlowControl;
use super::queues::Refusal;

const SECONDS: Bounds = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const SEATS: Bounds = &[1.0, 2.0, 4.0, 10.0];
const REFUSALS: [(Refusal, &str); 3] = [
    (Refusal::QueueFull, "queue-full"),
    (Refusal::ConcurrencyLimit, "concurrency-limit"),
    (Refusal::TimeOut, "time-out"),
];

/// The requests of one schema.
pub struct Counts {
    dispatched: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
    running: AtomicI64,
    waiting: AtomicI64,
    waited: [Histogram; 2],
    ran: Histogram,
    seats: Histogram,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            dispatched: AtomicU64::new(0),
            refused: Default::default(),
            running: AtomicI64::new(0),
            waiting: AtomicI64::new(0),
            waited: [Histogram::new(SECONDS), Histogram::new(SECONDS)],
            ran: Histogram::new(SECONDS),
            seats: Histogram::new(SEATS),
        }
    }
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
        self.waited[1].observe_time(waited);
        self.seats.observe(f64::from(seats));
    }

    pub fn ended(&self, ran: Duration) {
        self.running.fetch_sub(1, Relaxed);
        self.ran.observe_time(ran);
    }

    pub fn refused(&self, refusal: Refusal, waited: Duration) {
        if let Some(at) = REFUSALS.iter().position(|(known, _)| *known == refusal) {
            self.refused[at].fetch_add(1, Relaxed);
        }
        self.waited[0].observe_time(waited);
    }
}

impl FlowControl {
    pub fn render(&self, page: &mut Page) {
        if !self.config.enabled {
            return;
        }
        self.render_schemas(page);
        self.render_levels(page);
    }

    fn render_schemas(&self, page: &mut Page) {
        let configuration = self.configuration.load();
        let entries: Vec<([(&str, &str); 2], &Counts)> = configuration
            .entries()
            .iter()
            .map(|entry| {
                let schema = &entry.schema;
                ([("flow_schema", &*schema.name), ("priority_level", &*schema.level)], &*entry.counts)
            })
            .collect();
        let mut family = page.family(&DISPATCHED);
        entries.iter().for_each(|(labels, counts)| family.sample(labels, counts.dispatched.load(Relaxed)));
        let mut family = page.family(&REJECTED);
        for ([schema, level], counts) in &entries {
            for ((_, reason), count) in REFUSALS.iter().zip(&counts.refused) {
                let count = count.load(Relaxed);
                if count > 0 {
                    family.sample(&[*schema, *level, ("reason", reason)], count);
                }
            }
        }
        let mut family = page.family(&WAITING);
        entries.iter().for_each(|(labels, counts)| family.sample(labels, counts.waiting.load(Relaxed)));
        let mut family = page.family(&EXECUTING);
        entries.iter().for_each(|(labels, counts)| family.sample(labels, counts.running.load(Relaxed)));
        let mut family = page.family(&WAITED);
        for ([schema, level], counts) in &entries {
            for (executed, waited) in ["false", "true"].iter().zip(&counts.waited).filter(|(_, it)| it.count() > 0) {
                family.histogram(&[("execute", executed), *schema, *level], waited);
            }
        }
        let mut family = page.family(&RAN);
        for (labels, counts) in entries.iter().filter(|(_, counts)| counts.ran.count() > 0) {
            family.histogram(labels, &counts.ran);
        }
        let mut family = page.family(&ESTIMATED_SEATS);
        for (labels, counts) in entries.iter().filter(|(_, counts)| counts.seats.count() > 0) {
            family.histogram(labels, &counts.seats);
        }
    }

    fn render_levels(&self, page: &mut Page) {
        let configuration = self.configuration.load();
        let levels: Vec<_> = configuration.levels().map(|level| (&level.name, level.seen())).collect();
        for (metric, value) in &LEVELS {
            let mut family = page.family(metric);
            for (level, seen) in &levels {
                family.sample(&[("priority_level", level)], value(seen));
            }
        }
    }
}

type Value = fn(&super::level::Seen) -> f64;

static LEVELS: [(Metric, Value); 11] = [
    (
        Metric::gauge(
            "apiserver_flowcontrol_nominal_limit_seats",
            "Nominal number of execution seats configured for each priority level",
        ),
        |seen| seen.range.nominal.into(),
    ),
    (
        Metric::gauge(
            "apiserver_flowcontrol_lower_limit_seats",
            "Configured lower bound on number of execution seats available to each priority level",
        ),
        |seen| seen.range.lower.into(),
    ),
    (
        Metric::gauge(
            "apiserver_flowcontrol_upper_limit_seats",
            "Configured upper bound on number of execution seats available to each priority level",
        ),
        |seen| seen.range.upper.into(),
    ),
    (
        Metric::gauge(
            "apiserver_flowcontrol_current_limit_seats",
            "current derived number of execution seats available to each priority level",
        ),
        |seen| seen.limit.into(),
    ),
    (
        Metric::gauge(
            "apiserver_flowcontrol_current_executing_seats",
            "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) \
             requests in the API Priority and Fairness subsystem",
        ),
        |seen| seen.seats.into(),
    ),
    (
        Metric::gauge(
            "apiserver_flowcontrol_current_inqueue_seats",
            "Number of seats currently pending in queues of the API Priority and Fairness subsystem",
        ),
        |seen| seen.waiting_seats.into(),
    ),
    (
        Metric::gauge(
            "apiserver_flowcontrol_demand_seats_high_watermark",
            "High watermark, over last adjustment period, of (seats used plus seats queued) / nominal",
        ),
        |seen| seen.demand.highest.into(),
    ),
    (
        Metric::gauge(
            "apiserver_flowcontrol_demand_seats_average",
            "Time-weighted average, over last adjustment period, of demand_seats",
        ),
        |seen| seen.demand.average,
    ),
    (
        Metric::gauge(
            "apiserver_flowcontrol_demand_seats_stdev",
            "Time-weighted standard deviation, over last adjustment period, of demand_seats",
        ),
        |seen| seen.demand.deviation,
    ),
    (Metric::gauge("apiserver_flowcontrol_demand_seats_smoothed", "Smoothed seat demands"), |seen| {
        seen.demand.smoothed
    }),
    (Metric::gauge("apiserver_flowcontrol_target_seats", "Seat allocation targets"), |seen| {
        f64::from(seen.range.lower.max(seen.range.nominal.min(seen.demand.highest))).max(seen.demand.smoothed)
    }),
];

const DISPATCHED: Metric = Metric::counter(
    "apiserver_flowcontrol_dispatched_requests_total",
    "Number of requests executed by API Priority and Fairness subsystem",
);
const REJECTED: Metric = Metric::counter(
    "apiserver_flowcontrol_rejected_requests_total",
    "Number of requests rejected by API Priority and Fairness subsystem",
);
const WAITING: Metric = Metric::gauge(
    "apiserver_flowcontrol_current_inqueue_requests",
    "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
);
const EXECUTING: Metric = Metric::gauge(
    "apiserver_flowcontrol_current_executing_requests",
    "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness \
     subsystem",
);
const WAITED: Metric = Metric::histogram(
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "Length of time a request spent waiting in its queue",
);
const RAN: Metric = Metric::histogram(
    "apiserver_flowcontrol_request_execution_seconds",
    "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and \
     Fairness subsystem",
);
const ESTIMATED_SEATS: Metric = Metric::histogram(
    "apiserver_flowcontrol_work_estimated_seats",
    "Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
);

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
        let mut page = Page::default();
        flow.render(&mut page);
        // How many seats a level has is for other tests.
        let is_of_schema = |line: &&str| !line.contains("{priority_level=");
        let text: String = page.text().lines().filter(is_of_schema).flat_map(|line| [line, "\n"]).collect();
        assert_eq!(text, include_str!("../metrics/testdata/flowcontrol.txt"));
    }
}
