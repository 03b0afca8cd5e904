//! Binding: a pod and the node it shall run on.

pub mod validate;

use k8s_openapi::api::core::v1::Binding;
use machinery::kind::Kind;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Binding",
    plural: "bindings",
    singular: "binding",
    verbs: &["create"],
    schema: SchemaGenerator::subschema_for::<Binding>,
    validate: validate::validate,
    ..Kind::COMMON
};
