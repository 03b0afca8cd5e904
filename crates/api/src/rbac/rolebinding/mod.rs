//! RoleBinding.

use machinery::field::Errors;
use machinery::kind::Kind;
use machinery::names;
use machinery::node::Node;
use machinery::table::Column;

use super::binding;

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "RoleBinding",
    plural: "rolebindings",
    singular: "rolebinding",
    schema: "io.k8s.api.rbac.v1.RoleBinding",
    storage: "rolebindings",
    columns: COLUMNS,
    name_rule: names::path_segment_name,
    create_on_update: true,
    defaults: binding::defaults,
    validate,
    validate_update,
    row: binding::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Role", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Users", "string", 1),
    Column::new("Groups", "string", 1),
    Column::new("ServiceAccounts", "string", 1),
];

fn validate(object: &Node, errors: &mut Errors) {
    binding::validate(object, binding::Reach::Namespace, errors);
}

fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    binding::validate_role_change(new, old, errors);
}
