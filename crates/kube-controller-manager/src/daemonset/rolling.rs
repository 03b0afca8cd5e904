//! The rolling update of a DaemonSet: old pods end one after the other, or new ones come beside them first.

use std::sync::Arc;

use component_helpers::pods;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::plan::Daemons;
use crate::common::limits::resolve_up;

/// Where pods are made and which end.
#[derive(Default)]
pub(super) struct Step<'a> {
    pub create: Vec<&'a str>,
    pub delete: Vec<&'a Arc<Pod>>,
}

pub(super) fn step<'a>(daemons: &Daemons<'a>) -> Step<'a> {
    match surge_max(daemons) {
        0 => replace(daemons),
        surge_max => surge(daemons, surge_max),
    }
}

/// How many nodes may have two pods for a while.
pub(super) fn surge_max(daemons: &Daemons) -> usize {
    limit(daemons, |update| update.max_surge.as_ref(), 0)
}

/// Old pods end, as far as enough others are available; the next turn makes the new ones.
fn replace<'a>(daemons: &Daemons<'a>) -> Step<'a> {
    let unavailable_max = limit(daemons, |update| update.max_unavailable.as_ref(), 1).max(1);
    let (mut unavailable, mut broken, mut candidates) = (0, Vec::new(), Vec::new());
    for pods in daemons.pods.values() {
        match old_and_new(daemons, pods) {
            OnNode::Old(old) if daemons.is_available(old) => candidates.push(old),
            OnNode::Old(old) => {
                broken.push(old);
                unavailable += 1;
            }
            OnNode::New(new) if daemons.is_available(new) => {}
            OnNode::New(_) | OnNode::Nothing | OnNode::Both { .. } | OnNode::Confused => unavailable += 1,
        }
    }
    // An old pod that does not work is replaced whatever the limit: nothing is lost by it.
    let budget = unavailable_max.saturating_sub(unavailable);
    let delete = broken.into_iter().chain(candidates.into_iter().take(budget)).collect();
    Step { create: Vec::new(), delete }
}

/// New pods come beside the old ones; an old one ends when the new one works.
fn surge<'a>(daemons: &Daemons<'a>, surge_max: usize) -> Step<'a> {
    let (mut surging, mut step, mut candidates) = (0, Step::default(), Vec::new());
    for (node, pods) in &daemons.pods {
        match old_and_new(daemons, pods) {
            OnNode::Old(old) if !daemons.fit(node).should_run => step.delete.push(old),
            OnNode::Old(old) if daemons.is_available(old) => candidates.push(*node),
            OnNode::Old(_) => step.create.push(*node),
            OnNode::Both { old, new } if daemons.is_available(new) => step.delete.push(old),
            OnNode::Both { .. } | OnNode::Confused => surging += 1,
            OnNode::New(_) | OnNode::Nothing => {}
        }
    }
    step.create.extend(candidates.into_iter().take(surge_max.saturating_sub(surging)));
    step
}

/// The pods that need not be on a node beside the others: two are right only while the old one works and the new one not yet.
pub(super) fn superfluous<'a>(daemons: &Daemons, running: &[&'a Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
    let (mut old, mut new, mut gone) = (None, None, Vec::new());
    for pod in running {
        let place = if daemons.is_updated(pod) { &mut new } else { &mut old };
        match place {
            None => *place = Some(*pod),
            Some(_) => gone.push(*pod),
        }
    }
    if let (Some(old), Some(new)) = (old, new)
        && (!pods::is_ready(old) || daemons.is_available(new))
    {
        gone.push(old);
    }
    gone
}

enum OnNode<'a> {
    Nothing,
    Old(&'a Arc<Pod>),
    New(&'a Arc<Pod>),
    Both {
        old: &'a Arc<Pod>,
        new: &'a Arc<Pod>,
    },
    /// More than one of a sort.
    Confused,
}

fn old_and_new<'a>(daemons: &Daemons, pods: &[&'a Arc<Pod>]) -> OnNode<'a> {
    let staying = pods.iter().copied().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let (new, old): (Vec<_>, Vec<_>) = staying.partition(|pod| daemons.is_updated(pod));
    match (&old[..], &new[..]) {
        ([], []) => OnNode::Nothing,
        ([old], []) => OnNode::Old(old),
        ([], [new]) => OnNode::New(new),
        ([old], [new]) => OnNode::Both { old, new },
        _ => OnNode::Confused,
    }
}

type Update = k8s_openapi::api::apps::v1::RollingUpdateDaemonSet;

/// Parts are of the nodes that should have a pod, rounded up.
fn limit(daemons: &Daemons, field: fn(&Update) -> Option<&IntOrString>, default: usize) -> usize {
    let update = daemons.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let wanted = daemons.fits.values().filter(|fit| fit.should_run).count();
    match update.and_then(field) {
        None => default,
        Some(value) => {
            let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
            usize::try_from(resolve_up(value, wanted)).unwrap_or(0)
        }
    }
}
