//! Defaults of Secret; `stringData` is merged into `data` and never stored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::object::child_mut;
use serde_json::Value;

pub(super) fn defaults(secret: &mut Value) {
    let plain = secret.as_object_mut().and_then(|map| map.remove("stringData"));
    if let Some(Value::Object(plain)) = plain
        && !plain.is_empty()
    {
        let data = child_mut(secret, "data");
        for (key, value) in plain {
            data.insert(key, STANDARD.encode(value.as_str().unwrap_or("")).into());
        }
    }
    if secret.get("type").and_then(Value::as_str).unwrap_or("").is_empty() {
        secret["type"] = "Opaque".into();
    }
}
