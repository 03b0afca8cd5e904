//! Role.

use machinery::kind::Kind;
use machinery::names;
use machinery::table::Column;

use super::rules;
use crate::show;

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "Role",
    plural: "roles",
    singular: "role",
    schema: "io.k8s.api.rbac.v1.Role",
    storage: "roles",
    columns: COLUMNS,
    name_rule: names::path_segment_name,
    create_on_update: true,
    defaults: rules::defaults,
    validate: |role, errors| rules::validate(role, rules::Reach::Namespace, errors),
    validate_update: |new, _old, errors| rules::validate(new, rules::Reach::Namespace, errors),
    row: show::created_at,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Created At", "date", 0)];
