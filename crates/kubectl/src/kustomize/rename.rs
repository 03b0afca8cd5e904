//! Names that have changed, and the places that say them.

use serde_json::Value;

use super::{Resource, hash};

/// Generated ConfigMaps and Secrets are named by what they hold.
pub(super) fn hashes(resources: &mut [Resource]) {
    for resource in resources.iter_mut().filter(|resource| resource.hashed) {
        let name = resource.object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        // The name itself is not part of it here: an overlay's prefix does not change the sum.
        let sum = match resource.object["kind"].as_str() {
            Some("Secret") => hash::secret(&resource.object, ""),
            _ => hash::config_map(&resource.object, ""),
        };
        resource.object["metadata"]["name"] = format!("{name}-{sum}").into();
    }
}

/// Fields that hold the name of an object of a kind: the key of the parent, where that matters, and the field.
const PLACES: &[(&str, &str, &str)] = &[
    ("ConfigMap", "configMapRef", "name"),
    ("ConfigMap", "configMapKeyRef", "name"),
    ("ConfigMap", "configMap", "name"),
    ("Secret", "secretRef", "name"),
    ("Secret", "secretKeyRef", "name"),
    ("Secret", "secret", "name"),
    ("Secret", "secret", "secretName"),
    ("Secret", "tls", "secretName"),
    ("Secret", "imagePullSecrets", "name"),
    ("ServiceAccount", "spec", "serviceAccountName"),
    ("ServiceAccount", "spec", "serviceAccount"),
    ("Service", "service", "name"),
    ("Service", "spec", "serviceName"),
    ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
    ("PersistentVolume", "spec", "volumeName"),
    ("StorageClass", "spec", "storageClassName"),
    ("PriorityClass", "spec", "priorityClassName"),
    ("IngressClass", "spec", "ingressClassName"),
];

/// `more` are the references that configurations name.
pub(crate) fn references(resources: &mut [Resource], more: &[Value]) {
    let names: Vec<(String, String, String)> = resources
        .iter()
        .map(|resource| {
            let text =
                |path: &str| resource.object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_string();
            (text("/kind"), resource.first_name.clone(), text("/metadata/name"))
        })
        .filter(|(_, old, new)| old != new)
        .collect();
    if names.is_empty() {
        return;
    }
    for resource in resources.iter_mut() {
        walk(&mut resource.object, "", &names);
        // Bindings and autoscalers name kinds beside names.
        for pointer in ["/roleRef", "/spec/scaleTargetRef"] {
            if let Some(reference) = resource.object.pointer_mut(pointer) {
                by_kind(reference, &names);
            }
        }
        for reference in more {
            let specs = super::fields::list(reference, "fieldSpecs");
            super::fields::each(&mut resource.object, &specs, |place| {
                let known =
                    names.iter().find(|(kind, old, _)| reference["kind"] == kind.as_str() && place == old.as_str());
                if let Some((_, _, new)) = known {
                    *place = new.clone().into();
                }
            });
        }
        for subject in resource.object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            by_kind(subject, &names);
        }
    }
}

fn by_kind(reference: &mut Value, names: &[(String, String, String)]) {
    let kind = reference["kind"].as_str().unwrap_or_default().to_string();
    let found = names.iter().find(|(known, old, _)| *known == kind && reference["name"] == old.as_str());
    if let Some((_, _, new)) = found {
        reference["name"] = new.clone().into();
    }
}

fn walk(value: &mut Value, parent: &str, names: &[(String, String, String)]) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                if let Value::String(text) = inner {
                    let kinds = PLACES
                        .iter()
                        .filter(|(_, place, field)| *place == parent && field == key)
                        .map(|(kind, _, _)| *kind);
                    for kind in kinds {
                        if let Some((_, _, new)) = names.iter().find(|(known, old, _)| known == kind && old == text) {
                            *text = new.clone();
                            break;
                        }
                    }
                } else {
                    walk(inner, key, names);
                }
            }
        }
        // The items of a list stand under the list's own key.
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, parent, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(first_name: &str, object: Value) -> Resource {
        Resource { object, first_name: first_name.into(), hashed: false, origin: Default::default() }
    }

    #[test]
    fn references_follow_new_names() {
        let map = json!({"kind": "ConfigMap", "metadata": {"name": "settings-x"}});
        let account = json!({"kind": "ServiceAccount", "metadata": {"name": "pre-robot"}});
        let pod = json!({"kind": "Pod", "spec": {"serviceAccountName": "robot",
            "containers": [{"envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "settings"}}]}]}});
        let binding = json!({"kind": "RoleBinding", "subjects": [{"kind": "ServiceAccount", "name": "robot"}]});
        let mut all =
            [resource("settings", map), resource("robot", account), resource("web", pod), resource("b", binding)];
        references(&mut all, &[]);
        assert_eq!(all[2].object["spec"]["serviceAccountName"], "pre-robot");
        let sources = json!([{"configMapRef": {"name": "settings-x"}}, {"secretRef": {"name": "settings"}}]);
        assert_eq!(all[2].object["spec"]["containers"][0]["envFrom"], sources);
        assert_eq!(all[3].object["subjects"][0]["name"], "pre-robot");
    }

    #[test]
    fn configurations_name_more_references() {
        let map = resource("settings", json!({"kind": "ConfigMap", "metadata": {"name": "settings-x"}}));
        let widget = resource("w", json!({"kind": "Widget", "spec": {"uses": "settings"}}));
        let mut all = [map, widget];
        references(&mut all, &[json!({"kind": "ConfigMap", "fieldSpecs": [{"kind": "Widget", "path": "spec/uses"}]})]);
        assert_eq!(all[1].object["spec"]["uses"], "settings-x");
    }
}
