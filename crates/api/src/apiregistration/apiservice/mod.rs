//! APIService.

mod print;
mod validate;

use machinery::kind::{Kind, Scope, Subresource};
use machinery::names;
use machinery::object::set_default;
use machinery::table::Column;
use serde_json::Value;

use crate::status;

pub(crate) static KIND: Kind = Kind {
    group: "apiregistration.k8s.io",
    version: "v1",
    kind: "APIService",
    plural: "apiservices",
    singular: "apiservice",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    subresources: &[Subresource::status("APIService")],
    schema: "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
    storage: "apiregistration.k8s.io/apiservices",
    columns: COLUMNS,
    name_rule: names::path_segment_name,
    unconditional_update: false,
    defaults,
    prepare_create: status::set_empty,
    validate: validate::validate,
    validate_update: |new, _old, errors| validate::validate(new, errors),
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Service", "string", 0),
    Column::new("Available", "string", 0),
    Column::new("Age", "string", 0),
];

fn defaults(service: &mut Value) {
    if let Some(reference) = service.pointer_mut("/spec/service") {
        set_default(reference, "port", 443);
    }
}
