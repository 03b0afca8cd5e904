//! VolumeAttachment: a volume that should be at a node.

mod strategy;
mod validate;

use machinery::kind::age;
use machinery::kind::{Kind, Scope, Subresource};
use machinery::object::Meta;
use machinery::table::Column;
use serde_json::Value;

use crate::core::print::text;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    singular: "volumeattachment",
    scope: Scope::Cluster,
    subresources: &[Subresource::status("VolumeAttachment")],
    schema: "io.k8s.api.storage.v1.VolumeAttachment",
    storage: "volumeattachments",
    columns: COLUMNS,
    unconditional_update: false,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    row: |attachment, now| {
        let attached = attachment.pointer("/status/attached") == Some(&Value::Bool(true));
        vec![
            attachment.name().into(),
            text(attachment, "/spec/attacher").into(),
            text(attachment, "/spec/source/persistentVolumeName").into(),
            text(attachment, "/spec/nodeName").into(),
            attached.into(),
            age(attachment, now),
        ]
    },
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
