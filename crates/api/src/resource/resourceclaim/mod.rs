//! ResourceClaim.

mod print;
mod shares;
mod validate;

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;
use serde_json::Value;

use super::claim;
use crate::status;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "ResourceClaim",
    plural: "resourceclaims",
    singular: "resourceclaim",
    subresources: &[Subresource::status("ResourceClaim")],
    schema: "io.k8s.api.resource.v1.ResourceClaim",
    storage: "resourceclaims",
    columns: COLUMNS,
    defaults,
    prepare_create: status::set_empty,
    prepare_status: shares::prepare_status,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("State", "string", 0), Column::new("Age", "string", 0)];

fn defaults(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        claim::defaults(spec);
    }
}
