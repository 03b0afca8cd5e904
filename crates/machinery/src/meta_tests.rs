use serde_json::json;

use super::*;
use crate::field::Path;

fn created(metadata: Value, namespaced: bool) -> String {
    let mut errors = Errors::default();
    let node = Node::new(&metadata, Path::new("metadata"));
    validate_object_meta(&node, namespaced, names::dns_subdomain, &mut errors);
    if errors.is_empty() { String::new() } else { errors.summary() }
}

fn updated(new: Value, old: Value) -> String {
    let mut errors = Errors::default();
    let (new, old) = (Node::new(&new, Path::new("metadata")), Node::new(&old, Path::new("metadata")));
    validate_object_meta_update(&new, &old, &mut errors);
    if errors.is_empty() { String::new() } else { errors.summary() }
}

#[test]
fn good_metadata() {
    let metadata = json!({
        "name": "a", "namespace": "b", "generateName": "a-", "labels": {"e.com/a": "b"}, "annotations": {"E.com/A": "any text"},
        "finalizers": ["kubernetes", "e.com/x"], "managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1"}],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}],
    });
    assert_eq!(created(metadata, true), "");
    assert_eq!(created(json!({"name": "a"}), false), "");
}

#[test]
fn refused_metadata() {
    let check = |metadata: Value, expected: &str| assert_eq!(created(metadata, true), expected);
    check(json!({"namespace": "b"}), "metadata.name: Required value: name or generateName is required");
    check(json!({"name": "a"}), "metadata.namespace: Required value");
    check(
        json!({"name": "a", "namespace": "b", "finalizers": ["x"]}),
        "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified",
    );
    check(
        json!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]}),
        "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
    );
    check(
        json!({"name": "a", "namespace": "b", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}),
        "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
    );
    check(
        json!({"name": "a", "namespace": "b", "annotations": {"a": "x".repeat(ANNOTATIONS_BYTES_MAX)}}),
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    );
    check(
        json!({"name": "a", "namespace": "b", "managedFields": [{"operation": "Patch"}]}),
        "metadata.managedFields[0].operation: Invalid value: \"Patch\": must be `Apply` or `Update`",
    );
    assert!(
        created(json!({"name": "a", "generateName": "A"}), false)
            .starts_with("metadata.generateName: Invalid value: \"A\"")
    );
    assert!(
        created(json!({"name": "a", "labels": {"a": "b c"}}), false)
            .starts_with("metadata.labels: Invalid value: \"b c\"")
    );
    assert_eq!(
        created(json!({"name": "a", "namespace": "b"}), false),
        "metadata.namespace: Forbidden: not allowed on this type"
    );
}

#[test]
fn updates() {
    let old = json!({"name": "a", "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z", "deletionTimestamp": "2024-01-02T00:00:00Z", "finalizers": ["a.b/c"]});
    let with = |field: &str, value: Value| {
        let mut new = old.clone();
        new[field] = value;
        new
    };
    assert_eq!(updated(old.clone(), old.clone()), "");
    assert_eq!(updated(with("finalizers", json!([])), old.clone()), "");
    assert_eq!(
        updated(with("finalizers", json!(["a.b/c", "d.e/f"])), old.clone()),
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"d.e/f\"}"
    );
    assert_eq!(
        updated(with("uid", json!("other")), old.clone()),
        "metadata.uid: Invalid value: \"other\": field is immutable"
    );
}
