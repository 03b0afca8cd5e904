//! Pods that wait for a node: those to try now, those that wait out their back-off, and those that wait for a change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::pod_info::PodInfo;

/// The first back-off; it doubles with every attempt.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_secs(1);
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Pods whose back-off ends within the same so long are tried in the order of their importance.
const BACKOFF_WINDOW: Duration = Duration::from_secs(1);
/// After so long a pod is tried again even if nothing seems to help: a hint may be wrong.
pub const WAITING_MAX: Duration = Duration::from_secs(5 * 60);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Its position among those to try.
    Active(Order),
    /// By the window in which its back-off ends. It is tried before that when nobody else is to be.
    Backoff(u64, Order),
    /// Something went wrong that another try at once would only meet again.
    ErrorBackoff(Instant),
    /// For a change that one of these plugins thinks may help.
    Waiting { plugins: BTreeSet<&'static str>, since: Instant },
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
    /// How often no node took it.
    refused: u32,
    /// How often in a row something else went wrong.
    errors: u32,
    /// When it was first tried.
    first: Option<Instant>,
    /// Its place among those as important: by when it came into the queue, or came back.
    added: u64,
    place: Place,
}

impl Entry {
    fn order(&self) -> Order {
        (std::cmp::Reverse(self.pod.priority), self.added)
    }

    /// Errors count by themselves: they say nothing of how hard the pod is to place.
    fn back_off(&self, limits: &Limits) -> Duration {
        limits.back_off(if self.errors > 0 { self.errors } else { self.refused })
    }
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

pub struct Queue {
    /// What windows are counted from.
    began: Instant,
    entries: HashMap<String, Entry>,
    active: BTreeMap<Order, String>,
    backoff: BTreeMap<(u64, Order), String>,
    error_backoff: BTreeSet<(Instant, String)>,
    /// The pods that wait, by the plugin that refused them.
    waiting: HashMap<&'static str, BTreeSet<String>>,
    /// The same by how long they wait.
    waiting_since: BTreeSet<(Instant, String)>,
    gated: BTreeSet<String>,
    /// Pods whose victims are being ended, and the change that would have had them tried again meanwhile. As many as wait, at most.
    making_room: HashMap<String, Option<&'static str>>,
    clock: u64,
    limits: Limits,
    /// Pods that came into a queue, by why and into which.
    incoming: BTreeMap<(&'static str, &'static str), u64>,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new(Limits::default())
    }
}

impl Queue {
    pub fn new(limits: Limits) -> Queue {
        Queue {
            began: Instant::now(),
            entries: HashMap::new(),
            active: BTreeMap::new(),
            backoff: BTreeMap::new(),
            error_backoff: BTreeSet::new(),
            waiting: HashMap::new(),
            waiting_since: BTreeSet::new(),
            gated: BTreeSet::new(),
            making_room: HashMap::new(),
            clock: 0,
            limits,
            incoming: BTreeMap::new(),
        }
    }

    /// A pod that has no node yet, new or changed. One that waits is tried again if its change may help with one of the
    /// plugins that refused it.
    pub fn put(&mut self, pod: Arc<PodInfo>, gated: bool, now: Instant, may_help: impl Fn(&'static str) -> bool) {
        let uid = pod.uid.clone();
        self.clock += 1;
        let added = self.clock;
        let event = if self.entries.contains_key(&uid) { "PodUpdate" } else { "PodAdd" };
        let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry {
            pod: pod.clone(),
            attempts: 0,
            refused: 0,
            errors: 0,
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
            (Place::Waiting { plugins, .. }, false) if plugins.iter().any(|plugin| may_help(plugin)) => {
                self.retry(&uid, event, now);
            }
            (Place::Active(_), false) if priority_changed => self.activate(&uid, event),
            (Place::Backoff(window, _), false) if priority_changed => self.wait_out(&uid, *window, event),
            (Place::Waiting { .. } | Place::Active(_) | Place::Backoff(..) | Place::ErrorBackoff(_), false) => {}
        }
    }

    pub fn remove(&mut self, uid: &str) {
        self.making_room.remove(uid);
        if self.entries.contains_key(uid) {
            self.move_to(uid, Place::Out, "");
            self.entries.remove(uid);
        }
    }

    /// The next pod to try and which attempt that is; it is then out until one of `done` (by `remove`), `failed` or `back_off` says how it went.
    pub fn pop(&mut self, now: Instant) -> Option<Popped> {
        self.wake(now);
        let uid = match self.active.values().next() {
            Some(uid) => uid.clone(),
            // Nobody else is to be tried: waiting longer would help nobody.
            None => {
                let uid = self.backoff.values().next()?.clone();
                *self.incoming.entry(("PopFromBackoffQ", "active")).or_default() += 1;
                uid
            }
        };
        self.move_to(&uid, Place::Out, "");
        let entry = self.entries.get_mut(&uid)?;
        entry.attempts += 1;
        let first = *entry.first.get_or_insert(now);
        Some(Popped { pod: entry.pod.clone(), attempts: entry.attempts, first })
    }

    /// No node took it; these plugins refused. Where none did, there is nothing to wait for but time.
    pub fn failed(&mut self, uid: &str, plugins: BTreeSet<&'static str>, now: Instant) {
        if plugins.is_empty() {
            return self.back_off(uid, now);
        }
        if let Some(entry) = self.come_back(uid) {
            entry.refused += 1;
            entry.errors = 0;
        }
        self.move_to(uid, Place::Waiting { plugins, since: now }, "ScheduleAttemptFailure");
    }

    /// Others are ended for the pod. Until that is done no change has it tried again: it would find its room still taken, and
    /// choose others to end.
    pub(crate) fn make_room(&mut self, uid: &str) {
        self.making_room.insert(uid.to_owned(), None);
    }

    /// All of them were told to end, or not all could be: then it is tried again after its back-off, as nothing else may wake it.
    pub(crate) fn room_made(&mut self, uid: &str, failed: bool, now: Instant) {
        let Some(missed) = self.making_room.remove(uid) else { return };
        let place = self.entries.get(uid).map(|entry| &entry.place);
        if failed && matches!(place, Some(Place::Waiting { .. } | Place::Backoff(..))) {
            self.back_off(uid, now);
        } else if let Some(event) = missed {
            self.retry(uid, event, now);
        }
    }

    /// Something went wrong that is not the pod's fault: try again soon.
    pub(crate) fn back_off(&mut self, uid: &str, now: Instant) {
        let limits = self.limits;
        let Some(entry) = self.come_back(uid) else { return };
        entry.errors += 1;
        let until = now + entry.back_off(&limits);
        self.move_to(uid, Place::ErrorBackoff(until), "ScheduleAttemptFailure");
    }

    /// A pod that was tried stands behind those as important that came meanwhile.
    fn come_back(&mut self, uid: &str) -> Option<&mut Entry> {
        self.clock += 1;
        let entry = self.entries.get_mut(uid)?;
        entry.added = self.clock;
        Some(entry)
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
        // Those that back off for no error are tried before anybody sleeps.
        let backoff = self.error_backoff.first().map(|(until, _)| *until);
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
        let backoff = self.backoff.len() + self.error_backoff.len();
        [self.active.len(), backoff, self.waiting_since.len(), self.gated.len()]
    }

    fn wake(&mut self, now: Instant) {
        let current = self.window(now);
        while let Some(uid) = self.backoff.first_key_value().filter(|((window, _), _)| *window < current) {
            let uid = uid.1.clone();
            self.activate(&uid, "BackoffComplete");
        }
        while let Some((_, uid)) = self.error_backoff.first().cloned().filter(|(until, _)| *until <= now) {
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
        if let Some(missed) = self.making_room.get_mut(uid) {
            *missed = Some(event);
            return;
        }
        let Some(entry) = self.entries.get(uid) else { return };
        let Place::Waiting { since, .. } = &entry.place else { return };
        let window = self.window(*since + entry.back_off(&self.limits));
        if window < self.window(now) { self.activate(uid, event) } else { self.wait_out(uid, window, event) }
    }

    fn wait_out(&mut self, uid: &str, window: u64, event: &'static str) {
        let Some(entry) = self.entries.get(uid) else { return };
        self.move_to(uid, Place::Backoff(window, entry.order()), event);
    }

    fn window(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_secs() / BACKOFF_WINDOW.as_secs()
    }

    fn activate(&mut self, uid: &str, event: &'static str) {
        let Some(entry) = self.entries.get(uid) else { return };
        self.move_to(uid, Place::Active(entry.order()), event);
    }

    fn move_to(&mut self, uid: &str, place: Place, event: &'static str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let into = match &place {
            Place::Active(_) => Some("active"),
            Place::Backoff(..) | Place::ErrorBackoff(_) => Some("backoff"),
            Place::Waiting { .. } | Place::Gated => Some("unschedulable"),
            Place::Out => None,
        };
        if let Some(queue) = into.filter(|_| entry.place != place || event == "PodAdd") {
            *self.incoming.entry((event, queue)).or_default() += 1;
        }
        match std::mem::replace(&mut entry.place, place.clone()) {
            Place::Active(order) => _ = self.active.remove(&order),
            Place::Backoff(window, order) => _ = self.backoff.remove(&(window, order)),
            Place::ErrorBackoff(until) => _ = self.error_backoff.remove(&(until, uid.to_owned())),
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
            Place::Backoff(window, order) => _ = self.backoff.insert((window, order), uid.to_owned()),
            Place::ErrorBackoff(until) => _ = self.error_backoff.insert((until, uid.to_owned())),
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
    fn back_off(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.backoff_first.saturating_mul(2_u32.pow(doublings)).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests;
