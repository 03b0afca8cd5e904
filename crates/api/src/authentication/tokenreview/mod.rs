//! TokenReview.

use k8s_openapi::api::authentication::v1::TokenReview;
use machinery::kind::{Kind, Scope};
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "TokenReview",
    plural: "tokenreviews",
    singular: "tokenreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: SchemaGenerator::subschema_for::<TokenReview>,
    ..Kind::COMMON
};
