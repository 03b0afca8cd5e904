//! Signals, limits on them, and which limits are crossed. Pure: observations and times go in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machinery::quantity::{Format, Quantity};
use tokio::time::Instant;

use crate::node::Pressure;
use crate::node::capacity::threshold as amount_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    Memory,
    /// Memory that pods may still use, where reservations leave them less than the machine has.
    AllocatableMemory,
    NodeFs,
    NodeFsInodes,
    ImageFs,
    ImageFsInodes,
    ContainerFs,
    ContainerFsInodes,
    Pids,
}

/// Signal, its name, what its shortage is called, and what is then reclaimed.
static SIGNALS: [(Signal, &str, Pressure, &str); 9] = [
    (Signal::Memory, "memory.available", Pressure::Memory, "memory"),
    (Signal::AllocatableMemory, "allocatableMemory.available", Pressure::Memory, "memory"),
    (Signal::NodeFs, "nodefs.available", Pressure::Disk, "ephemeral-storage"),
    (Signal::NodeFsInodes, "nodefs.inodesFree", Pressure::Disk, "inodes"),
    (Signal::ImageFs, "imagefs.available", Pressure::Disk, "ephemeral-storage"),
    (Signal::ImageFsInodes, "imagefs.inodesFree", Pressure::Disk, "inodes"),
    (Signal::ContainerFs, "containerfs.available", Pressure::Disk, "ephemeral-storage"),
    (Signal::ContainerFsInodes, "containerfs.inodesFree", Pressure::Disk, "inodes"),
    (Signal::Pids, "pid.available", Pressure::Pid, "pids"),
];

impl Signal {
    pub fn parse(name: &str) -> Option<Signal> {
        SIGNALS.iter().find(|entry| entry.1 == name).map(|entry| entry.0)
    }

    pub fn name(self) -> &'static str {
        self.entry().1
    }

    pub fn pressure(self) -> Pressure {
        self.entry().2
    }

    pub fn resource(self) -> &'static str {
        self.entry().3
    }

    fn entry(self) -> &'static (Signal, &'static str, Pressure, &'static str) {
        SIGNALS.iter().find(|entry| entry.0 == self).expect("the table has every signal")
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    /// `100Mi` or `10%`.
    pub limit: String,
    /// How long it must be crossed; nothing for a hard one.
    pub grace: Option<Duration>,
    /// How much more must become free than the limit before the shortage is over.
    pub minimum_reclaim: Option<String>,
}

/// What is free of something, and how much of it there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    pub available: i64,
    pub capacity: i64,
}

pub type Observations = BTreeMap<Signal, Observation>;

/// The thresholds of a configuration. Unknown signals and limits that are none are said and left out.
pub fn parse(
    hard: &BTreeMap<String, String>,
    soft: &BTreeMap<String, String>,
    grace: &BTreeMap<String, Duration>,
    minimum_reclaim: &BTreeMap<String, String>,
) -> Vec<Threshold> {
    let mut thresholds = Vec::new();
    let soft = soft.iter().map(|(name, limit)| (name, limit, Some(grace.get(name).copied().unwrap_or_default())));
    for (name, limit, grace) in hard.iter().map(|(name, limit)| (name, limit, None)).chain(soft) {
        let valid =
            amount_of(limit, &Quantity::from_int(100, Format::BinarySi)).is_some_and(|amount| amount.sign() >= 0);
        let (Some(signal), true) = (Signal::parse(name), valid) else {
            tracing::error!(signal = name, limit, "ignoring invalid eviction threshold");
            continue;
        };
        // A limit of nothing switches a threshold off.
        if matches!(limit.trim(), "0" | "0%" | "100%") {
            continue;
        }
        let minimum_reclaim = minimum_reclaim.get(name).cloned();
        let threshold = Threshold { signal, limit: limit.clone(), grace, minimum_reclaim };
        // What pods may use in all is kept as the machine's memory is.
        if signal == Signal::Memory && grace.is_none() {
            thresholds.push(Threshold { signal: Signal::AllocatableMemory, ..threshold.clone() });
        }
        thresholds.push(threshold);
    }
    thresholds
}

impl Threshold {
    pub fn quantity(&self, capacity: i64) -> Quantity {
        let whole = Quantity::from_int(capacity, Format::BinarySi);
        amount_of(&self.limit, &whole).unwrap_or(Quantity::ZERO)
    }

    fn is_met(&self, seen: &Observation, reclaiming: bool) -> bool {
        let whole = Quantity::from_int(seen.capacity, Format::BinarySi);
        let mut needed = self.quantity(seen.capacity).value();
        if let (true, Some(more)) = (reclaiming, &self.minimum_reclaim) {
            needed = needed.saturating_add(amount_of(more, &whole).map_or(0, |more| more.value()));
        }
        seen.available < needed
    }
}

/// What must be remembered from one look to the next.
#[derive(Debug, Default)]
pub struct Memory {
    /// Since when each crossed threshold has been, by its place in the list.
    first_met: BTreeMap<usize, Instant>,
    last_pressed: BTreeMap<Pressure, Instant>,
}

/// What one look says.
#[derive(Debug, PartialEq)]
pub struct Verdict {
    /// The node's conditions: a pressure stays for a while after it was last seen, so that pods do not come and go.
    pub pressures: BTreeSet<Pressure>,
    /// Thresholds to act upon, the most urgent first.
    pub act_on: Vec<Threshold>,
}

pub fn judge(
    thresholds: &[Threshold],
    seen: &Observations,
    memory: &mut Memory,
    now: Instant,
    transition: Duration,
) -> Verdict {
    let mut act_on = Vec::new();
    for (index, threshold) in thresholds.iter().enumerate() {
        let reclaiming = memory.first_met.contains_key(&index);
        if !seen.get(&threshold.signal).is_some_and(|seen| threshold.is_met(seen, reclaiming)) {
            memory.first_met.remove(&index);
            continue;
        }
        let since = *memory.first_met.entry(index).or_insert(now);
        memory.last_pressed.insert(threshold.signal.pressure(), now);
        if now.duration_since(since) >= threshold.grace.unwrap_or_default() {
            act_on.push(threshold.clone());
        }
    }
    // Memory first: it runs out fastest. Within one resource the hard limits come first.
    act_on.sort_by_key(|threshold| (threshold.signal.pressure() != Pressure::Memory, threshold.grace.is_some()));
    memory.last_pressed.retain(|_, last| *last == now || now.duration_since(*last) < transition);
    Verdict { pressures: memory.last_pressed.keys().copied().collect(), act_on }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn seen(signal: Signal, available: i64) -> Observations {
        Observations::from([(signal, Observation { available, capacity: 1000 })])
    }

    fn names(verdict: &Verdict) -> Vec<&'static str> {
        verdict.act_on.iter().map(|threshold| threshold.signal.name()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn hard_soft_reclaim_and_transition() {
        let hard =
            map(&[("memory.available", "100"), ("nodefs.available", "10%"), ("odd", "1"), ("pid.available", "0%")]);
        let soft = map(&[("memory.available", "300")]);
        let grace = BTreeMap::from([("memory.available".to_owned(), Duration::from_secs(30))]);
        let thresholds = parse(&hard, &soft, &grace, &map(&[("nodefs.available", "50")]));
        assert_eq!(thresholds.len(), 4, "{thresholds:?}");
        let (mut memory, start) = (Memory::default(), Instant::now());
        let mut look = |observations: Observations, after: u64| {
            judge(&thresholds, &observations, &mut memory, start + Duration::from_secs(after), Duration::from_secs(300))
        };
        let verdict = look(seen(Signal::Memory, 250), 0);
        assert_eq!(
            (names(&verdict), verdict.pressures),
            (vec![], [Pressure::Memory].into()),
            "soft: a condition, no action yet"
        );
        assert_eq!(names(&look(seen(Signal::Memory, 250), 30)), ["memory.available"]);
        assert_eq!(names(&look(seen(Signal::Memory, 400), 31)), [""; 0]);
        assert_eq!(names(&look(seen(Signal::Memory, 250), 35)), [""; 0], "the time counts anew");
        assert_eq!(names(&look(seen(Signal::Memory, 99), 36)), ["memory.available"]);
        assert_eq!(names(&look(seen(Signal::NodeFs, 99), 40)), ["nodefs.available"]);
        assert_eq!(names(&look(seen(Signal::NodeFs, 149), 50)), ["nodefs.available"], "enough must be won back");
        let verdict = look(seen(Signal::NodeFs, 150), 60);
        assert_eq!((names(&verdict), verdict.pressures), (vec![], [Pressure::Memory, Pressure::Disk].into()));
        assert_eq!(names(&look(seen(Signal::NodeFs, 149), 70)), [""; 0]);
        assert_eq!(look(seen(Signal::NodeFs, 900), 340).pressures, [Pressure::Disk].into());
        assert_eq!(look(seen(Signal::NodeFs, 900), 400).pressures, BTreeSet::new());
    }

    #[tokio::test(start_paused = true)]
    async fn memory_comes_first() {
        let thresholds = parse(
            &map(&[("nodefs.available", "10%"), ("memory.available", "100"), ("pid.available", "10%")]),
            &BTreeMap::new(),
            &BTreeMap::new(),
            &BTreeMap::new(),
        );
        let short = Observation { available: 1, capacity: 1000 };
        let all = Observations::from([(Signal::NodeFs, short), (Signal::Memory, short), (Signal::Pids, short)]);
        let verdict = judge(&thresholds, &all, &mut Memory::default(), Instant::now(), Duration::ZERO);
        assert_eq!(names(&verdict), ["memory.available", "nodefs.available", "pid.available"]);
    }
}
