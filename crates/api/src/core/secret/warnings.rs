//! Sentences for `Warning` headers: a TLS secret that no server could use is stored all the same.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

pub(super) fn warnings(secret: &Value, _old: Option<&Value>) -> Vec<String> {
    if secret["type"] != "kubernetes.io/tls" {
        return Vec::new();
    }
    let without_pem = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(field, _)| {
        let text = secret.get("data").and_then(|data| data.get(field)).and_then(Value::as_str).unwrap_or("");
        let bytes = STANDARD.decode(text).unwrap_or_default();
        !String::from_utf8_lossy(&bytes).contains("-----BEGIN ")
    });
    let sentence = |(_, input)| format!("tls: failed to find any PEM data in {input} input");
    without_pem.map(sentence).into_iter().collect()
}
