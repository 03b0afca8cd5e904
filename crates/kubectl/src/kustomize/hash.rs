//! The suffix that names content: `settings-6ct58987ht`. Others compute the same, so the recipe is fixed.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(crate) fn config_map(object: &Value, name: &str) -> String {
    let mut content = json!({"kind": "ConfigMap", "name": name, "data": text_map(&object["data"])});
    if object["binaryData"].as_object().is_some_and(|data| !data.is_empty()) {
        content["binaryData"] = object["binaryData"].clone();
    }
    encoded(&content)
}

pub(crate) fn secret(object: &Value, name: &str) -> String {
    let mut content = json!({"kind": "Secret", "type": object["type"].as_str().unwrap_or_default(), "name": name, "data": text_map(&object["data"])});
    if object["stringData"].as_object().is_some_and(|data| !data.is_empty()) {
        content["stringData"] = object["stringData"].clone();
    }
    encoded(&content)
}

/// Go writes a missing map as an empty text here.
fn text_map(map: &Value) -> Value {
    match map.as_object() {
        Some(map) if !map.is_empty() => map.clone().into(),
        _ => json!(""),
    }
}

/// Ten letters of the sum, with those replaced that could make words.
fn encoded(content: &Value) -> String {
    let sum = Sha256::digest(crate::output::json::compact(content).as_bytes());
    let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars()
        .take(10)
        .map(|letter| match letter {
            '0' => 'g',
            '1' => 'h',
            '3' => 'k',
            'a' => 'm',
            'e' => 't',
            other => other,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_others() {
        // As a real kubectl named them.
        assert_eq!(config_map(&json!({}), ""), "6ct58987ht");
        assert_eq!(config_map(&json!({"data": {"one": ""}}), ""), "9g67k2htb6");
        assert_eq!(secret(&json!({"type": "my-type"}), ""), "5gmgkf8578");
    }
}
