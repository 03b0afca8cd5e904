//! The status of a DaemonSet: how many nodes should have a pod, and how those pods are.

use std::time::Duration;

use component_helpers::pods;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use reconcile::{Plan, Write};

use super::plan::Daemons;

/// Adds the write of the status, if it is another one, and when a pod will have been ready for long enough.
pub(super) fn finish(plan: &mut Plan, daemons: &Daemons) {
    let status = counted(daemons);
    let min_ready = daemons.spec.min_ready_seconds.unwrap_or(0);
    if min_ready > 0 {
        let all = daemons.pods.values().flatten();
        let coming = all.filter_map(|pod| pods::available_at(pod, min_ready)).filter(|at| *at > daemons.now);
        let wait = coming.min().and_then(|at| Duration::try_from(at.duration_since(daemons.now)).ok());
        wait.into_iter().for_each(|wait| plan.come_back(wait));
    }
    plan.writes.extend(write(daemons.set, status));
}

/// Remembers that a name was taken; the next turn looks for another.
pub(super) fn collided(set: &DaemonSet) -> Option<Write> {
    let mut status = set.status.clone().unwrap_or_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    write(set, status)
}

fn write(set: &DaemonSet, status: DaemonSetStatus) -> Option<Write> {
    if set.status.as_ref() == Some(&status) {
        return None;
    }
    let mut set = set.clone();
    set.status = Some(status);
    Some(Write::update_sub(&set, "status").accept(&["NotFound"]))
}

fn counted(daemons: &Daemons) -> DaemonSetStatus {
    let before = daemons.set.status.as_ref();
    let (mut desired, mut current, mut ready, mut available, mut updated, mut misplaced) = (0, 0, 0, 0, 0, 0);
    for (node, fit) in &daemons.fits {
        let pods = daemons.pods.get(node).map(Vec::as_slice).unwrap_or_default();
        if !fit.should_run {
            misplaced += i32::from(!pods.is_empty());
            continue;
        }
        desired += 1;
        // Of two pods the older one counts, until it is gone.
        let Some(pod) = pods.first() else { continue };
        current += 1;
        ready += i32::from(pods::is_ready(pod));
        available += i32::from(daemons.is_available(pod));
        updated += i32::from(daemons.is_updated(pod));
    }
    // Zero is left out, as upstream writes it.
    let non_zero = |count: i32| (count != 0).then_some(count);
    DaemonSetStatus {
        current_number_scheduled: current,
        number_misscheduled: misplaced,
        desired_number_scheduled: desired,
        number_ready: ready,
        observed_generation: daemons.set.metadata.generation,
        updated_number_scheduled: non_zero(updated),
        number_available: non_zero(available),
        number_unavailable: non_zero(desired - available),
        collision_count: before.and_then(|status| status.collision_count),
        conditions: before.and_then(|status| status.conditions.clone()),
    }
}
