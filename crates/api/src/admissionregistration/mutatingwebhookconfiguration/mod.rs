//! MutatingWebhookConfiguration.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
    singular: "mutatingwebhookconfiguration",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<MutatingWebhookConfiguration>,
    storage: "mutatingwebhookconfigurations",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Webhooks", "integer", 0), Column::new("Age", "string", 0)];
