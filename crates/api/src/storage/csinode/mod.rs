//! CSINode: the storage drivers of a node.

mod validate;

use machinery::kind::age;
use machinery::kind::{Kind, Scope};
use machinery::object::Meta;
use machinery::table::Column;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "CSINode",
    plural: "csinodes",
    singular: "csinode",
    scope: Scope::Cluster,
    schema: "io.k8s.api.storage.v1.CSINode",
    storage: "csinodes",
    columns: COLUMNS,
    unconditional_update: false,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: |node, now| {
        let drivers = node.pointer("/spec/drivers").and_then(Value::as_array).map_or(0, Vec::len);
        vec![node.name().into(), drivers.into(), age(node, now)]
    },
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Drivers", "integer", 0), Column::new("Age", "string", 0)];
