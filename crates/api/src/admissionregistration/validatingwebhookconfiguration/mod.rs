//! ValidatingWebhookConfiguration.

use machinery::kind::{Kind, Scope};
use machinery::table::Column;

use super::{defaults, print, webhook};

pub(crate) static KIND: Kind = Kind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
    singular: "validatingwebhookconfiguration",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    schema: "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
    storage: "validatingwebhookconfigurations",
    columns: COLUMNS,
    generation: true,
    unconditional_update: false,
    defaults: defaults::validating_webhooks,
    validate: webhook::validate,
    validate_update: webhook::validate_update,
    row: print::webhooks,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Webhooks", "integer", 0), Column::new("Age", "string", 0)];
