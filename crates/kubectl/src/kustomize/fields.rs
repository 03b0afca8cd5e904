//! Field specs: which fields of which kinds a transformer changes, as `configurations` and transformers name them.

use serde_json::{Map, Value};

/// Does the spec speak of this object's kind?
pub(super) fn speaks_of(spec: &Value, object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = object["kind"].as_str().unwrap_or_default();
    [("group", group), ("version", version), ("kind", kind)]
        .iter()
        .all(|(key, of)| spec[*key].as_str().is_none_or(|wanted| wanted.is_empty() || wanted == *of))
}

/// Hands over every field that one of the specs names. Lists on the way are gone through.
pub(crate) fn each(object: &mut Value, specs: &[Value], mut change: impl FnMut(&mut Value)) {
    for spec in specs {
        if !speaks_of(spec, object) {
            continue;
        }
        let path = spec["path"].as_str().unwrap_or_default();
        let steps: Vec<&str> =
            path.split('/').map(|step| step.trim_end_matches("[]")).filter(|step| !step.is_empty()).collect();
        visit(object, &steps, spec["create"] == true, &mut change);
    }
}

fn visit(place: &mut Value, steps: &[&str], create: bool, change: &mut impl FnMut(&mut Value)) {
    if let Value::Array(items) = place
        && !steps.is_empty()
    {
        return items.iter_mut().for_each(|item| visit(item, steps, create, change));
    }
    let Some((step, rest)) = steps.split_first() else { return change(place) };
    if create && (place.is_null() || place.is_object()) {
        return visit(&mut place[*step], rest, create, change);
    }
    if let Some(inner) = place.get_mut(*step) {
        visit(inner, rest, create, change);
    }
}

pub(crate) fn merge(place: &mut Value, added: &Map<String, Value>) {
    if place.is_null() || place.is_object() {
        added.iter().for_each(|(key, value)| place[key.as_str()] = value.clone());
    }
}

pub(crate) fn list(config: &Value, key: &str) -> Vec<Value> {
    config[key].as_array().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_gone_through_and_fields_made() {
        let mut object = json!({"apiVersion": "e.com/v1", "kind": "Thing", "spec": {"list": [{"a": 1}, {"a": 2}]}});
        let mut seen = Vec::new();
        each(&mut object, &[json!({"kind": "Thing", "path": "spec/list[]/a"})], |value| seen.push(value.clone()));
        assert_eq!(seen, [json!(1), json!(2)]);
        each(&mut object, &[json!({"kind": "Other", "path": "spec/x", "create": true})], |value| *value = json!(1));
        each(&mut object, &[json!({"path": "spec/y/z", "create": true})], |value| *value = json!(1));
        each(&mut object, &[json!({"path": "spec/w"})], |value| *value = json!(1));
        assert_eq!(object["spec"], json!({"list": [{"a": 1}, {"a": 2}], "y": {"z": 1}}));
    }
}
