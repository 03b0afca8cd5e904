//! NodeResourcesBalancedAllocation: nodes whose resources the pod would bring into balance are preferred.

use super::node_resources_fit::Resource;
use crate::framework::{Change, Plugin, SCORE_MAX, Score, Scoring, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct BalancedAllocation {
    pub resources: Vec<String>,
}

impl Default for BalancedAllocation {
    fn default() -> BalancedAllocation {
        BalancedAllocation { resources: vec!["cpu".into(), "memory".into()] }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn score<'a>(&'a self, _: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        // A pod that asks for none of these changes no balance.
        let resources: Vec<Resource> = self.resources.iter().map(|name| Resource::named(name)).collect();
        let asks = resources.iter().any(|resource| resource.of(&pod.requests) != 0);
        if asks { Scoring::Ask(Box::new(Balance { pod, resources })) } else { Scoring::Skip }
    }

    fn may_help(&self, _: &PodInfo, _: &Change, _: &Objects) -> bool {
        false
    }
}

struct Balance<'a> {
    pod: &'a PodInfo,
    resources: Vec<Resource<'a>>,
}

impl Score for Balance<'_> {
    /// 75 where the pod changes nothing, towards 100 where it makes the node more even and towards 50 where less.
    fn score(&self, node: &NodeInfo) -> i64 {
        let half = SCORE_MAX / 2;
        half + (half + self.evenness(node, true) - self.evenness(node, false)) / 2
    }
}

impl Balance<'_> {
    /// How evenly the node's resources are used, with the pod or without it: 100 for all alike.
    fn evenness(&self, node: &NodeInfo, with_pod: bool) -> i64 {
        let shares = || self.resources.iter().filter_map(|resource| self.share(node, *resource, with_pod));
        ((1.0 - deviation(shares)) * SCORE_MAX as f64) as i64
    }

    /// The used share of one resource; none where the node has nothing of it, or the pod does not ask for that device.
    fn share(&self, node: &NodeInfo, resource: Resource, with_pod: bool) -> Option<f64> {
        let (asked, has) = (resource.of(&self.pod.requests), resource.of(&node.allocatable));
        if has == 0 || asked == 0 && resource.is_scalar() {
            return None;
        }
        let used = resource.of(&node.requested) + if with_pod { asked } else { 0 };
        Some((used as f64 / has as f64).min(1.0))
    }
}

/// How far the shares are from their mean; of two, half their difference.
fn deviation<I: Iterator<Item = f64>>(shares: impl Fn() -> I) -> f64 {
    let mut first = shares();
    match (first.next(), first.next(), first.next()) {
        (_, None, _) => return 0.0,
        // Of two it is computed without squares, whose rounding would cost a point.
        (Some(one), Some(other), None) => return ((one - other) / 2.0).abs(),
        _ => {}
    }
    let count = shares().count() as f64;
    let mean = shares().sum::<f64>() / count;
    (shares().map(|share| (share - mean).powi(2)).sum::<f64>() / count).sqrt()
}
