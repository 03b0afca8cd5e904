//! Who a pod of a StatefulSet is: its number, its name, its labels, its place in the network and its volumes.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};

use crate::common::history::REVISION_HASH;
use crate::common::template::pod_of;

pub(super) const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
pub(super) const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The numbers of the pods that a set wants: from, and up to but without. Numbers are wide, so that no size overflows them.
pub(super) fn ordinals(spec: &StatefulSetSpec) -> std::ops::Range<i64> {
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0).max(0);
    let replicas = spec.replicas.unwrap_or(1).max(0);
    i64::from(start)..i64::from(start) + i64::from(replicas)
}

pub(super) fn pod_name(set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

/// The number in a pod's name, if it is a name of this set's.
pub(super) fn ordinal_of(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    let name = pod.metadata.name.as_deref()?;
    let number = name.strip_prefix(set.metadata.name.as_deref()?)?.strip_prefix('-')?;
    // No sign, and no zeros before: two names of one number would be two pods of one number.
    let ordinal: i32 = number.parse().ok().filter(|ordinal: &i32| ordinal.to_string() == number)?;
    Some(i64::from(ordinal)).filter(|ordinal| *ordinal >= 0)
}

pub(super) fn revision_of(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(REVISION_HASH)).map(String::as_str).unwrap_or_default()
}

/// The pod of that number, of the template of a revision.
pub(super) fn pod_of_ordinal(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i64) -> Pod {
    let mut pod = pod_of(set, template);
    let name = pod_name(set, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.into(), name.clone());
    labels.insert(POD_INDEX.into(), ordinal.to_string());
    labels.insert(REVISION_HASH.into(), revision.to_owned());
    pod.metadata.name = Some(name.clone());
    let set_spec = set.spec.as_ref();
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = set_spec.and_then(|spec| spec.service_name.clone()).filter(|name| !name.is_empty());
    let claims: Vec<Volume> = templates(set).iter().map(|template| volume(set, template, ordinal)).collect();
    if !claims.is_empty() {
        let others = spec.volumes.take().unwrap_or_default().into_iter();
        let kept = others.filter(|volume| claims.iter().all(|claim| claim.name != volume.name));
        spec.volumes = Some(claims.iter().cloned().chain(kept).collect());
    }
    pod
}

pub(super) fn templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default()
}

pub(super) fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i64) -> String {
    format!("{}-{}", template.metadata.name.as_deref().unwrap_or_default(), pod_name(set, ordinal))
}

fn volume(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i64) -> Volume {
    Volume {
        name: template.metadata.name.clone().unwrap_or_default(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(set, template, ordinal),
            read_only: None,
        }),
        ..Volume::default()
    }
}

/// The labels a pod lacks of its identity, as after somebody has taken them away.
pub(super) fn missing_labels(pod: &Pod, ordinal: i64) -> Vec<(&'static str, String)> {
    let has = |label: &str, value: &str| {
        pod.metadata.labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|is| is == value)
    };
    let own = [(POD_NAME, pod.metadata.name.clone().unwrap_or_default()), (POD_INDEX, ordinal.to_string())];
    own.into_iter().filter(|(label, value)| !has(label, value)).collect()
}
