//! NodeResourcesFit: a node has room for what the pod asks for, and the emptier (or fuller) node is preferred.

use component_helpers::resources::Resources;

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, SCORE_MAX, Score, Scoring, View};
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

/// Which node is better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// Points of (percent used, score), by rising percentage; scores are 0 to 10 as configured.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

pub struct NodeResourcesFit {
    pub strategy: Strategy,
    /// Resources that count in the score, and how much.
    pub weights: Vec<(String, i64)>,
    /// Extended resources, or groups of them, that others see to.
    pub ignored_resources: Vec<String>,
    pub ignored_groups: Vec<String>,
}

impl Default for NodeResourcesFit {
    fn default() -> NodeResourcesFit {
        NodeResourcesFit {
            strategy: Strategy::LeastAllocated,
            weights: vec![("cpu".into(), 1), ("memory".into(), 1)],
            ignored_resources: Vec::new(),
            ignored_groups: Vec::new(),
        }
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn filter<'a>(&'a self, _: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        Filtering::Ask(Box::new(Fits { pod, plugin: self }))
    }

    fn score<'a>(&'a self, _: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        Scoring::Ask(Box::new(Fits { pod, plugin: self }))
    }

    fn is_concerned(&self, change: &Change) -> bool {
        matches!(change, Change::Node { new: Some(_), .. } | Change::PlacedPod { old: Some(_), .. })
    }

    fn may_help(&self, pod: &PodInfo, change: &Change) -> bool {
        match change {
            Change::Node { new: Some(node), .. } => {
                let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
                let allocatable = allocatable.map(Resources::from_list).unwrap_or_default();
                self.lacking(&pod.requests, &Resources::default(), &allocatable, 0).is_empty()
            }
            // A pod that is gone, or asks for less, leaves room.
            Change::PlacedPod { old: Some(_), .. } | Change::OwnUpdate { .. } => true,
            Change::Node { new: None, .. } | Change::PlacedPod { old: None, .. } | Change::Object { .. } => false,
        }
    }
}

impl NodeResourcesFit {
    fn is_ignored(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or("", |(group, _)| group);
        self.ignored_resources.iter().any(|ignored| ignored == name)
            || self.ignored_groups.iter().any(|ignored| ignored == group)
    }

    fn lacking(&self, asked: &Resources, used: &Resources, has: &Resources, pods: i64) -> Vec<String> {
        let mut lacking = Vec::new();
        if pods + 1 > has.pods {
            lacking.push("Too many pods".to_owned());
        }
        let mut compare = |name: &str, asked: i64, used: i64, has: i64| {
            if asked > 0 && asked > has.saturating_sub(used) {
                lacking.push(format!("Insufficient {name}"));
            }
        };
        compare("cpu", asked.milli_cpu, used.milli_cpu, has.milli_cpu);
        compare("memory", asked.memory, used.memory, has.memory);
        compare("ephemeral-storage", asked.ephemeral_storage, used.ephemeral_storage, has.ephemeral_storage);
        for (name, amount) in asked.other.iter().filter(|(name, _)| !self.is_ignored(name)) {
            compare(name, *amount, used.other(name), has.other(name));
        }
        lacking
    }
}

struct Fits<'a> {
    pod: &'a PodInfo,
    plugin: &'a NodeResourcesFit,
}

impl Filter for Fits<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        let asked = &self.pod.requests;
        let reasons = self.plugin.lacking(asked, &node.requested, &node.allocatable, node.pods.len() as i64);
        if reasons.is_empty() {
            Ok(())
        } else {
            // What the empty node does not have, no preemption can give.
            let resolvable = self.plugin.lacking(asked, &Resources::default(), &node.allocatable, 0).is_empty();
            Err(Refusal { reasons, resolvable })
        }
    }
}

impl Score for Fits<'_> {
    fn score(&self, node: &NodeInfo) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (name, weight) in &self.plugin.weights {
            let (asked, used, has) = match name.as_str() {
                "cpu" => (self.pod.assumed.milli_cpu, node.assumed.milli_cpu, node.allocatable.milli_cpu),
                "memory" => (self.pod.assumed.memory, node.assumed.memory, node.allocatable.memory),
                "ephemeral-storage" => (
                    self.pod.requests.ephemeral_storage,
                    node.requested.ephemeral_storage,
                    node.allocatable.ephemeral_storage,
                ),
                other => (self.pod.requests.other(other), node.requested.other(other), node.allocatable.other(other)),
            };
            if has == 0 {
                continue;
            }
            sum += weight * self.of_one(used + asked, has);
            weights += weight;
        }
        if weights == 0 { 0 } else { sum / weights }
    }
}

impl Fits<'_> {
    fn of_one(&self, used: i64, has: i64) -> i64 {
        match &self.plugin.strategy {
            Strategy::LeastAllocated if used > has => 0,
            Strategy::LeastAllocated => ((has - used) as i128 * i128::from(SCORE_MAX) / has as i128) as i64,
            Strategy::MostAllocated => (used.min(has) as i128 * i128::from(SCORE_MAX) / has as i128) as i64,
            Strategy::RequestedToCapacityRatio(points) => {
                let percent = if used > has { 100 } else { (used as i128 * 100 / has as i128) as i64 };
                interpolated(points, percent) * (SCORE_MAX / 10)
            }
        }
    }
}

/// The straight line between the points around.
fn interpolated(points: &[(i64, i64)], at: i64) -> i64 {
    let Some(after) = points.iter().position(|(percent, _)| at <= *percent) else {
        return points.last().map_or(0, |(_, score)| *score);
    };
    let (right, score) = points[after];
    match after.checked_sub(1).map(|before| points[before]) {
        None => score,
        Some((left, before)) => before + (score - before) * (at - left) / (right - left),
    }
}
