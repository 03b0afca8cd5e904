//! SelfSubjectAccessReview.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use machinery::kind::{Kind, Scope};
use schemars::SchemaGenerator;

use super::review;

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    singular: "selfsubjectaccessreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: SchemaGenerator::subschema_for::<SelfSubjectAccessReview>,
    name_rule: |_| Vec::new(),
    validate: review::own,
    ..Kind::COMMON
};
