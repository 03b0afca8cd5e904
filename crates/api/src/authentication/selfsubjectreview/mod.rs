//! SelfSubjectReview.

use machinery::kind::{Kind, Scope};

pub(crate) static KIND: Kind = Kind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "SelfSubjectReview",
    plural: "selfsubjectreviews",
    singular: "selfsubjectreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: "io.k8s.api.authentication.v1.SelfSubjectReview",
    name_rule: |_| Vec::new(),
    ..Kind::COMMON
};
