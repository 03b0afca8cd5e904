use serde_json::{Value, json};

use super::*;
use crate::patch::testing;

const NOTATION: &str = r#"{"fields": {
    "always": {"written": true, "fields": {"text": "string", "list": {"written": true, "keys": ["name"], "items": {"fields": {"name": "string", "value": "string"}}}}},
    "pointer": {"fields": {"text": "string"}},
    "atomic": {"atomic": true, "fields": {"text": "string"}},
    "count": {"type": "int", "written": true},
    "map": {"values": "string"},
    "set": {"items": "string", "set": true},
    "plain": {"items": "string"},
    "ports": {"keys": ["port", "protocol"], "items": {"fields": {"port": "int", "protocol": {"type": "string", "default": "TCP"}}}},
    "free": {"preserve": true, "fields": {}},
    "any": "any"
}}"#;

fn set(fields: &Value) -> Set<'_> {
    from_json(fields).expect("test set")
}

#[track_caller]
fn check(operation: impl for<'a> Fn(Set<'a>, Set<'a>) -> Set<'a>, left: Value, right: Value, expected: Value) {
    assert_eq!(to_json(&operation(set(&left), set(&right))), expected);
}

#[test]
fn operations() {
    let left = || json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "k:{\"name\":\"x\"}": {}}, "f:d": {"f:e": {}}});
    let right = || json!({"f:a": {"f:z": {}}, "f:b": {"f:c": {}}, "f:d": {}});
    check(
        |left, right| left.union(right),
        left(),
        right(),
        json!({
            "f:a": {".": {}, "f:z": {}}, "f:b": {".": {}, "f:c": {}, "k:{\"name\":\"x\"}": {}}, "f:d": {".": {}, "f:e": {}}
        }),
    );
    let kept = json!({"f:a": {}, "f:b": {".": {}, "k:{\"name\":\"x\"}": {}}, "f:d": {"f:e": {}}});
    check(|left, right| left.difference(&right), left(), right(), kept);
    let kept = json!({"f:a": {}, "f:b": {".": {}, "k:{\"name\":\"x\"}": {}}});
    check(|left, right| left.recursive_difference(&right), left(), right(), kept);
    check(|left, right| left.intersection(&right), left(), right(), json!({"f:b": {"f:c": {}}}));
    check(
        |left, _| left.leaves(),
        json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}),
        json!({}),
        json!({"f:a": {"f:b": {}}, "f:c": {}}),
    );
    assert_eq!(
        to_json(&Set::of_paths(&["status", "metadata.labels", "metadata.name"])),
        json!({"f:metadata": {"f:labels": {}, "f:name": {}}, "f:status": {}})
    );
}

#[test]
fn foreign_text_becomes_canonical() {
    let foreign =
        json!({"k:{\"b\": 1, \"a\":\"x\"}": {"f:c": {}}, "k:{\"a\":\"x\",\"b\":1}": {}, "v:\"x\"": {}, "i:0": {}});
    let canonical = json!({"k:{\"a\":\"x\",\"b\":1}": {".": {}, "f:c": {}}, "v:\"x\"": {}, "i:0": {}});
    assert_eq!(to_json(&set(&foreign)), canonical);
    for wrong in
        [json!({"x": {}}), json!({"q:x": {}}), json!({"f:a": 1}), json!({"k:[]": {}}), json!({"i:x": {}}), json!([])]
    {
        assert!(from_json(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn paths_as_text() {
    let fields = json!({"f:a": {".": {}, "k:{\"name\":\"c\",\"port\":80}": {"f:image": {}}, "v:\"x\"": {}, "i:3": {}}, "f:b": {}});
    let expected = [".a", ".b", ".a[3]", ".a[=\"x\"]", ".a[name=\"c\",port=80].image"];
    assert_eq!(set(&fields).paths(), expected);
}

#[track_caller]
fn check_compare(old: Option<Value>, new: Value, added: Value, modified: Value, removed: Value) {
    let schemas = testing::schemas(NOTATION);
    let comparison = compare(schemas.by_name("T").expect("named"), old.as_ref(), &new);
    let found = [&comparison.added, &comparison.modified, &comparison.removed].map(to_json);
    assert_eq!(found, [added, modified, removed]);
}

#[test]
fn a_new_object_has_its_plain_structs_already() {
    check_compare(
        None,
        json!({
            "always": {"text": "x", "list": [{"name": "n"}]}, "pointer": {"text": "x"}, "atomic": {"text": "x"},
            "count": 0, "map": {"a": "b"}, "ports": [{"port": 80}], "plain": []
        }),
        json!({
            "f:always": {"f:text": {}, "f:list": {"k:{\"name\":\"n\"}": {".": {}, "f:name": {}}}},
            "f:pointer": {".": {}, "f:text": {}}, "f:atomic": {}, "f:map": {".": {}, "f:a": {}},
            "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:plain": {}
        }),
        json!({}),
        json!({}),
    );
    check_compare(None, json!({"always": {}, "count": 3}), json!({}), json!({"f:count": {}}), json!({}));
}

/// The short way to the paths of a new object and the comparison with an empty one, on objects of every mixture of these values.
#[test]
fn what_a_new_object_sets_is_what_a_comparison_finds() {
    let inner = [json!(null), json!({}), json!({"text": ""}), json!({"text": "x"}), json!("x"), json!([])];
    let named = json!([{"name": "b", "value": ""}, {"name": "a"}, {"name": "b"}, {"value": "keyless"}, null]);
    let values: [(&str, Vec<Value>); 11] = [
        (
            "always",
            [&inner[..], &[json!({"list": []}), json!({"list": named, "text": ""}), json!({"list": null})]].concat(),
        ),
        ("pointer", inner.to_vec()),
        ("atomic", inner.to_vec()),
        ("count", vec![json!(0), json!(3), json!(null), json!("0")]),
        ("map", vec![json!({}), json!({"b": "", "a": "x"}), json!(null), json!([1])]),
        ("set", vec![json!([]), json!(["y", "x", "y"]), json!([["deep"], "x"]), json!(null)]),
        ("plain", vec![json!([]), json!(["x"]), json!({"x": 1})]),
        (
            "ports",
            vec![json!([{"port": 80}, {"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}]), json!([{}])],
        ),
        ("free", vec![json!({}), json!({"a": {"b": [1]}, "c": null}), json!(1)]),
        ("any", vec![json!({"a": {}}), json!([{}]), json!(0), json!(null)]),
        ("unknown", vec![json!({"a": 1}), json!("")]),
    ];
    let schemas = testing::schemas(NOTATION);
    let ty = schemas.by_name("T").expect("named");
    let mut random = 1_u64;
    for _ in 0..20_000 {
        let mut object = serde_json::Map::new();
        for (name, choices) in &values {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // One choice more than there are: the field is left out.
            if let Some(value) = choices.get((random >> 33) as usize % (choices.len() + 1)) {
                object.insert((*name).into(), value.clone());
            }
        }
        let object = Value::Object(object);
        let comparison = compare(ty, None, &object);
        assert!(comparison.removed.is_empty(), "{object}");
        assert_eq!(fresh(ty, &object), comparison.changed(), "{object}");
    }
}

#[test]
fn changes() {
    let old = || {
        Some(json!({
            "always": {"text": "x", "list": [{"name": "a", "value": "1"}, {"name": "b"}]}, "pointer": {"text": "x"},
            "map": {"a": "1", "b": "2"}, "set": ["x", "y"], "plain": ["x"], "free": {"a": {"b": 1}, "l": [1]}
        }))
    };
    check_compare(old(), old().expect("same"), json!({}), json!({}), json!({}));
    check_compare(
        old(),
        json!({
            "always": {"text": "y", "list": [{"name": "a", "value": "2"}, {"name": "c"}]},
            "map": {"a": "1", "c": "3"}, "set": ["y", "z"], "plain": ["x", "y"], "free": {"a": {"b": 1, "c": 2}, "l": [2]}
        }),
        json!({
            "f:always": {"f:list": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}}}},
            "f:free": {"f:a": {"f:c": {}}}, "f:map": {"f:c": {}}, "f:set": {"v:\"z\"": {}}
        }),
        json!({
            "f:always": {"f:text": {}, "f:list": {"k:{\"name\":\"a\"}": {"f:value": {}}}},
            "f:free": {"f:l": {}}, "f:plain": {}
        }),
        json!({
            "f:always": {"f:list": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}},
            "f:map": {"f:b": {}}, "f:pointer": {".": {}, "f:text": {}}, "f:set": {"v:\"x\"": {}}
        }),
    );
    // The whole list goes, and the plain struct around it stays in Go.
    check_compare(
        Some(json!({"always": {"list": [{"name": "a"}]}})),
        json!({}),
        json!({}),
        json!({}),
        json!({"f:always": {"f:list": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}}),
    );
}

#[test]
fn items_that_share_a_key_are_one_value() {
    let twice = || json!({"ports": [{"port": 1, "protocol": "TCP"}, {"port": 1}]});
    let once = || json!({"ports": [{"port": 1}]});
    let key = "k:{\"port\":1,\"protocol\":\"TCP\"}";
    let marker = || json!({"f:ports": {key: {}}});
    let item = || json!({"f:ports": {key: {".": {}, "f:port": {}}}});
    check_compare(Some(twice()), once(), item(), json!({}), marker());
    check_compare(Some(once()), twice(), marker(), json!({}), item());
    check_compare(Some(twice()), twice(), json!({}), json!({}), json!({}));
}

#[test]
fn extraction() {
    let schemas = testing::schemas(NOTATION);
    let ty = schemas.by_name("T");
    let value = json!({
        "always": {"list": [{"name": "a"}]}, "pointer": {}, "atomic": {"text": "x"}, "map": {"a": "b"},
        "set": ["x"], "plain": [], "ports": [{"port": 1}, {"port": 1}], "free": {"a": {"b": 1}}, "any": {"a": 1}
    });
    let expected = json!({
        "f:always": {"f:list": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}, "f:pointer": {}, "f:atomic": {},
        "f:map": {"f:a": {}}, "f:set": {"v:\"x\"": {}}, "f:plain": {},
        "f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {}}, "f:free": {"f:a": {".": {}, "f:b": {}}}, "f:any": {"f:a": {}}
    });
    let extracted = extract(ty, &value);
    assert_eq!(to_json(&extracted), expected);
    let ensured = to_json(&extracted.ensure_named_fields(ty));
    assert_eq!(
        ensured["f:always"],
        json!({".": {}, "f:list": {".": {}, "k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}})
    );
}

#[test]
fn text_and_value_are_the_same_set() {
    let sets = [
        json!({}),
        json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "k:{\"name\":\"x\"}": {"f:y": {}}}, "f:d": {"v:\"q\\\\\"": {}, "i:0": {}}}),
        json!({"k:{\"b\": 1, \"a\":\"x\"}": {"f:c": {}}, "k:{\"a\":\"x\",\"b\":1}": {}}),
        json!({"f:with\nbreak": {}}),
        json!({"f:ä \"quoted\"": {".": {}}}),
    ];
    for fields in sets {
        let text = fields.to_string();
        let read = from_text(&text).expect("test set");
        assert_eq!(read, set(&fields), "{text}");
        let mut object = json!({"metadata": {"managedFields": [{"fieldsV1": to_value(&read)}]}});
        crate::codec::unpack(&mut object);
        assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"], to_json(&read), "{text}");
    }
    for wrong in ["", "1", "{\"x\":{}}", "{\"f:a\":1}", "{\"f:a\":{}", "{\"f:a\":{}}}", "[]"] {
        assert!(from_text(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_set_is_within_another() {
    let small = json!({"f:a": {"f:b": {}}});
    for (other, within) in [
        (json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}}), true),
        (json!({"f:a": {".": {}, "f:b": {"f:c": {}}}}), false),
        (json!({"f:a": {}}), false),
        (small.clone(), true),
    ] {
        assert_eq!(set(&small).is_within(&set(&other)), within, "{other}");
        assert_eq!(set(&small).difference(&set(&other)).is_empty(), within, "{other}");
    }
}
