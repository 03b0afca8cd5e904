//! Merging resources of kinds that only an `openapi` schema of the kustomization knows.

use serde_json::Value;

/// The definition of a kind in a schema document.
pub(crate) fn definition<'a>(schema: &'a Value, group: &str, version: &str, kind: &Value) -> Option<&'a Value> {
    let is_it = |definition: &&Value| {
        let kinds = definition["x-kubernetes-group-version-kind"].as_array();
        kinds.into_iter().flatten().any(|known| {
            known["group"].as_str().unwrap_or_default() == group
                && known["version"] == version
                && known["kind"] == *kind
        })
    };
    schema["definitions"].as_object()?.values().find(is_it)
}

/// Maps are merged, lists too where the schema names their key; anything else is replaced, and null takes away.
pub(crate) fn merge(object: &mut Value, patch: &Value, definition: &Value, schema: &Value) {
    let definition = resolved(definition, schema);
    let Some(changes) = patch.as_object() else { return };
    for (key, change) in changes {
        let inner = resolved(&definition["properties"][key.as_str()], schema);
        match (change, object.get_mut(key)) {
            (Value::Null, _) => _ = object.as_object_mut().map(|map| map.remove(key)),
            (Value::Object(_), Some(old @ Value::Object(_))) => merge(old, change, inner, schema),
            (Value::Array(items), Some(Value::Array(old))) => match inner["x-kubernetes-patch-merge-key"].as_str() {
                Some(name) => merge_items(old, items, name, &inner["items"], schema),
                None => object[key.as_str()] = change.clone(),
            },
            _ => object[key.as_str()] = change.clone(),
        }
    }
}

fn merge_items(old: &mut Vec<Value>, items: &[Value], name: &str, definition: &Value, schema: &Value) {
    for item in items {
        match old.iter_mut().find(|known| known[name] == item[name]) {
            _ if item["$patch"] == "delete" => old.retain(|known| known[name] != item[name]),
            Some(known) => merge(known, item, definition, schema),
            None => old.push(item.clone()),
        }
    }
}

/// Kustomize puts the items of a patch before the others of a list, in the patch's order.
pub(super) fn patched_first(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(map), Value::Object(changes)) => {
            for (key, change) in changes {
                if let Some(inner) = map.get_mut(key) {
                    patched_first(inner, change);
                }
            }
        }
        (Value::Array(items), Value::Array(changes)) => {
            let all_have = |key: &&&str| !changes.is_empty() && changes.iter().all(|item| !item[**key].is_null());
            let Some(key) = KEYS.iter().find(all_have) else { return };
            let mut first = Vec::new();
            for change in changes {
                let Some(at) = items.iter().position(|item| item[*key] == change[*key]) else { continue };
                let mut item = items.remove(at);
                patched_first(&mut item, change);
                first.push(item);
            }
            first.append(items);
            *items = first;
        }
        _ => {}
    }
}

/// By which items of lists are known, the surest first.
const KEYS: &[&str] =
    &["name", "mountPath", "devicePath", "containerPort", "port", "ip", "key", "topologyKey", "uid", "type"];

fn resolved<'a>(definition: &'a Value, schema: &'a Value) -> &'a Value {
    match definition["$ref"].as_str().and_then(|path| path.strip_prefix("#/definitions/")) {
        Some(name) => &schema["definitions"][name],
        None => definition,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_with_a_key_are_merged() {
        let schema = json!({"definitions": {"T": {"x-kubernetes-group-version-kind": [{"group": "e.com", "version": "v1", "kind": "Thing"}],
            "properties": {"spec": {"properties": {"list": {"type": "array", "x-kubernetes-patch-merge-key": "name"}}}}}}});
        let definition = definition(&schema, "e.com", "v1", &json!("Thing")).unwrap();
        let mut object = json!({"spec": {"list": [{"name": "a", "v": 1}, {"name": "b", "v": 2}], "other": [1]}});
        let patch = json!({"spec": {"list": [{"name": "b", "v": 3}], "other": [2]}});
        merge(&mut object, &patch, definition, &schema);
        assert_eq!(object, json!({"spec": {"list": [{"name": "a", "v": 1}, {"name": "b", "v": 3}], "other": [2]}}));
        patched_first(&mut object, &patch);
        assert_eq!(object["spec"]["list"], json!([{"name": "b", "v": 3}, {"name": "a", "v": 1}]));
    }
}
