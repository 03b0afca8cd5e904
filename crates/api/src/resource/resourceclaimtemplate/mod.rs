//! ResourceClaimTemplate.

mod validate;

use machinery::kind::Kind;
use serde_json::Value;

use super::claim;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "ResourceClaimTemplate",
    plural: "resourceclaimtemplates",
    singular: "resourceclaimtemplate",
    schema: "io.k8s.api.resource.v1.ResourceClaimTemplate",
    storage: "resourceclaimtemplates",
    defaults,
    validate: validate::validate,
    validate_update: validate::validate_update,
    ..Kind::COMMON
};

fn defaults(template: &mut Value) {
    if let Some(spec) = template.pointer_mut("/spec/spec") {
        claim::defaults(spec);
    }
}
