//! TokenReview.

use machinery::kind::{Kind, Scope};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind {
    group: "authentication.k8s.io",
    version: "v1",
    kind: "TokenReview",
    plural: "tokenreviews",
    singular: "tokenreview",
    scope: Scope::Cluster,
    verbs: &["create"],
    schema: "io.k8s.api.authentication.v1.TokenReview",
    name_rule: |_| Vec::new(),
    ..Kind::COMMON
};

/// Why a review is refused with 400 before any authenticator sees it; nothing where it is good.
pub fn refusal(review: &Value) -> Option<&'static str> {
    let token = review["spec"]["token"].as_str().unwrap_or("");
    token.is_empty().then_some("token is required for TokenReview in authentication")
}
