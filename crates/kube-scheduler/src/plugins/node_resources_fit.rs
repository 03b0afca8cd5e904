//! NodeResourcesFit: a node has room for what the pod asks for, and the emptier (or fuller) node is preferred.

use component_helpers::resources::{Resources, requests};
use k8s_openapi::api::core::v1::Node;

use super::dynamic_resources::extended::{self, is_extended};
use crate::framework::{Change, Filter, Filtering, Plugin, Reasons, Refusal, SCORE_MAX, Score, Scoring, View};
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
        let weights = self.weights.iter().map(|(name, weight)| (Resource::named(name), *weight)).collect();
        Scoring::Ask(Box::new(Room { pod, strategy: &self.strategy, weights }))
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
                let fits = self.lacking(&pod.requests, &Resources::default(), &has, 0, &of_devices).is_none();
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

/// Which resource, read once from its name: scores look at it on every node.
#[derive(Clone, Copy)]
pub(super) enum Resource<'a> {
    Cpu,
    Memory,
    EphemeralStorage,
    /// Extended resources, hugepages and attachable volumes: only pods that ask for them are judged by them.
    Scalar(&'a str),
}

impl Resource<'_> {
    pub(super) fn named(name: &str) -> Resource<'_> {
        match name {
            "cpu" => Resource::Cpu,
            "memory" => Resource::Memory,
            "ephemeral-storage" => Resource::EphemeralStorage,
            other => Resource::Scalar(other),
        }
    }

    /// How much of it that is; of CPU the thousandths of a core.
    pub(super) fn of(self, all: &Resources) -> i64 {
        match self {
            Resource::Cpu => all.milli_cpu,
            Resource::Memory => all.memory,
            Resource::EphemeralStorage => all.ephemeral_storage,
            Resource::Scalar(name) => all.other(name),
        }
    }

    pub(super) fn is_scalar(self) -> bool {
        matches!(self, Resource::Scalar(_))
    }
}

pub(super) fn amount(of: &Resources, name: &str) -> i64 {
    Resource::named(name).of(of)
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
    ) -> Option<Reasons> {
        let mut lacking = None;
        if pods + 1 > has.pods {
            Reasons::push(&mut lacking, "Too many pods");
        }
        let too_little = |asked: i64, used: i64, has: i64| asked > 0 && asked > has.saturating_sub(used);
        if too_little(asked.milli_cpu, used.milli_cpu, has.milli_cpu) {
            Reasons::push(&mut lacking, "Insufficient cpu");
        }
        if too_little(asked.memory, used.memory, has.memory) {
            Reasons::push(&mut lacking, "Insufficient memory");
        }
        if too_little(asked.ephemeral_storage, used.ephemeral_storage, has.ephemeral_storage) {
            Reasons::push(&mut lacking, "Insufficient ephemeral-storage");
        }
        let by_devices = |name: &String| of_devices.contains(name) && has.other(name) == 0;
        let others = asked.other.iter().filter(|(name, _)| !self.is_ignored(name) && !by_devices(name));
        for (name, amount) in others {
            if too_little(*amount, used.other(name), has.other(name)) {
                Reasons::push(&mut lacking, format!("Insufficient {name}"));
            }
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
        match self.plugin.lacking(asked, &node.requested, &node.allocatable, pods, of_devices) {
            None => Ok(()),
            Some(reasons) => {
                // What the empty node does not have, no preemption can give. Places for pods count as if they could be given.
                let nobody = -1;
                let empty = self.plugin.lacking(asked, &Resources::default(), &node.allocatable, nobody, of_devices);
                Err(Refusal { reasons, resolvable: empty.is_none(), is_error: false })
            }
        }
    }
}

/// How much room a node has besides the pod.
struct Room<'a> {
    pod: &'a PodInfo,
    strategy: &'a Strategy,
    weights: Vec<(Resource<'a>, i64)>,
}

impl Score for Room<'_> {
    fn score(&self, node: &NodeInfo) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (resource, weight) in &self.weights {
            // Of CPU and memory the assumed least counts where a container asks for nothing.
            let (asked, used) = match resource {
                Resource::Cpu | Resource::Memory => (resource.of(&self.pod.assumed), resource.of(&node.assumed)),
                Resource::EphemeralStorage | Resource::Scalar(_) => {
                    (resource.of(&self.pod.requests), resource.of(&node.requested))
                }
            };
            let has = resource.of(&node.allocatable);
            if has == 0 || asked == 0 && resource.is_scalar() {
                continue;
            }
            let score = self.of_one(used + asked, has);
            // With a shape of one's own, a resource without a score does not count at all.
            if score > 0 || !matches!(self.strategy, Strategy::RequestedToCapacityRatio(_)) {
                sum += weight * score;
                weights += weight;
            }
        }
        match self.strategy {
            _ if weights == 0 => 0,
            Strategy::RequestedToCapacityRatio(_) => (sum as f64 / weights as f64).round() as i64,
            Strategy::LeastAllocated | Strategy::MostAllocated => sum / weights,
        }
    }
}

impl Room<'_> {
    fn of_one(&self, used: i64, has: i64) -> i64 {
        match self.strategy {
            Strategy::LeastAllocated if used > has => 0,
            Strategy::LeastAllocated => share(has - used, has),
            Strategy::MostAllocated => share(used.min(has), has),
            Strategy::RequestedToCapacityRatio(points) => {
                let percent = if used > has { 100 } else { share(used, has) };
                interpolated(points, percent)
            }
        }
    }
}

/// How many hundredths of the whole that is. Only the largest amounts need the long division, which is ten times slower.
fn share(part: i64, whole: i64) -> i64 {
    match part.checked_mul(SCORE_MAX) {
        Some(hundredfold) => hundredfold / whole,
        None => (i128::from(part) * i128::from(SCORE_MAX) / i128::from(whole)) as i64,
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
