//! VolumeZone: volumes that say their zone by a label are used in that zone only.

use component_helpers::volumes::{claim_names, is_bound, volume_name};
use reconcile::Key;

use super::names_claim;
use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct VolumeZone;

/// Labels of places, each with the name it had before.
const LABELS: [(&str, &str); 2] = [
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
];

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let mut places = Vec::new();
        for (name, _) in claim_names(&pod.pod) {
            // What is wrong with claims, VolumeBinding says.
            let claim = view.objects.claim(&Key::new(pod.key.namespace.clone(), name)).filter(|claim| is_bound(claim));
            let volume = claim.and_then(|claim| view.objects.volume(volume_name(&claim).unwrap_or_default()));
            let Some(volume) = volume else { continue };
            for (key, value) in volume.metadata.labels.iter().flatten() {
                if LABELS.iter().any(|(now, before)| key == now || key == before) {
                    // A volume in several zones lists them; a list with a gap says nothing.
                    let listed: Vec<String> = value.split("__").map(|zone| zone.trim().to_owned()).collect();
                    if listed.iter().all(|zone| !zone.is_empty()) {
                        places.push((key.clone(), listed));
                    }
                }
            }
        }
        if places.is_empty() { Filtering::Skip } else { Filtering::Ask(Box::new(Places(places))) }
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            Change::Node { new, .. } => new.is_some(),
            Change::OwnUpdate { .. } | Change::PlacedPod { .. } => false,
            Change::Object { kind: "PersistentVolumeClaim", key } => names_claim(pod, key),
            Change::Object { kind, .. } => matches!(*kind, "PersistentVolume" | "StorageClass"),
        }
    }
}

struct Places(Vec<(String, Vec<String>)>);

impl Filter for Places {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        let label = |key: &str| node.labels.get(key).map(String::as_str);
        // A node that says nothing of places is everywhere.
        if LABELS.iter().all(|(now, before)| label(now).or_else(|| label(before)).is_none()) {
            return Ok(());
        }
        // A volume of old may be on a node that has only the new label, but not the other way round.
        let said = |key: &str| {
            let renamed = LABELS.iter().find(|(_, before)| *before == key);
            label(key).or_else(|| renamed.and_then(|(now, _)| label(now)))
        };
        let here = |(key, values): &(String, Vec<String>)| {
            said(key).is_some_and(|value| values.iter().any(|one| one == value))
        };
        if self.0.iter().all(here) { Ok(()) } else { Err(Refusal::final_("node(s) had no available volume zone")) }
    }
}
