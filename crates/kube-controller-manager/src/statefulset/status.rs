//! The status of a StatefulSet: how many pods there are, how they are, and of which revision.

use std::time::Duration;

use component_helpers::pods;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use reconcile::{Plan, Write};

use super::identity::revision_of;
use super::plan::{Members, is_running_and_ready};

/// Adds the write of the status, if it is another one, and when a pod will have been ready for long enough.
pub(super) fn finish(plan: &mut Plan, members: &Members) {
    let min_ready = members.spec.min_ready_seconds.unwrap_or(0);
    if min_ready > 0 {
        let all = members.pods.values();
        let coming = all.filter_map(|pod| pods::available_at(pod, min_ready)).filter(|at| *at > members.now);
        let wait = coming.min().and_then(|at| Duration::try_from(at.duration_since(members.now)).ok());
        wait.into_iter().for_each(|wait| plan.come_back(wait));
    }
    plan.writes.extend(write(members.set, counted(members)));
}

/// Remembers that a name was taken; the next turn looks for another.
pub(super) fn collided(set: &StatefulSet) -> Option<Write> {
    let mut status = set.status.clone().unwrap_or_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    write(set, status)
}

fn write(set: &StatefulSet, status: StatefulSetStatus) -> Option<Write> {
    if set.status.as_ref() == Some(&status) {
        return None;
    }
    let mut set = set.clone();
    set.status = Some(status);
    Some(Write::update_sub(&set, "status").accept(&["NotFound"]))
}

fn counted(members: &Members) -> StatefulSetStatus {
    let before = members.set.status.as_ref();
    let (mut replicas, mut ready, mut available, mut current, mut updated) = (0, 0, 0, 0, 0);
    for pod in members.pods.values() {
        replicas += 1;
        ready += i32::from(is_running_and_ready(pod));
        available += i32::from(members.is_available(pod));
        if pod.metadata.deletion_timestamp.is_none() {
            current += i32::from(revision_of(pod) == members.current);
            updated += i32::from(revision_of(pod) == members.update);
        }
    }
    let wanted = members.spec.replicas.unwrap_or(1);
    let rolls = !members.on_delete();
    let mut current_revision = members.current.clone();
    // Every pod is of the new template and works: the update is done, and what was new is the present now.
    if rolls && updated == wanted && ready == wanted && replicas == wanted {
        current_revision.clone_from(&members.update);
        current = updated;
    }
    // Zero is left out, as upstream writes it.
    let non_zero = |count: i32| (count != 0).then_some(count);
    StatefulSetStatus {
        replicas,
        ready_replicas: non_zero(ready),
        available_replicas: Some(available),
        current_replicas: non_zero(current),
        updated_replicas: non_zero(updated),
        current_revision: Some(current_revision),
        update_revision: Some(members.update.clone()),
        observed_generation: members.set.metadata.generation,
        collision_count: Some(before.and_then(|status| status.collision_count).unwrap_or(0)),
        conditions: before.and_then(|status| status.conditions.clone()),
    }
}
