//! Pods made of templates.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::Kind;

use super::owners::controller_reference;

/// A pod of the template that the owner manages; the server completes its name.
pub(crate) fn pod_of<K: Kind>(owner: &K, template: &PodTemplateSpec) -> Pod {
    let empty = ObjectMeta::default();
    let (given, own) = (template.metadata.as_ref().unwrap_or(&empty), owner.metadata());
    let metadata = ObjectMeta {
        generate_name: Some(prefix(own.name.as_deref().unwrap_or_default())),
        namespace: own.namespace.clone(),
        labels: given.labels.clone(),
        annotations: given.annotations.clone(),
        finalizers: given.finalizers.clone(),
        owner_references: Some(vec![controller_reference(owner)]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// `name-`, unless that would be no name of a pod any more.
fn prefix(name: &str) -> String {
    const POD_NAME_MAX: usize = 253;
    if name.len() < POD_NAME_MAX { format!("{name}-") } else { name.to_owned() }
}
