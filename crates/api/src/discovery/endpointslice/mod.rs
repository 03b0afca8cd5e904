//! EndpointSlice: some of the addresses behind a Service.

mod defaults;
mod print;
mod strategy;
mod validate;

use machinery::kind::Kind;
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "discovery.k8s.io",
    version: "v1",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    schema: "io.k8s.api.discovery.v1.EndpointSlice",
    storage: "endpointslices",
    columns: COLUMNS,
    generation: true,
    defaults: defaults::defaults,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("AddressType", "string", 0),
    Column::new("Ports", "string", 0),
    Column::new("Endpoints", "string", 0),
    Column::new("Age", "string", 0),
];
