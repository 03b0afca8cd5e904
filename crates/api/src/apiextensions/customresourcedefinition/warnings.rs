//! What a CustomResourceDefinition says that nobody will look at.

use machinery::schema::structural::is_known_format;
use serde_json::Value;

use super::schema::DEPTH_MAX;

/// Formats that mean nothing here, where a definition brings them in.
pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map(unrecognized).unwrap_or_default();
    let added = unrecognized(new).into_iter().filter(|format| !before.contains(format));
    added.map(|format| format!("unrecognized format {format:?}")).collect()
}

fn unrecognized(definition: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    for version in versions {
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            walk(schema, 0, &mut found);
        }
    }
    found
}

fn walk<'a>(schema: &'a Value, depth: usize, found: &mut Vec<&'a str>) {
    if depth > DEPTH_MAX {
        return;
    }
    let text = |field: &str| schema.get(field).and_then(Value::as_str).unwrap_or("");
    if !text("format").is_empty() && !is_known_format(text("type"), text("format")) {
        found.push(text("format"));
    }
    for field in ["items", "additionalProperties", "not"] {
        if let Some(below) = schema.get(field).filter(|below| below.is_object()) {
            walk(below, depth + 1, found);
        }
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        schema
            .get(field)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .for_each(|below| walk(below, depth + 1, found));
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        properties.values().for_each(|below| walk(below, depth + 1, found));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_that_come_in_are_told_once() {
        let definition = |formats: &[(&str, &str)]| {
            let entry = |(kind, format): &(&str, &str)| json!({"type": kind, "format": format});
            let properties: serde_json::Map<String, Value> =
                formats.iter().enumerate().map(|(at, format)| (format!("f{at}"), entry(format))).collect();
            let schema = json!({"type": "object", "properties": properties});
            json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}})
        };
        let good = [("string", "date-time"), ("integer", "int64"), ("number", "double"), ("string", "k8s-short-name")];
        assert_eq!(warnings(&definition(&good), None), Vec::<String>::new());
        let bad = definition(&[("string", "ulid"), ("integer", "uint8")]);
        assert_eq!(warnings(&bad, None), ["unrecognized format \"ulid\"", "unrecognized format \"uint8\""]);
        assert_eq!(warnings(&bad, Some(&definition(&[("string", "ulid")]))), ["unrecognized format \"uint8\""]);
    }
}
