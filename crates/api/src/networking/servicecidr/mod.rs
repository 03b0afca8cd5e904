//! ServiceCIDR.

mod print;
mod strategy;
mod validate;

use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    singular: "servicecidr",
    scope: Scope::Cluster,
    subresources: &[Subresource::status("ServiceCIDR")],
    schema: "io.k8s.api.networking.v1.ServiceCIDR",
    storage: "servicecidrs",
    columns: COLUMNS,
    unconditional_update: false,
    prepare_create: strategy::prepare_create,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("CIDRs", "string", 0), Column::new("Age", "string", 0)];
