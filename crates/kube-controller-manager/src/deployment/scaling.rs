//! A Deployment of another size: every set grows or shrinks in proportion, so that an update under way goes on as it was.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use reconcile::Write;

use super::plan::is_recreate;
use super::sets::{DESIRED, MAX, Sets, available, created, fenceposts, size_annotations, total, wanted};

/// Whether a set was sized for another wish than the present one.
pub(super) fn size_changed(deployment: &Deployment, sets: &Sets) -> bool {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let active = sets.all().filter(|set| wanted(set) > 0);
    active.into_iter().any(|set| noted(set, DESIRED).is_some_and(|desired| desired != replicas))
}

fn noted(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    set.metadata.annotations.as_ref()?.get(annotation)?.parse().ok()
}

/// Sets another size, with the annotations that say for which wish.
pub(super) fn resize(deployment: &Deployment, set: &Arc<ReplicaSet>, size: i32) -> Option<Write> {
    let annotations = set.metadata.annotations.clone().unwrap_or_default();
    let noted = size_annotations(deployment);
    let differs = noted.iter().any(|(key, value)| annotations.get(*key) != Some(value));
    let before = wanted(set);
    if before == size && !differs {
        return None;
    }
    let mut resized = ReplicaSet::clone(set);
    let mut annotations = annotations;
    annotations.extend(noted.map(|(key, value)| (key.to_owned(), value)));
    resized.metadata.annotations = Some(annotations);
    if let Some(spec) = &mut resized.spec {
        spec.replicas = Some(size);
    }
    let write = Write::update(&resized);
    if before == size {
        return Some(write);
    }
    let direction = if size > before { "up" } else { "down" };
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let message = format!("Scaled {direction} replica set {name} from {before} to {size}");
    Some(write.tells(deployment, "ScalingReplicaSet", message))
}

pub(super) fn scale(deployment: &Deployment, spec: &DeploymentSpec, sets: &Sets) -> Vec<Write> {
    let replicas = spec.replicas.unwrap_or(1);
    let active: Vec<&Arc<ReplicaSet>> = sets.all().filter(|set| wanted(set) > 0).collect();
    // One active set, or the newest of none, takes all.
    if active.len() <= 1 {
        let latest = sets.new.as_ref().or_else(|| sets.old.last());
        let only = active.first().copied().or(latest);
        return only.and_then(|set| resize(deployment, set, replicas)).into_iter().collect();
    }
    if is_saturated(sets, replicas) {
        return sets.old.iter().filter(|set| wanted(set) > 0).filter_map(|set| resize(deployment, set, 0)).collect();
    }
    if is_recreate(deployment) {
        return Vec::new();
    }
    in_proportion(deployment, spec, active)
}

/// The new set is there whole, so that nothing else is needed.
fn is_saturated(sets: &Sets, replicas: i32) -> bool {
    sets.new.as_ref().is_some_and(|new| {
        wanted(new) == replicas && noted(new, DESIRED) == Some(replicas) && available(new) == replicas
    })
}

fn in_proportion(deployment: &Deployment, spec: &DeploymentSpec, mut active: Vec<&Arc<ReplicaSet>>) -> Vec<Write> {
    let replicas = spec.replicas.unwrap_or(1);
    let allowed = if replicas > 0 { replicas.saturating_add(fenceposts(spec).0) } else { 0 };
    let total = total(active.iter().copied(), wanted);
    let to_add = allowed.saturating_sub(total);
    // The larger first; of equals, the newer when growing and the older when shrinking.
    active.sort_by_key(|set| (std::cmp::Reverse(wanted(set)), created(set)));
    if to_add > 0 {
        active.sort_by_key(|set| (std::cmp::Reverse(wanted(set)), std::cmp::Reverse(created(set))));
    }
    let mut added = 0;
    let mut sizes = Vec::new();
    for set in &active {
        let share = if to_add == 0 { 0 } else { proportion(deployment, set, replicas, allowed, to_add, added) };
        sizes.push(wanted(set).saturating_add(share));
        added = added.saturating_add(share);
    }
    if let Some(first) = sizes.first_mut() {
        *first = first.saturating_add(to_add.saturating_sub(added)).max(0);
    }
    active.iter().zip(sizes).filter_map(|(set, size)| resize(deployment, set, size)).collect()
}

/// The part of the change that one set gets, never more than is left of it.
fn proportion(deployment: &Deployment, set: &ReplicaSet, replicas: i32, allowed: i32, to_add: i32, added: i32) -> i32 {
    if wanted(set) == 0 {
        return 0;
    }
    let fraction = match deployment.spec.as_ref().and_then(|spec| spec.replicas) {
        Some(0) => -wanted(set),
        _ => {
            let before = noted(set, MAX).filter(|max| *max > 0).unwrap_or(replicas);
            let size = f64::from(wanted(set)) * f64::from(allowed) / f64::from(before.max(1));
            (size.round() as i32).saturating_sub(wanted(set))
        }
    };
    let left = to_add.saturating_sub(added);
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}
