//! ClusterRole.

use k8s_openapi::api::rbac::v1::ClusterRole;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<ClusterRole>,
    storage: "clusterroles",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Created At", "date", 0)];
