//! Strategy of ServiceAccount's references: what the server keeps, and what it warns of.

use machinery::object::Meta;
use serde_json::{Value, json};

const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Secrets are of the account's own namespace: only the name counts.
pub(super) fn prepare(account: &mut Value) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        *secret = match secret.get("name") {
            Some(name) => json!({"name": name}),
            None => json!({}),
        };
    }
}

pub(super) fn warnings(account: &Value, old: Option<&Value>) -> Vec<String> {
    if account.annotation(ENFORCE).is_none() || old.is_some_and(|old| old.annotation(ENFORCE).is_some()) {
        return Vec::new();
    }
    vec![format!(
        "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to \
         mounted secrets"
    )]
}
