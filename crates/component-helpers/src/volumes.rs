//! Claims and volumes: which volume is right for a claim, and what they say about each other.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, Pod, Volume,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::quantity::Quantity;

use crate::labels::{Labels, compiled, selects};
use crate::node_affinity::selector_matches;

/// Claim and volume have found each other for good.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The controller chose the other side, not the user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Which provisioner made the volume.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Of the built-in class: our name, and that of the provisioner whose manifests people bring along.
pub const LOCAL_PATH_PROVISIONERS: [&str; 2] = ["knarr.dev/local-path", "rancher.io/local-path"];
/// Which provisioner is to make the claim's volume, in the name of today and the one before.
pub const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub const PROVISIONER_BEFORE: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The node that the first pod of the claim goes to.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const CLASS_BEFORE: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const DEFAULT_CLASS_BEFORE: &str = "storageclass.beta.kubernetes.io/is-default-class";
/// The provisioner of classes whose volumes people make.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

pub fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref().and_then(|annotations| annotations.get(name)).map(String::as_str)
}

/// The class that a claim asks for; empty for none.
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let own = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&claim.metadata, CLASS_BEFORE).or(own).unwrap_or_default()
}

/// Whether the claim says anything about its class, if only that it wants none.
pub fn names_class(claim: &PersistentVolumeClaim) -> bool {
    let named = claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some());
    named || annotation(&claim.metadata, CLASS_BEFORE).is_some()
}

pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let own = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&volume.metadata, CLASS_BEFORE).or(own).unwrap_or_default()
}

pub(crate) fn is_default_class(class: &StorageClass) -> bool {
    let says = |name: &str| annotation(&class.metadata, name) == Some("true");
    says(DEFAULT_CLASS) || says(DEFAULT_CLASS_BEFORE)
}

/// The class of claims that name none: the newest of those marked, by name where several are as new.
pub fn default_class<'a>(classes: impl IntoIterator<Item = &'a StorageClass>) -> Option<&'a StorageClass> {
    let marked = classes.into_iter().filter(|class| is_default_class(class));
    marked.min_by_key(|class| {
        let made = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(made), class.metadata.name.clone())
    })
}

pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

pub fn claim_spec(claim: &PersistentVolumeClaim) -> &PersistentVolumeClaimSpec {
    static EMPTY: std::sync::LazyLock<PersistentVolumeClaimSpec> = std::sync::LazyLock::new(Default::default);
    claim.spec.as_ref().unwrap_or(&EMPTY)
}

pub fn volume_spec(volume: &PersistentVolume) -> &PersistentVolumeSpec {
    static EMPTY: std::sync::LazyLock<PersistentVolumeSpec> = std::sync::LazyLock::new(Default::default);
    volume.spec.as_ref().unwrap_or(&EMPTY)
}

/// The volume that a claim names.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim_spec(claim).volume_name.as_deref().filter(|name| !name.is_empty())
}

pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    volume_name(claim).is_some() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// Whether the volume is meant for that claim, by name, and by uid if it says one.
pub fn is_meant_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume_spec(volume).claim_ref.as_ref().is_some_and(|reference| {
        let uid = reference.uid.as_deref().unwrap_or_default();
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
    })
}

/// How much a claim asks for.
pub fn asked_size(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim_spec(claim).resources.as_ref().and_then(|resources| resources.requests.as_ref());
    size(requests.and_then(|requests| requests.get("storage")))
}

pub fn volume_size(volume: &PersistentVolume) -> Quantity {
    size(volume_spec(volume).capacity.as_ref().and_then(|capacity| capacity.get("storage")))
}

fn size(written: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>) -> Quantity {
    let read = written.and_then(|written| Quantity::parse(&written.0).ok());
    read.unwrap_or_else(|| Quantity::from_int(0, machinery::quantity::Format::BinarySi))
}

/// Why a volume that the claim names by name is not right for it.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    if volume_size(volume) < asked_size(claim) {
        return Some("requested PV is too small");
    }
    if class_of_volume(volume) != class_of_claim(claim) {
        return Some("storageClassName does not match");
    }
    if attributes_of_volume(volume) != attributes_of_claim(claim) {
        return Some("volumeAttributesClassName does not match");
    }
    if !same_mode(volume, claim) {
        return Some("incompatible volumeMode");
    }
    (!has_access_modes(volume, claim)).then_some("incompatible accessMode")
}

/// The VolumeAttributesClass that a volume has; empty for none.
fn attributes_of_volume(volume: &PersistentVolume) -> &str {
    volume_spec(volume).volume_attributes_class_name.as_deref().unwrap_or_default()
}

fn attributes_of_claim(claim: &PersistentVolumeClaim) -> &str {
    claim_spec(claim).volume_attributes_class_name.as_deref().unwrap_or_default()
}

fn same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".into());
    mode(&volume_spec(volume).volume_mode) == mode(&claim_spec(claim).volume_mode)
}

fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume_spec(volume).access_modes.as_deref().unwrap_or_default();
    claim_spec(claim).access_modes.iter().flatten().all(|mode| has.contains(mode))
}

/// Whether a node can reach the volume.
pub fn reaches(volume: &PersistentVolume, node: &str, labels: &Labels) -> bool {
    let required = volume_spec(volume).node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|selector| selector_matches(selector, node, labels))
}

/// The volume for a claim: one that is meant for it, or else the smallest that will do, with the fewest access modes it did not
/// ask for. With a node, only what that node can reach; without, `only_meant` leaves the choice to whoever knows the node.
pub fn best_volume<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'a PersistentVolume>,
    node: Option<(&str, &Labels)>,
    only_meant: bool,
    taken: &BTreeSet<String>,
) -> Option<&'a PersistentVolume> {
    let asked = asked_size(claim);
    let selector = claim_spec(claim).selector.as_ref().map(|selector| compiled(Some(selector)));
    let mut best: Option<(usize, Quantity, &PersistentVolume)> = None;
    for volume in volumes {
        let meant = is_meant_for(volume, claim);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let other = volume_spec(volume).claim_ref.is_some() && !meant;
        let size = volume_size(volume);
        if other || taken.contains(name) || volume.metadata.deletion_timestamp.is_some() || size < asked {
            continue;
        }
        if !same_mode(volume, claim) || !has_access_modes(volume, claim) {
            continue;
        }
        if attributes_of_volume(volume) != attributes_of_claim(claim) {
            continue;
        }
        let reached = node.is_none_or(|(node, labels)| reaches(volume, node, labels));
        if meant {
            return reached.then_some(volume);
        }
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let selected = match &selector {
            None => true,
            Some(selector) => {
                selector.as_ref().is_some_and(|selector| selects(selector, volume.metadata.labels.as_ref()))
            }
        };
        let fits =
            reached && selected && phase == Some("Available") && class_of_volume(volume) == class_of_claim(claim);
        if only_meant || !fits {
            continue;
        }
        let modes = volume_spec(volume).access_modes.as_ref().map_or(0, Vec::len);
        if best.as_ref().is_none_or(|(least, smallest, _)| (modes, &size) < (*least, smallest)) {
            best = Some((modes, size, volume));
        }
    }
    best.map(|(_, _, volume)| volume)
}

/// The claim of one of the pod's volumes, and whether it is made for that pod alone.
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<(String, bool)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some((source.claim_name.clone(), false));
    }
    volume.ephemeral.as_ref()?;
    Some((format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name), true))
}

/// All claims of the pod.
pub fn claim_names(pod: &Pod) -> impl Iterator<Item = (String, bool)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| claim_name(pod, volume))
}

/// Whether any of the terms of a class's `allowedTopologies` is the node's; no terms allow every node.
pub fn topology_allows(class: &StorageClass, labels: &Labels) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    terms.is_empty()
        || terms.iter().any(|term| {
            let wanted = term.match_label_expressions.as_deref().unwrap_or_default();
            wanted.iter().all(|each| labels.get(&each.key).is_some_and(|value| each.values.contains(value)))
        })
}

pub fn node_labels(node: &Node) -> Labels {
    node.metadata.labels.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> PersistentVolumeClaim {
        let metadata = json!({"name": "c", "namespace": "a", "uid": "1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a claim")
    }

    /// `name size modes class node claim`, `-` for nothing.
    fn volumes(text: &str) -> Vec<PersistentVolume> {
        let volume = |line: &str| {
            let [name, size, modes, class, node, claim] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let modes: Vec<&str> = modes.split(',').collect();
            let mut spec = json!({"capacity": {"storage": size}, "accessModes": modes});
            if class != "-" {
                spec["storageClassName"] = class.into();
            }
            if node != "-" {
                let term = json!({"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]});
                spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
            }
            if claim != "-" {
                spec["claimRef"] = json!({"name": claim, "namespace": "a"});
            }
            let object = json!({"metadata": {"name": name, "labels": {"name": name}}, "spec": spec, "status": {"phase": "Available"}});
            serde_json::from_value(object).expect("a volume")
        };
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(volume).collect()
    }

    #[test]
    fn the_smallest_volume_that_will_do_is_taken() {
        let volumes = volumes(
            "tiny   1Gi RWO     - -  -
             large  9Gi RWO     - -  -
             middle 5Gi RWO     - -  -
             many   4Gi RWO,RWX - -  -
             fast   5Gi RWO     ssd - -
             local  5Gi RWO     disk n1 -
             meant  8Gi RWO     x -  mine
             others 5Gi RWX     - -  other",
        );
        let check = |name: &str, spec: Value, node: Option<&str>, only_meant: bool, expected: Option<&str>| {
            let mut claim = claim(spec.clone());
            claim.metadata.name = Some(name.into());
            let labels: Labels = node.iter().map(|node| ("host".to_owned(), node.to_string())).collect();
            let node = node.map(|node| (node, &labels));
            let found = best_volume(&claim, &volumes, node, only_meant, &BTreeSet::new());
            assert_eq!(found.and_then(|volume| volume.metadata.name.as_deref()), expected, "{spec}");
        };
        let asks = |size: &str, mode: &str, class: &str| json!({"accessModes": [mode], "storageClassName": class, "resources": {"requests": {"storage": size}}});
        check("c", asks("2Gi", "RWO", ""), None, false, Some("middle"));
        check("c", asks("6Gi", "RWO", ""), None, false, Some("large"));
        check("c", asks("2Gi", "RWX", ""), None, false, Some("many"));
        check("c", asks("10Gi", "RWO", ""), None, false, None);
        check("c", asks("2Gi", "RWO", "ssd"), None, false, Some("fast"));
        check("c", asks("2Gi", "RWO", "ssd"), None, true, None);
        check("c", asks("2Gi", "RWO", "disk"), Some("n1"), false, Some("local"));
        check("c", asks("2Gi", "RWO", "disk"), Some("n2"), false, None);
        check("mine", asks("2Gi", "RWO", ""), None, true, Some("meant"));
        let mut selecting = asks("1Gi", "RWO", "");
        selecting["selector"] = json!({"matchLabels": {"name": "large"}});
        check("c", selecting, None, false, Some("large"));
        let mut block = asks("1Gi", "RWO", "");
        block["volumeMode"] = "Block".into();
        check("c", block, None, false, None);
        // Nothing has attributes of a class, and a volume that is meant for the claim is none for it without them.
        for (name, only_meant) in [("c", false), ("mine", true)] {
            let mut gold = asks("2Gi", "RWO", "");
            gold["volumeAttributesClassName"] = "gold".into();
            check(name, gold, None, only_meant, None);
        }
    }

    #[test]
    fn a_named_volume_must_be_right() {
        let volume = &volumes("v 2Gi RWO - - -")[0];
        let check = |size: &str, mode: &str, class: &str, expected: Option<&str>| {
            let spec =
                json!({"accessModes": [mode], "storageClassName": class, "resources": {"requests": {"storage": size}}});
            assert_eq!(mismatch(volume, &claim(spec)), expected);
        };
        check("1Gi", "RWO", "", None);
        check("3Gi", "RWO", "", Some("requested PV is too small"));
        check("1Gi", "RWX", "", Some("incompatible accessMode"));
        check("1Gi", "RWO", "x", Some("storageClassName does not match"));
        let mut gold = volume.clone();
        gold.spec.get_or_insert_default().volume_attributes_class_name = Some("gold".into());
        let plain =
            json!({"accessModes": ["RWO"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}});
        assert_eq!(mismatch(&gold, &claim(plain)), Some("volumeAttributesClassName does not match"));
    }
}
