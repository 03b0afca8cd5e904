//! MutatingAdmissionPolicy.

use machinery::kind::{Kind, Scope};
use machinery::table::Column;

use super::{defaults, policy, print};

pub(crate) static KIND: Kind = Kind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "MutatingAdmissionPolicy",
    plural: "mutatingadmissionpolicies",
    singular: "mutatingadmissionpolicy",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    schema: "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicy",
    storage: "mutatingadmissionpolicies",
    columns: COLUMNS,
    generation: true,
    unconditional_update: false,
    defaults: defaults::policy,
    validate: policy::mutating,
    validate_update: policy::mutating_update,
    row: print::mutating_policy,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Mutations", "integer", 0),
    Column::new("ParamKind", "string", 0),
    Column::new("Age", "string", 0),
];
