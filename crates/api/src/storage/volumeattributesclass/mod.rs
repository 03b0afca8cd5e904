//! VolumeAttributesClass: attributes of volumes that may change while they are used.

mod validate;

use machinery::kind::age;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;

use super::common::shown_name;
use crate::core::print::text;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    singular: "volumeattributesclass",
    short_names: &["vac"],
    scope: Scope::Cluster,
    schema: "io.k8s.api.storage.v1.VolumeAttributesClass",
    storage: "volumeattributesclasses",
    columns: COLUMNS,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: |class, now| {
        let name = shown_name(class, &["storage.alpha.kubernetes.io/is-default-class"]);
        vec![name.into(), text(class, "/driverName").into(), age(class, now)]
    },
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("DriverName", "string", 0), Column::new("Age", "string", 0)];
