//! Objects that plugins look up besides nodes and pods: volumes, claims, classes, budgets and what spreads pods by default.

use std::collections::HashMap;
use std::sync::Arc;

use component_helpers::pods::controller_of;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, ReplicationController, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use reconcile::{Cache, Caches, Key};

use crate::framework::{DeviceClaim, DeviceClaimState, Reservation};
use crate::plugins::dynamic_resources::extended::stands_for;

#[derive(Clone)]
pub struct Objects {
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    pub volumes: Arc<Cache<PersistentVolume>>,
    pub classes: Arc<Cache<StorageClass>>,
    pub csi_nodes: Arc<Cache<CSINode>>,
    pub csi_drivers: Arc<Cache<CSIDriver>>,
    pub capacities: Arc<Cache<CSIStorageCapacity>>,
    pub attachments: Arc<Cache<VolumeAttachment>>,
    pub budgets: Arc<Cache<PodDisruptionBudget>>,
    pub services: Arc<Cache<Service>>,
    pub replica_sets: Arc<Cache<ReplicaSet>>,
    pub stateful_sets: Arc<Cache<StatefulSet>>,
    pub replication_controllers: Arc<Cache<ReplicationController>>,
    pub device_claims: Arc<Cache<ResourceClaim>>,
    pub device_classes: Arc<Cache<DeviceClass>>,
    pub slices: Arc<Cache<ResourceSlice>>,
    assumed: Assumed,
}

/// Volumes and claims as they will be when what was decided is written. An entry holds as long as the object is the one that
/// was decided about: the write itself, or anybody else's, ends it.
#[derive(Clone, Default)]
struct Assumed {
    volumes: HashMap<String, Arc<PersistentVolume>>,
    claims: HashMap<Key, Arc<PersistentVolumeClaim>>,
    /// These hold until they are forgotten: they are written in two steps.
    device_claims: HashMap<Key, Arc<ResourceClaim>>,
    /// Claims that have no name yet, by the uid of the pod that they are made for.
    unnamed: HashMap<String, Arc<ResourceClaim>>,
}

impl Objects {
    pub fn claim(&self, key: &Key) -> Option<Arc<PersistentVolumeClaim>> {
        let known = self.claims.get(key)?;
        let assumed = self.assumed.claims.get(key);
        let assumed = assumed.filter(|one| one.metadata.resource_version == known.metadata.resource_version);
        Some(assumed.cloned().unwrap_or(known))
    }

    pub fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.get(&Key::cluster(name)).map(|known| self.as_assumed(known))
    }

    pub fn volumes(&self) -> impl Iterator<Item = Arc<PersistentVolume>> {
        self.volumes.list().into_iter().map(|known| self.as_assumed(known))
    }

    /// A claim for devices.
    pub(crate) fn device_claim(&self, key: &Key) -> Option<Arc<ResourceClaim>> {
        self.device_claims.get(key).map(|known| self.allocated_as_assumed(known))
    }

    pub fn device_claims(&self) -> impl Iterator<Item = Arc<ResourceClaim>> {
        let known = self.device_claims.list().into_iter().map(|known| self.allocated_as_assumed(known));
        // As soon as the claim that was made is known with its devices, it stands for itself.
        let unknown = self.assumed.unnamed.iter().filter(|(uid, _)| {
            let mut owned = self.device_claims.owned_by(uid).into_iter();
            !owned.any(|claim| stands_for(&claim, uid) && has_devices(&claim))
        });
        known.chain(unknown.map(|(_, claim)| claim.clone()))
    }

    fn allocated_as_assumed(&self, known: Arc<ResourceClaim>) -> Arc<ResourceClaim> {
        if self.assumed.device_claims.is_empty() {
            return known;
        }
        let assumed = self.assumed.device_claims.get(&Key::of(&known.metadata));
        let assumed = assumed.filter(|one| !has_devices(&known) && one.metadata.uid == known.metadata.uid);
        assumed.cloned().unwrap_or(known)
    }

    fn as_assumed(&self, known: Arc<PersistentVolume>) -> Arc<PersistentVolume> {
        let assumed = self.assumed.volumes.get(known.metadata.name.as_deref().unwrap_or_default());
        let assumed = assumed.filter(|one| one.metadata.resource_version == known.metadata.resource_version);
        assumed.cloned().unwrap_or(known)
    }

    pub fn assume(&mut self, reservation: &Reservation) {
        for volume in &reservation.volumes {
            self.assumed.volumes.insert(volume.metadata.name.clone().unwrap_or_default(), volume.clone());
        }
        for claim in &reservation.claims {
            self.assumed.claims.insert(Key::of(&claim.metadata), claim.clone());
        }
        for DeviceClaim { claim, state } in &reservation.devices {
            match state {
                DeviceClaimState::Uncreated(_) => _ = self.assumed.unnamed.insert(owner(claim), claim.clone()),
                DeviceClaimState::Allocated | DeviceClaimState::Chosen => {
                    self.assumed.device_claims.insert(Key::of(&claim.metadata), claim.clone());
                }
            }
        }
    }

    /// It was written, or it will not be.
    pub fn forget(&mut self, reservation: &Reservation) {
        for volume in &reservation.volumes {
            self.assumed.volumes.remove(volume.metadata.name.as_deref().unwrap_or_default());
        }
        for claim in &reservation.claims {
            self.assumed.claims.remove(&Key::of(&claim.metadata));
        }
        for DeviceClaim { claim, state } in &reservation.devices {
            match state {
                DeviceClaimState::Uncreated(_) => _ = self.assumed.unnamed.remove(&owner(claim)),
                DeviceClaimState::Allocated | DeviceClaimState::Chosen => {
                    self.assumed.device_claims.remove(&Key::of(&claim.metadata));
                }
            }
        }
    }

    /// Begins to keep copies of all of them, shared with the rest of the process.
    pub fn start(caches: &Caches) -> Objects {
        Objects {
            claims: caches.start(""),
            volumes: caches.start(""),
            classes: caches.start(""),
            csi_nodes: caches.start(""),
            csi_drivers: caches.start(""),
            capacities: caches.start(""),
            attachments: caches.start(""),
            budgets: caches.start(""),
            services: caches.start(""),
            replica_sets: caches.start(""),
            stateful_sets: caches.start(""),
            replication_controllers: caches.start(""),
            device_claims: caches.start(""),
            device_classes: caches.start(""),
            slices: caches.start(""),
            assumed: Assumed::default(),
        }
    }

    pub async fn synced(&self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.csi_nodes.synced().await;
        self.csi_drivers.synced().await;
        self.capacities.synced().await;
        self.attachments.synced().await;
        self.budgets.synced().await;
        self.services.synced().await;
        self.replica_sets.synced().await;
        self.stateful_sets.synced().await;
        self.replication_controllers.synced().await;
        self.device_claims.synced().await;
        self.device_classes.synced().await;
        self.slices.synced().await;
    }
}

fn has_devices(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

fn owner(claim: &ResourceClaim) -> String {
    controller_of(&claim.metadata).map(|owner| owner.uid.clone()).unwrap_or_default()
}

impl Objects {
    /// Copies that hold nothing.
    pub fn empty() -> Objects {
        Objects {
            claims: reconcile::Cache::holding([]),
            volumes: reconcile::Cache::holding([]),
            classes: reconcile::Cache::holding([]),
            csi_nodes: reconcile::Cache::holding([]),
            csi_drivers: reconcile::Cache::holding([]),
            capacities: reconcile::Cache::holding([]),
            attachments: reconcile::Cache::holding([]),
            budgets: reconcile::Cache::holding([]),
            services: reconcile::Cache::holding([]),
            replica_sets: reconcile::Cache::holding([]),
            stateful_sets: reconcile::Cache::holding([]),
            replication_controllers: reconcile::Cache::holding([]),
            device_claims: reconcile::Cache::holding([]),
            device_classes: reconcile::Cache::holding([]),
            slices: reconcile::Cache::holding([]),
            assumed: Assumed::default(),
        }
    }
}
