//! Patches: none may do more the second time than the first, and a patch that fails changes nothing.

use machinery::patch::managed::Manager;
use machinery::patch::{apply, json as json_patch, merge, strategic};
use serde_json::{Value, json};

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"a": "b"}, "finalizers": ["x/y"]},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {"name": "one", "image": "i", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]},
                    {"name": "two", "image": "j", "args": ["x"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                ],
                "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "k", "operator": "Exists"}],
            },
        }},
    })
}

#[test]
fn a_list_of_operations_is_done_whole_or_not_at_all() {
    let examples = [json!([
        {"op": "add", "path": "/metadata/labels/new", "value": "x"},
        {"op": "remove", "path": "/spec/replicas"},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "k"},
        {"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"},
        {"op": "copy", "from": "/spec/template", "path": "/metadata/copy"},
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "~0~1"}},
    ])];
    fuzz::values("json-patch", &examples, |patch, _| {
        let (before, mut document) = (deployment(), deployment());
        match json_patch::apply(&mut document, patch) {
            // What was done to the document before the failure is thrown away by whoever asked; the error has its words.
            Err(error) => assert!(!error.status().message.is_empty()),
            Ok(()) => {
                let mut again = before.clone();
                json_patch::apply(&mut again, patch).expect("the same patch of the same document");
                assert_eq!(again, document);
                // Copies of copies must not fill the memory.
                assert!(document.to_string().len() < 64 * 1024 * 1024);
            }
        }
    });
}

#[test]
fn merging_twice_is_merging_once() {
    let examples = [deployment(), json!({"metadata": {"labels": {"a": null, "c": "d"}}, "spec": null})];
    fuzz::values("merge-patch", &examples, |patch, _| {
        let mut once = deployment();
        if merge::apply(&mut once, patch).is_err() {
            return;
        }
        let mut twice = once.clone();
        merge::apply(&mut twice, patch).expect("it was merged before");
        assert_eq!(once, twice);
    });
}

#[test]
fn a_strategic_merge_keeps_lists_with_keys_apart() {
    let directives = json!({
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["x/y"], "labels": {"$patch": "replace", "z": "y"}},
        "spec": {"template": {"spec": {
            "$setElementOrder/containers": [{"name": "two"}, {"name": "one"}],
            "containers": [{"name": "one", "$patch": "delete"}, {"name": "three", "image": "k"}],
            "volumes": [{"$patch": "replace"}, {"name": "w"}], "$retainKeys": ["volumes", "containers"],
        }}},
    });
    let ty = api::schema::type_named("apps", "v1", "Deployment").expect("a kind");
    fuzz::values("strategic-patch", &[deployment(), directives], |patch, _| {
        let mut once = deployment();
        if strategic::apply(ty, &mut once, patch).is_err() {
            return;
        }
        // What replaces a value is taken as it is, as upstream does; the decoder drops the directives in it.
        assert!(
            replaces_directives(patch) || !once.to_string().contains("\"$setElementOrder/containers\""),
            "directives are no part of an object"
        );
    });
}

/// Whether a part of the patch that says `$patch: replace` has directives of its own.
fn replaces_directives(patch: &Value) -> bool {
    let replaces = |value: &Value| value.get("$patch").is_some_and(|directive| directive == "replace");
    let deep = |value: &Value| value.to_string().contains("$setElementOrder/");
    match patch {
        Value::Object(fields) if replaces(patch) => fields.values().any(deep),
        Value::Object(fields) => fields.values().any(replaces_directives),
        Value::Array(items) if items.iter().any(replaces) => items.iter().any(deep),
        Value::Array(items) => items.iter().any(replaces_directives),
        _ => false,
    }
}

#[test]
fn applying_twice_is_applying_once() {
    let ty = api::schema::type_named("apps", "v1", "Deployment").expect("a kind");
    let manager = |name| Manager { name, api_version: "apps/v1", subresource: "", time: "2026-01-02T03:04:05Z" };
    let identity = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
    fuzz::values("apply", &[deployment(), identity], |config, random| {
        let first = apply::apply(ty, None, &deployment(), &manager("first"), false, &["status"]).expect("an example");
        let force = random.one_in(2);
        let Ok(once) = apply::apply(ty, Some(&first), config, &manager("second"), force, &["status"]) else { return };
        let twice = apply::apply(ty, Some(&once), config, &manager("second"), force, &["status"]);
        assert_eq!(twice.expect("it was applied before"), once);
    });
}
