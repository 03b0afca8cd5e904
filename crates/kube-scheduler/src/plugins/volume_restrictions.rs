//! VolumeRestrictions: disks that only one node may write, and claims that only one pod may use.

use std::collections::BTreeSet;

use component_helpers::volumes::{claim_names, claim_spec};
use k8s_openapi::api::core::v1::{Pod, Volume};
use reconcile::Key;

use super::names_claim;
use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct VolumeRestrictions;

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let disks: Vec<&Volume> = volumes(pod).filter(|volume| is_disk(volume)).collect();
        let exclusive: BTreeSet<String> = claim_names(&pod.pod)
            .map(|(name, _)| name)
            .filter(|name| {
                let claim = view.objects.claim(&Key::new(pod.key.namespace.clone(), name.as_str()));
                claim.is_some_and(|claim| {
                    claim_spec(&claim).access_modes.iter().flatten().any(|mode| mode == "ReadWriteOncePod")
                })
            })
            .collect();
        if disks.is_empty() && exclusive.is_empty() {
            return Filtering::Skip;
        }
        let mut asked = Asked { pod, disks, exclusive, used: 0 };
        if !asked.exclusive.is_empty() {
            let others = view.snapshot.nodes().flat_map(|node| &node.pods);
            asked.used = others.map(|other| asked.uses(other)).sum();
        }
        Filtering::Ask(Box::new(asked))
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            Change::Node { old: None, new: Some(_) } => true,
            Change::PlacedPod { old: Some(gone), new: None } => {
                gone.metadata.namespace.as_deref() == Some(&pod.key.namespace) && shares_volumes(pod, gone)
            }
            Change::Object { kind: "PersistentVolumeClaim", key } => names_claim(pod, key),
            Change::Node { .. } | Change::PlacedPod { .. } | Change::OwnUpdate { .. } | Change::Object { .. } => false,
        }
    }
}

/// Whether both use a disk that only one of them can have, or the same claim.
fn shares_volumes(pod: &PodInfo, other: &Pod) -> bool {
    let theirs = || other.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let clash = volumes(pod).any(|volume| theirs().any(|other| conflict(volume, other)));
    clash || claim_names(other).any(|(theirs, _)| claim_names(&pod.pod).any(|(ours, _)| ours == theirs))
}

fn volumes(pod: &PodInfo) -> impl Iterator<Item = &Volume> {
    pod.spec().volumes.iter().flatten()
}

fn is_disk(volume: &Volume) -> bool {
    volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.iscsi.is_some()
        || volume.rbd.is_some()
}

/// Whether both name the same disk, and not both only read it.
fn conflict(one: &Volume, other: &Volume) -> bool {
    if let (Some(one), Some(other)) = (&one.gce_persistent_disk, &other.gce_persistent_disk) {
        let reading = one.read_only == Some(true) && other.read_only == Some(true);
        return one.pd_name == other.pd_name && !reading;
    }
    if let (Some(one), Some(other)) = (&one.aws_elastic_block_store, &other.aws_elastic_block_store) {
        return one.volume_id == other.volume_id;
    }
    if let (Some(one), Some(other)) = (&one.iscsi, &other.iscsi) {
        return one.iqn == other.iqn && !(one.read_only == Some(true) && other.read_only == Some(true));
    }
    if let (Some(one), Some(other)) = (&one.rbd, &other.rbd) {
        let reading = one.read_only == Some(true) && other.read_only == Some(true);
        let shared = one.monitors.iter().any(|monitor| other.monitors.contains(monitor));
        return shared && one.pool == other.pool && one.image == other.image && !reading;
    }
    false
}

struct Asked<'a> {
    pod: &'a PodInfo,
    disks: Vec<&'a Volume>,
    /// Claims of the pod that only one pod may use.
    exclusive: BTreeSet<String>,
    /// How often other pods use them.
    used: usize,
}

impl Asked<'_> {
    fn uses(&self, other: &PodInfo) -> usize {
        if other.key.namespace != self.pod.key.namespace || other.uid == self.pod.uid {
            return 0;
        }
        claim_names(&other.pod).filter(|(name, _)| self.exclusive.contains(name)).count()
    }
}

impl Filter for Asked<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        let clash = self
            .disks
            .iter()
            .any(|disk| node.pods.iter().any(|other| volumes(other).any(|volume| conflict(disk, volume))));
        if clash {
            return Err(Refusal::resolvable("node(s) had no available disk"));
        }
        match self.used {
            0 => Ok(()),
            _ => Err(Refusal::resolvable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            )),
        }
    }

    fn add_pod(&mut self, pod: &PodInfo, _: &NodeInfo) {
        self.used += self.uses(pod);
    }

    fn remove_pod(&mut self, pod: &PodInfo, _: &NodeInfo) {
        self.used = self.used.saturating_sub(self.uses(pod));
    }
}
