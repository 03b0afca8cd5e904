//! Recorded answers of an upstream server: what defaults add, and what is refused and in which words.

use machinery::field::Errors;
use machinery::kind::Kind;
use machinery::node::Node;
use machinery::schema::conform::{Problems, conform};
use serde_json::{Value, json};

use crate::KINDS;
use crate::schema::type_of;

#[test]
fn defaults_are_those_of_upstream() {
    for case in cases(include_str!("testdata/defaults.jsonl")) {
        let (kind, mut object) = (kind_of(&case["request"]), case["request"].clone());
        prepare(kind, &mut object);
        let mut expected = case["response"].clone();
        for object in [&mut object, &mut expected] {
            forget_what_the_server_adds(object);
        }
        assert_eq!(object, expected, "{} {}", kind.kind, case["request"]);
    }
}

#[test]
fn errors_are_those_of_upstream() {
    for case in cases(include_str!("testdata/errors.jsonl")) {
        let (kind, mut object) = (kind_of(&case["request"]), case["request"].clone());
        prepare(kind, &mut object);
        let mut errors = Errors::default();
        (kind.validate)(&Node::root(&object), &mut errors);
        let causes: Vec<Value> = errors
            .causes()
            .into_iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        assert_eq!(Value::Array(causes), case["causes"], "{} {}", kind.kind, case["request"]);
    }
}

#[test]
fn good_objects_are_accepted() {
    for case in cases(include_str!("testdata/defaults.jsonl")) {
        let kind = kind_of(&case["request"]);
        let mut object = case["response"].clone();
        for (name, value) in [("/spec/clusterIP", json!("10.0.0.1")), ("/spec/clusterIPs/0", json!("10.0.0.1"))] {
            replace_allocated(&mut object, name, value);
        }
        replace_allocated(&mut object, "/spec/healthCheckNodePort", json!(30000));
        for index in 0..2 {
            replace_allocated(&mut object, &format!("/spec/ports/{index}/nodePort"), json!(30001 + index));
        }
        let mut errors = Errors::default();
        (kind.validate)(&Node::root(&object), &mut errors);
        (kind.validate_update)(&Node::root(&object), &Node::root(&object), &mut errors);
        (kind.validate_status)(&Node::root(&object), &Node::root(&object), &mut errors);
        assert_eq!(errors, Errors::default(), "{object}");
    }
}

/// The steps of a POST up to the allocator and validation.
fn prepare(kind: &Kind, object: &mut Value) {
    conform(object, type_of(kind), &mut Problems::default()).expect("upstream could decode it");
    (kind.defaults)(object);
    (kind.prepare_create)(object);
    // Kinds with further served versions would drift if defaulting twice changed anything.
    let once = object.clone();
    (kind.defaults)(object);
    assert_eq!(*object, once, "defaults are stable");
}

/// Metadata is the generic path's, addresses and ports the allocator's, and admission has its own additions.
fn forget_what_the_server_adds(object: &mut Value) {
    if let Some(map) = object["metadata"].as_object_mut() {
        for field in ["namespace", "generation", "finalizers"] {
            map.remove(field);
        }
    }
    for pointer in ["/spec", "/status"] {
        let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { continue };
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
            map.remove(field);
        }
        map.remove("taints");
        map.remove("lastPhaseTransitionTime");
        for port in map.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
}

fn replace_allocated(object: &mut Value, pointer: &str, value: Value) {
    if let Some(slot) = object.pointer_mut(pointer)
        && *slot == "<allocated>"
    {
        *slot = value;
    }
}

fn kind_of(object: &Value) -> &'static Kind {
    let found = KINDS.iter().find(|kind| object["apiVersion"] == kind.api_version() && object["kind"] == kind.kind);
    found.expect("the kind is served")
}

fn cases(lines: &'static str) -> impl Iterator<Item = Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON"))
}
