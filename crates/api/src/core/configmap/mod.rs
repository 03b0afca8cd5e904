//! ConfigMap: settings that pods read.

mod validate;

use machinery::kind::{Kind, age};
use machinery::object::Meta;
use machinery::table::Column;

use crate::core::print::count;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    schema: "io.k8s.api.core.v1.ConfigMap",
    storage: "configmaps",
    columns: COLUMNS,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: |map, now| vec![map.name().into(), (count(map, "data") + count(map, "binaryData")).into(), age(map, now)],
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Data", "string", 0), Column::new("Age", "string", 0)];
