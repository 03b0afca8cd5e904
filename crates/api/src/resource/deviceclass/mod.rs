//! DeviceClass.

use k8s_openapi::api::resource::v1::DeviceClass;
use machinery::kind::{Kind, Scope};
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "DeviceClass",
    plural: "deviceclasses",
    singular: "deviceclass",
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<DeviceClass>,
    storage: "deviceclasses",
    ..Kind::COMMON
};
