//! LocalSubjectAccessReview.

use k8s_openapi::api::authorization::v1::LocalSubjectAccessReview;
use machinery::kind::Kind;
use schemars::SchemaGenerator;

use super::review;

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "LocalSubjectAccessReview",
    plural: "localsubjectaccessreviews",
    singular: "localsubjectaccessreview",
    verbs: &["create"],
    schema: SchemaGenerator::subschema_for::<LocalSubjectAccessReview>,
    name_rule: |_| Vec::new(),
    validate: review::local,
    ..Kind::COMMON
};
