//! Namespace: a room for names.

pub mod strategy;
pub mod validate;

use machinery::kind::{Kind, Scope, Subresource, age};
use machinery::names;
use machinery::object::Meta;
use machinery::table::Column;

use crate::core::print::text;

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
    schema: "io.k8s.api.core.v1.Namespace",
    storage: "namespaces",
    columns: COLUMNS,
    name_rule: names::dns_label,
    defaults: strategy::defaults,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_status: validate::validate_status,
    selectable: strategy::SELECTABLE,
    row: |namespace, now| vec![namespace.name().into(), text(namespace, "/status/phase").into(), age(namespace, now)],
    begin_deletion: strategy::begin_deletion,
    held: strategy::held,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Status", "string", 0), Column::new("Age", "string", 0)];
