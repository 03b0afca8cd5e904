//! How upstream says that a strategic merge patch does not fit its kind: it converts maps to Go's types, so the words
//! are those of Go's values and not those of JSON.

use serde_json::Value;

/// The patch as Go prints a map: `map[spec:map[replicas:x]]`.
pub fn shown(patch: &Value) -> String {
    match patch {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", shown(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        plain => plain.to_string(),
    }
}

/// The reason, from what decoding JSON says of the same mistake. Other reasons stay as they are.
pub fn reason(decoding: &str) -> String {
    let mismatch = decoding.strip_prefix("json: cannot unmarshal ").and_then(|rest| {
        let (found, rest) = rest.split_once(' ')?;
        let (_, wanted) = rest.rsplit_once(" of type ")?;
        Some((found, wanted))
    });
    let Some((found, wanted)) = mismatch else {
        return decoding.to_string();
    };
    let found = match found {
        "object" => "map",
        "array" => "slice",
        "number" => "int64",
        other => other,
    };
    match wanted {
        _ if wanted.starts_with("map[") => format!("cannot restore map from {found}"),
        _ if wanted.starts_with("[]") => format!("cannot restore slice from {found}"),
        _ if wanted.contains('.') => format!("cannot restore struct from: {found}"),
        _ => format!("unrecognized type: {wanted}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patches_look_like_maps_of_go() {
        assert_eq!(shown(&json!({"spec": {"replicas": "x", "a": null}})), "map[spec:map[a:<nil> replicas:x]]");
        assert_eq!(shown(&json!({"l": [1, true, {"b": 2.5}]})), "map[l:[1 true map[b:2.5]]]");
    }

    #[test]
    fn reasons_are_those_of_the_conversion() {
        let check = |found: &str, place: &str, wanted: &str, expected: &str| {
            let decoding = format!("json: cannot unmarshal {found} into Go {place} of type {wanted}");
            assert_eq!(reason(&decoding), expected);
        };
        check("string", "struct field DeploymentSpec.spec.replicas", "int32", "unrecognized type: int32");
        check("number", "struct field ConfigMap.data", "string", "unrecognized type: string");
        check("number", "struct field ConfigMap.data", "map[string]string", "cannot restore map from int64");
        check("string", "struct field PodSpec.spec.containers", "[]v1.Container", "cannot restore slice from string");
        check("array", "struct field Pod.spec", "v1.PodSpec", "cannot restore struct from: slice");
        assert_eq!(reason("quantities must match"), "quantities must match");
    }
}
