//! NodeAffinity: nodeSelector and node affinity, required and preferred.

use component_helpers::node_affinity::{Required, preference, selector_matches};
use k8s_openapi::api::core::v1::{Node, NodeSelector, PreferredSchedulingTerm};

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, Score, Scoring, View, normalize_by_largest};
use crate::objects::Objects;
use crate::pod_info::{Labels, PodInfo};
use crate::snapshot::{NodeIndex, NodeInfo};

#[derive(Default)]
pub struct NodeAffinity {
    /// What the profile demands and prefers on top of what pods say.
    pub added: Option<k8s_openapi::api::core::v1::NodeAffinity>,
}

impl NodeAffinity {
    fn enforced(&self) -> Option<&NodeSelector> {
        self.added.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let required = Required::of(&pod.pod);
        if required.names().is_some_and(|names| names.is_empty()) {
            return Filtering::Refused(Refusal::final_("pod affinity terms conflict"));
        }
        if required.is_empty() && self.enforced().is_none() {
            Filtering::Skip
        } else {
            Filtering::Ask(Box::new(Allowed { required, enforced: self.enforced(), view }))
        }
    }

    fn score<'a>(&'a self, _: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        let affinity = pod.spec().affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred =
            affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_deref());
        let added = self.added.as_ref();
        let added = added.and_then(|added| added.preferred_during_scheduling_ignored_during_execution.as_deref());
        match (preferred.unwrap_or_default(), added.unwrap_or_default()) {
            ([], []) => Scoring::Skip,
            (own, added) => Scoring::Ask(Box::new(Preferred(own, added))),
        }
    }

    fn is_concerned(&self, change: &Change) -> bool {
        matches!(change, Change::Node { .. })
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            Change::Node { old, new: Some(node) } => {
                let required = Required::of(&pod.pod);
                let allows = |node: &Node| {
                    static NONE: Labels = Labels::new();
                    let name = node.metadata.name.as_deref().unwrap_or_default();
                    let labels = node.metadata.labels.as_ref().unwrap_or(&NONE);
                    self.enforced().is_none_or(|enforced| selector_matches(enforced, name, labels))
                        && required.allows(name, labels)
                };
                allows(node) && old.as_deref().is_none_or(|old| !allows(old))
            }
            // Where a pod may go is fixed once it has no gates.
            Change::Node { new: None, .. }
            | Change::OwnUpdate { .. }
            | Change::PlacedPod { .. }
            | Change::Object { .. } => false,
        }
    }
}

struct Allowed<'a> {
    required: Required<'a>,
    enforced: Option<&'a NodeSelector>,
    view: View<'a>,
}

impl Filter for Allowed<'_> {
    fn only(&self) -> Option<Vec<NodeIndex>> {
        let names = self.required.names()?;
        let known = names.iter().filter_map(|name| self.view.snapshot.by_name(name));
        Some(known.map(|node| node.index).collect())
    }

    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        if self.enforced.is_some_and(|enforced| !selector_matches(enforced, &node.name, &node.labels)) {
            return Err(Refusal::final_("node(s) didn't match scheduler-enforced node affinity"));
        }
        if self.required.allows(&node.name, &node.labels) {
            Ok(())
        } else {
            Err(Refusal::final_("node(s) didn't match Pod's node affinity/selector"))
        }
    }
}

struct Preferred<'a>(&'a [PreferredSchedulingTerm], &'a [PreferredSchedulingTerm]);

impl Score for Preferred<'_> {
    fn score(&self, node: &NodeInfo) -> i64 {
        preference(self.0, &node.name, &node.labels) + preference(self.1, &node.name, &node.labels)
    }

    fn normalize(&self, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_largest(scores, false);
    }
}
