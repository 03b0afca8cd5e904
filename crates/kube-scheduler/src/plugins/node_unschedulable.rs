//! NodeUnschedulable: a cordoned node takes only pods that tolerate it.

use component_helpers::taints::tolerates;
use k8s_openapi::api::core::v1::{Node, Taint};

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

const TAINT: &str = "node.kubernetes.io/unschedulable";

pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn filter<'a>(&'a self, _: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        if tolerates_cordon(pod) { Filtering::Skip } else { Filtering::Ask(Box::new(NotCordoned)) }
    }

    fn is_concerned(&self, change: &Change) -> bool {
        matches!(change, Change::Node { .. })
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            Change::Node { old, new: Some(node) } => !is_cordoned(node) && old.as_deref().is_none_or(is_cordoned),
            Change::OwnUpdate { .. } => change.changes_own_tolerations() && tolerates_cordon(pod),
            Change::Node { new: None, .. } | Change::PlacedPod { .. } | Change::Object { .. } => false,
        }
    }
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

fn tolerates_cordon(pod: &PodInfo) -> bool {
    let taint = Taint { key: TAINT.into(), effect: "NoSchedule".into(), ..Taint::default() };
    pod.spec().tolerations.iter().flatten().any(|toleration| tolerates(toleration, &taint))
}

struct NotCordoned;

impl Filter for NotCordoned {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        if node.unschedulable { Err(Refusal::final_("node(s) were unschedulable")) } else { Ok(()) }
    }
}
