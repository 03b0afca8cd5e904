//! ClusterRole.

mod validate;

use machinery::kind::{Kind, Scope};
use machinery::names;
use machinery::table::Column;

use super::rules;
use crate::show;

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    scope: Scope::Cluster,
    schema: "io.k8s.api.rbac.v1.ClusterRole",
    storage: "clusterroles",
    columns: COLUMNS,
    name_rule: names::path_segment_name,
    create_on_update: true,
    defaults: rules::defaults,
    validate: validate::validate,
    validate_update: |new, _old, errors| validate::validate(new, errors),
    row: show::created_at,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Created At", "date", 0)];
