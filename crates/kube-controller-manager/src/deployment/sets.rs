//! The ReplicaSets of a Deployment: which one is for the present template, what is kept on them, how the new one looks.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::common::hash::short_hash;
use crate::common::limits::{resolve_down, resolve_up};
use crate::common::owners::controller_reference;

pub(super) const HASH_LABEL: &str = "pod-template-hash";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of the Deployment that are its own business.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

pub(super) type Annotations = BTreeMap<String, String>;

/// The sets of a Deployment, sorted out.
pub(super) struct Sets {
    /// The one for the present template.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, the oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    pub fn sort_out(deployment: &Deployment, mut sets: Vec<Arc<ReplicaSet>>) -> Sets {
        sets.sort_by_key(|set| (created(set), set.metadata.name.clone()));
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        let place = sets.iter().position(|set| {
            let theirs = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            theirs.zip(template).is_some_and(|(theirs, ours)| is_same(theirs, ours))
        });
        let new = place.map(|place| sets.remove(place));
        Sets { new, old: sets }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }
}

pub(super) fn created(set: &ReplicaSet) -> Option<jiff::Timestamp> {
    set.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Apart from the label that tells sets apart.
fn is_same(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    let plain = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        template
    };
    plain(one) == plain(other)
}

/// What the set is asked to have.
pub(super) fn wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Of many sets. Sizes up to the largest number are allowed, so that a sum may be larger than any.
pub(super) fn total<'a>(sets: impl Iterator<Item = &'a Arc<ReplicaSet>>, of: fn(&ReplicaSet) -> i32) -> i32 {
    sets.fold(0, |sum: i32, set| sum.saturating_add(of(set)))
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

pub(super) fn revision(metadata: &ObjectMeta) -> i64 {
    let text = metadata.annotations.as_ref().and_then(|annotations| annotations.get(REVISION));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// How many pods there may be beyond the wish, and how many may be missing; never neither.
pub(super) fn fenceposts(spec: &DeploymentSpec) -> (i32, i32) {
    let replicas = spec.replicas.unwrap_or(1);
    let update = spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = update.and_then(|update| update.max_surge.as_ref()).map_or(0, |value| resolve_up(value, replicas));
    let unavailable = update.and_then(|update| update.max_unavailable.as_ref());
    let unavailable = unavailable.map_or(0, |value| resolve_down(value, replicas));
    match (surge, unavailable) {
        (0, 0) => (0, 1),
        both => both,
    }
}

/// What a set says of its Deployment's size, by which a later change of it is noticed.
pub(super) fn size_annotations(deployment: &Deployment) -> [(&'static str, String); 2] {
    let Some(spec) = &deployment.spec else { return [(DESIRED, String::new()), (MAX, String::new())] };
    let replicas = spec.replicas.unwrap_or(1);
    let surge = if super::plan::is_recreate(deployment) { 0 } else { fenceposts(spec).0 };
    [(DESIRED, replicas.to_string()), (MAX, replicas.saturating_add(surge).to_string())]
}

/// The annotations a set of the present template has: the Deployment's, its revision and size. The history of its earlier
/// revisions is kept.
pub(super) fn annotations(deployment: &Deployment, before: Option<&Annotations>, revision: i64) -> Annotations {
    let own = deployment.metadata.annotations.iter().flatten();
    let mut annotations = before.cloned().unwrap_or_default();
    for (key, value) in own.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str())) {
        annotations.insert(key.clone(), value.clone());
    }
    let old = annotations.get(REVISION).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    if old < revision {
        if old > 0 {
            let history = annotations.get(REVISION_HISTORY).map(|history| format!("{history},{old}"));
            annotations.insert(REVISION_HISTORY.into(), history.unwrap_or_else(|| old.to_string()));
        }
        annotations.insert(REVISION.into(), revision.to_string());
    }
    annotations.extend(size_annotations(deployment).map(|(key, value)| (key.to_owned(), value)));
    annotations
}

/// The set for the present template.
pub(super) fn new_set(deployment: &Deployment, spec: &DeploymentSpec, replicas: i32, revision: i64) -> ReplicaSet {
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = short_hash(&spec.template, collisions);
    let mut template = spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.into(), hash.clone());
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations(deployment, None, revision)),
            owner_references: Some(vec![controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    }
}
