//! What a foreign server says it serves, as aggregated discovery shows it. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// How many resources of a foreign group are shown.
const RESOURCES_MAX: usize = 10_000;

/// A version whose resources are not known now.
pub fn stale(version: &str) -> Value {
    json!({"version": version, "freshness": "Stale"})
}

/// From an APIResourceList; None where it is none.
pub fn described(list: &Value, group: &str, version: &str) -> Option<Value> {
    if list["kind"] != "APIResourceList" {
        return None;
    }
    let entries = list["resources"].as_array()?;
    let mut resources: BTreeMap<&str, Value> = BTreeMap::new();
    for entry in entries.iter().take(RESOURCES_MAX) {
        let name = entry["name"].as_str().unwrap_or("");
        if name.is_empty() || name.contains('/') {
            continue;
        }
        let mut value = json!({
            "resource": name, "responseKind": kind(entry, group, version),
            "scope": if entry["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "singularResource": entry["singularName"].as_str().unwrap_or(""), "verbs": words(&entry["verbs"]),
        });
        for field in ["shortNames", "categories"] {
            if entry[field].as_array().is_some_and(|list| !list.is_empty()) {
                value[field] = words(&entry[field]);
            }
        }
        resources.insert(name, value);
    }
    for entry in entries.iter().take(RESOURCES_MAX) {
        let Some((name, sub)) = entry["name"].as_str().and_then(|name| name.split_once('/')) else { continue };
        let Some(parent) = resources.get_mut(name) else { continue };
        let value = json!({
            "subresource": sub, "responseKind": kind(entry, group, version), "verbs": words(&entry["verbs"]),
        });
        match parent["subresources"].as_array_mut() {
            Some(list) => list.push(value),
            None => parent["subresources"] = json!([value]),
        }
    }
    Some(json!({
        "version": version, "freshness": "Current", "resources": resources.into_values().collect::<Vec<_>>(),
    }))
}

/// A kind of another group says so.
fn kind(entry: &Value, group: &str, version: &str) -> Value {
    let or = |field: &str, usual: &str| match entry[field].as_str() {
        Some(text) if !text.is_empty() => text.to_string(),
        _ => usual.to_string(),
    };
    json!({"group": or("group", group), "version": or("version", version), "kind": or("kind", "")})
}

fn words(list: &Value) -> Value {
    list.as_array().into_iter().flatten().filter(|word| word.is_string()).cloned().collect()
}

/// The hash of a group's document in a foreign index of OpenAPI documents.
pub fn document(index: &Value, group: &str, version: &str) -> Option<String> {
    let url = index["paths"][format!("apis/{group}/{version}")]["serverRelativeURL"].as_str()?;
    let hash = url.split_once("hash=").map_or("", |(_, hash)| hash);
    let fine = hash.len() <= 128 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Some(if fine { hash.to_string() } else { String::new() })
}
