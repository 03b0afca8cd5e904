//! Upstream's own recorded bytes of every kind, each field of it filled: read as the JSON that was recorded beside them, and
//! written as the same bytes again. The file is `staging/src/k8s.io/api/testdata/HEAD` of v1.36.4, one kind in a line.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::codec::protobuf;
use machinery::schema::conform::{Problems, conform};
use serde_json::{Value, json};

use super::super::type_named;
use super::field_numbers;
use crate::every_kind;

struct Recorded {
    group: String,
    version: String,
    kind: String,
    bytes: Vec<u8>,
    object: Value,
}

fn recorded() -> Vec<Recorded> {
    let mut text = String::new();
    let packed = include_bytes!("../testdata/upstream-objects.jsonl.gz");
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("the file is whole");
    let read = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("test data is JSON");
        let object = line["object"].take();
        let bytes = STANDARD.decode(line["bytes"].as_str().expect("bytes")).expect("base64");
        let api_version = object["apiVersion"].as_str().expect("an apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        Recorded { group: group.into(), version: version.into(), kind, bytes, object }
    };
    text.lines().map(read).collect()
}

/// These are JSON in every etcd, and upstream's published bytes have none of them.
const NEVER_PROTOBUF: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

#[test]
fn every_kind_is_among_them() {
    let recorded = recorded();
    let is_there = |group: &str, version: &str, kind: &str| {
        recorded.iter().any(|one| (&*one.group, &*one.version, &*one.kind) == (group, version, kind))
    };
    for kind in every_kind().filter(|kind| !NEVER_PROTOBUF.contains(&kind.group)) {
        assert!(is_there(kind.group, kind.version, kind.kind), "{} {}", kind.api_version(), kind.kind);
    }
}

#[test]
fn what_upstream_wrote_is_read_and_written_alike() {
    let mut differences = Vec::new();
    let mut count = 0;
    for one in recorded() {
        let Some(shape) = type_named(&one.group, &one.version, &one.kind) else { continue };
        count += 1;
        let name = format!("{}/{} {}", one.group, one.version, one.kind);
        let envelope = protobuf::open(&one.bytes).expect("an envelope");
        let mut read = envelope.decode(shape, field_numbers()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut expected = one.object.clone();
        for object in [&mut read, &mut expected] {
            let mut problems = Problems::default();
            conform(object, shape, &mut problems).unwrap_or_else(|error| panic!("{name}: {error}"));
            differences.extend(problems.unknown.iter().map(|problem| format!("{name}: {problem}")));
        }
        compare(&name, &expected, &read, &mut differences);
        let written = protobuf::encode_object(&one.object, shape, field_numbers());
        let written = written.unwrap_or_else(|error| panic!("{name}: {error}"));
        if written != one.bytes {
            let at = written.iter().zip(&one.bytes).position(|(ours, theirs)| ours != theirs);
            let lengths = (written.len(), one.bytes.len());
            differences.push(format!("{name}: bytes differ at {at:?}, lengths {lengths:?}"));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(count > 80, "only {count} kinds were compared");
}

fn compare(path: &str, expected: &Value, found: &Value, into: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) => {
            for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
                let none = json!("(nothing)");
                let (left, right) = (left.get(key).unwrap_or(&none), right.get(key).unwrap_or(&none));
                compare(&format!("{path}.{key}"), left, right, into);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(&format!("{path}[{index}]"), left, right, into);
            }
        }
        _ if expected == found => {}
        _ => into.push(format!("{path}: {expected} became {found}")),
    }
}
