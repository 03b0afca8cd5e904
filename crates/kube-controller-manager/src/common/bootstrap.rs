//! Bootstrap tokens, as the Secrets that hold them say.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

pub(crate) const NAMESPACE: &str = "kube-system";
/// Field selector of the Secrets that hold tokens.
pub(crate) const TOKENS: &str = "type=bootstrap.kubernetes.io/token";

pub(crate) fn text<'a>(secret: &'a Secret, name: &str) -> &'a str {
    let bytes = secret.data.as_ref().and_then(|data| data.get(name)).map(|bytes| bytes.0.as_slice());
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

/// When the token ends: never, at a time, or long ago where nobody can read when.
pub(crate) fn ends(secret: &Secret) -> Option<Timestamp> {
    match text(secret, "expiration") {
        "" => None,
        time => Some(time.parse().unwrap_or(Timestamp::MIN)),
    }
}
