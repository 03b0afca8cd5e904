//! NetworkPolicy.

mod defaults;
mod print;
mod validate;

use machinery::kind::Kind;
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    singular: "networkpolicy",
    short_names: &["netpol"],
    schema: "io.k8s.api.networking.v1.NetworkPolicy",
    storage: "networkpolicies",
    columns: COLUMNS,
    generation: true,
    defaults: defaults::defaults,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] =
    &[Column::name(""), Column::new("Pod-Selector", "string", 0), Column::new("Age", "string", 0)];
