//! LimitRange: how little and how much one pod, container or claim may ask for.

mod defaults;
mod validate;

use machinery::kind::Kind;
use machinery::object::Meta;
use machinery::table::Column;

use crate::core::print::created_at;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    schema: "io.k8s.api.core.v1.LimitRange",
    storage: "limitranges",
    columns: COLUMNS,
    create_on_update: true,
    defaults: defaults::defaults,
    validate: validate::validate,
    validate_update: |new, _, errors| validate::validate(new, errors),
    row: |range, _| vec![range.name().into(), created_at(range)],
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Created At", "date", 0)];
