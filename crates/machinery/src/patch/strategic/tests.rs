use serde_json::{Value, json};

use super::*;
use crate::patch::testing;

/// Lists of every kind, and a map.
const NOTATION: &str = r#"{"fields": {
    "keyed": {"merge": "name", "items": {"fields": {
        "name": "string", "value": "string",
        "inner": {"merge": "name", "items": {"fields": {"name": "string", "value": "string"}}}
    }}},
    "plain": {"merge": true, "items": "string"},
    "replaced": {"items": "string"},
    "map": {"values": "string"},
    "nested": {"fields": {"a": "string", "b": "string"}},
    "lists": {"merge": true, "items": {"items": "string"}}
}}"#;

#[track_caller]
fn check(document: Value, patch: Value, expected: Value) {
    let schemas = testing::schemas(NOTATION);
    let mut document = document;
    assert_eq!(apply(schemas.by_name("T").expect("named"), &mut document, &patch), Ok(()));
    assert_eq!(document, expected);
}

#[track_caller]
fn check_error(document: Value, patch: Value, code: u16, message: &str) {
    let schemas = testing::schemas(NOTATION);
    let mut document = document;
    let error = apply(schemas.by_name("T").expect("named"), &mut document, &patch).expect_err("refused");
    assert_eq!((error.status().code, error.to_string().as_str()), (code, message));
}

#[test]
fn maps_merge_and_null_deletes() {
    check(json!({"map": {"a": "1"}}), json!({"map": {"b": "2"}}), json!({"map": {"a": "1", "b": "2"}}));
    check(json!({"map": {"a": "1"}}), json!({"map": {"a": null, "b": null}}), json!({"map": {}}));
    check(json!({"map": {"a": "1"}}), json!({"map": null}), json!({}));
    check(json!({}), json!({"map": {"a": null, "b": "1"}}), json!({"map": {"b": "1"}}));
    check(json!({"map": {"a": "1"}}), json!({"map": {"$patch": "replace", "b": "2"}}), json!({"map": {"b": "2"}}));
    check(json!({"map": {"a": "1"}}), json!({"map": {"$patch": "delete"}}), json!({"map": {}}));
    check(json!({"unknown": {"a": 1}}), json!({"unknown": {"b": [2]}}), json!({"unknown": {"a": 1, "b": [2]}}));
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    check(json!({"replaced": ["a"]}), json!({"replaced": ["b"]}), json!({"replaced": ["b"]}));
}

#[test]
fn lists_of_scalars() {
    check(json!({"plain": ["a", "b"]}), json!({"plain": ["c", "a"]}), json!({"plain": ["c", "a", "b"]}));
    let delete = json!({"$deleteFromPrimitiveList/plain": ["a", "x"], "plain": ["c"]});
    check(json!({"plain": ["a", "b"]}), delete, json!({"plain": ["c", "b"]}));
    check(json!({}), json!({"$deleteFromPrimitiveList/plain": ["a"]}), json!({}));
    let order = json!({"$setElementOrder/plain": ["c", "b", "a"], "plain": ["c"]});
    check(json!({"plain": ["a", "b"]}), order, json!({"plain": ["c", "b", "a"]}));
}

#[test]
fn lists_by_key() {
    let live = || json!({"keyed": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]});
    check(
        live(),
        json!({"keyed": [{"name": "b", "value": "3"}]}),
        json!({"keyed": [{"name": "a", "value": "1"}, {"name": "b", "value": "3"}]}),
    );
    check(
        live(),
        json!({"keyed": [{"name": "c"}]}),
        json!({"keyed": [{"name": "c"}, {"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}),
    );
    check(
        live(),
        json!({"keyed": [{"name": "a", "$patch": "delete"}, {"name": "nope", "$patch": "delete"}]}),
        json!({"keyed": [{"name": "b", "value": "2"}]}),
    );
    check(live(), json!({"keyed": [{"$patch": "replace"}, {"name": "x"}]}), json!({"keyed": [{"name": "x"}]}));
    check(live(), json!({"keyed": [{"$patch": "replace", "name": "b"}]}), json!({"keyed": []}));
    check(
        live(),
        json!({"keyed": [{"name": "a", "inner": [{"name": "i"}, {"name": "j", "$patch": "delete"}]}]}),
        json!({"keyed": [{"name": "a", "value": "1", "inner": [{"name": "i"}]}, {"name": "b", "value": "2"}]}),
    );
}

#[test]
fn element_order() {
    let live = || json!({"keyed": [{"name": "a"}, {"name": "b"}, {"name": "s"}]});
    check(
        live(),
        json!({"$setElementOrder/keyed": [{"name": "n"}, {"name": "b"}, {"name": "a"}], "keyed": [{"name": "n"}]}),
        json!({"keyed": [{"name": "n"}, {"name": "b"}, {"name": "a"}, {"name": "s"}]}),
    );
    check(
        live(),
        json!({"$setElementOrder/keyed": [{"name": "s"}, {"name": "a"}]}),
        json!({"keyed": [{"name": "b"}, {"name": "s"}, {"name": "a"}]}),
    );
    check(
        json!({}),
        json!({"$setElementOrder/keyed": [{"name": "a"}], "keyed": [{"name": "a"}, {"name": "b", "$patch": "delete"}]}),
        json!({"keyed": [{"name": "a"}]}),
    );
}

#[test]
fn retained_keys() {
    let patch = json!({"nested": {"$retainKeys": ["b"], "b": "2"}});
    check(json!({"nested": {"a": "1"}}), patch, json!({"nested": {"b": "2"}}));
}

#[test]
fn refusals() {
    let live = || json!({"keyed": [{"name": "a"}], "plain": ["a"], "nested": {"a": "1"}, "lists": [["a"]]});
    for (patch, code, message) in [
        (json!({"keyed": [{"value": "1"}]}), 500, "map: map[value:1] does not contain declared merge key: name"),
        (
            json!({"keyed": [{"$patch": "delete"}]}),
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (json!({"keyed": [{"$patch": "merge"}]}), 500, "merging lists cannot yet be specified in the patch"),
        (json!({"nested": {"$patch": "frob"}}), 500, "unknown patch type: frob in map: map[$patch:frob]"),
        (json!({"keyed": ["x"]}), 500, "list element types are not identical: [[map[name:a]] [x]]"),
        (json!({"lists": [["b"]]}), 422, "lists of lists are not supported"),
        (json!({"nested": {"$retainKeys": "a"}}), 400, "invalid patch format of retainKeys"),
        (json!({"nested": {"$retainKeys": ["a"], "b": "1"}}), 400, "invalid patch format of retainKeys"),
        (json!({"$deleteFromPrimitiveList/a/b": []}), 400, "invalid patch format of primitive list"),
        (json!({"$setElementOrder": []}), 400, "invalid patch format of setElementOrder list"),
        (
            json!({"$setElementOrder/plain": {}}),
            500,
            "expected a []interface {}, but received a map[string]interface {}",
        ),
        (
            json!({"$setElementOrder/plain": ["a"], "plain": ["b"]}),
            500,
            "The order in patch list:\n[b]\n doesn't match $setElementOrder list:\n[a]\n",
        ),
    ] {
        check_error(live(), patch, code, message);
    }
}

/// The recorded conversation: each patch applied to the answer before it gives the next answer, up to defaults.
#[test]
fn recorded_conversation() {
    let schemas = testing::deployment();
    let mut live = Value::Null;
    for line in include_str!("../testdata/strategic-merge.jsonl").lines() {
        let step: Value = serde_json::from_str(line).expect("test data is JSON");
        if step["code"] != 200 {
            live = step["response"].clone();
            continue;
        }
        apply(schemas.by_name("T").expect("named"), &mut live, &step["body"]).expect("accepted");
        let containers = |object: &Value| {
            let containers = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
            let fields = |container: &Value| ["name", "image", "args", "ports", "env"].map(|f| container[f].clone());
            containers.iter().map(fields).collect::<Vec<_>>()
        };
        let answer = &step["response"];
        assert_eq!(containers(&live), containers(answer), "{}", step["body"]);
        assert_eq!(live["spec"]["strategy"], answer["spec"]["strategy"], "{}", step["body"]);
        let finalizers = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        assert_eq!(finalizers(&live), finalizers(answer), "{}", step["body"]);
        live = answer.clone();
    }
}
