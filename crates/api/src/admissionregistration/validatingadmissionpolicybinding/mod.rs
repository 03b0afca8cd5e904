//! ValidatingAdmissionPolicyBinding.

use machinery::kind::{Kind, Scope};
use machinery::table::Column;

use super::{binding, defaults, print};

pub(crate) static KIND: Kind = Kind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    singular: "validatingadmissionpolicybinding",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    schema: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
    storage: "validatingadmissionpolicybindings",
    columns: COLUMNS,
    generation: true,
    unconditional_update: false,
    defaults: defaults::binding,
    validate: binding::validating,
    validate_update: |new, _old, errors| binding::validating(new, errors),
    row: print::binding,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("PolicyName", "string", 0),
    Column::new("ParamRef", "string", 0),
    Column::new("Age", "string", 0),
];
