//! SelfSubjectAccessReview.

use machinery::kind::{Kind, Scope};

use super::review;

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    singular: "selfsubjectaccessreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    name_rule: |_| Vec::new(),
    validate: review::own,
    ..Kind::COMMON
};
