//! Service: a stable address for a set of pods.

mod defaults;
pub mod families;
mod print;
pub mod strategy;
mod validate;
mod warnings;

#[cfg(test)]
mod tests;

use machinery::kind::{Kind, Subresource};
use machinery::names;
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    subresources: &[
        Subresource {
            name: "proxy",
            kind: "ServiceProxyOptions",
            group: "",
            version: "",
            verbs: &["create", "delete", "get", "patch", "update"],
        },
        Subresource::status("Service"),
    ],
    schema: "io.k8s.api.core.v1.Service",
    storage: "services/specs",
    columns: COLUMNS,
    name_rule: names::dns_label,
    create_on_update: true,
    defaults: defaults::defaults,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    warnings: warnings::warnings,
    selectable: strategy::SELECTABLE,
    row: print::row,
    delete_returns_object: true,
    // Finalizers, too, are for the controller of load balancers to write with the status.
    status_keeps_metadata: &["ownerReferences"],
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Type", "string", 0),
    Column::new("Cluster-IP", "string", 0),
    Column::new("External-IP", "string", 0),
    Column::new("Port(s)", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Selector", "string", 1),
];
