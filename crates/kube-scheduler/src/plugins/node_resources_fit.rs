//! NodeResourcesFit: a node has room for what the pod asks for, and the emptier (or fuller) node is preferred.

use component_helpers::resources::{Resources, requests};
use k8s_openapi::api::core::v1::Node;

use super::dynamic_resources::extended::{self, is_extended};
use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, SCORE_MAX, Score, Scoring, View};
use crate::objects::Objects;
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

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let of_devices = extended::with_class(view.objects, &pod.requests);
        Filtering::Ask(Box::new(Fits { pod, plugin: self, of_devices }))
    }

    fn score<'a>(&'a self, _: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        Scoring::Ask(Box::new(Fits { pod, plugin: self, of_devices: Vec::new() }))
    }

    fn is_concerned(&self, change: &Change) -> bool {
        let object = matches!(change, Change::Object { kind: "DeviceClass", .. });
        object || matches!(change, Change::Node { new: Some(_), .. } | Change::PlacedPod { old: Some(_), .. })
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, objects: &Objects) -> bool {
        match change {
            Change::Node { old, new: Some(node) } => {
                let has = allocatable(node);
                let of_devices = extended::with_class(objects, &pod.requests);
                let fits = self.lacking(&pod.requests, &Resources::default(), &has, 0, &of_devices).is_empty();
                let by_devices = || of_devices.iter().any(|name| has.other(name) == 0);
                let more = |old: &Node| has_more(&pod.requests, &allocatable(old), &has) || by_devices();
                fits && old.as_deref().is_none_or(more)
            }
            Change::PlacedPod { old: Some(_), new: None } => true,
            // A pod that now asks for less leaves room for what this one asks for.
            Change::PlacedPod { old: Some(old), new: Some(new) } => {
                let (before, after) = (requests(old), requests(new));
                asked_names(&pod.requests).any(|name| amount(&before, name) > amount(&after, name))
            }
            Change::OwnUpdate { old, new } => {
                let (before, after) = (requests(old), requests(new));
                asked_names(&before).any(|name| amount(&before, name) > amount(&after, name))
            }
            Change::Object { kind: "DeviceClass", key } => extended::gives(objects, key, &pod.requests),
            Change::Node { new: None, .. } | Change::PlacedPod { old: None, .. } | Change::Object { .. } => false,
        }
    }
}

/// How much of one resource that is; of CPU the thousandths of a core.
pub(super) fn amount(of: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => of.milli_cpu,
        "memory" => of.memory,
        "ephemeral-storage" => of.ephemeral_storage,
        other => of.other(other),
    }
}

/// Extended resources, hugepages and attachable volumes: only pods that ask for them are judged by them.
pub(super) fn is_scalar(name: &str) -> bool {
    !matches!(name, "cpu" | "memory" | "ephemeral-storage")
}

/// The names of what is asked for.
fn asked_names(asked: &Resources) -> impl Iterator<Item = &str> {
    let others = asked.other.iter().map(|(name, _)| name.as_str());
    ["cpu", "memory", "ephemeral-storage"].into_iter().chain(others).filter(|name| amount(asked, name) > 0)
}

fn allocatable(node: &Node) -> Resources {
    let listed = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    listed.map(Resources::from_list).unwrap_or_default()
}

/// Whether a node got room for more pods, or more of what is asked for.
fn has_more(asked: &Resources, before: &Resources, after: &Resources) -> bool {
    after.pods > before.pods || asked_names(asked).any(|name| amount(after, name) > amount(before, name))
}

impl NodeResourcesFit {
    fn is_ignored(&self, name: &str) -> bool {
        if !is_extended(name) {
            return false;
        }
        let group = name.split_once('/').map_or("", |(group, _)| group);
        self.ignored_resources.iter().any(|ignored| ignored == name)
            || self.ignored_groups.iter().any(|ignored| ignored == group)
    }

    /// What the node has too little of. It need not have what is given by devices of a class, which DynamicResources sees to.
    fn lacking(
        &self,
        asked: &Resources,
        used: &Resources,
        has: &Resources,
        pods: i64,
        of_devices: &[String],
    ) -> Vec<String> {
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
        let by_devices = |name: &String| of_devices.contains(name) && has.other(name) == 0;
        let others = asked.other.iter().filter(|(name, _)| !self.is_ignored(name) && !by_devices(name));
        for (name, amount) in others {
            compare(name, *amount, used.other(name), has.other(name));
        }
        lacking
    }
}

struct Fits<'a> {
    pod: &'a PodInfo,
    plugin: &'a NodeResourcesFit,
    /// The resources that devices of a class may satisfy.
    of_devices: Vec<String>,
}

impl Filter for Fits<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        let asked = &self.pod.requests;
        let (pods, of_devices) = (node.pods.len() as i64, &self.of_devices);
        let reasons = self.plugin.lacking(asked, &node.requested, &node.allocatable, pods, of_devices);
        if reasons.is_empty() {
            Ok(())
        } else {
            // What the empty node does not have, no preemption can give. Places for pods count as if they could be given.
            let empty = Resources { pods: i64::MAX, ..node.allocatable.clone() };
            let resolvable = self.plugin.lacking(asked, &Resources::default(), &empty, 0, of_devices).is_empty();
            Err(Refusal { reasons, resolvable, is_error: false })
        }
    }
}

impl Score for Fits<'_> {
    fn score(&self, node: &NodeInfo) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (name, weight) in &self.plugin.weights {
            // Of CPU and memory the assumed least counts where a container asks for nothing.
            let (asked, used) = match name.as_str() {
                "cpu" | "memory" => (amount(&self.pod.assumed, name), amount(&node.assumed, name)),
                _ => (amount(&self.pod.requests, name), amount(&node.requested, name)),
            };
            let has = amount(&node.allocatable, name);
            if has == 0 || asked == 0 && is_scalar(name) {
                continue;
            }
            let score = self.of_one(used + asked, has);
            // With a shape of one's own, a resource without a score does not count at all.
            if score > 0 || !matches!(self.plugin.strategy, Strategy::RequestedToCapacityRatio(_)) {
                sum += weight * score;
                weights += weight;
            }
        }
        match &self.plugin.strategy {
            _ if weights == 0 => 0,
            Strategy::RequestedToCapacityRatio(_) => (sum as f64 / weights as f64).round() as i64,
            Strategy::LeastAllocated | Strategy::MostAllocated => sum / weights,
        }
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
                interpolated(points, percent)
            }
        }
    }
}

/// The straight line between the points around, whose scores are raised from tens to hundreds first.
fn interpolated(points: &[(i64, i64)], at: i64) -> i64 {
    const SCALE: i64 = SCORE_MAX / 10;
    let Some(after) = points.iter().position(|(percent, _)| at <= *percent) else {
        return points.last().map_or(0, |(_, score)| *score * SCALE);
    };
    let (right, score) = points[after];
    match after.checked_sub(1).map(|before| points[before]) {
        None => score * SCALE,
        Some((left, before)) => before * SCALE + (score - before) * SCALE * (at - left) / (right - left),
    }
}
