//! The rolling update: up with the new set, down with the old ones, within the limits.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use reconcile::Write;

use super::plan::is_recreate;
use super::scaling::resize;
use super::sets::{Sets, available, fenceposts, total, wanted};

/// The size of the new set now.
pub(super) fn new_set_size(deployment: &Deployment, spec: &DeploymentSpec, sets: &Sets) -> i32 {
    let replicas = spec.replicas.unwrap_or(1);
    let current = sets.new.as_ref().map_or(0, |set| wanted(set));
    if is_recreate(deployment) || current >= replicas {
        return replicas;
    }
    let (surge, _) = fenceposts(spec);
    let room = replicas.saturating_add(surge).saturating_sub(total(sets.all(), wanted));
    if room <= 0 { current } else { current + room.min(replicas - current) }
}

/// Old pods end as far as enough others are available: first those that are not available themselves.
pub(super) fn scale_down_old(deployment: &Deployment, spec: &DeploymentSpec, sets: &Sets) -> Vec<Write> {
    let replicas = spec.replicas.unwrap_or(1);
    let (_, unavailable_max) = fenceposts(spec);
    let available_min = replicas.saturating_sub(unavailable_max);
    let new_unavailable = sets.new.as_ref().map_or(0, |set| wanted(set).saturating_sub(available(set)));
    let mut budget = total(sets.all(), wanted).saturating_sub(available_min).saturating_sub(new_unavailable);
    let mut sizes: Vec<i32> = sets.old.iter().map(|set| wanted(set)).collect();
    if budget <= 0 || sizes.iter().all(|size| *size == 0) {
        return Vec::new();
    }
    for (set, size) in sets.old.iter().zip(&mut sizes) {
        let unhealthy = (*size - available(set)).max(0).min(budget);
        *size -= unhealthy;
        budget -= unhealthy;
    }
    let mut spare = total(sets.all(), available).saturating_sub(available_min).max(0);
    for size in &mut sizes {
        let down = (*size).min(spare);
        *size -= down;
        spare -= down;
    }
    sets.old.iter().zip(sizes).filter_map(|(set, size)| resize(deployment, set, size)).collect()
}
