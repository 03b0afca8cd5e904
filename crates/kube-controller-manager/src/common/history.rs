//! The history of a template, kept in ControllerRevisions: which one is the present, how a new one is called, which are old.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use reconcile::{Kind, Write};
use serde_json::{Value, json};

use super::hash::short_hash;
use super::owners::controller_reference;

/// On pods of DaemonSets and StatefulSets: which revision they are of.
pub(crate) const REVISION_HASH: &str = "controller-revision-hash";

/// The revision for the present template, and what must be written for it to be there.
#[derive(Debug)]
pub(crate) enum Present {
    /// It is there, though its number may have to grow: it was an earlier one until now.
    Found { revision: Arc<ControllerRevision>, write: Option<Write> },
    /// It must be made first.
    Missing { revision: Arc<ControllerRevision>, write: Write },
    /// Another content has its name already: the name must be found with one collision more.
    Collision,
}

impl Present {
    pub fn revision(&self) -> Option<&Arc<ControllerRevision>> {
        match self {
            Present::Found { revision, .. } | Present::Missing { revision, .. } => Some(revision),
            Present::Collision => None,
        }
    }
}

/// A template and whose it is.
pub(crate) struct Subject<'a, K> {
    pub owner: &'a K,
    pub template: &'a PodTemplateSpec,
    /// How often a name was taken already.
    pub collisions: Option<i32>,
    /// The label that the hash stands under on the revision itself.
    pub hash_label: &'static str,
}

/// Looks for the revision of the present template among the owner's `revisions`. `named` finds any revision of the namespace,
/// whoever has it.
pub(crate) fn present<K: Kind>(
    subject: &Subject<K>,
    revisions: &[Arc<ControllerRevision>],
    named: &dyn Fn(&str) -> Option<Arc<ControllerRevision>>,
) -> Present {
    let sorted = sorted(revisions);
    let same = sorted.iter().rfind(|revision| template_of(revision).as_ref() == Some(subject.template));
    let newest = sorted.last().map_or(0, |revision| number(revision));
    if let Some(same) = same {
        if number(same) == newest {
            return Present::Found { revision: same.clone(), write: None };
        }
        let mut raised = ControllerRevision::clone(same);
        raised.revision = newest.saturating_add(1);
        let write = Some(Write::update(&raised));
        return Present::Found { revision: Arc::new(raised), write };
    }
    let revision = make(subject, newest.saturating_add(1));
    let name = revision.metadata.name.as_deref().unwrap_or_default();
    if named(name).is_some() {
        return Present::Collision;
    }
    // It may be there though the cache has not seen it: then it is seen soon, and found or counted as a collision.
    let write = Write::create(&revision).accept(&["AlreadyExists"]);
    Present::Missing { revision: Arc::new(revision), write }
}

/// The revisions that nothing needs any more: all but the `live` ones and the newest `limit` others.
pub(crate) fn truncate(
    revisions: &[Arc<ControllerRevision>],
    live: &dyn Fn(&ControllerRevision) -> bool,
    limit: Option<i32>,
) -> Vec<Write> {
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or(0);
    let old: Vec<Arc<ControllerRevision>> = sorted(revisions).into_iter().filter(|revision| !live(revision)).collect();
    let excess = old.len().saturating_sub(limit);
    old.iter().take(excess).map(|revision| Write::delete(&**revision, DeleteOptions::default())).collect()
}

/// The pod template that a revision holds.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    machinery::codec::typed(&template).ok()
}

pub(crate) fn number(revision: &ControllerRevision) -> i64 {
    revision.revision
}

/// Oldest first; of equal numbers, the older object, then by name.
pub(crate) fn sorted(revisions: &[Arc<ControllerRevision>]) -> Vec<Arc<ControllerRevision>> {
    let mut sorted = revisions.to_vec();
    sorted.sort_by_key(|revision| {
        let created = revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (number(revision), created, revision.metadata.name.clone())
    });
    sorted
}

fn make<K: Kind>(subject: &Subject<K>, revision: i64) -> ControllerRevision {
    let own = subject.owner.metadata();
    let data = data_of(subject.template);
    let hash = short_hash(&data, subject.collisions);
    let mut labels =
        subject.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    labels.insert(subject.hash_label.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name_of(own.name.as_deref().unwrap_or_default(), &hash)),
            namespace: own.namespace.clone(),
            labels: Some(labels),
            annotations: own.annotations.clone(),
            owner_references: Some(vec![controller_reference(subject.owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    }
}

/// A patch that makes the owner's template this one, as `kubectl rollout undo` applies it.
fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

/// Long names are cut, so that the hash still fits.
fn name_of(owner: &str, hash: &str) -> String {
    const OWNER_NAME_MAX: usize = 223;
    let cut: String = owner.chars().take(OWNER_NAME_MAX).collect();
    format!("{cut}-{hash}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSet;

    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        let object =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}});
        serde_json::from_value(object).unwrap()
    }

    fn owner() -> StatefulSet {
        let metadata = json!({"name": "web", "namespace": "a", "uid": "set", "annotations": {"why": "first"}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn look(image: &str, there: &[Arc<ControllerRevision>], collisions: Option<i32>) -> Present {
        let (owner, template) = (owner(), template(image));
        let subject =
            Subject { owner: &owner, template: &template, collisions, hash_label: "controller.kubernetes.io/hash" };
        let named = |name: &str| there.iter().find(|one| one.metadata.name.as_deref() == Some(name)).cloned();
        present(&subject, there, &named)
    }

    fn made(image: &str, there: &[Arc<ControllerRevision>]) -> Arc<ControllerRevision> {
        let Present::Missing { revision, .. } = look(image, there, None) else { panic!("{image} is there already") };
        revision
    }

    #[test]
    fn a_new_template_is_a_new_revision_and_an_old_one_comes_back() {
        let first = made("v1", &[]);
        assert_eq!(first.revision, 1);
        assert_eq!(first.data.as_ref().unwrap().0["spec"]["template"]["$patch"], "replace");
        assert_eq!(template_of(&first), Some(template("v1")));
        let labels = first.metadata.labels.clone().unwrap();
        let hash = &labels["controller.kubernetes.io/hash"];
        assert_eq!(first.metadata.name.as_deref(), Some(format!("web-{hash}").as_str()));
        assert_eq!(first.metadata.annotations.as_ref().unwrap()["why"], "first");
        let second = made("v2", std::slice::from_ref(&first));
        assert_eq!(second.revision, 2);
        let both = [first.clone(), second];
        assert!(matches!(look("v2", &both, None), Present::Found { write: None, .. }));
        let Present::Found { revision, write: Some(write) } = look("v1", &both, None) else { panic!("v1 is there") };
        assert_eq!((revision.revision, revision.metadata.name.clone()), (3, first.metadata.name.clone()));
        assert_eq!(write.body()["revision"], 3);
    }

    #[test]
    fn a_name_that_another_content_has_is_a_collision() {
        let mut taken = ControllerRevision::clone(&made("v1", &[]));
        taken.data = Some(RawExtension(json!({"spec": {"template": {"$patch": "replace"}}})));
        let there = [Arc::new(taken)];
        assert!(matches!(look("v1", &there, None), Present::Collision));
        assert!(matches!(look("v1", &there, Some(1)), Present::Missing { .. }));
    }

    #[test]
    fn only_the_newest_old_revisions_are_kept() {
        let mut all: Vec<Arc<ControllerRevision>> = Vec::new();
        for image in ["v1", "v2", "v3", "v4"] {
            let next = made(image, &all);
            all.push(next);
        }
        let check = |limit: i32, expected: &[usize]| {
            // The first is still in use, and so is the last.
            let live = |revision: &ControllerRevision| matches!(revision.revision, 1 | 4);
            let gone: Vec<String> = truncate(&all, &live, Some(limit)).iter().map(ToString::to_string).collect();
            let path = |place: &usize| {
                let name = all[*place].metadata.name.clone().unwrap();
                format!("delete /apis/apps/v1/namespaces/a/controllerrevisions/{name}")
            };
            assert_eq!(gone, expected.iter().map(path).collect::<Vec<_>>(), "{limit}");
        };
        check(2, &[]);
        check(1, &[1]);
        check(0, &[1, 2]);
        check(-1, &[1, 2]);
    }

    #[test]
    fn long_names_keep_their_hash() {
        let name = name_of(&"n".repeat(253), "hash");
        assert_eq!(name.len(), 228);
        assert!(name.ends_with("-hash"));
    }
}
