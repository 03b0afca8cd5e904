//! VolumeBinding: a pod goes only where its volumes are, or can be made. `bind.rs` gives volumes and claims to each other once
//! the node is chosen.

pub mod bind;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use component_helpers::pods::is_controlled_by;
use component_helpers::volumes::{
    BOUND_BY_CONTROLLER, NO_PROVISIONER, SELECTED_NODE, annotation, asked_size, best_volume, claim_names,
    class_of_claim, is_bound, reaches, topology_allows, volume_name, waits_for_consumer,
};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use machinery::quantity::Quantity;
use reconcile::Key;

use super::names_claim;
use crate::framework::{Change, Filter, Filtering, Plugin, Reasons, Refusal, Reservation, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct VolumeBinding {
    /// How long a pod that has a node waits for its volumes.
    pub bind_timeout: Duration,
}

impl Default for VolumeBinding {
    fn default() -> VolumeBinding {
        VolumeBinding { bind_timeout: Duration::from_secs(600) }
    }
}

const NOT_REACHED: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_FOUND: &str = "node(s) didn't find available persistent volumes to bind";
const NO_ROOM: &str = "node(s) did not have enough free storage";
const VOLUME_GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        match Volumes::of(view, pod) {
            Ok(None) => Filtering::Skip,
            Ok(Some(volumes)) => Filtering::Ask(Box::new(volumes)),
            Err(why) => Filtering::Refused(Refusal::final_(why.to_string())),
        }
    }

    fn reserve(&self, view: View, pod: &PodInfo, node: &NodeInfo) -> Option<Reservation> {
        let volumes = Volumes::of(view, pod).ok().flatten()?;
        let awaited: Vec<Key> = volumes.waiting.iter().map(|wish| Key::of(&wish.claim.metadata)).collect();
        if awaited.is_empty() {
            return None;
        }
        let choices = volumes.choose(node).ok()?;
        let mut reservation = Reservation { awaited, ..Reservation::default() };
        for (claim, choice) in choices {
            match choice {
                Choice::Take(volume) => reservation.volumes.push(Arc::new(given(&volume, &claim))),
                Choice::Make => {
                    let mut claim = (*claim).clone();
                    let annotations = claim.metadata.annotations.get_or_insert_default();
                    annotations.insert(SELECTED_NODE.into(), node.name.clone());
                    reservation.claims.push(Arc::new(claim));
                }
            }
        }
        Some(reservation)
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            Change::Node { new, .. } => new.is_some(),
            Change::OwnUpdate { .. } | Change::PlacedPod { .. } => false,
            Change::Object { kind: "PersistentVolumeClaim", key } => names_claim(pod, key),
            Change::Object { kind, .. } => {
                matches!(*kind, "PersistentVolume" | "StorageClass" | "CSINode" | "CSIDriver" | "CSIStorageCapacity")
            }
        }
    }
}

/// The volume as it is once the claim has it. One that was made for the claim keeps its mark.
fn given(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> PersistentVolume {
    let mut volume = volume.clone();
    let spec = volume.spec.get_or_insert_default();
    if spec.claim_ref.is_none() {
        volume.metadata.annotations.get_or_insert_default().insert(BOUND_BY_CONTROLLER.into(), "yes".into());
    }
    spec.claim_ref = Some(ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    });
    volume
}

/// A claim that is bound only when its node is known.
struct Wish {
    claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
    /// Volumes of its class.
    volumes: Vec<Arc<PersistentVolume>>,
}

enum Choice {
    Take(Arc<PersistentVolume>),
    Make,
}

/// Why no node can do: users read it in the message of the pod.
#[derive(Debug, thiserror::Error)]
enum Impossible {
    #[error("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{0}\"")]
    NotCreated(String),
    #[error("persistentvolumeclaim \"{0}\" not found")]
    NotFound(String),
    #[error("persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\"")]
    Lost { claim: String, volume: String },
    #[error("persistentvolumeclaim \"{0}\" is being deleted")]
    Deleted(String),
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwner { claim: Key, pod: Key },
    #[error("storageclass.storage.k8s.io \"{0}\" not found")]
    NoClass(String),
    #[error("pod has unbound immediate PersistentVolumeClaims")]
    Unbound,
}

/// What the pod's claims ask of a node.
struct Volumes<'a> {
    view: View<'a>,
    bound: Vec<Option<Arc<PersistentVolume>>>,
    waiting: Vec<Wish>,
}

impl<'a> Volumes<'a> {
    /// Nothing when the pod has no claims; an error says why no node can do.
    fn of(view: View<'a>, pod: &PodInfo) -> Result<Option<Volumes<'a>>, Impossible> {
        let objects = view.objects;
        let mut volumes = Volumes { view, bound: Vec::new(), waiting: Vec::new() };
        let (mut any, mut immediate) = (false, false);
        for (name, ephemeral) in claim_names(&pod.pod) {
            any = true;
            let claim = usable_claim(view, pod, &name, ephemeral)?;
            if is_bound(&claim) {
                volumes.bound.push(objects.volume(volume_name(&claim).unwrap_or_default()));
                continue;
            }
            let class_name = class_of_claim(&claim);
            let class = match class_name {
                "" => None,
                name => {
                    Some(objects.classes.get(&Key::cluster(name)).ok_or_else(|| Impossible::NoClass(name.to_owned()))?)
                }
            };
            match class.filter(|class| waits_for_consumer(class) && volume_name(&claim).is_none()) {
                None => immediate = true,
                Some(class) => {
                    let of_class = objects.volumes().filter(|volume| {
                        component_helpers::volumes::class_of_volume(volume) == class_name
                            || component_helpers::volumes::is_meant_for(volume, &claim)
                    });
                    volumes.waiting.push(Wish { volumes: of_class.collect(), claim, class });
                }
            }
        }
        if immediate {
            return Err(Impossible::Unbound);
        }
        // The smallest choose first, so that they leave the large ones to others.
        volumes.waiting.sort_by_key(|wish| asked_size(&wish.claim));
        Ok(any.then_some(volumes))
    }

    fn choose(&self, node: &NodeInfo) -> Result<Vec<(Arc<PersistentVolumeClaim>, Choice)>, &'static str> {
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let mut choices = Vec::new();
        for wish in &self.waiting {
            let selected = annotation(&wish.claim.metadata, SELECTED_NODE);
            if selected.is_some_and(|selected| selected != node.name) {
                return Err(NONE_FOUND);
            }
            let place = Some((node.name.as_str(), &*node.labels));
            let volumes = wish.volumes.iter().map(|volume| &**volume);
            let found = match selected {
                Some(_) => None,
                None => best_volume(&wish.claim, volumes, place, false, &taken),
            };
            let choice = match found {
                Some(volume) => {
                    let name = volume.metadata.name.clone().unwrap_or_default();
                    let volume = wish.volumes.iter().find(|each| each.metadata.name.as_ref() == Some(&name));
                    taken.insert(name);
                    Choice::Take(volume.expect("it was found among them").clone())
                }
                None => self.can_make(wish, node).map(|()| Choice::Make)?,
            };
            choices.push((wish.claim.clone(), choice));
        }
        Ok(choices)
    }

    fn can_make(&self, wish: &Wish, node: &NodeInfo) -> Result<(), &'static str> {
        let provisioner = wish.class.provisioner.as_str();
        if provisioner.is_empty() || provisioner == NO_PROVISIONER || !topology_allows(&wish.class, &node.labels) {
            return Err(NONE_FOUND);
        }
        let driver = self.view.objects.csi_drivers.get(&Key::cluster(provisioner));
        if driver.is_none_or(|driver| driver.spec.storage_capacity != Some(true)) {
            return Ok(());
        }
        let asked = asked_size(&wish.claim);
        let room = self.view.objects.capacities.list().into_iter().any(|capacity| {
            let size = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
            let enough = size.and_then(|size| Quantity::parse(&size.0).ok()).is_some_and(|size| size >= asked);
            let here = component_helpers::labels::compiled(capacity.node_topology.as_ref());
            Some(capacity.storage_class_name.as_str()) == wish.class.metadata.name.as_deref()
                && enough
                && here.is_some_and(|here| component_helpers::labels::selects(&here, Some(&node.labels)))
        });
        if room { Ok(()) } else { Err(NO_ROOM) }
    }
}

/// The claim, if a pod can use it at all.
fn usable_claim(
    view: View,
    pod: &PodInfo,
    name: &str,
    ephemeral: bool,
) -> Result<Arc<PersistentVolumeClaim>, Impossible> {
    let namespace = &pod.key.namespace;
    let claim = view.objects.claim(&Key::new(namespace.clone(), name));
    let claim = claim.ok_or_else(|| {
        if ephemeral { Impossible::NotCreated(name.to_owned()) } else { Impossible::NotFound(name.to_owned()) }
    })?;
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
        let volume = volume_name(&claim).unwrap_or_default().to_owned();
        return Err(Impossible::Lost { claim: name.to_owned(), volume });
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(Impossible::Deleted(name.to_owned()));
    }
    if ephemeral && !is_controlled_by(&claim.metadata, &pod.uid) {
        return Err(Impossible::NotOwner { claim: Key::new(namespace.clone(), name), pod: pod.key.clone() });
    }
    Ok(claim)
}

impl Filter for Volumes<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        let mut reasons = None;
        if self.bound.iter().any(Option::is_none) {
            Reasons::push(&mut reasons, VOLUME_GONE);
        } else if !self.bound.iter().flatten().all(|volume| reaches(volume, &node.name, &node.labels)) {
            Reasons::push(&mut reasons, NOT_REACHED);
        }
        if let Err(why) = self.choose(node) {
            Reasons::push(&mut reasons, why);
        }
        match reasons {
            None => Ok(()),
            Some(reasons) => Err(Refusal { reasons, resolvable: false, is_error: false }),
        }
    }
}
