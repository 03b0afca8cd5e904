//! ResourceClaimTemplate.

use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use machinery::kind::Kind;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "ResourceClaimTemplate",
    plural: "resourceclaimtemplates",
    singular: "resourceclaimtemplate",
    schema: SchemaGenerator::subschema_for::<ResourceClaimTemplate>,
    storage: "resourceclaimtemplates",
    ..Kind::COMMON
};
