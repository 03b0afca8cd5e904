//! What a Deployment needs next: one step towards its template and size, and its status.

use std::sync::Arc;
use std::time::Duration;

use component_helpers::labels::compiled;
use component_helpers::pods;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Event, Plan, Write};

use super::sets::{self, Sets, annotations, available, new_set, revision, wanted};
use super::{rolling, scaling, status};
use crate::common::owners::claim;

pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// What is known of the world.
pub(super) struct View<'a> {
    pub now: Timestamp,
    /// The sets that name the Deployment, and those that no controller manages.
    pub sets: &'a [Arc<ReplicaSet>],
    /// Any set of the namespace, whoever manages it.
    pub set_named: &'a dyn Fn(&str) -> Option<Arc<ReplicaSet>>,
    pub pods_of: &'a dyn Fn(&ReplicaSet) -> Vec<Arc<Pod>>,
}

pub(super) fn plan(deployment: &Deployment, view: &View) -> Plan {
    let Some(spec) = &deployment.spec else { return Plan::nothing() };
    let Some(selector) = compiled(Some(&spec.selector)) else { return Plan::nothing() };
    // A selector that takes everything would take the sets of all other Deployments.
    if selector.matches_everything() {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        return Plan { events: vec![Event::warning(deployment, "SelectingAll", message)], ..Plan::default() };
    }
    let claimed = claim(deployment, &selector, view.sets);
    let sets = Sets::sort_out(deployment, claimed.objects);
    let mut plan = Plan { writes: claimed.writes, ..Plan::default() };
    if deployment.metadata.deletion_timestamp.is_none() {
        if let Some(collided) = collision(deployment, spec, &sets, view) {
            plan.writes.push(collided);
            return plan;
        }
        let step = step(deployment, spec, &sets, view);
        let makes_set = sets.new.is_none() && !step.is_empty();
        plan.writes.extend(step);
        if makes_set {
            // If the name is taken by a set that is not seen yet, it is seen by then.
            plan.come_back(Duration::from_secs(1));
        }
        if let Some(numbered) = number(deployment, &sets) {
            // It is another object then, and its status is written when that one is seen.
            plan.writes.push(numbered);
            return plan;
        }
    }
    status::finish(&mut plan, view.now, deployment, spec, &sets);
    plan
}

/// Another content has the name of the set that must be made: if it were ours and of this template, it would be the new set.
fn collision(deployment: &Deployment, spec: &DeploymentSpec, sets: &Sets, view: &View) -> Option<Write> {
    if sets.new.is_some() || spec.paused == Some(true) {
        return None;
    }
    let name = new_set(deployment, spec, 0, 0).metadata.name?;
    (view.set_named)(&name).map(|_| status::collided(deployment))
}

/// The writes of one step. What follows is decided when they are seen.
fn step(deployment: &Deployment, spec: &DeploymentSpec, sets: &Sets, view: &View) -> Vec<Write> {
    let mut writes = revise(deployment, sets);
    if spec.paused == Some(true) || scaling::size_changed(deployment, sets) {
        writes.extend(scaling::scale(deployment, spec, sets));
        if spec.paused == Some(true) {
            writes.extend(clean_up(spec, sets, status::is_complete(deployment, spec, sets)));
        }
        return writes;
    }
    if is_recreate(deployment) {
        let old_running = sets.old.iter().any(|set| wanted(set) > 0);
        if old_running {
            writes.extend(sets.old.iter().filter_map(|set| scaling::resize(deployment, set, 0)));
            return writes;
        }
        let still_there = |pod: &Arc<Pod>| !pods::has_ended(pod);
        if sets.old.iter().any(|set| (view.pods_of)(set).iter().any(still_there)) {
            return writes;
        }
    }
    let revision_next = next_revision(sets);
    match &sets.new {
        None => {
            let replicas = rolling::new_set_size(deployment, spec, sets);
            let set = new_set(deployment, spec, replicas, revision_next);
            let name = set.metadata.name.clone().unwrap_or_default();
            writes.push(
                Write::create(&set)
                    .accept(&["AlreadyExists", "NamespaceTerminating"])
                    .tells(
                        deployment,
                        "ScalingReplicaSet",
                        format!("Scaled up replica set {name} from 0 to {replicas}"),
                    )
                    .tells_failure(
                        "ReplicaSetCreateError",
                        format!("Failed to create new replica set \"{name}\": {{error}}"),
                    ),
            );
            return writes;
        }
        Some(new) => {
            let replicas = rolling::new_set_size(deployment, spec, sets);
            if replicas != wanted(new) {
                writes.extend(scaling::resize(deployment, new, replicas));
                return writes;
            }
        }
    }
    if !is_recreate(deployment) {
        let down = rolling::scale_down_old(deployment, spec, sets);
        if !down.is_empty() {
            writes.extend(down);
            return writes;
        }
    }
    writes.extend(clean_up(spec, sets, status::is_complete(deployment, spec, sets)));
    writes
}

pub(super) fn next_revision(sets: &Sets) -> i64 {
    sets.old.iter().map(|set| revision(&set.metadata)).max().unwrap_or(0) + 1
}

/// Keeps the annotations of the new set true.
fn revise(deployment: &Deployment, sets: &Sets) -> Vec<Write> {
    let mut writes = Vec::new();
    let next = next_revision(sets);
    if let Some(new) = &sets.new {
        let wanted = annotations(deployment, new.metadata.annotations.as_ref(), next.max(revision(&new.metadata)));
        let min_ready = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        let same_min_ready =
            new.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0) == min_ready.unwrap_or(0);
        let now = new.metadata.annotations.clone().unwrap_or_default();
        let sizes = [sets::DESIRED, sets::MAX];
        // Its size annotations change only together with its size.
        let differs = wanted.iter().any(|(key, value)| !sizes.contains(&key.as_str()) && now.get(key) != Some(value));
        if differs || !same_min_ready {
            let mut set = ReplicaSet::clone(new);
            let mut annotations = wanted;
            for key in sizes {
                if let Some(value) = now.get(key) {
                    annotations.insert(key.into(), value.clone());
                }
            }
            set.metadata.annotations = Some(annotations);
            if let Some(spec) = &mut set.spec {
                spec.min_ready_seconds = min_ready;
            }
            writes.push(Write::update(&set));
        }
    }
    writes
}

/// The Deployment says which revision its present template is. It is written with the status, as upstream does: a write of
/// the object itself would be a new generation.
fn number(deployment: &Deployment, sets: &Sets) -> Option<Write> {
    let current = next_revision(sets).max(revision(&sets.new.as_ref()?.metadata));
    if revision(&deployment.metadata) == current {
        return None;
    }
    let mut numbered = deployment.clone();
    let annotations = numbered.metadata.annotations.get_or_insert_default();
    annotations.insert(sets::REVISION.to_owned(), current.to_string());
    Some(Write::update_sub(&numbered, "status").accept(&["NotFound"]))
}

/// Old sets that are empty go, all but as many as the history may hold.
fn clean_up(spec: &DeploymentSpec, sets: &Sets, complete: bool) -> Vec<Write> {
    let Some(limit) = spec.revision_history_limit.filter(|limit| *limit >= 0 && *limit != i32::MAX) else {
        return Vec::new();
    };
    if !complete {
        return Vec::new();
    }
    let alive: Vec<&Arc<ReplicaSet>> =
        sets.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
    let excess = alive.len().saturating_sub(limit as usize);
    let mut by_revision = alive;
    by_revision.sort_by_key(|set| revision(&set.metadata));
    let empty = |set: &&&Arc<ReplicaSet>| {
        let status = set.status.as_ref();
        let replicas = status.map_or(0, |status| status.replicas);
        let seen = status.and_then(|status| status.observed_generation) >= set.metadata.generation;
        replicas == 0 && wanted(set) == 0 && available(set) == 0 && seen
    };
    let gone = by_revision.iter().take(excess).filter(empty);
    gone.map(|set| Write::delete(&***set, DeleteOptions::default())).collect()
}
