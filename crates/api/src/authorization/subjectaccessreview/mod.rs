//! SubjectAccessReview.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use machinery::kind::{Kind, Scope};
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SubjectAccessReview",
    plural: "subjectaccessreviews",
    singular: "subjectaccessreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: SchemaGenerator::subschema_for::<SubjectAccessReview>,
    ..Kind::COMMON
};
