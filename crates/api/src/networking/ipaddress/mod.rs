//! IPAddress.

mod print;
mod validate;

use machinery::kind::{Kind, Scope};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "IPAddress",
    plural: "ipaddresses",
    singular: "ipaddress",
    short_names: &["ip"],
    scope: Scope::Cluster,
    schema: "io.k8s.api.networking.v1.IPAddress",
    storage: "ipaddresses",
    columns: COLUMNS,
    name_rule: validate::name_rule,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("ParentRef", "string", 0)];
