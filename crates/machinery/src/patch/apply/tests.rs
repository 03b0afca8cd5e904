use serde_json::{Value, json};

use super::*;
use crate::patch::testing;

const NOW: &str = "2026-01-01T00:00:09Z";

const NOTATION: &str = r#"{"fields": {
    "apiVersion": "string", "kind": "string",
    "metadata": {"fields": {"name": "string", "namespace": "string", "managedFields": {"items": "any"}, "annotations": {"values": "string"}, "labels": {"values": "string"}}},
    "spec": {"fields": {
        "a": "string", "b": "string", "count": "int", "flag": "bool",
        "keyed": {"keys": ["name"], "items": {"fields": {"name": "string", "value": "string", "other": "string"}}},
        "ports": {"keys": ["port", "protocol"], "items": {"fields": {"port": "int", "protocol": {"type": "string", "default": "TCP"}, "name": "string"}}},
        "set": {"items": "string", "set": true},
        "list": {"items": "string"},
        "nested": {"fields": {"x": "string", "y": "string"}},
        "free": "any", "raw": "raw"
    }}
}}"#;

fn manager(name: &str) -> Manager<'_> {
    Manager { name, api_version: "v1", subresource: "", time: NOW }
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "T", "metadata": {"name": "o", "namespace": "n"}, "spec": spec})
}

/// Applies one configuration after the other, each by its manager, and gives the last answer.
fn run(steps: &[(&str, Value)]) -> Result<Value, ApplyError> {
    let schemas = testing::schemas(NOTATION);
    let ty = schemas.by_name("T").expect("named");
    let mut live: Option<Value> = None;
    for (name, spec) in steps {
        // An exclamation mark forces; a question mark is an update instead.
        let next = match name.strip_suffix('?') {
            Some(name) => {
                let mut new = live.clone().unwrap_or_else(|| object(json!({})));
                new["spec"] = spec.clone();
                crate::patch::managed::update(ty, live.as_ref(), &mut new, &manager(name), &[]);
                new
            }
            None => {
                let force = name.ends_with('!');
                let name = name.trim_end_matches('!');
                apply(ty, live.as_ref(), &object(spec.clone()), &manager(name), force, &[])?
            }
        };
        live = Some(next);
    }
    let mut last = live.unwrap_or_default();
    crate::codec::unpack(&mut last);
    Ok(last)
}

#[track_caller]
fn check(steps: &[(&str, Value)], spec: Value, owners: &[(&str, Value)]) {
    let object = run(steps).expect("applied");
    assert_eq!(object["spec"], spec);
    let list = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let fields = |entry: &Value| entry["fieldsV1"].get("f:spec").cloned().unwrap_or_default();
    let found: Vec<(&str, Value)> =
        list.iter().map(|entry| (entry["manager"].as_str().expect("a name"), fields(entry))).collect();
    assert_eq!(found, owners);
}

#[track_caller]
fn check_error(steps: &[(&str, Value)], code: u16, message: &str) {
    let status = run(steps).expect_err("refused").status();
    assert_eq!((status.code, status.message.as_str()), (code, message));
}

#[test]
fn what_has_no_type_is_merged_by_field() {
    let values = |field: &str| json!({"free": {"n": {field: [1]}}});
    let both = json!({"free": {"n": {"a": [1], "b": [1]}}});
    let owned = |field: &str| json!({"f:free": {"f:n": {".": {}, field: {}}}});
    check(&[("m", values("a")), ("n", values("b"))], both, &[("m", owned("f:a")), ("n", owned("f:b"))]);
    // Lists in it, and raw extensions, have one owner.
    let conflict = |field: &str| format!("Apply failed with 1 conflict: conflict with \"m\": .spec.{field}");
    check_error(&[("m", values("a")), ("n", json!({"free": {"n": {"a": [2]}}}))], 409, &conflict("free.n.a"));
    check_error(&[("m", json!({"raw": {"a": 1}})), ("n", json!({"raw": {"b": 1}}))], 409, &conflict("raw"));
}

#[test]
fn fields_that_are_given_up_go_unless_shared() {
    let both = json!({"a": "1", "b": "1"});
    check(&[("m", both.clone()), ("m", json!({"a": "1"}))], json!({"a": "1"}), &[("m", json!({"f:a": {}}))]);
    check(
        &[("m", both.clone()), ("n", json!({"b": "1"})), ("m", json!({"a": "1"}))],
        both.clone(),
        &[("m", json!({"f:a": {}})), ("n", json!({"f:b": {}}))],
    );
    // What an update has set belongs to nobody who applies, and stays.
    check(
        &[("m", json!({"a": "1"})), ("u?", both.clone()), ("m", json!({"a": "1"}))],
        both,
        &[("m", json!({"f:a": {}})), ("u", json!({"f:b": {}}))],
    );
    check(
        &[("m", json!({"nested": {"x": "1"}})), ("m", json!({"a": "1"}))],
        json!({"a": "1"}),
        &[("m", json!({"f:a": {}}))],
    );
}

#[test]
fn conflicts_and_force() {
    let one = ("one", json!({"a": "1", "b": "1"}));
    check_error(
        &[one.clone(), ("two", json!({"a": "2"}))],
        409,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.a",
    );
    check_error(
        &[
            one.clone(),
            ("u?", json!({"a": "1", "b": "1", "count": 1})),
            ("two", json!({"a": "2", "b": "2", "count": 2})),
        ],
        409,
        "Apply failed with 3 conflicts: conflicts with \"one\":\n- .spec.a\n- .spec.b\nconflicts with \"u\" using v1:\n- .spec.count",
    );
    check(
        &[one.clone(), ("two!", json!({"a": "2"}))],
        json!({"a": "2", "b": "1"}),
        &[("one", json!({"f:b": {}})), ("two", json!({"f:a": {}}))],
    );
    check(
        &[one, ("two", json!({"a": "1"}))],
        json!({"a": "1", "b": "1"}),
        &[("one", json!({"f:a": {}, "f:b": {}})), ("two", json!({"f:a": {}}))],
    );
    check_error(
        &[
            ("one", json!({"keyed": [{"name": "k", "value": "1"}]})),
            ("two", json!({"keyed": [{"name": "k", "value": "2"}]})),
        ],
        409,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.keyed[name=\"k\"].value",
    );
    check_error(
        &[("one", json!({"list": ["a"]})), ("two", json!({"list": ["b"]}))],
        409,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.list",
    );
}

#[test]
fn lists_merge() {
    let key = |name: &str| format!("k:{{\"name\":\"{name}\"}}");
    check(
        &[
            ("one", json!({"keyed": [{"name": "a", "value": "1"}]})),
            ("two", json!({"keyed": [{"name": "a", "other": "2"}, {"name": "b"}]})),
        ],
        json!({"keyed": [{"name": "a", "value": "1", "other": "2"}, {"name": "b"}]}),
        &[
            ("one", json!({"f:keyed": {key("a"): {".": {}, "f:name": {}, "f:value": {}}}})),
            (
                "two",
                json!({"f:keyed": {key("a"): {".": {}, "f:name": {}, "f:other": {}}, key("b"): {".": {}, "f:name": {}}}}),
            ),
        ],
    );
    check(
        &[("one", json!({"set": ["a", "b"]})), ("one", json!({"set": ["b", "c"]}))],
        json!({"set": ["b", "c"]}),
        &[("one", json!({"f:set": {"v:\"b\"": {}, "v:\"c\"": {}}}))],
    );
    let port = |protocol: Value| json!({"ports": [{"port": 1, "protocol": protocol}]});
    check(
        &[("one", json!({"ports": [{"port": 1}]})), ("two", port("TCP".into()))],
        port("TCP".into()),
        &[
            ("one", json!({"f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}})),
            (
                "two",
                json!({"f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}}}}),
            ),
        ],
    );
}

#[test]
fn order_of_merged_lists() {
    let schemas = testing::schemas(NOTATION);
    for (live, config, expected) in [
        ("a b c", "d", "a b c d"),
        ("a b c", "c a", "b c a"),
        ("a b c", "b", "a b c"),
        ("a b c", "x b y", "a x b c y"),
        ("a b c", "c b a", "c b a"),
        ("", "b a", "b a"),
        ("a b c d", "d x", "a b c d x"),
    ] {
        let list = |names: &str| json!({"spec": {"set": names.split_whitespace().collect::<Vec<_>>()}});
        let mut merged = list(live);
        merge::merge(schemas.by_name("T"), &mut merged, &list(config));
        assert_eq!(merged, list(expected), "{live} + {config}");
    }
}

#[test]
fn refused_configurations() {
    let prefix = "failed to create typed patch object (n/o; /v1, Kind=T):";
    for (spec, problem) in [
        (json!({"nope": 1}), ".spec.nope: field not declared in schema"),
        (json!({"count": "1"}), ".spec.count: expected numeric (int or float), got string"),
        (json!({"a": 1}), ".spec.a: expected string, got &value.valueUnstructured{Value:1}"),
        (json!({"flag": "x"}), ".spec.flag: expected boolean, got &value.valueUnstructured{Value:\"x\"}"),
        (json!({"list": {"a": "b"}}), ".spec.list: expected list, got &{map[a:b]}"),
        (json!({"nested": ["x"]}), ".spec.nested: expected map, got &{[x]}"),
        (
            json!({"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}),
            ".spec.ports: duplicate entries for key [port=1,protocol=\"TCP\"]",
        ),
        (json!({"set": ["x", "x"]}), ".spec.set: duplicate entries for key [=\"x\"]"),
        (
            json!({"keyed": [{"value": "1"}]}),
            ".spec.keyed: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)",
        ),
        (
            json!({"nope": 1, "a": 1}),
            "errors:\n  .spec.a: expected string, got &value.valueUnstructured{Value:1}\n  .spec.nope: field not declared in schema",
        ),
    ] {
        check_error(&[("m", spec)], 500, &format!("{prefix} {problem}"));
    }
    let schemas = testing::schemas(NOTATION);
    let ty = schemas.by_name("T").expect("named");
    let mut config = object(json!({}));
    config["metadata"]["managedFields"] = json!([]);
    let refused = apply(ty, None, &config, &manager("m"), false, &[]).expect_err("refused");
    assert_eq!(refused, ApplyError::BadRequest("metadata.managedFields must be nil".into()));
    let other = Manager { api_version: "v2", ..manager("m") };
    let refused = apply(ty, None, &object(json!({})), &other, false, &[]).expect_err("refused").to_string();
    assert_eq!(refused, "Incorrect version specified in apply patch. Specified patch version: v1, expected: v2");
}

#[test]
fn a_list_that_became_one_value_has_one_owner() {
    let schemas = testing::schemas(NOTATION);
    let ty = schemas.by_name("T").expect("named");
    let mut live = run(&[("one", json!({"list": ["a"]}))]).expect("applied");
    live["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {"f:list": {"v:\"a\"": {}}}});
    let refused = apply(ty, Some(&live), &object(json!({"list": ["b"]})), &manager("two"), false, &[]);
    let message = "Apply failed with 1 conflict: conflict with \"one\": .spec.list";
    assert_eq!(refused.expect_err("refused").to_string(), message);
}

#[test]
fn nothing_changes_nothing_is_written() {
    let schemas = testing::schemas(NOTATION);
    let ty = schemas.by_name("T").expect("named");
    let mut live = run(&[("m", json!({"a": "1", "nested": {"x": "1"}}))]).expect("applied");
    crate::codec::pack(&mut live);
    let later = Manager { time: "2027-01-01T00:00:00Z", ..manager("m") };
    let config = object(json!({"a": "1", "nested": {"x": "1"}}));
    assert_eq!(apply(ty, Some(&live), &config, &later, false, &[]), Ok(live));
}

#[test]
fn from_client_side_apply() {
    let schemas = testing::schemas(NOTATION);
    let ty = schemas.by_name("T").expect("named");
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut live = run(&[("kubectl-client-side-apply?", json!({"a": "1", "b": "1"}))]).expect("written");
    live["metadata"]["annotations"] = json!({annotation: object(json!({"a": "1"})).to_string()});
    let applied = apply(ty, Some(&live), &object(json!({"a": "2"})), &manager("kubectl"), false, &[]).expect("allowed");
    assert_eq!(applied["spec"], json!({"a": "2", "b": "1"}));
    let noted = applied["metadata"]["annotations"][annotation].as_str().expect("noted");
    assert_eq!(noted, format!("{}\n", object(json!({"a": "2"}))));
    // Another manager, or a field that was not applied before, is a conflict.
    assert!(apply(ty, Some(&live), &object(json!({"a": "2"})), &manager("m"), false, &[]).is_err());
    let refused = apply(ty, Some(&live), &object(json!({"a": "2", "b": "2"})), &manager("kubectl"), false, &[]);
    let message = "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .spec.b";
    assert_eq!(refused.expect_err("refused").to_string(), message);
}

/// The recorded conversations: each configuration applied to the answer before it gives the next answer, up to
/// defaults and what controllers wrote in between.
#[test]
fn recorded_conversations() {
    let mut replayed = 0;
    for conversation in [include_str!("../testdata/apply.jsonl"), include_str!("../testdata/update-then-apply.jsonl")] {
        let mut live: Option<Value> = None;
        for line in conversation.lines() {
            let step: Value = serde_json::from_str(line).expect("test data is JSON");
            let path = step["path"].as_str().expect("a path");
            if step["contentType"] == "application/apply-patch+yaml" && path.contains("fieldManager") {
                replay(live.as_ref(), &step);
                replayed += 1;
            }
            if step["response"]["kind"] == "Deployment" {
                live = Some(step["response"].clone());
            }
        }
    }
    assert_eq!(replayed, 14);
}

fn replay(live: Option<&Value>, step: &Value) {
    if step["body"]["metadata"]["name"] != "d" {
        return;
    }
    let path = step["path"].as_str().expect("a path");
    let name = path.split(['?', '&']).find_map(|part| part.strip_prefix("fieldManager=")).expect("a manager");
    let subresource = if path.contains("/status") { "status" } else { "" };
    let reset: &[&str] = if subresource.is_empty() { &["status"] } else { &["spec", "metadata.labels"] };
    let manager = Manager { name, api_version: "apps/v1", subresource, time: "<time>" };
    let schemas = testing::deployment();
    let ty = schemas.by_name("T").expect("named");
    let applied = apply(ty, live, &step["body"], &manager, path.contains("force=true"), reset);
    let answer = &step["response"];
    match applied {
        Err(error) => assert_eq!(&error.status().to_value(), answer, "{}", step["body"]),
        Ok(mut object) => {
            crate::codec::unpack(&mut object);
            let managed = |object: &Value| {
                let list = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
                list.into_iter().filter(|entry| entry["manager"] != "kube-controller-manager").collect::<Vec<_>>()
            };
            assert_eq!(managed(&object), managed(answer), "{}", step["body"]);
            for part in ["/spec", "/metadata/labels"] {
                let found = object.pointer(part).unwrap_or(&Value::Null);
                let expected = answer.pointer(part).unwrap_or(&Value::Null);
                assert!(contains(expected, found), "{}: {found} is not in {expected}", step["body"]);
            }
        }
    }
}

/// Whether the answer holds all of the value, and more only by defaults.
fn contains(answer: &Value, value: &Value) -> bool {
    match (answer, value) {
        (Value::Object(answer), Value::Object(value)) => {
            let given: &[&str] = &["env", "ports", "args", "labels"];
            value.iter().all(|(name, value)| answer.get(name).is_some_and(|answer| contains(answer, value)))
                && given.iter().all(|name| answer.contains_key(*name) == value.contains_key(*name))
        }
        (Value::Array(answer), Value::Array(value)) => {
            answer.len() == value.len() && answer.iter().zip(value).all(|(answer, value)| contains(answer, value))
        }
        _ => answer == value,
    }
}
