//! SelfSubjectRulesReview.

use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use machinery::kind::{Kind, Scope};
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SelfSubjectRulesReview",
    plural: "selfsubjectrulesreviews",
    singular: "selfsubjectrulesreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: SchemaGenerator::subschema_for::<SelfSubjectRulesReview>,
    name_rule: |_| Vec::new(),
    ..Kind::COMMON
};
