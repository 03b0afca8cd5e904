//! `definitions.json` is what the types say. `UPDATE=1` writes it anew.

use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use k8s_openapi::apimachinery::pkg::version::Info;
use k8s_openapi::{api, apiextensions_apiserver, kube_aggregator};
use schemars::{Schema, SchemaGenerator};

use super::*;
use crate::schema::named;

/// The type of every kind, what else is decoded, and what is only sent or only described.
const TYPES: &[fn(&mut SchemaGenerator) -> Schema] = &[
    SchemaGenerator::subschema_for::<api::admissionregistration::v1::MutatingAdmissionPolicy>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1::MutatingAdmissionPolicyBinding>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1::MutatingWebhookConfiguration>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1::ValidatingAdmissionPolicy>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1::ValidatingAdmissionPolicyBinding>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1::ValidatingWebhookConfiguration>,
    SchemaGenerator::subschema_for::<api::apps::v1::ControllerRevision>,
    SchemaGenerator::subschema_for::<api::apps::v1::DaemonSet>,
    SchemaGenerator::subschema_for::<api::apps::v1::Deployment>,
    SchemaGenerator::subschema_for::<api::apps::v1::ReplicaSet>,
    SchemaGenerator::subschema_for::<api::apps::v1::StatefulSet>,
    SchemaGenerator::subschema_for::<api::authentication::v1::SelfSubjectReview>,
    SchemaGenerator::subschema_for::<api::authentication::v1::TokenReview>,
    SchemaGenerator::subschema_for::<api::authorization::v1::LocalSubjectAccessReview>,
    SchemaGenerator::subschema_for::<api::authorization::v1::SelfSubjectAccessReview>,
    SchemaGenerator::subschema_for::<api::authorization::v1::SelfSubjectRulesReview>,
    SchemaGenerator::subschema_for::<api::authorization::v1::SubjectAccessReview>,
    SchemaGenerator::subschema_for::<api::autoscaling::v1::HorizontalPodAutoscaler>,
    SchemaGenerator::subschema_for::<api::autoscaling::v2::HorizontalPodAutoscaler>,
    SchemaGenerator::subschema_for::<api::batch::v1::CronJob>,
    SchemaGenerator::subschema_for::<api::batch::v1::Job>,
    SchemaGenerator::subschema_for::<api::certificates::v1::CertificateSigningRequest>,
    SchemaGenerator::subschema_for::<api::coordination::v1::Lease>,
    SchemaGenerator::subschema_for::<api::core::v1::Binding>,
    SchemaGenerator::subschema_for::<api::core::v1::ComponentStatus>,
    SchemaGenerator::subschema_for::<api::core::v1::ConfigMap>,
    SchemaGenerator::subschema_for::<api::core::v1::Endpoints>,
    SchemaGenerator::subschema_for::<api::core::v1::Event>,
    SchemaGenerator::subschema_for::<api::core::v1::LimitRange>,
    SchemaGenerator::subschema_for::<api::core::v1::Namespace>,
    SchemaGenerator::subschema_for::<api::core::v1::Node>,
    SchemaGenerator::subschema_for::<api::core::v1::PersistentVolume>,
    SchemaGenerator::subschema_for::<api::core::v1::PersistentVolumeClaim>,
    SchemaGenerator::subschema_for::<api::core::v1::Pod>,
    SchemaGenerator::subschema_for::<api::core::v1::PodTemplate>,
    SchemaGenerator::subschema_for::<api::core::v1::ReplicationController>,
    SchemaGenerator::subschema_for::<api::core::v1::ResourceQuota>,
    SchemaGenerator::subschema_for::<api::core::v1::Secret>,
    SchemaGenerator::subschema_for::<api::core::v1::Service>,
    SchemaGenerator::subschema_for::<api::core::v1::ServiceAccount>,
    SchemaGenerator::subschema_for::<api::discovery::v1::EndpointSlice>,
    SchemaGenerator::subschema_for::<api::events::v1::Event>,
    SchemaGenerator::subschema_for::<api::flowcontrol::v1::FlowSchema>,
    SchemaGenerator::subschema_for::<api::flowcontrol::v1::PriorityLevelConfiguration>,
    SchemaGenerator::subschema_for::<api::networking::v1::IPAddress>,
    SchemaGenerator::subschema_for::<api::networking::v1::Ingress>,
    SchemaGenerator::subschema_for::<api::networking::v1::IngressClass>,
    SchemaGenerator::subschema_for::<api::networking::v1::NetworkPolicy>,
    SchemaGenerator::subschema_for::<api::networking::v1::ServiceCIDR>,
    SchemaGenerator::subschema_for::<api::node::v1::RuntimeClass>,
    SchemaGenerator::subschema_for::<api::policy::v1::PodDisruptionBudget>,
    SchemaGenerator::subschema_for::<api::rbac::v1::ClusterRole>,
    SchemaGenerator::subschema_for::<api::rbac::v1::ClusterRoleBinding>,
    SchemaGenerator::subschema_for::<api::rbac::v1::Role>,
    SchemaGenerator::subschema_for::<api::rbac::v1::RoleBinding>,
    SchemaGenerator::subschema_for::<api::resource::v1::DeviceClass>,
    SchemaGenerator::subschema_for::<api::resource::v1::ResourceClaim>,
    SchemaGenerator::subschema_for::<api::resource::v1::ResourceClaimTemplate>,
    SchemaGenerator::subschema_for::<api::resource::v1::ResourceSlice>,
    SchemaGenerator::subschema_for::<api::scheduling::v1::PriorityClass>,
    SchemaGenerator::subschema_for::<api::storage::v1::CSIDriver>,
    SchemaGenerator::subschema_for::<api::storage::v1::CSINode>,
    SchemaGenerator::subschema_for::<api::storage::v1::CSIStorageCapacity>,
    SchemaGenerator::subschema_for::<api::storage::v1::StorageClass>,
    SchemaGenerator::subschema_for::<api::storage::v1::VolumeAttachment>,
    SchemaGenerator::subschema_for::<api::storage::v1::VolumeAttributesClass>,
    SchemaGenerator::subschema_for::<apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>,
    SchemaGenerator::subschema_for::<kube_aggregator::pkg::apis::apiregistration::v1::APIService>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1alpha1::MutatingAdmissionPolicy>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1alpha1::MutatingAdmissionPolicyBinding>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1beta1::MutatingAdmissionPolicy>,
    SchemaGenerator::subschema_for::<api::admissionregistration::v1beta1::MutatingAdmissionPolicyBinding>,
    SchemaGenerator::subschema_for::<api::certificates::v1alpha1::ClusterTrustBundle>,
    SchemaGenerator::subschema_for::<api::certificates::v1beta1::ClusterTrustBundle>,
    SchemaGenerator::subschema_for::<api::certificates::v1beta1::PodCertificateRequest>,
    SchemaGenerator::subschema_for::<api::coordination::v1alpha2::LeaseCandidate>,
    SchemaGenerator::subschema_for::<api::coordination::v1beta1::LeaseCandidate>,
    SchemaGenerator::subschema_for::<api::networking::v1beta1::IPAddress>,
    SchemaGenerator::subschema_for::<api::networking::v1beta1::ServiceCIDR>,
    SchemaGenerator::subschema_for::<api::resource::v1beta1::DeviceClass>,
    SchemaGenerator::subschema_for::<api::resource::v1beta1::ResourceClaim>,
    SchemaGenerator::subschema_for::<api::resource::v1beta1::ResourceClaimTemplate>,
    SchemaGenerator::subschema_for::<api::resource::v1beta1::ResourceSlice>,
    SchemaGenerator::subschema_for::<api::resource::v1beta2::DeviceClass>,
    SchemaGenerator::subschema_for::<api::resource::v1beta2::ResourceClaim>,
    SchemaGenerator::subschema_for::<api::resource::v1beta2::ResourceClaimTemplate>,
    SchemaGenerator::subschema_for::<api::resource::v1beta2::ResourceSlice>,
    SchemaGenerator::subschema_for::<api::storage::v1beta1::VolumeAttributesClass>,
    SchemaGenerator::subschema_for::<api::storagemigration::v1beta1::StorageVersionMigration>,
    SchemaGenerator::subschema_for::<api::authentication::v1::TokenRequest>,
    SchemaGenerator::subschema_for::<api::autoscaling::v1::Scale>,
    SchemaGenerator::subschema_for::<api::policy::v1::Eviction>,
    SchemaGenerator::subschema_for::<v1::APIGroup>,
    SchemaGenerator::subschema_for::<v1::APIGroupList>,
    SchemaGenerator::subschema_for::<v1::APIResourceList>,
    SchemaGenerator::subschema_for::<v1::APIVersions>,
    SchemaGenerator::subschema_for::<v1::DeleteOptions>,
    SchemaGenerator::subschema_for::<v1::Patch>,
    SchemaGenerator::subschema_for::<v1::Status>,
    SchemaGenerator::subschema_for::<v1::WatchEvent<RawExtension>>,
    SchemaGenerator::subschema_for::<Info>,
];

#[test]
fn definitions_are_what_the_types_say() {
    let mut generator = SchemaGenerator::default();
    for schema in TYPES {
        schema(&mut generator);
    }
    let generated = generator.take_definitions(false);
    if std::env::var_os("UPDATE").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/schema/definitions.json");
        std::fs::write(path, written(&generated)).expect("definitions.json can be written");
        return;
    }
    let packed = definitions();
    for (name, definition) in &generated {
        assert_eq!(packed.get(name), Some(definition), "{name}");
    }
    assert_eq!(packed.keys().collect::<Vec<_>>(), generated.keys().collect::<Vec<_>>());
}

/// One line for each definition, so that a difference shows which one it is.
fn written(definitions: &Map<String, Value>) -> String {
    let lines: Vec<String> =
        definitions.iter().map(|(name, schema)| format!("{}:{schema}", Value::from(&**name))).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

#[test]
fn every_name_has_a_definition() {
    let definitions = definitions();
    for (key, name) in named() {
        let schema = definitions.get(name).unwrap_or_else(|| panic!("{key:?} has no definition {name}"));
        assert!(schema.get("properties").is_some() && name.ends_with(&format!(".{}", key.2)), "{key:?}: {name}");
    }
}

#[test]
fn shapes_are_definitions_without_descriptions() {
    let shapes = unpack(SHAPES);
    let pod = &shapes["io.k8s.api.core.v1.Pod"];
    assert!(pod.get("description").is_none() && pod["properties"]["spec"].get("description").is_none());
    // A field of that name is no description.
    let class = &shapes["io.k8s.api.scheduling.v1.PriorityClass"];
    assert_eq!(class["properties"]["description"], serde_json::json!({"type": "string"}));
    assert_eq!(shapes.keys().collect::<Vec<_>>(), definitions().keys().collect::<Vec<_>>());
}

#[test]
fn what_metadata_needs_is_found() {
    let found = shapes(["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]);
    let names: Vec<&str> = found.keys().filter_map(|name| name.rsplit('.').next()).collect();
    assert_eq!(names, ["FieldsV1", "ManagedFieldsEntry", "ObjectMeta", "OwnerReference", "Time"]);
}
