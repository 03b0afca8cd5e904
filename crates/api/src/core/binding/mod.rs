//! Binding: a pod and the node it shall run on.

pub mod validate;

use machinery::kind::Kind;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Binding",
    plural: "bindings",
    singular: "binding",
    verbs: &["create"],
    schema: "io.k8s.api.core.v1.Binding",
    validate: validate::validate,
    ..Kind::COMMON
};
