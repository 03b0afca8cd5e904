//! IngressClass.

mod print;
mod validate;

use machinery::kind::{Kind, Scope};
use machinery::object::set_default;
use machinery::table::Column;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "IngressClass",
    plural: "ingressclasses",
    singular: "ingressclass",
    scope: Scope::Cluster,
    schema: "io.k8s.api.networking.v1.IngressClass",
    storage: "ingressclasses",
    columns: COLUMNS,
    generation: true,
    defaults,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Controller", "string", 0),
    Column::new("Parameters", "string", 0),
    Column::new("Age", "string", 0),
];

/// Parameters are a cluster-wide object unless they say otherwise.
fn defaults(class: &mut Value) {
    if let Some(parameters) = class.pointer_mut("/spec/parameters") {
        set_default(parameters, "scope", "Cluster");
    }
}
