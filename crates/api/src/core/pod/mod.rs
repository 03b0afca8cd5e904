//! Pod.

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

mod defaults;
mod print;
pub mod qos;
mod status;
mod strategy;
pub mod subresources;
mod update;
mod validate;

pub use update::{validate_ephemeral_containers_update, validate_resize_update};

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource { name: "attach", kind: "PodAttachOptions", group: "", version: "", verbs: &["create", "get"] },
        Subresource { name: "binding", kind: "Binding", group: "", version: "", verbs: &["create"] },
        Subresource {
            name: "ephemeralcontainers",
            kind: "Pod",
            group: "",
            version: "",
            verbs: &["get", "patch", "update"],
        },
        Subresource { name: "eviction", kind: "Eviction", group: "policy", version: "v1", verbs: &["create"] },
        Subresource { name: "exec", kind: "PodExecOptions", group: "", version: "", verbs: &["create", "get"] },
        Subresource { name: "log", kind: "Pod", group: "", version: "", verbs: &["get"] },
        Subresource {
            name: "portforward",
            kind: "PodPortForwardOptions",
            group: "",
            version: "",
            verbs: &["create", "get"],
        },
        Subresource {
            name: "proxy",
            kind: "PodProxyOptions",
            group: "",
            version: "",
            verbs: &["create", "delete", "get", "patch", "update"],
        },
        Subresource { name: "resize", kind: "Pod", group: "", version: "", verbs: &["get", "patch", "update"] },
        Subresource::status("Pod"),
    ],
    schema: "io.k8s.api.core.v1.Pod",
    storage: "pods",
    columns: COLUMNS,
    generation: true,
    defaults: defaults::defaults,
    status_alone: true,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    prepare_status: strategy::prepare_status,
    validate: validate::validate,
    validate_update: update::validate_update,
    validate_status: status::validate_status,
    warnings: strategy::warnings,
    selectable: strategy::SELECTABLE,
    row: print::row,
    delete_returns_object: true,
    grace_period: Some(strategy::grace_period),
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Ready", "string", 0),
    Column::new("Status", "string", 0),
    Column::new("Restarts", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("IP", "string", 1),
    Column::new("Node", "string", 1),
    Column::new("Nominated Node", "string", 1),
    Column::new("Readiness Gates", "string", 1),
];

#[cfg(test)]
mod tests;
