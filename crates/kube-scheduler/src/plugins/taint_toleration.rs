//! TaintToleration: taints keep pods away, unless they tolerate them.

use component_helpers::taints::{first_untolerated, tolerates};
use k8s_openapi::api::core::v1::{Node, Toleration};

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, Score, Scoring, View, normalize_by_largest};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct TaintToleration;

/// The effects that keep a pod from a node; the third only makes it less liked.
const FORBIDDING: [&str; 2] = ["NoSchedule", "NoExecute"];
const DISLIKED: &str = "PreferNoSchedule";

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn filter<'a>(&'a self, _: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        Filtering::Ask(Box::new(Tolerated(tolerations(pod))))
    }

    fn score<'a>(&'a self, _: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        Scoring::Ask(Box::new(Tolerated(tolerations(pod))))
    }

    fn is_concerned(&self, change: &Change) -> bool {
        matches!(change, Change::Node { .. })
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            Change::Node { old, new: Some(node) } => {
                let repels = |node: &Node| {
                    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
                    first_untolerated(taints, tolerations(pod), &FORBIDDING).is_some()
                };
                !repels(node) && old.as_deref().is_none_or(repels)
            }
            Change::OwnUpdate { .. } => change.changes_own_tolerations(),
            Change::Node { new: None, .. } | Change::PlacedPod { .. } | Change::Object { .. } => false,
        }
    }
}

fn tolerations(pod: &PodInfo) -> &[Toleration] {
    pod.spec().tolerations.as_deref().unwrap_or_default()
}

struct Tolerated<'a>(&'a [Toleration]);

impl Filter for Tolerated<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        match first_untolerated(&node.taints, self.0, &FORBIDDING) {
            None => Ok(()),
            Some(_) => Err(Refusal::final_("node(s) had untolerated taint(s)")),
        }
    }
}

impl Score for Tolerated<'_> {
    /// How many taints the pod would rather avoid.
    fn score(&self, node: &NodeInfo) -> i64 {
        let disliked = node.taints.iter().filter(|taint| taint.effect == DISLIKED);
        let untolerated = disliked.filter(|taint| {
            let meant = |toleration: &&Toleration| {
                let effect = toleration.effect.as_deref().unwrap_or_default();
                effect.is_empty() || effect == DISLIKED
            };
            !self.0.iter().filter(meant).any(|toleration| tolerates(toleration, taint))
        });
        untolerated.count() as i64
    }

    fn normalize(&self, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_largest(scores, true);
    }
}
