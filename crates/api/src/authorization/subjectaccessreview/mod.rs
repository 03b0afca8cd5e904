//! SubjectAccessReview.

use machinery::kind::{Kind, Scope};

use super::review;

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "SubjectAccessReview",
    plural: "subjectaccessreviews",
    singular: "subjectaccessreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: "io.k8s.api.authorization.v1.SubjectAccessReview",
    name_rule: |_| Vec::new(),
    validate: review::subject,
    ..Kind::COMMON
};
