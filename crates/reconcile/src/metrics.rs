//! What dashboards read of every component that works off queues and asks the API server: `workqueue_*` and `rest_client_*`,
//! under upstream's names. Labels are names of queues, hosts, methods and codes: few.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Metric, Page};
use parking_lot::Mutex;

/// Upstream's, in seconds.
const QUEUE_SECONDS: Bounds = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];
const REQUEST_SECONDS: Bounds = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Of a component and its client.
#[derive(Default)]
pub struct Metrics {
    queues: Mutex<BTreeMap<&'static str, Watched>>,
    /// By host, method and code.
    answers: Mutex<BTreeMap<[String; 3], u64>>,
    /// By host and method.
    times: Mutex<BTreeMap<[String; 2], Arc<Histogram>>>,
    /// Of single controllers.
    others: Mutex<BTreeMap<&'static str, Render>>,
}

type Render = Box<dyn Fn(&mut Page) + Send + Sync>;

struct Watched {
    counts: Arc<QueueCounts>,
    look: Box<dyn Fn() -> Look + Send + Sync>,
}

/// How a queue is at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Look {
    pub waiting: usize,
    /// How long keys have been worked on that still are: all together, and the longest.
    pub unfinished: Duration,
    pub longest: Duration,
}

/// What happened to a queue so far.
pub(crate) struct QueueCounts {
    pub adds: AtomicU64,
    pub retries: AtomicU64,
    /// How long keys waited, and how long the work on them took.
    pub waited: Histogram,
    pub worked: Histogram,
}

impl Default for QueueCounts {
    fn default() -> QueueCounts {
        let times = || Histogram::new(QUEUE_SECONDS);
        QueueCounts { adds: AtomicU64::new(0), retries: AtomicU64::new(0), waited: times(), worked: times() }
    }
}

impl Metrics {
    /// A queue of that name; the one of an earlier run of its controller is forgotten.
    pub(crate) fn watch(&self, name: &'static str, look: Box<dyn Fn() -> Look + Send + Sync>) -> Arc<QueueCounts> {
        let mut queues = self.queues.lock();
        // What an earlier run has counted goes on: a counter that falls is a restart of the process.
        let counts = queues.get(name).map(|watched| watched.counts.clone()).unwrap_or_default();
        queues.insert(name, Watched { counts: counts.clone(), look });
        counts
    }

    pub(crate) fn show(&self, name: &'static str, render: Render) {
        self.others.lock().insert(name, render);
    }

    /// A request of this component was answered, or failed before that (`<error>`).
    pub fn answered(&self, host: &str, method: &str, code: &str, took: Duration) {
        *self.answers.lock().entry([host, method, code].map(str::to_owned)).or_default() += 1;
        let key = [host, method].map(str::to_owned);
        let times = self.times.lock().entry(key).or_insert_with(|| Arc::new(Histogram::new(REQUEST_SECONDS))).clone();
        times.observe_time(took);
    }

    pub fn render(&self, page: &mut Page) {
        let queues = self.queues.lock();
        let looks: Vec<(&str, &QueueCounts, Look)> =
            queues.iter().map(|(name, watched)| (*name, &*watched.counts, (watched.look)())).collect();
        let numbers: [(&Metric, ReadNumber); 5] = [
            (&ADDS, |counts, _| counts.adds.load(Ordering::Relaxed) as f64),
            (&DEPTH, |_, look| look.waiting as f64),
            (&LONGEST, |_, look| look.longest.as_secs_f64()),
            (&RETRIES, |counts, _| counts.retries.load(Ordering::Relaxed) as f64),
            (&UNFINISHED, |_, look| look.unfinished.as_secs_f64()),
        ];
        for (metric, read) in numbers {
            let mut family = page.family(metric);
            looks.iter().for_each(|(name, counts, look)| family.sample(&[("name", name)], read(counts, look)));
        }
        let mut family = page.family(&WAITED);
        looks.iter().for_each(|(name, counts, _)| family.histogram(&[("name", name)], &counts.waited));
        let mut family = page.family(&WORKED);
        looks.iter().for_each(|(name, counts, _)| family.histogram(&[("name", name)], &counts.worked));
        let mut family = page.family(&TIMES);
        for ([host, method], times) in self.times.lock().iter() {
            family.histogram(&[("host", host), ("verb", method)], times);
        }
        let mut family = page.family(&ANSWERS);
        for ([host, method, code], count) in self.answers.lock().iter() {
            family.sample(&[("code", code), ("host", host), ("method", method)], count);
        }
        self.others.lock().values().for_each(|render| render(page));
    }
}

/// Reads one number of a queue.
type ReadNumber = fn(&QueueCounts, &Look) -> f64;

const ADDS: Metric = Metric::counter("workqueue_adds_total", "Total number of adds handled by workqueue");
const DEPTH: Metric = Metric::gauge("workqueue_depth", "Current depth of workqueue");
const LONGEST: Metric = Metric::gauge(
    "workqueue_longest_running_processor_seconds",
    "How many seconds has the longest running processor for workqueue been running.",
);
const RETRIES: Metric = Metric::counter("workqueue_retries_total", "Total number of retries handled by workqueue");
const UNFINISHED: Metric = Metric::gauge(
    "workqueue_unfinished_work_seconds",
    "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values \
     indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
);
const WAITED: Metric = Metric::histogram(
    "workqueue_queue_duration_seconds",
    "How long in seconds an item stays in workqueue before being requested.",
);
const WORKED: Metric = Metric::histogram(
    "workqueue_work_duration_seconds",
    "How long in seconds processing an item from workqueue takes.",
);
const TIMES: Metric = Metric::histogram(
    "rest_client_request_duration_seconds",
    "Request latency in seconds. Broken down by verb, and host.",
);
const ANSWERS: Metric = Metric::counter(
    "rest_client_requests_total",
    "Number of HTTP requests, partitioned by status code, method, and host.",
);

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::queue::{Backoff, Queue};

    fn lines(metrics: &Metrics) -> Vec<String> {
        let mut page = Page::default();
        metrics.render(&mut page);
        page.text().lines().map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn queues_tell_how_they_are() {
        let metrics = Metrics::default();
        let queue: Queue<&'static str> = Queue::watched(Backoff::default(), "deployment", &metrics);
        ["a", "b", "a"].into_iter().for_each(|key| queue.add(key));
        advance(Duration::from_secs(5)).await;
        let key = queue.next().await;
        advance(Duration::from_secs(2)).await;
        let found = lines(&metrics);
        for line in [
            "workqueue_adds_total{name=\"deployment\"} 2",
            "workqueue_depth{name=\"deployment\"} 1",
            "workqueue_unfinished_work_seconds{name=\"deployment\"} 2",
            "workqueue_longest_running_processor_seconds{name=\"deployment\"} 2",
            "workqueue_queue_duration_seconds_sum{name=\"deployment\"} 5",
        ] {
            assert!(found.iter().any(|found| found == line), "{line}\n{found:#?}");
        }
        queue.done(&key);
        queue.retry(key);
        let found = lines(&metrics);
        for line in [
            "workqueue_work_duration_seconds_sum{name=\"deployment\"} 2",
            "workqueue_unfinished_work_seconds{name=\"deployment\"} 0",
            "workqueue_retries_total{name=\"deployment\"} 1",
        ] {
            assert!(found.iter().any(|found| found == line), "{line}\n{found:#?}");
        }
    }

    #[test]
    fn requests_are_counted_by_what_came_back() {
        let metrics = Metrics::default();
        metrics.answered("10.0.0.1:6443", "GET", "200", Duration::from_millis(3));
        metrics.answered("10.0.0.1:6443", "GET", "200", Duration::from_millis(300));
        metrics.answered("10.0.0.1:6443", "POST", "<error>", Duration::from_millis(3));
        let found = lines(&metrics);
        for line in [
            "rest_client_requests_total{code=\"200\",host=\"10.0.0.1:6443\",method=\"GET\"} 2",
            "rest_client_requests_total{code=\"<error>\",host=\"10.0.0.1:6443\",method=\"POST\"} 1",
            "rest_client_request_duration_seconds_bucket{host=\"10.0.0.1:6443\",verb=\"GET\",le=\"0.005\"} 1",
        ] {
            assert!(found.iter().any(|found| found == line), "{line}\n{found:#?}");
        }
    }
}
