//! Claims and volumes told as JSON, and the next write they lead to.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use reconcile::Plan;
use serde_json::{Value, json};

use super::claim::{Seen, plan};

fn claim(annotations: Value, volume: &str, class: Option<&str>, phase: &str) -> PersistentVolumeClaim {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    if !volume.is_empty() {
        spec["volumeName"] = volume.into();
    }
    if let Some(class) = class {
        spec["storageClassName"] = class.into();
    }
    let metadata = json!({"name": "c", "namespace": "a", "uid": "claim", "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}})).expect("a claim")
}

fn volume(reference: Value, annotations: Value, policy: &str, phase: &str) -> PersistentVolume {
    let object = json!({
        "metadata": {"name": "v", "uid": "volume", "annotations": annotations},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": reference,
            "persistentVolumeReclaimPolicy": policy},
        "status": {"phase": phase},
    });
    serde_json::from_value(object).expect("a volume")
}

fn class(name: &str, provisioner: &str, mode: &str, default: bool) -> Arc<StorageClass> {
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": default.to_string()});
    let object = json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": provisioner, "volumeBindingMode": mode});
    Arc::new(serde_json::from_value(object).expect("a class"))
}

/// Writes, then events, one a line.
fn told(plan: &Plan) -> Vec<String> {
    let writes = plan.writes.iter().map(ToString::to_string);
    writes.chain(plan.events.iter().map(|event| format!("{} {}", event.reason, event.message))).collect()
}

const CLAIM: &str = "update /api/v1/namespaces/a/persistentvolumeclaims/c";
const CLAIM_STATUS: &str = "update /api/v1/namespaces/a/persistentvolumeclaims/c/status";
const VOLUME: &str = "update /api/v1/persistentvolumes/v";
const VOLUME_STATUS: &str = "update /api/v1/persistentvolumes/v/status";

fn check(
    claim: &PersistentVolumeClaim,
    volumes: &[PersistentVolume],
    classes: &[Arc<StorageClass>],
    expected: &[&str],
) {
    let all: Vec<_> = volumes.iter().cloned().map(Arc::new).collect();
    let named = all.iter().find(|volume| volume.metadata.name.as_deref() == super::volume_name(claim));
    let seen = Seen { classes, named: named.map(|volume| &**volume), volumes: &all, pods: &[] };
    assert_eq!(told(&plan(claim, &seen)), expected);
}

#[test]
fn binding_goes_step_by_step() {
    let reference = json!({"name": "c", "namespace": "a", "uid": "claim"});
    let free = claim(json!({}), "", Some(""), "Pending");
    check(&free, &[volume(Value::Null, json!({}), "Retain", "Available")], &[], &[VOLUME]);
    let taken = volume(reference.clone(), json!({}), "Retain", "Available");
    check(&free, std::slice::from_ref(&taken), &[], &[VOLUME_STATUS, CLAIM]);
    let bound = volume(reference, json!({}), "Retain", "Bound");
    check(&free, std::slice::from_ref(&bound), &[], &[CLAIM]);
    let complete = json!({"pv.kubernetes.io/bind-completed": "yes"});
    check(&claim(complete.clone(), "v", Some(""), "Pending"), std::slice::from_ref(&bound), &[], &[CLAIM_STATUS]);
    let mut done = claim(complete, "v", Some(""), "Bound");
    let status = done.status.get_or_insert_default();
    status.access_modes = Some(vec!["ReadWriteOnce".into()]);
    status.capacity = bound.spec.as_ref().and_then(|spec| spec.capacity.clone());
    check(&done, std::slice::from_ref(&bound), &[], &[]);
}

#[test]
fn a_claim_has_the_attributes_of_the_volume_that_it_is_bound_to() {
    let reference = json!({"name": "c", "namespace": "a", "uid": "claim"});
    let mut gold = volume(reference, json!({}), "Retain", "Bound");
    gold.spec.get_or_insert_default().volume_attributes_class_name = Some("gold".into());
    let current = |phase: &str, current: Option<&str>| {
        let mut claim = claim(json!({"pv.kubernetes.io/bind-completed": "yes"}), "v", Some(""), phase);
        claim.spec.get_or_insert_default().volume_attributes_class_name = Some("gold".into());
        let status = claim.status.get_or_insert_default();
        status.current_volume_attributes_class_name = current.map(Into::into);
        let all = [Arc::new(gold.clone())];
        let seen = Seen { classes: &[], named: Some(&gold), volumes: &all, pods: &[] };
        let write = plan(&claim, &seen).writes.remove(0);
        write.body()["status"]["currentVolumeAttributesClassName"].clone()
    };
    assert_eq!(current("Pending", None), "gold");
    // From then on it is the resizer's to say.
    assert_eq!(current("Bound", Some("silver")), "silver");
}

#[test]
fn a_claim_without_a_volume_says_why_it_waits() {
    let nothing = "FailedBinding no persistent volumes available for this claim and no storage class is set";
    check(&claim(json!({}), "", Some(""), "Pending"), &[], &[], &[nothing]);
    check(&claim(json!({}), "", None, ""), &[], &[], &[CLAIM_STATUS, nothing]);
    let late = class("late", "example.com/p", "WaitForFirstConsumer", false);
    let first = "WaitForFirstConsumer waiting for first consumer to be created before binding";
    check(&claim(json!({}), "", Some("late"), "Pending"), &[], std::slice::from_ref(&late), &[first]);
    // Once the node is chosen, the provisioner is told.
    let selected = json!({"volume.kubernetes.io/selected-node": "n1"});
    check(&claim(selected, "", Some("late"), "Pending"), &[], &[late], &[CLAIM]);
    let absent = r#"ProvisioningFailed storageclass.storage.k8s.io "x" not found"#;
    check(&claim(json!({}), "", Some("x"), "Pending"), &[], &[], &[absent]);
    // A class that becomes the default is given to claims that named none.
    check(&claim(json!({}), "", None, "Pending"), &[], &[class("d", "p", "Immediate", true)], &[CLAIM]);
    let asked =
        json!({"volume.kubernetes.io/storage-provisioner": "p", "volume.beta.kubernetes.io/storage-provisioner": "p"});
    let waits = "ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'p' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.";
    check(&claim(asked, "", Some("d"), "Pending"), &[], &[class("d", "p", "Immediate", true)], &[waits]);
}

#[test]
fn a_pod_that_waits_with_the_claim_is_named() {
    let pod = json!({"metadata": {"name": "p", "namespace": "a"}, "spec": {"containers": [],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}});
    let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).expect("a pod"));
    let classes = [class("late", "p", "WaitForFirstConsumer", false)];
    let seen = Seen { classes: &classes, named: None, volumes: &[], pods: &[pod] };
    let plan = plan(&claim(json!({}), "", Some("late"), "Pending"), &seen);
    assert_eq!(told(&plan), ["WaitForPodScheduled waiting for pod p to be scheduled"]);
}

#[test]
fn lost_and_misused_volumes_are_told() {
    let complete = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let lost = "ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    check(&claim(complete.clone(), "v", Some(""), "Bound"), &[], &[], &[CLAIM_STATUS, lost]);
    check(&claim(complete, "v", Some(""), "Lost"), &[], &[], &[]);
    let others = volume(json!({"name": "x", "namespace": "a", "uid": "x"}), json!({}), "Retain", "Bound");
    let bound = r#"FailedBinding volume "v" already bound to a different claim."#;
    check(&claim(json!({}), "v", Some(""), "Pending"), &[others], &[], &[bound]);
    let free = volume(Value::Null, json!({}), "Retain", "Available");
    let mismatch = r#"VolumeMismatch Cannot bind to requested volume "v": storageClassName does not match"#;
    check(&claim(json!({}), "v", Some("x"), "Pending"), &[free], &[], &[mismatch]);
}

#[test]
fn volumes_follow_their_claims() {
    let reference = json!({"name": "c", "namespace": "a", "uid": "claim"});
    let check = |volume: PersistentVolume, claim: Option<&PersistentVolumeClaim>, expected: &[&str]| {
        assert_eq!(told(&super::volume::plan(&volume, claim)), expected);
    };
    check(volume(Value::Null, json!({}), "Retain", ""), None, &[VOLUME_STATUS]);
    check(volume(Value::Null, json!({}), "Retain", "Available"), None, &[]);
    check(volume(json!({"name": "c", "namespace": "a"}), json!({}), "Retain", ""), None, &[VOLUME_STATUS]);
    check(volume(reference.clone(), json!({}), "Retain", "Bound"), None, &[VOLUME_STATUS]);
    check(volume(reference.clone(), json!({}), "Retain", "Released"), None, &[]);
    let cannot =
        r#"VolumeFailedDelete error getting deleter volume plugin for volume "v": no deletable volume plugin matched"#;
    check(volume(reference.clone(), json!({}), "Delete", "Released"), None, &[VOLUME_STATUS, cannot]);
    let provisioned = json!({"pv.kubernetes.io/provisioned-by": "p"});
    check(volume(reference.clone(), provisioned, "Delete", "Released"), None, &[]);
    let elsewhere = claim(json!({}), "other", None, "Bound");
    check(volume(reference, json!({}), "Retain", "Bound"), Some(&elsewhere), &[VOLUME]);
}

#[test]
fn a_claim_is_held_only_against_volumes_that_it_may_get() {
    let named = |name: &str, reference: Value, class: &str| {
        let mut made = volume(reference, json!({}), "Retain", "Available");
        made.metadata.name = Some(name.into());
        if let Some(spec) = &mut made.spec {
            spec.storage_class_name = Some(class.into());
        }
        made
    };
    let volumes = reconcile::Cache::holding([
        named("free", Value::Null, "fast"),
        named("of-another-class", Value::Null, "slow"),
        named("meant", json!({"namespace": "a", "name": "c"}), "slow"),
        named("meant-for-another", json!({"namespace": "b", "name": "c"}), "fast"),
        named("also-free", Value::Null, "fast"),
    ]);
    let found = super::candidates(&volumes, &claim(json!({}), "", Some("fast"), "Pending"));
    let names: Vec<&str> = found.iter().filter_map(|one| one.metadata.name.as_deref()).collect();
    assert_eq!(names, ["also-free", "free", "meant"]);
}
