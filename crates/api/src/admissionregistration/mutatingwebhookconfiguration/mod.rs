//! MutatingWebhookConfiguration.

use machinery::kind::{Kind, Scope};
use machinery::table::Column;

use super::{defaults, print, webhook};

pub(crate) static KIND: Kind = Kind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
    singular: "mutatingwebhookconfiguration",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    schema: "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
    storage: "mutatingwebhookconfigurations",
    columns: COLUMNS,
    generation: true,
    unconditional_update: false,
    defaults: defaults::mutating_webhooks,
    validate: webhook::validate,
    validate_update: webhook::validate_update,
    row: print::webhooks,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Webhooks", "integer", 0), Column::new("Age", "string", 0)];
