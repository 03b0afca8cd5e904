//! Pods that wait for a node: those to try now, those that wait out their back-off, and those that wait for a change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::pod_info::PodInfo;

/// The first back-off; it doubles with every attempt.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_secs(1);
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// After so long a pod is tried again even if nothing seems to help: a hint may be wrong.
pub const WAITING_MAX: Duration = Duration::from_secs(5 * 60);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Its position among those to try.
    Active(Order),
    Backoff(Instant),
    /// For a change that one of these plugins thinks may help.
    Waiting {
        plugins: BTreeSet<&'static str>,
        since: Instant,
    },
    /// A plugin does not let it in at all.
    Gated,
    /// Being bound, or about to be.
    Out,
}

/// The more important first, then the older.
type Order = (std::cmp::Reverse<i32>, u64);

struct Entry {
    pod: Arc<PodInfo>,
    attempts: u32,
    /// When it was first tried.
    first: Option<Instant>,
    added: u64,
    place: Place,
}

/// A pod whose turn it is.
pub struct Popped {
    pub pod: Arc<PodInfo>,
    pub attempts: u32,
    /// When it was first tried.
    pub first: Instant,
}

/// How long pods are made to wait between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub backoff_first: Duration,
    pub backoff_max: Duration,
    /// A pod that waits for a change is tried again after so long at the latest.
    pub waiting_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { backoff_first: BACKOFF_FIRST, backoff_max: BACKOFF_MAX, waiting_max: WAITING_MAX }
    }
}

#[derive(Default)]
pub struct Queue {
    entries: HashMap<String, Entry>,
    active: BTreeMap<Order, String>,
    backoff: BTreeSet<(Instant, String)>,
    /// The pods that wait, by the plugin that refused them.
    waiting: HashMap<&'static str, BTreeSet<String>>,
    /// The same by how long they wait.
    waiting_since: BTreeSet<(Instant, String)>,
    gated: BTreeSet<String>,
    clock: u64,
    limits: Limits,
    /// Pods that came into a queue, by why and into which.
    incoming: BTreeMap<(&'static str, &'static str), u64>,
}

impl Queue {
    pub fn new(limits: Limits) -> Queue {
        Queue { limits, ..Queue::default() }
    }

    /// A pod that has no node yet, new or changed. A changed one is tried again if `retry` says so.
    pub fn put(&mut self, pod: Arc<PodInfo>, gated: bool, retry: bool, now: Instant) {
        let uid = pod.uid.clone();
        self.clock += 1;
        let added = self.clock;
        let event = if self.entries.contains_key(&uid) { "PodUpdate" } else { "PodAdd" };
        let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry {
            pod: pod.clone(),
            attempts: 0,
            first: None,
            added,
            place: Place::Gated,
        });
        let priority_changed = entry.pod.priority != pod.priority;
        entry.pod = pod;
        let place = entry.place.clone();
        match (&place, gated) {
            (Place::Out, _) => {}
            (_, true) => self.move_to(&uid, Place::Gated, event),
            (Place::Gated, false) => self.activate(&uid, event),
            (Place::Waiting { .. }, false) if retry => self.retry(&uid, event, now),
            (Place::Active(_), false) if priority_changed => self.activate(&uid, event),
            (Place::Waiting { .. } | Place::Active(_) | Place::Backoff(_), false) => {}
        }
    }

    pub fn remove(&mut self, uid: &str) {
        if self.entries.contains_key(uid) {
            self.move_to(uid, Place::Out, "");
            self.entries.remove(uid);
        }
    }

    /// The next pod to try and which attempt that is; it is then out until one of `done` (by `remove`), `failed` or `back_off` says how it went.
    pub fn pop(&mut self, now: Instant) -> Option<Popped> {
        self.wake(now);
        let uid = self.active.values().next()?.clone();
        self.move_to(&uid, Place::Out, "");
        let entry = self.entries.get_mut(&uid)?;
        entry.attempts += 1;
        let first = *entry.first.get_or_insert(now);
        Some(Popped { pod: entry.pod.clone(), attempts: entry.attempts, first })
    }

    /// No node took it; these plugins refused.
    pub fn failed(&mut self, uid: &str, plugins: BTreeSet<&'static str>, now: Instant) {
        self.move_to(uid, Place::Waiting { plugins, since: now }, "ScheduleAttemptFailure");
    }

    /// Something went wrong that is not the pod's fault: try again soon.
    pub(crate) fn back_off(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get(uid) else { return };
        let until = now + self.limits.back_off(entry.attempts);
        self.move_to(uid, Place::Backoff(until), "ScheduleAttemptFailure");
    }

    /// Something changed, which has this name: pods that one of the plugins it concerns refused are asked whether it may help them.
    pub fn changed(
        &mut self,
        now: Instant,
        event: &'static str,
        concerned: impl Fn(&str) -> bool,
        mut may_help: impl FnMut(&PodInfo, &'static str) -> bool,
    ) {
        let plugins: Vec<&'static str> = self.waiting.keys().copied().filter(|plugin| concerned(plugin)).collect();
        for plugin in plugins {
            let waiting = self.waiting.get(plugin).into_iter().flatten();
            let helped: Vec<String> = waiting
                .filter(|uid| self.entries.get(*uid).is_some_and(|entry| may_help(&entry.pod, plugin)))
                .cloned()
                .collect();
            for uid in helped {
                self.retry(&uid, event, now);
            }
        }
    }

    /// Whether any pod waits for a change: then changes are worth looking at.
    pub(crate) fn any_waiting(&self) -> bool {
        !self.waiting_since.is_empty()
    }

    /// When there will be something to do though nothing changes.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let backoff = self.backoff.first().map(|(until, _)| *until);
        let waiting = self.waiting_since.first().map(|(since, _)| *since + self.limits.waiting_max);
        backoff.into_iter().chain(waiting).min()
    }

    pub fn get(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.entries.get(uid).map(|entry| &entry.pod)
    }

    /// How many are being bound.
    pub(crate) fn in_flight(&self) -> usize {
        self.entries.len() - self.counts().iter().sum::<usize>()
    }

    /// Pods that came into a queue, by why and into which.
    pub fn incoming(&self) -> &BTreeMap<(&'static str, &'static str), u64> {
        &self.incoming
    }

    /// How many pods each plugin keeps waiting, by their profile.
    pub fn refused(&self) -> BTreeMap<(&'static str, String), usize> {
        let mut counts = BTreeMap::new();
        for (plugin, uids) in &self.waiting {
            for entry in uids.iter().filter_map(|uid| self.entries.get(uid)) {
                *counts.entry((*plugin, entry.pod.scheduler_name().to_owned())).or_default() += 1;
            }
        }
        counts
    }

    /// How many are to be tried, back off, wait and are gated.
    pub fn counts(&self) -> [usize; 4] {
        [self.active.len(), self.backoff.len(), self.waiting_since.len(), self.gated.len()]
    }

    fn wake(&mut self, now: Instant) {
        while let Some((until, uid)) = self.backoff.first().cloned().filter(|(until, _)| *until <= now) {
            self.backoff.remove(&(until, uid.clone()));
            self.activate(&uid, "BackoffComplete");
        }
        while let Some((since, uid)) = self.waiting_since.first().cloned() {
            if since + self.limits.waiting_max > now {
                break;
            }
            self.activate(&uid, "UnschedulableTimeout");
        }
    }

    /// Out of waiting: at once if it has waited out its back-off since it failed, else when it has.
    fn retry(&mut self, uid: &str, event: &'static str, now: Instant) {
        let Some(entry) = self.entries.get(uid) else { return };
        let Place::Waiting { since, .. } = &entry.place else { return };
        let until = *since + self.limits.back_off(entry.attempts);
        if until <= now { self.activate(uid, event) } else { self.move_to(uid, Place::Backoff(until), event) }
    }

    fn activate(&mut self, uid: &str, event: &'static str) {
        let Some(entry) = self.entries.get(uid) else { return };
        let order = (std::cmp::Reverse(entry.pod.priority), entry.added);
        self.move_to(uid, Place::Active(order), event);
    }

    fn move_to(&mut self, uid: &str, place: Place, event: &'static str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let into = match &place {
            Place::Active(_) => Some("active"),
            Place::Backoff(_) => Some("backoff"),
            Place::Waiting { .. } | Place::Gated => Some("unschedulable"),
            Place::Out => None,
        };
        if let Some(queue) = into.filter(|_| entry.place != place || event == "PodAdd") {
            *self.incoming.entry((event, queue)).or_default() += 1;
        }
        match std::mem::replace(&mut entry.place, place.clone()) {
            Place::Active(order) => _ = self.active.remove(&order),
            Place::Backoff(until) => _ = self.backoff.remove(&(until, uid.to_owned())),
            Place::Waiting { plugins, since } => {
                self.waiting_since.remove(&(since, uid.to_owned()));
                for plugin in plugins {
                    if let Some(waiting) = self.waiting.get_mut(plugin) {
                        waiting.remove(uid);
                        if waiting.is_empty() {
                            self.waiting.remove(plugin);
                        }
                    }
                }
            }
            Place::Gated => _ = self.gated.remove(uid),
            Place::Out => {}
        }
        match place {
            Place::Active(order) => _ = self.active.insert(order, uid.to_owned()),
            Place::Backoff(until) => _ = self.backoff.insert((until, uid.to_owned())),
            Place::Waiting { plugins, since } => {
                self.waiting_since.insert((since, uid.to_owned()));
                for plugin in plugins {
                    self.waiting.entry(plugin).or_default().insert(uid.to_owned());
                }
            }
            Place::Gated => _ = self.gated.insert(uid.to_owned()),
            Place::Out => {}
        }
    }
}

impl Limits {
    fn back_off(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(16);
        self.backoff_first.saturating_mul(2_u32.pow(doublings)).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
        let object = serde_json::json!({"metadata": {"name": name, "namespace": "a", "uid": name},
            "spec": {"containers": [], "priority": priority}});
        Arc::new(PodInfo::new(Arc::new(serde_json::from_value(object).expect("a pod"))))
    }

    fn popped(queue: &mut Queue, now: Instant) -> Option<String> {
        queue.pop(now).map(|popped| popped.pod.uid.clone())
    }

    #[test]
    fn the_important_and_the_older_come_first() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for (name, priority) in [("a", 0), ("b", 5), ("c", 5), ("gated", 9)] {
            queue.put(pod(name, priority), name == "gated", false, now);
        }
        assert_eq!(queue.counts(), [3, 0, 0, 1]);
        let order: Vec<_> = std::iter::from_fn(|| popped(&mut queue, now)).collect();
        assert_eq!(order, ["b", "c", "a"]);
        queue.put(pod("gated", 9), false, true, now);
        assert_eq!(popped(&mut queue, now).as_deref(), Some("gated"));
    }

    #[test]
    fn a_pod_that_nobody_takes_waits_for_what_may_help() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.put(pod("a", 0), false, false, now);
        assert!(popped(&mut queue, now).is_some());
        queue.failed("a", ["NodePorts"].into(), now);
        queue.changed(now, "NodeAdd", |_| true, |_, plugin| plugin == "NodeAffinity");
        assert_eq!(queue.counts(), [0, 0, 1, 0]);
        queue.changed(now, "NodeAdd", |_| true, |_, plugin| plugin == "NodePorts");
        assert_eq!(queue.counts(), [0, 1, 0, 0]);
        let incoming: Vec<_> =
            queue.incoming().iter().map(|((event, queue), count)| format!("{event} {queue} {count}")).collect();
        assert_eq!(incoming, ["NodeAdd backoff 1", "PodAdd active 1", "ScheduleAttemptFailure unschedulable 1"]);
        assert_eq!(queue.next_wake(), Some(now + BACKOFF_FIRST));
        assert_eq!(popped(&mut queue, now + BACKOFF_FIRST).as_deref(), Some("a"));
        // Nothing helps: it is tried again all the same, but not soon.
        queue.failed("a", ["NodePorts"].into(), now);
        assert_eq!(queue.next_wake(), Some(now + WAITING_MAX));
        assert_eq!(popped(&mut queue, now + WAITING_MAX - Duration::from_secs(1)), None);
        assert_eq!(popped(&mut queue, now + WAITING_MAX).as_deref(), Some("a"));
    }

    #[test]
    fn ten_thousand_pods_that_wait_cost_nothing() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for index in 0..10_000 {
            queue.put(pod(&format!("p{index}"), 0), false, false, now);
        }
        while let Some(name) = popped(&mut queue, now) {
            queue.failed(&name, ["NodeResourcesFit"].into(), now);
        }
        let began = Instant::now();
        for _ in 0..10_000 {
            assert_eq!(popped(&mut queue, now), None);
            assert!(queue.next_wake().is_some());
        }
        // Looking at all of them each time would take minutes.
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
