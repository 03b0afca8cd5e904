//! NodeVolumeLimits: a node attaches only so many volumes of a CSI driver.

use std::collections::{BTreeMap, BTreeSet};

use component_helpers::volumes::{claim_names, class_of_claim, volume_name, volume_spec};
use reconcile::Key;

use super::names_claim;
use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct NodeVolumeLimits;

/// Handles of volumes, by driver.
type Handles = BTreeMap<String, BTreeSet<String>>;

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let mut asked = Handles::new();
        handles(view, pod, &mut asked);
        if asked.is_empty() { Filtering::Skip } else { Filtering::Ask(Box::new(Asked { view, asked })) }
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            // Only a pod with claims gives back a place for volumes.
            Change::PlacedPod { old: Some(gone), new: None } => claim_names(gone).next().is_some(),
            Change::Object { kind: "PersistentVolumeClaim", key } => names_claim(pod, key),
            Change::Object { kind, .. } => matches!(*kind, "CSINode" | "VolumeAttachment"),
            Change::Node { old: None, new: Some(_) } => true,
            Change::Node { .. } | Change::PlacedPod { .. } | Change::OwnUpdate { .. } => false,
        }
    }
}

/// The CSI volumes that a pod uses; one that is not made yet counts under the name of its claim.
fn handles(view: View, pod: &PodInfo, into: &mut Handles) {
    for (name, _) in claim_names(&pod.pod) {
        let key = Key::new(pod.key.namespace.clone(), name);
        let Some(claim) = view.objects.claim(&key) else { continue };
        let (driver, handle) = match volume_name(&claim).and_then(|name| view.objects.volume(name)) {
            Some(volume) => {
                let Some(csi) = volume_spec(&volume).csi.clone() else { continue };
                (csi.driver, csi.volume_handle)
            }
            None => {
                let class = view.objects.classes.get(&Key::cluster(class_of_claim(&claim)));
                let Some(class) = class else { continue };
                (class.provisioner.clone(), key.to_string())
            }
        };
        into.entry(driver).or_default().insert(handle);
    }
}

/// Volumes that are attached to a node though no pod uses them, or not yet: they take places too.
fn attached(view: View, node: &str, into: &mut Handles) {
    for attachment in view.objects.attachments.list() {
        let spec = &attachment.spec;
        let name = spec.source.persistent_volume_name.as_deref().filter(|_| spec.node_name == node);
        let volume = name.and_then(|name| view.objects.volume(name));
        if let Some(csi) = volume.and_then(|volume| volume_spec(&volume).csi.clone()) {
            into.entry(spec.attacher.clone()).or_default().insert(csi.volume_handle);
        }
    }
}

struct Asked<'a> {
    view: View<'a>,
    asked: Handles,
}

impl Filter for Asked<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        let Some(csi_node) = self.view.objects.csi_nodes.get(&Key::cluster(node.name.as_str())) else { return Ok(()) };
        let limit = |driver: &str| {
            let found = csi_node.spec.drivers.iter().find(|each| each.name == driver)?;
            found.allocatable.as_ref()?.count
        };
        let limited: Vec<(&String, usize)> =
            self.asked.keys().filter_map(|driver| Some((driver, usize::try_from(limit(driver)?).ok()?))).collect();
        if limited.is_empty() {
            return Ok(());
        }
        let mut there = Handles::new();
        node.pods.iter().for_each(|pod| handles(self.view, pod, &mut there));
        attached(self.view, &node.name, &mut there);
        for (driver, limit) in limited {
            let mut both = there.remove(driver).unwrap_or_default();
            let before = both.len();
            both.extend(self.asked[driver].iter().cloned());
            if both.len() > before && both.len() > limit {
                return Err(Refusal::resolvable("node(s) exceed max volume count"));
            }
        }
        Ok(())
    }
}
