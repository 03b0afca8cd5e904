//! IPAddress.

mod print;
mod validate;

use k8s_openapi::api::networking::v1::IPAddress;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "IPAddress",
    plural: "ipaddresses",
    singular: "ipaddress",
    short_names: &["ip"],
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<IPAddress>,
    storage: "ipaddresses",
    columns: COLUMNS,
    name_rule: validate::name_rule,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("ParentRef", "string", 0)];
