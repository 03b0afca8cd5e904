//! What may help a pod that its spread constraints refused everywhere.

use k8s_openapi::api::core::v1::{Node, Pod, Taint};

use super::Constraint;
use crate::framework::Change;
use crate::pod_info::PodInfo;

pub(super) fn may_help(pod: &PodInfo, change: &Change) -> bool {
    let own = pod.spec().topology_spread_constraints.iter().flatten();
    let own = own.filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule");
    let own: Vec<Constraint> = own.map(|constraint| Constraint::new(constraint, pod)).collect();
    match change {
        // A pod that was refused without constraints of its own was refused by those of the profile, about which
        // nothing is known here.
        Change::Node { .. } | Change::PlacedPod { .. } if own.is_empty() => true,
        Change::Node { old, new } => nodes_help(&own, old.as_deref(), new.as_deref()),
        Change::PlacedPod { old, new } => {
            let same = |other: &Pod| other.metadata.namespace.as_deref() == Some(&pod.key.namespace);
            old.iter().chain(new).all(|other| same(other)) && pods_help(&own, old.as_deref(), new.as_deref())
        }
        Change::OwnUpdate { .. } => {
            change.relabels_itself()
                || change.changes_own_tolerations() && own.iter().any(|constraint| constraint.honors_taints)
        }
        Change::Object { .. } => false,
    }
}

/// Whether a node that came, went or changed makes other places of what the constraints speak of.
fn nodes_help(constraints: &[Constraint], old: Option<&Node>, new: Option<&Node>) -> bool {
    let counts = |node: &Node| constraints.iter().all(|constraint| place(constraint, node).is_some());
    match (old, new) {
        (None, None) => false,
        (Some(one), None) | (None, Some(one)) => counts(one),
        (Some(old), Some(new)) => {
            fn taints(node: &Node) -> Option<&Vec<Taint>> {
                node.spec.as_ref().and_then(|spec| spec.taints.as_ref())
            }
            let moved = constraints.iter().any(|constraint| place(constraint, old) != place(constraint, new));
            counts(old) != counts(new) || counts(new) && (moved || taints(old) != taints(new))
        }
    }
}

/// Whether a placed pod is one of those that are spread, or was; one that is about to end is counted no more.
fn pods_help(constraints: &[Constraint], old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let counted = |constraint: &Constraint, pod: Option<&Pod>| {
        let staying = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none());
        staying.is_some_and(|pod| constraint.selects(pod.metadata.labels.as_ref()))
    };
    match (old, new) {
        // It may have been known to be ending; that it is gone is told again, as upstream does.
        (Some(gone), None) => constraints.iter().any(|constraint| constraint.selects(gone.metadata.labels.as_ref())),
        _ => constraints.iter().any(|constraint| counted(constraint, old) != counted(constraint, new)),
    }
}

/// The place of a node that the constraint speaks of.
fn place<'a>(constraint: &Constraint, node: &'a Node) -> Option<&'a String> {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(&constraint.key))
}
