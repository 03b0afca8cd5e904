//! SelfSubjectRulesReview.

use machinery::kind::{Kind, Scope};

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SelfSubjectRulesReview",
    plural: "selfsubjectrulesreviews",
    singular: "selfsubjectrulesreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    name_rule: |_| Vec::new(),
    ..Kind::COMMON
};
