//! Keys that wait for work: each is worked on by one at a time, now, later, or later and later.
//!
//! A key that is added while it waits is there once; one that is added while it is worked on comes again afterwards.
//! The queue is bounded by the number of different keys, which is the number of objects that the caches hold.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{Look, Metrics, QueueCounts};

/// How long a key waits after it failed: doubled each time, up to a limit, and never quite the same for all.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(300) }
    }
}

impl Backoff {
    fn delay(&self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1u32.checked_shl(failures).unwrap_or(u32::MAX));
        doubled.min(self.longest).mul_f64(rand::rng().random_range(0.75..1.25))
    }
}

pub struct Queue<T> {
    inner: Arc<Inner<T>>,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Queue<T> {
        Queue { inner: self.inner.clone() }
    }
}

struct Inner<T> {
    state: Mutex<State<T>>,
    changed: Notify,
    backoff: Backoff,
    counts: Arc<QueueCounts>,
}

struct State<T> {
    ready: VecDeque<T>,
    /// Waiting in `ready`, or to be put there when the work on it ends; and since when.
    wanted: HashMap<T, Instant>,
    /// Worked on, and since when.
    running: HashMap<T, Instant>,
    later: BTreeMap<(Instant, u64), T>,
    due: HashMap<T, (Instant, u64)>,
    failures: HashMap<T, u32>,
    /// Keys whose work has ended but that are left alone for a while, as if they were still worked on.
    resting: BTreeMap<(Instant, u64), T>,
    /// Tells apart what is due at the same instant.
    count: u64,
}

impl<T: Clone + Eq + Hash + Send + 'static> Queue<T> {
    /// A queue that shows how it is, under that name.
    pub fn watched(backoff: Backoff, name: &'static str, metrics: &Metrics) -> Queue<T> {
        let inner = Arc::new_cyclic(|queue: &Weak<Inner<T>>| {
            let queue = queue.clone();
            let look = move || queue.upgrade().map(|queue| queue.state.lock().look(Instant::now())).unwrap_or_default();
            let counts = metrics.watch(name, Box::new(look));
            Inner { state: Mutex::new(State::new()), changed: Notify::new(), backoff, counts }
        });
        Queue { inner }
    }
}

impl<T: Clone + Eq + Hash> Queue<T> {
    pub fn new(backoff: Backoff) -> Queue<T> {
        let (state, counts) = (Mutex::new(State::new()), Arc::default());
        Queue { inner: Arc::new(Inner { state, changed: Notify::new(), backoff, counts }) }
    }

    pub fn add(&self, key: T) {
        if self.inner.state.lock().add(key, &self.inner.counts) {
            self.inner.changed.notify_one();
        }
    }

    /// The earliest of several times wins.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.inner.state.lock().add_at(key, after(delay));
        self.inner.changed.notify_one();
    }

    /// Again, later than after the last failure.
    pub fn retry(&self, key: T) {
        let mut state = self.inner.state.lock();
        let failures = state.failures.entry(key.clone()).or_default();
        let delay = self.inner.backoff.delay(*failures);
        *failures = failures.saturating_add(1);
        self.inner.counts.retries.fetch_add(1, Ordering::Relaxed);
        state.add_at(key, after(delay));
        drop(state);
        self.inner.changed.notify_one();
    }

    /// It went well: the next failure is the first one again.
    pub fn forget(&self, key: &T) {
        self.inner.state.lock().failures.remove(key);
    }

    /// Waits for a key. There is one taker; it says `done` when the work on the key has ended.
    pub async fn next(&self) -> T {
        loop {
            let due = {
                let mut state = self.inner.state.lock();
                let now = Instant::now();
                state.ripen(now, &self.inner.counts);
                if let Some(key) = state.ready.pop_front() {
                    let since = state.wanted.remove(&key).unwrap_or(now);
                    self.inner.counts.waited.observe_time(now - since);
                    state.running.insert(key.clone(), now);
                    return key;
                }
                let first = |keys: &BTreeMap<(Instant, u64), T>| keys.keys().next().map(|(due, _)| *due);
                first(&state.later).into_iter().chain(first(&state.resting)).min()
            };
            match due {
                None => self.inner.changed.notified().await,
                Some(due) => tokio::select! {
                    () = self.inner.changed.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    pub fn done(&self, key: &T) {
        let mut state = self.inner.state.lock();
        if state.done(key, &self.inner.counts) {
            drop(state);
            self.inner.changed.notify_one();
        }
    }

    /// The same, but the key does not come again before a while has passed, however often it is added.
    pub(crate) fn done_after(&self, key: T, rest: Duration) {
        let mut state = self.inner.state.lock();
        state.count += 1;
        let at = (after(rest), state.count);
        state.resting.insert(at, key);
        drop(state);
        self.inner.changed.notify_one();
    }
}

/// What is further away than instants go is never due while the process lives.
fn after(delay: Duration) -> Instant {
    const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    Instant::now().checked_add(delay.min(NEVER)).unwrap_or_else(Instant::now)
}

impl<T: Clone + Eq + Hash> State<T> {
    fn new() -> State<T> {
        State {
            ready: VecDeque::new(),
            wanted: HashMap::new(),
            running: HashMap::new(),
            later: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            resting: BTreeMap::new(),
            count: 0,
        }
    }

    fn add(&mut self, key: T, counts: &QueueCounts) -> bool {
        if self.wanted.contains_key(&key) {
            return false;
        }
        counts.adds.fetch_add(1, Ordering::Relaxed);
        self.wanted.insert(key.clone(), Instant::now());
        if self.running.contains_key(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Whether the key is to be worked on again.
    fn done(&mut self, key: &T, counts: &QueueCounts) -> bool {
        if let Some(since) = self.running.remove(key) {
            counts.worked.observe_time(since.elapsed());
        }
        let again = self.wanted.contains_key(key);
        if again {
            self.ready.push_back(key.clone());
        }
        again
    }

    fn add_at(&mut self, key: T, at: Instant) {
        if let Some(earlier) = self.due.get(&key) {
            if earlier.0 <= at {
                return;
            }
            self.later.remove(earlier);
        }
        self.count += 1;
        self.due.insert(key.clone(), (at, self.count));
        self.later.insert((at, self.count), key);
    }

    fn look(&self, now: Instant) -> Look {
        let times = || self.running.values().map(|since| now.saturating_duration_since(*since));
        Look { waiting: self.ready.len(), unfinished: times().sum(), longest: times().max().unwrap_or_default() }
    }

    fn ripen(&mut self, now: Instant, counts: &QueueCounts) {
        while let Some(entry) = self.resting.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.done(&key, counts);
        }
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.add(key, counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue<&'static str> {
        Queue::new(Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(8) })
    }

    /// What comes out within that time, each worked on at once.
    async fn taken(queue: &Queue<&'static str>, within: Duration) -> Vec<&'static str> {
        let mut taken = Vec::new();
        let until = Instant::now() + within;
        while let Ok(key) = tokio::time::timeout_at(until, queue.next()).await {
            queue.done(&key);
            taken.push(key);
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once() {
        let queue = queue();
        ["a", "b", "a"].into_iter().for_each(|key| queue.add(key));
        assert_eq!(taken(&queue, Duration::from_secs(1)).await, ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_during_its_work_comes_again_afterwards() {
        let queue = queue();
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        assert!(tokio::time::timeout(Duration::from_secs(1), queue.next()).await.is_err());
        queue.done(&"a");
        assert_eq!(taken(&queue, Duration::from_secs(1)).await, ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_wins() {
        let queue = queue();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(2));
        queue.add_after("a", Duration::from_secs(20));
        queue.add_after("b", Duration::from_secs(1));
        assert_eq!(taken(&queue, Duration::from_secs(3)).await, ["b", "a"]);
        assert!(taken(&queue, Duration::from_secs(60)).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_never_comes_is_waited_for() {
        let queue = queue();
        queue.add_after("never", Duration::MAX);
        queue.add_after("soon", Duration::from_secs(1));
        assert_eq!(taken(&queue, Duration::from_secs(1_000_000)).await, ["soon"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_up_to_a_limit() {
        let queue = queue();
        let mut waits = Vec::new();
        for _ in 0..6 {
            let began = Instant::now();
            queue.retry("a");
            let key = queue.next().await;
            queue.done(&key);
            waits.push(began.elapsed().as_secs_f64());
        }
        for (wait, expected) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 8.0, 8.0]) {
            assert!((expected * 0.74..expected * 1.26).contains(wait), "{waits:?}");
        }
        queue.forget(&"a");
        let began = Instant::now();
        queue.retry("a");
        queue.next().await;
        assert!(began.elapsed() < Duration::from_secs(2));
    }
}
