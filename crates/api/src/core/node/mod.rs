//! Node: a machine that runs pods.

mod defaults;
mod print;
mod strategy;
mod validate;

use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    scope: Scope::Cluster,
    subresources: &[
        Subresource {
            name: "proxy",
            kind: "NodeProxyOptions",
            group: "",
            version: "",
            verbs: &["create", "delete", "get", "patch", "update"],
        },
        Subresource::status("Node"),
    ],
    schema: "io.k8s.api.core.v1.Node",
    storage: "minions",
    columns: COLUMNS,
    defaults: defaults::defaults,
    status_alone: true,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    // A kubelet's report is checked as any update is.
    validate_status: validate::validate_update,
    warnings: strategy::warnings,
    selectable: strategy::SELECTABLE,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Status", "string", 0),
    Column::new("Roles", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Version", "string", 0),
    Column::new("Internal-IP", "string", 1),
    Column::new("External-IP", "string", 1),
    Column::new("OS-Image", "string", 1),
    Column::new("Kernel-Version", "string", 1),
    Column::new("Container-Runtime", "string", 1),
];
