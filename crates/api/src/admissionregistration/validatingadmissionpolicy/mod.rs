//! ValidatingAdmissionPolicy.

use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;

use super::{defaults, policy, print};
use crate::status;

pub(crate) static KIND: Kind = Kind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    subresources: &[Subresource::status("ValidatingAdmissionPolicy")],
    schema: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
    storage: "validatingadmissionpolicies",
    columns: COLUMNS,
    generation: true,
    unconditional_update: false,
    defaults: defaults::policy,
    prepare_create: status::set_empty,
    validate: policy::validating,
    validate_update: policy::validating_update,
    row: print::validating_policy,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Validations", "integer", 0),
    Column::new("ParamKind", "string", 0),
    Column::new("Age", "string", 0),
];
