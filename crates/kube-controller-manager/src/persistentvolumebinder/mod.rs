//! Finds a volume for every claim, and says what became of a volume whose claim is gone. One key at a time: two claims must
//! not be promised one volume.

mod claim;
mod volume;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use component_helpers::volumes::{class_of_claim, class_of_volume, is_bound, names_class, volume_name, volume_spec};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use reconcile::{Cache, Index, Key, On, Plan, Rule, Work};

use crate::common::pods::{BY_CLAIM, of_claim};
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "persistentvolume-binder-controller",
    account: "persistent-volume-binder",
    source: "persistentvolume-controller",
    rules: &[
        Rule {
            groups: &[""],
            resources: &["persistentvolumes"],
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        Rule {
            groups: &[""],
            resources: &["persistentvolumes/status", "persistentvolumeclaims/status"],
            verbs: &["update"],
        },
        Rule { groups: &[""], resources: &["persistentvolumeclaims"], verbs: &["get", "list", "update", "watch"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["create", "delete", "get", "list", "watch"] },
        Rule { groups: &["storage.k8s.io"], resources: &["storageclasses"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["nodes"], verbs: &["list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
        Rule { groups: &[""], resources: &["events"], verbs: &["watch"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|cx, claim: &PersistentVolumeClaim| {
                let mut keys = vec![Key::of(&claim.metadata)];
                match volume_name(claim) {
                    Some(name) => keys.push(Key::cluster(name)),
                    None => {
                        let meant = cx.cache::<PersistentVolume>().found_by(MEANT_FOR, &keys[0].to_string());
                        keys.extend(meant.iter().map(|volume| Key::of(&volume.metadata)));
                    }
                }
                keys
            }),
            &On::every(|cx, volume: &PersistentVolume| {
                let mut keys = vec![Key::of(&volume.metadata)];
                match claim_of(volume) {
                    Some(claim) => keys.push(claim),
                    // It may be what a claim waits for.
                    None => {
                        let waiting = cx.cache::<PersistentVolumeClaim>().found_by(UNBOUND, class_of_volume(volume));
                        keys.extend(waiting.iter().map(|claim| Key::of(&claim.metadata)));
                    }
                }
                keys
            }),
            &On::every(|cx, class: &StorageClass| {
                let name = class.metadata.name.as_deref().unwrap_or_default();
                unbound(cx, |claim| class_of_claim(claim) == name || !names_class(claim))
            }),
            // Read only, to tell which pod a claim waits for.
            &On::every(|_, _: &Pod| Vec::new()),
        ],
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// Volumes by the claim that they are meant for.
const MEANT_FOR: Index<PersistentVolume> =
    Index { name: "meant for", of: |volume| claim_of(volume).map(|claim| claim.to_string()).into_iter().collect() };

/// Volumes that are meant for no claim, by their class.
const FREE: Index<PersistentVolume> = Index {
    name: "free",
    of: |volume| {
        if claim_of(volume).is_some() { Vec::new() } else { vec![class_of_volume(volume).to_owned()] }
    },
};

/// Claims that have no volume yet, by their class.
const UNBOUND: Index<PersistentVolumeClaim> = Index {
    name: "unbound",
    of: |claim| if is_bound(claim) { Vec::new() } else { vec![class_of_claim(claim).to_owned()] },
};

/// The volumes that a claim may get, in the order of their names: with thousands of claims and volumes, each is not held against each.
fn candidates(volumes: &Cache<PersistentVolume>, claim: &PersistentVolumeClaim) -> Vec<Arc<PersistentVolume>> {
    let mut found = volumes.found_by(MEANT_FOR, &Key::of(&claim.metadata).to_string());
    found.extend(volumes.found_by(FREE, class_of_claim(claim)));
    found.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    found
}

/// The claim that a volume is meant for.
fn claim_of(volume: &PersistentVolume) -> Option<Key> {
    let reference = volume_spec(volume).claim_ref.as_ref()?;
    Some(Key::new(reference.namespace.clone().unwrap_or_default(), reference.name.clone().unwrap_or_default()))
}

fn unbound(cx: &Context, concerned: impl Fn(&PersistentVolumeClaim) -> bool) -> Vec<Key> {
    let claims = cx.cache::<PersistentVolumeClaim>().list();
    let waiting = claims.iter().filter(|claim| !is_bound(claim) && concerned(claim));
    waiting.map(|claim| Key::of(&claim.metadata)).collect()
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let (claims, volumes) = (cx.cache::<PersistentVolumeClaim>(), cx.cache::<PersistentVolume>());
    if key.namespace.is_empty() {
        let Some(volume) = volumes.get(key) else { return Ok(Plan::nothing()) };
        let claim = claim_of(&volume).and_then(|key| claims.get(&key));
        return Ok(volume::plan(&volume, claim.as_deref()));
    }
    let Some(claim) = claims.get(key) else { return Ok(Plan::nothing()) };
    let classes = cx.cache::<StorageClass>().list();
    let named = volume_name(&claim).and_then(|name| volumes.get(&Key::cluster(name)));
    // Volumes are looked at only while the claim has none.
    let free = if volume_name(&claim).is_none() { candidates(&volumes, &claim) } else { Vec::new() };
    let users = || cx.cache::<Pod>().found_by(BY_CLAIM, &of_claim(&key.namespace, &key.name));
    let pods = if is_bound(&claim) { Vec::new() } else { users() };
    let seen = claim::Seen { classes: &classes, named: named.as_deref(), volumes: &free, pods: &pods };
    Ok(claim::plan(&claim, &seen))
}
