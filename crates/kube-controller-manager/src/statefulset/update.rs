//! The update of a StatefulSet: pods of an older revision end from the highest number down, as many at a time as the strategy
//! allows; the pods that come in their place are of the new one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::identity::revision_of;
use super::plan::Members;
use crate::common::limits::resolve_down;

/// The pods that end now.
pub(super) fn outdated<'a>(members: &Members<'a>) -> Vec<&'a Arc<Pod>> {
    let wanted = members.ordinals.end - members.ordinals.start;
    let unavailable_max = unavailable_max(members);
    let is_old = |pod: &Arc<Pod>| revision_of(pod) != members.update;
    let is_ending = |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_some();
    let within = || members.pods.range(members.ordinals.clone()).map(|(ordinal, pod)| (*ordinal, *pod));
    let available = within().filter(|(_, pod)| members.is_available(pod) && !is_ending(pod)).count() as i64;
    let waiting =
        within().filter(|(_, pod)| is_old(pod) && !is_ending(pod) && !members.is_available(pod)).count() as i64;
    // What is unavailable already and new, ending or missing is on its way; an old pod that does not work is not, and only
    // its replacement can help it, so it never blocks the update.
    let mut slots = unavailable_max - (wanted - available - waiting);
    let mut budget = unavailable_max - (wanted - available);
    let lowest = members.ordinals.start + i64::from(members.partition());
    let mut gone = Vec::new();
    for (_, pod) in within().rev().filter(|(ordinal, pod)| *ordinal >= lowest && is_old(pod) && !is_ending(pod)) {
        if slots <= 0 {
            break;
        }
        if members.is_available(pod) {
            if budget <= 0 {
                continue;
            }
            budget -= 1;
        }
        slots -= 1;
        gone.push(pod);
    }
    gone
}

/// Parts are of the wished pods, rounded down, and at least one.
fn unavailable_max(members: &Members) -> i64 {
    let update = members.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let limit = update.and_then(|update| update.max_unavailable.as_ref());
    limit.map_or(1, |limit| i64::from(resolve_down(limit, members.spec.replicas.unwrap_or(1)))).max(1)
}
