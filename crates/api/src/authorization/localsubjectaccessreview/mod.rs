//! LocalSubjectAccessReview.

use machinery::kind::Kind;

use super::review;

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    version: "v1",
    kind: "LocalSubjectAccessReview",
    plural: "localsubjectaccessreviews",
    singular: "localsubjectaccessreview",
    verbs: &["create"],
    schema: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    name_rule: |_| Vec::new(),
    validate: review::local,
    ..Kind::COMMON
};
