//! Bytes of real clients, and round trips of what upstream answered.

use machinery::codec::protobuf::{self, DecodeError};
use machinery::schema::TypeRef;
use machinery::schema::conform::{Problems, conform};
use serde_json::{Value, json};

use super::super::{type_named, type_of};
use super::field_numbers;
use crate::every_kind;

fn type_of_object(object: &Value) -> TypeRef<'static> {
    let api_version = object["apiVersion"].as_str().expect("an apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    type_named(group, version, object["kind"].as_str().expect("a kind")).expect("a built-in kind")
}

fn conformed(mut object: Value) -> Value {
    let shape = type_of_object(&object);
    conform(&mut object, shape, &mut Problems::default()).expect("the object has the shape of its kind");
    object
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.trim().as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect("hex digits")).collect()
}

fn cases(text: &'static str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("test data is JSON"))
}

fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = protobuf::open(body)?;
    let named = json!({"apiVersion": envelope.api_version, "kind": envelope.kind});
    envelope.decode(type_of_object(&named), field_numbers())
}

/// JSON to protobuf and back changes nothing.
fn check_round_trip(object: Value) {
    let mut object = conformed(object);
    without_inner_kinds(&mut object);
    let encoded =
        protobuf::encode_object(&object, type_of_object(&object), field_numbers()).expect("it can be written");
    let decoded = conformed(decode(&encoded).expect("it can be read"));
    assert_eq!(decoded, object);
}

/// Only the outermost object has an envelope for its kind; the defaults write those of claim templates again.
fn without_inner_kinds(object: &mut Value) {
    let templates = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten().filter_map(Value::as_object_mut) {
        template.remove("apiVersion");
        template.remove("kind");
    }
}

#[test]
fn every_field_has_a_number() {
    assert_eq!(field_numbers().missing(), Vec::<String>::new());
    for kind in every_kind() {
        assert!(field_numbers().cover(type_of(kind)), "{}", kind.kind);
    }
}

/// Each line holds what kubectl 1.32 sent, and the same object as it writes it in JSON.
#[test]
fn what_kubectl_sends_is_what_it_shows() {
    for case in cases(include_str!("../testdata/protobuf-kubectl.jsonl")) {
        let decoded = decode(&bytes(case["bytes"].as_str().unwrap())).expect("a real client wrote it");
        assert_eq!(conformed(decoded), conformed(case["object"].clone()));
    }
}

/// Written by another implementation: inlined structs, maps, quantities, negative numbers, zero values.
#[test]
fn a_pod_with_many_volumes() {
    let raw = bytes(include_str!("../testdata/protobuf-pod.hex"));
    let envelope = protobuf::Envelope { api_version: "v1", kind: "Pod", raw: &raw };
    let shape = type_named("", "v1", "Pod").unwrap();
    let decoded = conformed(envelope.decode(shape, field_numbers()).expect("it can be read"));
    let expected: Value = serde_json::from_str(include_str!("../testdata/protobuf-pod.json")).unwrap();
    assert_eq!(decoded, conformed(expected.clone()));
    check_round_trip(expected);
}

#[test]
fn upstream_answers_make_the_round_trip() {
    for case in cases(include_str!("../testdata/upstream-answers.jsonl")) {
        for part in ["request", "response"] {
            if case[part]["kind"].is_string() {
                check_round_trip(case[part].clone());
            }
        }
    }
}

#[test]
fn unions_wrapped_lists_and_times_make_the_round_trip() {
    let schema = json!({
        "type": "object", "required": ["a"], "maximum": 1.5,
        "properties": {
            "a": {"type": "array", "items": {"type": "string", "enum": ["x", null, {"y": 1}]}},
            "b": {"type": "object", "additionalProperties": {"type": "integer", "default": 0}},
            "c": {"type": "object", "additionalProperties": false, "x-kubernetes-preserve-unknown-fields": true},
            "d": {"items": [{"type": "string"}], "dependencies": {"e": ["f"], "g": {"type": "object"}}},
        },
    });
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    check_round_trip(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"},
        "spec": {"group": "b", "scope": "Namespaced", "names": {"plural": "a", "kind": "A"}, "versions": [version]},
    }));
    check_round_trip(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"},
        "spec": {"request": "AAD/", "signerName": "s", "usages": ["client auth"], "extra": {"k": ["v", "w"], "e": ["x"]}},
    }));
    check_round_trip(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": [
            {"manager": "m", "operation": "Update", "time": "1969-12-31T23:59:59Z", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:spec": {"f:renewTime": {}}}}]},
        "spec": {"renewTime": "2026-01-02T03:04:05.000006Z", "leaseDurationSeconds": 40},
    }));
    check_round_trip(json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "m", "details": {"name": "n", "kind": "pods", "causes": [{"reason": "r", "field": "f"}]},
    }));
    check_round_trip(json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "u"},
        "dryRun": ["All"], "propagationPolicy": "Foreground",
    }));
}

#[test]
fn a_list_has_its_metadata_and_items() {
    let shape = type_named("", "v1", "ConfigMap").unwrap();
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"}, "items": [
        {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}, "data": {"k": "v"}},
    ]});
    let encoded = protobuf::encode_list(&list, shape, field_numbers()).unwrap();
    let envelope = protobuf::open(&encoded).unwrap();
    assert_eq!((envelope.api_version, envelope.kind), ("v1", "ConfigMapList"));
    let expected = b"\x0a\x03\x12\x017\x12\x05\x0a\x03\x0a\x01a\x12\x0d\x0a\x03\x0a\x01b\x12\x06\x0a\x01k\x12\x01v";
    assert_eq!(envelope.raw, expected);
}

/// Cut or damaged bytes of real objects are refused or read, and never end the server.
#[test]
fn damaged_bytes_do_no_harm() {
    let raw = bytes(include_str!("../testdata/protobuf-pod.hex"));
    let shape = type_named("", "v1", "Pod").unwrap();
    let read = |raw: &[u8]| protobuf::Envelope { api_version: "v1", kind: "Pod", raw }.decode(shape, field_numbers());
    for end in 0..raw.len() {
        drop(read(&raw[..end]));
    }
    let mut damaged = raw.clone();
    for position in 0..raw.len() {
        for value in [0x00, 0x7f, 0x80, 0xff, raw[position] ^ 1, raw[position].wrapping_add(1)] {
            damaged[position] = value;
            drop(read(&damaged));
        }
        damaged[position] = raw[position];
    }
}
