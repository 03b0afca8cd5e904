//! Whose pods are whose: a controller takes in what matches its selector and nobody manages, and lets go what no longer matches.

use std::sync::Arc;

use component_helpers::labels::{Labels, selects};
use component_helpers::pods::controller_of;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinery::selector::LabelSelector;
use reconcile::{Key, Kind, Write};
use serde_json::json;

/// The reference by which an object says that `owner` manages it.
pub(crate) fn controller_reference<K: Kind>(owner: &K) -> OwnerReference {
    let metadata = owner.metadata();
    OwnerReference {
        api_version: <K as k8s_openapi::Resource>::API_VERSION.to_owned(),
        kind: <K as k8s_openapi::Resource>::KIND.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What a controller manages now, and what must be written for it to be so.
pub(crate) struct Claimed<K> {
    pub objects: Vec<Arc<K>>,
    pub writes: Vec<Write>,
}

/// Takes in and lets go. `found` are the objects that name the owner, and those that name no controller.
pub(crate) fn claim<O: Kind, K: Kind>(owner: &O, selector: &LabelSelector, found: &[Arc<K>]) -> Claimed<K> {
    let reference = controller_reference(owner);
    let ending = owner.metadata().deletion_timestamp.is_some();
    let mut claimed = Claimed { objects: Vec::new(), writes: Vec::new() };
    for object in found {
        let metadata = object.metadata();
        let matching = selects(selector, metadata.labels.as_ref());
        match controller_of(metadata) {
            Some(controller) if controller.uid == reference.uid => {
                if matching {
                    claimed.objects.push(object.clone());
                } else if !ending && metadata.deletion_timestamp.is_none() {
                    claimed.writes.push(release(object, &reference.uid));
                }
            }
            Some(_) => {}
            None => {
                if matching && !ending && metadata.deletion_timestamp.is_none() {
                    claimed.writes.push(adopt(object, &reference));
                    claimed.objects.push(object.clone());
                }
            }
        }
    }
    claimed
}

fn adopt<K: Kind>(object: &Arc<K>, reference: &OwnerReference) -> Write {
    let mut owners = object.metadata().owner_references.clone().unwrap_or_default();
    owners.push(reference.clone());
    set_owners(object, &owners)
}

fn release<K: Kind>(object: &Arc<K>, uid: &str) -> Write {
    let mut owners = object.metadata().owner_references.clone().unwrap_or_default();
    owners.retain(|owner| owner.uid != uid);
    set_owners(object, &owners)
}

/// Only that object, and only as it was seen: another controller may have been faster.
fn set_owners<K: Kind>(object: &Arc<K>, owners: &[OwnerReference]) -> Write {
    let metadata = object.metadata();
    let patch = json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version, "ownerReferences": owners,
    }});
    Write::merge_patch::<K>(&Key::of(metadata), patch).accept(&["NotFound"])
}

/// The key of the owner of that kind that manages the object.
pub(crate) fn managed_by(metadata: &ObjectMeta, kind: &str) -> Option<Key> {
    let owner = controller_of(metadata).filter(|owner| owner.kind == kind)?;
    Some(Key::new(metadata.namespace.clone().unwrap_or_default(), owner.name.clone()))
}

/// The keys to wake for a pod: of its manager, or of all that would take it in.
pub(crate) fn concerned<O: Kind>(
    metadata: &ObjectMeta,
    owners: impl FnOnce() -> Vec<Arc<O>>,
    selects_labels: impl Fn(&O, Option<&Labels>) -> bool,
) -> Vec<Key> {
    if controller_of(metadata).is_some() {
        return managed_by(metadata, <O as k8s_openapi::Resource>::KIND).into_iter().collect();
    }
    let taking = owners().into_iter().filter(|owner| selects_labels(owner, metadata.labels.as_ref()));
    taking.map(|owner| Key::of(owner.metadata())).collect()
}
