//! Namespace.

use k8s_openapi::api::core::v1::Namespace;
use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    scope: Scope::Cluster,
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    subresources: &[
        Subresource { name: "finalize", kind: "Namespace", group: "", version: "", verbs: &["update"] },
        Subresource::status("Namespace"),
    ],
    schema: SchemaGenerator::subschema_for::<Namespace>,
    storage: "namespaces",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Status", "string", 0), Column::new("Age", "string", 0)];
