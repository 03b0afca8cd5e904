//! A CustomResourceDefinition as upstream stores it, in version v1beta1, as one of version v1. What all versions have in
//! common stands once there and in each version here.

use machinery::object::set_default;
use serde_json::{Map, Value, json};

const OLDER: &str = "apiextensions.k8s.io/v1beta1";

/// Whether these bytes may be one; the text can also stand somewhere else in it.
pub(crate) fn is_older(value: &[u8]) -> bool {
    value.windows(OLDER.len()).any(|text| text == OLDER.as_bytes())
}

/// None where it is of another version, or no definition.
pub fn upgraded(value: &[u8]) -> Option<Value> {
    let mut definition: Value = serde_json::from_slice(value).ok()?;
    if definition["apiVersion"] != OLDER {
        return None;
    }
    definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
    let spec = definition.get_mut("spec")?.as_object_mut()?;
    versions(spec);
    let keeps_unknown = spec.remove("preserveUnknownFields").is_none_or(|value| value != false);
    if keeps_unknown {
        spec.insert("preserveUnknownFields".into(), true.into());
    }
    conversion(spec);
    columns(spec);
    if spec.get("scope").and_then(Value::as_str).unwrap_or("").is_empty() {
        spec.insert("scope".into(), "Namespaced".into());
    }
    names(spec);
    stored_versions(&mut definition);
    Some(definition)
}

/// What stands beside the versions is that of each of them.
fn versions(spec: &mut Map<String, Value>) {
    let version = spec.remove("version").and_then(|name| name.as_str().map(str::to_string)).unwrap_or_default();
    let none = spec.get("versions").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if none && !version.is_empty() {
        spec.insert("versions".into(), json!([{"name": version, "served": true, "storage": true}]));
    }
    for (common, own) in [
        ("validation", "schema"),
        ("subresources", "subresources"),
        ("additionalPrinterColumns", "additionalPrinterColumns"),
        ("selectableFields", "selectableFields"),
    ] {
        let Some(value) = spec.remove(common).filter(|value| !value.is_null()) else { continue };
        for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
            version[own] = value.clone();
        }
    }
}

/// The column's path has another name there.
fn columns(spec: &mut Map<String, Value>) {
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten();
    let lists = versions.filter_map(|version| version.get_mut("additionalPrinterColumns")?.as_array_mut());
    for column in lists.flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove("JSONPath") {
            column.insert("jsonPath".into(), path);
        }
    }
}

fn conversion(spec: &mut Map<String, Value>) {
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if !conversion.is_object() {
        *conversion = json!({"strategy": "None"});
    }
    let Some(conversion) = conversion.as_object_mut() else { return };
    let (config, reviews) = (conversion.remove("webhookClientConfig"), conversion.remove("conversionReviewVersions"));
    let is_webhook = conversion.get("strategy").is_some_and(|strategy| strategy == "Webhook");
    let present = |value: Option<Value>| value.filter(|value| !value.is_null());
    let (config, reviews) = (present(config), present(reviews));
    if !is_webhook && config.is_none() && reviews.is_none() {
        return;
    }
    let mut webhook = Map::new();
    if let Some(mut config) = config {
        if let Some(service) = config.get_mut("service").filter(|service| service.is_object()) {
            set_default(service, "port", 443);
        }
        webhook.insert("clientConfig".into(), config);
    }
    // A webhook that did not say which it knows knows the one there was then.
    webhook.insert("conversionReviewVersions".into(), reviews.unwrap_or_else(|| json!(["v1beta1"])));
    conversion.insert("webhook".into(), webhook.into());
}

fn names(spec: &mut Map<String, Value>) {
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or("").to_string();
    for (field, text) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if names.get(field).and_then(Value::as_str).unwrap_or("").is_empty() {
            names.insert(field.into(), text.into());
        }
    }
}

fn stored_versions(definition: &mut Value) {
    let known = definition.pointer("/status/storedVersions").and_then(Value::as_array);
    if known.is_some_and(|versions| !versions.is_empty()) {
        return;
    }
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let stored = versions.into_iter().flatten().find(|version| version["storage"] == true);
    if let Some(name) = stored.map(|version| version["name"].clone()) {
        machinery::object::child_mut(definition, "status").insert("storedVersions".into(), json!([name]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_versions_share_is_given_to_each() {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}});
        let stored = json!({
            "kind": "CustomResourceDefinition", "apiVersion": OLDER, "metadata": {"name": "as.x.io"},
            "spec": {
                "group": "x.io", "version": "v1", "scope": "Namespaced", "preserveUnknownFields": false,
                "names": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"},
                "validation": schema, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Age", "type": "date", "JSONPath": ".metadata.creationTimestamp"}],
                "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": true, "storage": false}],
                "conversion": {"strategy": "None"},
            },
            "status": {"conditions": [], "storedVersions": ["v1"]},
        });
        let found = upgraded(stored.to_string().as_bytes()).unwrap();
        assert_eq!(found["apiVersion"], "apiextensions.k8s.io/v1");
        for version in found["spec"]["versions"].as_array().unwrap() {
            assert_eq!(version["schema"], schema);
            assert_eq!(version["subresources"], json!({"status": {}}));
            assert_eq!(version["additionalPrinterColumns"][0]["jsonPath"], ".metadata.creationTimestamp");
        }
        for gone in ["version", "validation", "subresources", "additionalPrinterColumns", "preserveUnknownFields"] {
            assert!(found["spec"].get(gone).is_none(), "{gone}");
        }
    }

    #[test]
    fn a_webhook_moves_one_level_down() {
        let stored = json!({
            "apiVersion": OLDER, "metadata": {},
            "spec": {
                "version": "v1", "names": {"kind": "A", "plural": "as"},
                "conversion": {
                    "strategy": "Webhook", "conversionReviewVersions": ["v1"],
                    "webhookClientConfig": {"service": {"namespace": "n", "name": "s"}, "caBundle": "Y2E="},
                },
            },
        });
        let found = upgraded(stored.to_string().as_bytes()).unwrap();
        let expected = json!({
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": {"service": {"namespace": "n", "name": "s", "port": 443}, "caBundle": "Y2E="},
                "conversionReviewVersions": ["v1"],
            },
        });
        assert_eq!(found["spec"]["conversion"], expected);
        assert_eq!(found["spec"]["versions"], json!([{"name": "v1", "served": true, "storage": true}]));
        assert_eq!(found["spec"]["preserveUnknownFields"], true);
        assert_eq!(found["spec"]["scope"], "Namespaced");
        assert_eq!(found["status"]["storedVersions"], json!(["v1"]));
    }

    #[test]
    fn others_are_left_alone() {
        let newer = json!({"apiVersion": "apiextensions.k8s.io/v1", "metadata": {"annotations": {"a": OLDER}}});
        assert!(is_older(newer.to_string().as_bytes()));
        assert_eq!(upgraded(newer.to_string().as_bytes()), None);
        assert!(!is_older(b"{\"apiVersion\":\"apiextensions.k8s.io/v1\"}"));
    }
}
