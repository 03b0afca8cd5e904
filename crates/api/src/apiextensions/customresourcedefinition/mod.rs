//! CustomResourceDefinition.

mod defaults;
mod expressions;
mod expression_cost;
mod list_types;
mod schema;
mod schema_defaults;
mod selectable;
mod strategy;
mod structural;
mod validate;
mod warnings;

use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;

use crate::show;

pub(crate) static KIND: Kind = Kind {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    subresources: &[Subresource::status("CustomResourceDefinition")],
    schema: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    storage: "apiextensions.k8s.io/customresourcedefinitions",
    columns: COLUMNS,
    generation: true,
    unconditional_update: false,
    defaults: defaults::defaults,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    warnings: warnings::warnings,
    row: show::created_at,
    slow_validation: true,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Created At", "date", 0)];

#[cfg(test)]
mod tests;
