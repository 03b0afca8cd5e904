//! NodeAffinity: nodeSelector and node affinity, required and preferred.

use component_helpers::node_affinity::{Required, preference};
use k8s_openapi::api::core::v1::PreferredSchedulingTerm;

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, Score, Scoring, View, normalize_by_largest};
use crate::pod_info::PodInfo;
use crate::snapshot::{NodeIndex, NodeInfo};

pub struct NodeAffinity;

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let required = Required::of(&pod.pod);
        match required.is_empty() {
            true => Filtering::Skip,
            false => Filtering::Ask(Box::new(Allowed { required, view })),
        }
    }

    fn score<'a>(&'a self, _: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        let affinity = pod.spec().affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred =
            affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_deref());
        match preferred {
            None | Some([]) => Scoring::Skip,
            Some(preferred) => Scoring::Ask(Box::new(Preferred(preferred))),
        }
    }

    fn may_help(&self, pod: &PodInfo, change: &Change) -> bool {
        match change {
            Change::Node { new: Some(node), .. } => {
                let labels = node.metadata.labels.clone().unwrap_or_default();
                Required::of(&pod.pod).allows(node.metadata.name.as_deref().unwrap_or_default(), &labels)
            }
            Change::OwnUpdate { .. } => true,
            Change::Node { new: None, .. } | Change::PlacedPod { .. } | Change::Object { .. } => false,
        }
    }
}

struct Allowed<'a> {
    required: Required<'a>,
    view: View<'a>,
}

impl Filter for Allowed<'_> {
    fn only(&self) -> Option<Vec<NodeIndex>> {
        let names = self.required.names()?;
        let known = names.iter().filter_map(|name| self.view.snapshot.by_name(name));
        Some(known.map(|node| node.index).collect())
    }

    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        match self.required.allows(&node.name, &node.labels) {
            true => Ok(()),
            false => Err(Refusal::final_("node(s) didn't match Pod's node affinity/selector")),
        }
    }
}

struct Preferred<'a>(&'a [PreferredSchedulingTerm]);

impl Score for Preferred<'_> {
    fn score(&self, node: &NodeInfo) -> i64 {
        preference(self.0, &node.name, &node.labels)
    }

    fn normalize(&self, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_largest(scores, false);
    }
}
