//! VolumeAttachment.

use k8s_openapi::api::storage::v1::VolumeAttachment;
use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    singular: "volumeattachment",
    scope: Scope::Cluster,
    subresources: &[Subresource::status("VolumeAttachment")],
    schema: SchemaGenerator::subschema_for::<VolumeAttachment>,
    storage: "volumeattachments",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column { name: "Attacher", kind: "string", format: "name", description: "", priority: 0 },
    Column::new("PV", "string", 0),
    Column::new("Node", "string", 0),
    Column::new("Attached", "boolean", 0),
    Column::new("Age", "string", 0),
];
