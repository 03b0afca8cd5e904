//! What a StatefulSet needs next: the next pod in order, or the end of one, its claims, its history and its status.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use component_helpers::labels::compiled;
use component_helpers::pods::{self, controller_of};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Event, Key, Plan, Write};
use serde_json::json;

use super::identity::{missing_labels, ordinal_of, ordinals, pod_of_ordinal, revision_of};
use super::{claims, status, update};
use crate::common::history::{self, Present, Subject, template_of};
use crate::common::owners::claim;

/// So many pods are made or ended in one go; the rest follows when these are seen.
pub(super) const BURST_MAX: usize = 500;

/// What is known of the world.
pub(super) struct View<'a> {
    pub now: Timestamp,
    /// The pods that name the set, and those that no controller manages.
    pub pods: &'a [Arc<Pod>],
    /// The revisions that name the set, and those that no controller manages.
    pub revisions: &'a [Arc<ControllerRevision>],
    pub revision_named: &'a dyn Fn(&str) -> Option<Arc<ControllerRevision>>,
    pub claim_named: &'a dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
    pub pod_named: &'a dyn Fn(&str) -> Option<Arc<Pod>>,
}

/// The set and its pods.
pub(super) struct Members<'a> {
    pub set: &'a StatefulSet,
    pub spec: &'a StatefulSetSpec,
    pub now: Timestamp,
    /// The numbers that are wished.
    pub ordinals: Range<i64>,
    /// All pods by number, those that are too many as well.
    pub pods: BTreeMap<i64, &'a Arc<Pod>>,
    /// The names of the revision the set was of until now, and of the one it is going to.
    pub current: String,
    pub update: String,
    current_template: PodTemplateSpec,
}

/// Running, and all its containers say they are ready.
pub(super) fn is_running_and_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}

pub(super) fn plan(set: &StatefulSet, view: &View) -> Plan {
    let Some(spec) = &set.spec else { return Plan::nothing() };
    let Some(selector) = compiled(Some(&spec.selector)) else { return Plan::nothing() };
    // A selector that takes everything would take the pods of everybody.
    if selector.matches_everything() {
        return Plan::nothing();
    }
    let revisions = claim(set, &selector, view.revisions);
    let mut plan = Plan { writes: revisions.writes, ..Plan::default() };
    let subject = Subject {
        owner: set,
        template: &spec.template,
        collisions: set.status.as_ref().and_then(|status| status.collision_count),
        hash_label: "controller.kubernetes.io/hash",
    };
    let present = history::present(&subject, &revisions.objects, view.revision_named);
    let Some(newest) = present.revision().cloned() else {
        plan.writes.extend(status::collided(set));
        return plan;
    };
    match present {
        Present::Missing { write, .. } => {
            // The pods carry its name, so it must be there for sure before them.
            plan.writes.push(write);
            plan.come_back(Duration::from_secs(1));
            return plan;
        }
        Present::Found { write, .. } => plan.writes.extend(write),
        Present::Collision => {}
    }
    // Only names of this set's make a pod a member, whatever its labels are.
    let ours = |pod: &&Arc<Pod>| controller_of(&pod.metadata).is_some() || ordinal_of(set, pod).is_some();
    let found: Vec<Arc<Pod>> = view.pods.iter().filter(ours).cloned().collect();
    let claimed = claim(set, &selector, &found);
    plan.writes.extend(claimed.writes);
    let members = Members::of(set, spec, view.now, &claimed.objects, &revisions.objects, &newest);
    if set.metadata.deletion_timestamp.is_none() {
        step(&mut plan, &members, view);
    }
    let in_use = |revision: &ControllerRevision| {
        let name = revision.metadata.name.as_deref().unwrap_or_default();
        name == members.current || name == members.update || members.pods.values().any(|pod| revision_of(pod) == name)
    };
    plan.writes.extend(history::truncate(&revisions.objects, &in_use, spec.revision_history_limit));
    status::finish(&mut plan, &members);
    plan
}

impl<'a> Members<'a> {
    fn of(
        set: &'a StatefulSet,
        spec: &'a StatefulSetSpec,
        now: Timestamp,
        claimed: &'a [Arc<Pod>],
        revisions: &[Arc<ControllerRevision>],
        newest: &ControllerRevision,
    ) -> Members<'a> {
        let name = |revision: &ControllerRevision| revision.metadata.name.clone().unwrap_or_default();
        let noted = set.status.as_ref().and_then(|status| status.current_revision.as_deref()).unwrap_or_default();
        let current = revisions.iter().find(|revision| name(revision) == noted).map_or(newest, |revision| revision);
        let numbered = claimed.iter().filter_map(|pod| Some((ordinal_of(set, pod)?, pod)));
        Members {
            set,
            spec,
            now,
            ordinals: ordinals(spec),
            pods: numbered.collect(),
            current: name(current),
            update: name(newest),
            current_template: template_of(current).unwrap_or_else(|| spec.template.clone()),
        }
    }

    pub fn is_available(&self, pod: &Pod) -> bool {
        is_running_and_ready(pod) && pods::is_available(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    pub(crate) fn on_delete(&self) -> bool {
        self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete")
    }

    /// So many of the lowest numbers stay as they were.
    pub fn partition(&self) -> i32 {
        let update = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        update.and_then(|update| update.partition).unwrap_or(0).max(0)
    }

    fn in_parallel(&self) -> bool {
        self.spec.pod_management_policy.as_deref() == Some("Parallel")
    }

    /// Pods below the partition are of the present revision, all others of the new one.
    fn new_pod(&self, ordinal: i64) -> Pod {
        let stays = !self.on_delete() && ordinal < self.ordinals.start + i64::from(self.partition());
        let (template, revision) =
            if stays { (&self.current_template, &self.current) } else { (&self.spec.template, &self.update) };
        pod_of_ordinal(self.set, template, revision, ordinal)
    }
}

/// Whether the next pod's turn may come.
#[derive(PartialEq, Eq)]
enum Turn {
    Next,
    Wait,
}

fn step(plan: &mut Plan, members: &Members, view: &View) {
    // A set of two billion is made in parts, and looked at only as far as that.
    let mut made = 0;
    for ordinal in members.ordinals.clone() {
        let turn = match members.pods.get(&ordinal) {
            None => create(plan, members, view, ordinal),
            Some(pod) => tend(plan, members, view, ordinal, pod),
        };
        made += usize::from(!members.pods.contains_key(&ordinal));
        if turn == Turn::Wait && !members.in_parallel() {
            return;
        }
        if made >= BURST_MAX {
            return;
        }
    }
    let too_many: Vec<(i64, &Arc<Pod>)> = condemned(members);
    for (ordinal, pod) in &too_many {
        claims::own(plan, members.set, view, pod, *ordinal, true);
    }
    if !end_condemned(plan, members, &too_many) || members.on_delete() {
        return;
    }
    plan.writes.extend(update::outdated(members).into_iter().take(BURST_MAX).map(|pod| delete(members.set, pod)));
}

fn create(plan: &mut Plan, members: &Members, view: &View, ordinal: i64) -> Turn {
    let (set, pod) = (members.set, members.new_pod(ordinal));
    if claims::any_ending(set, view, ordinal) {
        plan.come_back(Duration::from_secs(1));
        return Turn::Wait;
    }
    plan.writes.extend(claims::create_missing(set, view, ordinal));
    let (name, set_name) = (pod.metadata.name.as_deref().unwrap_or_default(), set.metadata.name.as_deref());
    let set_name = set_name.unwrap_or_default();
    plan.writes.push(
        Write::create(&pod)
            .accept(&["NamespaceTerminating"])
            .tells(set, "SuccessfulCreate", format!("Create Pod {name} in StatefulSet {set_name} successful"))
            .tells_failure(
                "FailedCreate",
                format!("Create Pod {name} in StatefulSet {set_name} failed error: {{error}}"),
            ),
    );
    Turn::Wait
}

/// A pod that is there: replaced when it has ended, waited for when it is not yet right, given back what it lacks.
fn tend(plan: &mut Plan, members: &Members, view: &View, ordinal: i64, pod: &Arc<Pod>) -> Turn {
    let ending = pod.metadata.deletion_timestamp.is_some();
    if pods::has_ended(pod) {
        if !ending {
            replace(plan, members.set, pod);
        }
        return Turn::Wait;
    }
    if !ending {
        // It waits for claims that somebody has taken away again.
        if pods::phase(pod) == "Pending" {
            plan.writes.extend(claims::create_missing(members.set, view, ordinal));
        }
        claims::own(plan, members.set, view, pod, ordinal, false);
        let missing = missing_labels(pod, ordinal);
        if !missing.is_empty() {
            let labels: serde_json::Map<_, _> =
                missing.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
            let patch = json!({"metadata": {"uid": pod.metadata.uid, "labels": labels}});
            plan.writes.push(Write::merge_patch::<Pod>(&Key::of(&pod.metadata), patch).accept(&["NotFound"]));
        }
    }
    if !ending && members.is_available(pod) { Turn::Next } else { Turn::Wait }
}

fn replace(plan: &mut Plan, set: &StatefulSet, pod: &Arc<Pod>) {
    let (namespace, name) = (set.metadata.namespace.as_deref().unwrap_or_default(), set.metadata.name.as_deref());
    let (name, pod_name) = (name.unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default());
    plan.events.push(match pods::phase(pod) {
        "Failed" => {
            let message = format!("StatefulSet {namespace}/{name} is recreating failed Pod {pod_name}");
            Event::warning(set, "RecreatingFailedPod", message)
        }
        _ => {
            let message = format!("StatefulSet {namespace}/{name} is recreating terminated Pod {pod_name}");
            Event::normal(set, "RecreatingTerminatedPod", message)
        }
    });
    plan.writes.push(delete(set, pod));
}

/// The pods beyond the wished numbers, the highest first.
fn condemned<'a>(members: &Members<'a>) -> Vec<(i64, &'a Arc<Pod>)> {
    let outside = members.pods.iter().rev().filter(|(ordinal, _)| !members.ordinals.contains(ordinal));
    outside.map(|(ordinal, pod)| (*ordinal, *pod)).collect()
}

/// Ends pods that are too many, in order one at a time; answers whether the update may go on.
fn end_condemned(plan: &mut Plan, members: &Members, condemned: &[(i64, &Arc<Pod>)]) -> bool {
    let ending = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    if members.in_parallel() {
        let left = condemned.iter().filter(|(_, pod)| !ending(pod));
        plan.writes.extend(left.take(BURST_MAX).map(|(_, pod)| delete(members.set, pod)));
        return true;
    }
    let Some((_, highest)) = condemned.first() else { return true };
    // The lowest number that does not work may go out of turn when it is this one; a lower one that does not work must be
    // healed first, or two would be down at once.
    let unhealthy = |pod: &Pod| ending(pod) || !is_running_and_ready(pod);
    let first_unhealthy = condemned.iter().rev().find(|(_, pod)| unhealthy(pod)).map(|(ordinal, _)| *ordinal);
    let blocked = ending(highest)
        || !members.is_available(highest) && first_unhealthy.is_some_and(|first| first != condemned[0].0);
    if !blocked {
        plan.writes.push(delete(members.set, highest));
    }
    false
}

fn delete(set: &StatefulSet, pod: &Arc<Pod>) -> Write {
    let (name, set_name) = (pod.metadata.name.as_deref().unwrap_or_default(), set.metadata.name.as_deref());
    let set_name = set_name.unwrap_or_default();
    Write::delete(&**pod, DeleteOptions::default())
        .tells(set, "SuccessfulDelete", format!("Delete Pod {name} in StatefulSet {set_name} successful"))
        .tells_failure("FailedDelete", format!("Delete Pod {name} in StatefulSet {set_name} failed error: {{error}}"))
}
