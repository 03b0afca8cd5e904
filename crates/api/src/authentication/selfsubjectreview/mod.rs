//! SelfSubjectReview.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use machinery::kind::{Kind, Scope};
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "SelfSubjectReview",
    plural: "selfsubjectreviews",
    singular: "selfsubjectreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: SchemaGenerator::subschema_for::<SelfSubjectReview>,
    name_rule: |_| Vec::new(),
    ..Kind::COMMON
};
