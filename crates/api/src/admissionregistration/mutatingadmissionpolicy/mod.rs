//! MutatingAdmissionPolicy.

use k8s_openapi::api::admissionregistration::v1::MutatingAdmissionPolicy;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "MutatingAdmissionPolicy",
    plural: "mutatingadmissionpolicies",
    singular: "mutatingadmissionpolicy",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<MutatingAdmissionPolicy>,
    storage: "mutatingadmissionpolicies",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Mutations", "integer", 0),
    Column::new("ParamKind", "string", 0),
    Column::new("Age", "string", 0),
];
