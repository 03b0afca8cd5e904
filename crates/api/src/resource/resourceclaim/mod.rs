//! ResourceClaim.

use k8s_openapi::api::resource::v1::ResourceClaim;
use machinery::kind::{Kind, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "ResourceClaim",
    plural: "resourceclaims",
    singular: "resourceclaim",
    subresources: &[Subresource::status("ResourceClaim")],
    schema: SchemaGenerator::subschema_for::<ResourceClaim>,
    storage: "resourceclaims",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("State", "string", 0), Column::new("Age", "string", 0)];
