//! Writes to `ephemeralcontainers` and `resize` change one part of a Pod each; the rest stays as it was.

use serde_json::Value;

/// Before a write to `ephemeralcontainers`: everything but those is taken from `old`.
pub fn prepare_ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = new.pointer_mut("/spec/ephemeralContainers").map(Value::take);
    keep(new, old);
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match containers {
        Some(containers) => _ = spec.insert("ephemeralContainers".into(), containers),
        None => _ = spec.remove("ephemeralContainers"),
    }
}

/// Before a write to `resize`: everything but resources and resize policies is taken from `old`.
/// Where containers came or went nothing is, so that validation can say what is wrong.
pub fn prepare_resize(new: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let names = |pod: &Value, list: &str| -> Vec<Value> {
        let containers = pod["spec"][list].as_array();
        containers.into_iter().flatten().map(|container| container["name"].clone()).collect()
    };
    if lists.iter().any(|list| names(new, list) != names(old, list)) {
        return;
    }
    let proposed = new.get_mut("spec").map(Value::take).unwrap_or_default();
    keep(new, old);
    for list in lists {
        for index in 0..names(old, list).len() {
            for field in ["resources", "resizePolicy"] {
                let value = proposed[list][index].get(field).cloned();
                let Some(container) = new["spec"][list][index].as_object_mut() else { continue };
                match value {
                    Some(value) => _ = container.insert(field.into(), value),
                    None => _ = container.remove(field),
                }
            }
        }
    }
    let Some(spec) = new["spec"].as_object_mut() else { return };
    match proposed.get("resources").filter(|resources| !resources.is_null()) {
        Some(resources) => _ = spec.insert("resources".into(), resources.clone()),
        None => _ = spec.remove("resources"),
    }
}

/// The old spec, status and metadata, with the new resourceVersion and managed fields.
fn keep(new: &mut Value, old: &Value) {
    let mut kept = old.clone();
    for field in ["resourceVersion", "managedFields"] {
        if let Some(value) = new.pointer_mut(&format!("/metadata/{field}")).map(Value::take) {
            kept["metadata"][field] = value;
        }
    }
    *new = kept;
}

#[cfg(test)]
mod tests {
    use machinery::field::Errors;
    use machinery::node::Node;
    use serde_json::{Value, json};

    use super::super::{KIND, validate_ephemeral_containers_update, validate_resize_update};
    use super::{prepare_ephemeral_containers, prepare_resize};

    fn pod() -> Value {
        let mut pod = json!({
            "metadata": { "name": "p" },
            "spec": { "containers": [{
                "name": "c", "image": "x", "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "2" } },
            }] },
        });
        (KIND.defaults)(&mut pod);
        (KIND.prepare_create)(&mut pod);
        pod
    }

    fn messages(errors: &Errors) -> Vec<String> {
        errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect()
    }

    fn check_resize(change: impl Fn(&mut Value), expected: &[&str]) {
        let (old, mut new, mut errors) = (pod(), pod(), Errors::default());
        change(&mut new);
        prepare_resize(&mut new, &old);
        validate_resize_update(&Node::root(&new), &Node::root(&old), &mut errors);
        assert_eq!(messages(&errors), expected);
    }

    #[test]
    fn resize() {
        check_resize(|_| {}, &[]);
        check_resize(|new| new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m".into(), &[]);
        // Other changes are not looked at.
        check_resize(|new| new["spec"]["containers"][0]["image"] = "y".into(), &[]);
        check_resize(
            |new| new["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1".into(),
            &[
                "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
                "spec: Forbidden: only cpu and memory resources are mutable",
            ],
        );
        check_resize(
            |new| new["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "1" } }),
            &["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"],
        );
        check_resize(
            |new| new["spec"]["containers"][0]["resources"] = json!({}),
            &[
                "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
                "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            ],
        );
    }

    #[test]
    fn resize_of_init_containers_and_of_the_whole_pod() {
        let resized = |before: Value, after: Value, expected: &[&str]| {
            let with = |more: &Value| {
                let mut pod = pod();
                pod["spec"].as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
                (KIND.defaults)(&mut pod);
                (KIND.prepare_create)(&mut pod);
                pod
            };
            let (old, mut new, mut errors) = (with(&before), with(&after), Errors::default());
            prepare_resize(&mut new, &old);
            validate_resize_update(&Node::root(&new), &Node::root(&old), &mut errors);
            assert_eq!(messages(&errors), expected);
        };
        let init = |cpu: &str, policy: &str| {
            json!({"initContainers": [{
                "name": "i", "image": "x", "resources": {"requests": {"cpu": cpu}},
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}],
            }]})
        };
        resized(init("1", "NotRequired"), init("2", "NotRequired"), &[]);
        let whole = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
        let one = whole(json!({"cpu": "1"}), json!({"cpu": "2"}));
        resized(one.clone(), whole(json!({"cpu": "1500m"}), json!({"cpu": "3"})), &[]);
        resized(one.clone(), whole(json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "2"})), &[]);
        resized(
            whole(json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "2"})),
            one.clone(),
            &["spec.resources.requests: Forbidden: pod-level resource requests cannot be removed"],
        );
        resized(one, json!({}), &["spec.resources: Forbidden: pod-level resources cannot be removed"]);
    }

    #[test]
    fn ephemeral_containers() {
        let mut old = pod();
        old["spec"]["ephemeralContainers"] = json!([{ "name": "e", "image": "x" }]);
        (KIND.defaults)(&mut old);
        let check = |containers: Value, expected: &[&str]| {
            let (mut new, mut errors) = (old.clone(), Errors::default());
            new["spec"]["ephemeralContainers"] = containers;
            new["spec"]["nodeName"] = "ignored".into();
            (KIND.defaults)(&mut new);
            prepare_ephemeral_containers(&mut new, &old);
            assert!(new["spec"].get("nodeName").is_none(), "only ephemeral containers change");
            validate_ephemeral_containers_update(&Node::root(&new), &Node::root(&old), &mut errors);
            let found = messages(&errors);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected)), "{found:?}");
        };
        check(json!([{ "name": "e", "image": "x" }, { "name": "f", "image": "x", "targetContainerName": "c" }]), &[]);
        check(
            json!([{ "name": "f", "image": "x" }]),
            &["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n"],
        );
        check(
            json!([{ "name": "e", "image": "y" }]),
            &["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be changed\n@@ "],
        );
    }
}
