//! PodTemplate.

use k8s_openapi::api::core::v1::PodTemplate;
use machinery::kind::Kind;
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "PodTemplate",
    plural: "podtemplates",
    singular: "podtemplate",
    schema: SchemaGenerator::subschema_for::<PodTemplate>,
    storage: "podtemplates",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Containers", "string", 0),
    Column::new("Images", "string", 0),
    Column::new("Pod Labels", "string", 0),
];
