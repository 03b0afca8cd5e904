//! Eviction rate of nodes by zone: the more of them are silent at once, the likelier it is that the
//! trouble is elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::settings::NodeLifecycle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Normal,
    Partial,
    Full,
}

/// Where nodes are that share their fate.
pub(super) fn zone_of(node: &Node) -> String {
    let label = |keys: [&str; 2]| {
        let labels = node.metadata.labels.as_ref();
        keys.iter().find_map(|key| labels.and_then(|labels| labels.get(*key)).cloned()).unwrap_or_default()
    };
    let region = label(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    let zone = label(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

/// The state of a zone with so many nodes of either kind.
fn mode(settings: &NodeLifecycle, ready: usize, not_ready: usize) -> Mode {
    let share = |part: usize, all: usize| part as f64 / all as f64;
    match (ready, not_ready) {
        (0, 1..) => Mode::Full,
        (ready, 3..) if share(not_ready, ready + not_ready) >= settings.unhealthy_zone_threshold => Mode::Partial,
        _ => Mode::Normal,
    }
}

/// How long a node waits for the next one; `None` means that none loses its pods.
fn interval(settings: &NodeLifecycle, mode: Mode, nodes: usize) -> Option<Duration> {
    let rate = match mode {
        Mode::Normal | Mode::Full => settings.eviction_rate,
        Mode::Partial if nodes > settings.large_cluster_size_threshold => settings.secondary_eviction_rate,
        Mode::Partial => 0.0,
    };
    // A rate of nothing means never, which no duration says.
    (rate > 0.0).then(|| Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX))
}

#[derive(Debug)]
struct Zone {
    mode: Option<Mode>,
    interval: Option<Duration>,
    /// When the last node was let through.
    last: Option<Timestamp>,
    waiting: VecDeque<String>,
    /// Waiting or let through, until they are well again.
    marked: BTreeSet<String>,
}

/// All zones and the nodes in them that are to lose their pods.
#[derive(Debug, Default)]
pub(super) struct Zones {
    settings: NodeLifecycle,
    zones: BTreeMap<String, Zone>,
    stopped: bool,
}

/// What became of the zones as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    AsBefore,
    /// No node anywhere is well: the fault is likely ours, so nobody loses pods.
    AllStopped,
    /// Some are well again: everyone else gets a new grace.
    Resumed,
}

impl Zones {
    pub fn new(settings: NodeLifecycle) -> Zones {
        Zones { settings, ..Zones::default() }
    }

    /// The node is to lose its pods when its zone's turn comes.
    pub fn mark(&mut self, zone: &str, node: &str) {
        let zone = self.zone(zone);
        if zone.marked.insert(node.to_owned()) {
            zone.waiting.push_back(node.to_owned());
        }
    }

    pub(crate) fn unmark(&mut self, zone: &str, node: &str) {
        let zone = self.zone(zone);
        if zone.marked.remove(node) {
            zone.waiting.retain(|waiting| waiting != node);
        }
    }

    /// Whether any node waits for its turn.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.stopped && self.zones.values().any(|zone| !zone.waiting.is_empty() && zone.interval.is_some())
    }

    /// The nodes whose turn it is, by a time that only goes forward.
    pub fn due(&mut self, now: Timestamp) -> Vec<String> {
        if self.stopped {
            return Vec::new();
        }
        let mut due = Vec::new();
        for zone in self.zones.values_mut() {
            let Some(interval) = zone.interval else { continue };
            let free = zone.last.is_none_or(|last| {
                now.duration_since(last) >= SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX)
            });
            if free && let Some(node) = zone.waiting.pop_front() {
                zone.last = Some(now);
                due.push(node);
            }
        }
        due
    }

    /// The node could not be written and keeps its turn.
    pub fn again(&mut self, zone: &str, node: &str) {
        let zone = self.zone(zone);
        zone.last = None;
        zone.waiting.push_front(node.to_owned());
    }

    /// Counts the ready and the other nodes of each zone anew.
    pub fn judge(&mut self, nodes: &[(String, bool)]) -> Outcome {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (zone, ready) in nodes {
            let count = counts.entry(zone).or_default();
            if *ready { count.0 += 1 } else { count.1 += 1 }
        }
        self.zones.retain(|name, _| counts.contains_key(name.as_str()));
        for (name, (ready, not_ready)) in counts {
            let mode = mode(&self.settings, ready, not_ready);
            let interval = interval(&self.settings, mode, ready + not_ready);
            let zone = self.zone(name);
            if zone.mode != Some(mode) {
                tracing::info!(zone = name, ?mode, "zone state changed");
            }
            zone.mode = Some(mode);
            zone.interval = interval;
        }
        let all_full = !self.zones.is_empty() && self.zones.values().all(|zone| zone.mode == Some(Mode::Full));
        let outcome = match (self.stopped, all_full) {
            (false, true) => Outcome::AllStopped,
            (true, false) => Outcome::Resumed,
            (true, true) | (false, false) => Outcome::AsBefore,
        };
        self.stopped = all_full;
        outcome
    }

    /// Not everything that follows from the last outcome could be done, so that it is to be told again.
    pub(crate) fn unsettle(&mut self) {
        self.stopped = false;
    }

    fn zone(&mut self, name: &str) -> &mut Zone {
        let interval = interval(&self.settings, Mode::Normal, 0);
        self.zones.entry(name.to_owned()).or_insert_with(|| Zone {
            mode: None,
            interval,
            last: None,
            waiting: VecDeque::new(),
            marked: BTreeSet::new(),
        })
    }
}
