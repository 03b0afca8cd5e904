use serde_json::{Value, json};

use super::*;
use crate::patch::testing;

const NOW: &str = "2026-01-01T00:00:09Z";

fn manager(name: &str) -> Manager<'_> {
    Manager { name, api_version: "apps/v1", subresource: "", time: NOW }
}

fn entry(name: &str, second: u8, fields: Value) -> Value {
    json!({
        "manager": name, "operation": "Update", "apiVersion": "apps/v1", "time": format!("2026-01-01T00:00:0{second}Z"),
        "fieldsType": "FieldsV1", "fieldsV1": fields
    })
}

fn object(managed: Value, spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "managedFields": managed}, "spec": spec})
}

#[track_caller]
fn check(old: Option<Value>, new: Value, manager: Manager, reset: &[&str], expected: Value) {
    let schemas = testing::deployment();
    let ty = schemas.by_name("T").expect("named");
    // Sets may come as objects, and as the texts that they are stored as.
    for packed in [false, true] {
        let (mut old, mut new) = (old.clone(), new.clone());
        if packed {
            old.iter_mut().for_each(crate::codec::pack);
            crate::codec::pack(&mut new);
        }
        update(ty, old.as_ref(), &mut new, &manager, reset);
        crate::codec::unpack(&mut new);
        assert_eq!(new["metadata"].get("managedFields").unwrap_or(&Value::Null), &expected);
    }
}

#[test]
fn create() {
    let new = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generateName": "d-", "name": "d-x", "uid": "u", "labels": {"a": "b"}},
        "spec": {"replicas": 1}, "status": {"replicas": 3}
    });
    let fields =
        json!({"f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:replicas": {}}});
    check(None, new, manager("m"), &["status"], json!([entry("m", 9, fields)]));
}

#[test]
fn changed_fields_move() {
    let old = || {
        let both = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
        object(
            json!([entry("a", 1, both), entry("b", 2, json!({"f:spec": {"f:minReadySeconds": {}}}))]),
            json!({"replicas": 1, "paused": true, "minReadySeconds": 1}),
        )
    };
    let new = |spec| object(old()["metadata"]["managedFields"].clone(), spec);
    let b = || entry("b", 2, json!({"f:spec": {"f:minReadySeconds": {}}}));
    let paused = || entry("a", 1, json!({"f:spec": {"f:paused": {}}}));
    check(
        Some(old()),
        new(json!({"replicas": 2, "paused": true, "minReadySeconds": 1})),
        manager("c"),
        &[],
        json!([paused(), b(), entry("c", 9, json!({"f:spec": {"f:replicas": {}}}))]),
    );
    // Its own entry grows and is stamped; an entry that owns nothing any more goes.
    check(
        Some(old()),
        new(json!({"replicas": 2, "paused": true, "minReadySeconds": 2})),
        manager("a"),
        &[],
        json!([entry("a", 9, json!({"f:spec": {"f:replicas": {}, "f:paused": {}, "f:minReadySeconds": {}}}))]),
    );
    // A field that goes is nobody's, and takes no time.
    check(Some(old()), new(json!({"paused": true, "minReadySeconds": 1})), manager("c"), &[], json!([paused(), b()]));
    // Nothing changed, nothing is recorded.
    let same = old()["metadata"]["managedFields"].clone();
    check(Some(old()), old(), manager("c"), &[], same);
}

#[test]
fn what_clients_send() {
    let a = || entry("a", 1, json!({"f:spec": {"f:replicas": {}}}));
    let old = || Some(object(json!([a()]), json!({"replicas": 1})));
    let sent = |managed| object(managed, json!({"replicas": 1}));
    check(old(), sent(Value::Null), manager("c"), &[], json!([a()]));
    check(old(), sent(json!([])), manager("c"), &[], json!([a()]));
    check(old(), sent(json!([{"manager": "x"}])), manager("c"), &[], json!([a()]));
    check(old(), sent(json!([entry("x", 1, json!({"garbage": {}}))])), manager("c"), &[], json!([a()]));
    check(old(), sent(json!([{}])), manager("c"), &[], Value::Null);
    let other = entry("x", 1, json!({"f:spec": {"f:replicas": {}}}));
    check(old(), sent(json!([other])), manager("c"), &[], json!([other]));
    let status = Manager { subresource: "status", ..manager("c") };
    check(old(), sent(json!([{}])), status, &["spec"], json!([a()]));
}

#[test]
fn reset_fields_are_not_recorded() {
    let old = Some(object(Value::Null, json!({"replicas": 1})));
    let mut new = object(Value::Null, json!({"replicas": 2}));
    new["status"] = json!({"replicas": 3});
    new["metadata"]["labels"] = json!({"a": "b"});
    let status = Manager { subresource: "status", ..manager("c") };
    let mut expected = entry("c", 9, json!({"f:status": {"f:replicas": {}}}));
    expected["subresource"] = "status".into();
    check(old, new, status, &["spec", "metadata.labels"], json!([expected]));
}

#[test]
fn many_updates_are_merged() {
    let label = |index: u8| json!({"f:metadata": {"f:labels": {format!("f:l{index}"): {}}}});
    let entries: Vec<Value> = (0..10).map(|index| entry(&format!("m{index}"), index.min(8), label(index))).collect();
    let mut expected = entries[2..].to_vec();
    let both = json!({"f:metadata": {"f:labels": {"f:l0": {}, "f:l1": {}}}});
    expected.insert(0, entry("ancient-changes", 1, both));
    expected.push(entry("new", 9, json!({"f:spec": {"f:replicas": {}}})));
    let old = object(entries.into(), json!({}));
    let mut new = old.clone();
    new["spec"]["replicas"] = 1.into();
    check(Some(old), new, manager("new"), &[], Value::Array(expected));
}

/// The recorded conversations: an update or patch of the answer before gives the managed fields of the answer.
#[test]
fn recorded_conversations() {
    for conversation in [
        include_str!("../testdata/strategic-merge.jsonl"),
        include_str!("../testdata/status.jsonl"),
        include_str!("../testdata/update-then-apply.jsonl"),
    ] {
        let mut live = None;
        for line in conversation.lines() {
            let step: Value = serde_json::from_str(line).expect("test data is JSON");
            if step["response"]["kind"] != "Deployment" {
                continue;
            }
            if step["contentType"] != "application/apply-patch+yaml" && step["method"] != "GET" {
                replay(live.as_ref(), &step);
            }
            live = Some(step["response"].clone());
        }
    }
}

fn replay(live: Option<&Value>, step: &Value) {
    let path = step["path"].as_str().expect("a path");
    let name = path.split_once("fieldManager=").map_or("curl", |(_, name)| name);
    let subresource = if path.contains("/status") { "status" } else { "" };
    let reset: &[&str] = if subresource.is_empty() { &["status"] } else { &["spec", "metadata.labels"] };
    let answer = &step["response"];
    // The answer is what the request became after defaults; only its managed fields are to be found.
    let mut new = answer.clone();
    let sent = live.map_or(Value::Null, |live| live["metadata"]["managedFields"].clone());
    new["metadata"]["managedFields"] = sent;
    let schemas = testing::deployment();
    // Times are recorded as one placeholder, which the sort must see as they were.
    update(
        schemas.by_name("T").expect("named"),
        live,
        &mut new,
        &Manager { name, api_version: "apps/v1", subresource, time: "<time>" },
        reset,
    );
    crate::codec::unpack(&mut new);
    assert_eq!(new["metadata"]["managedFields"], answer["metadata"]["managedFields"], "{}", step["body"]);
}

/// Not a check: prints how long the bookkeeping of a write takes. Run it with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn speed() {
    let schemas = testing::deployment();
    let ty = schemas.by_name("T").expect("named");
    let first = include_str!("../testdata/strategic-merge.jsonl").lines().next().expect("a step");
    let step: Value = serde_json::from_str(first).expect("test data is JSON");
    let live = step["response"].clone();
    let mut created = live.clone();
    created.meta_mut().remove("managedFields");
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = 7.into();
    println!("object of {} bytes", live.to_string().len());
    for (what, old, new) in
        [("create", None, created), ("update", Some(&live), scaled), ("no change", Some(&live), live.clone())]
    {
        let mut spent = std::time::Duration::ZERO;
        for _ in 0..20_000 {
            let mut copy = new.clone();
            let start = std::time::Instant::now();
            update(ty, old, &mut copy, &manager("m"), &["status"]);
            spent += start.elapsed();
        }
        println!("{what}: {:?}", spent / 20_000);
    }
}

/// Writes of which nobody loses anything take a short way; the list must be what the long way makes of it.
#[test]
fn the_short_way_leads_to_the_same_list() {
    let schemas = testing::deployment();
    let ty = schemas.by_name("T").expect("named");
    let both = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
    let other = json!({"f:spec": {"f:minReadySeconds": {}, "f:selector": {}}});
    let spec = |replicas: i64| json!({"replicas": replicas, "paused": true, "minReadySeconds": 1, "progressDeadlineSeconds": 5});
    let atomic = json!({"f:spec": {"f:selector": {"f:matchLabels": {}}}});
    let lists = [
        (json!([entry("a", 3, both.clone()), entry("b", 2, other.clone())]), "a", true),
        (json!([entry("b", 2, other.clone()), entry("a", 3, both.clone())]), "b", false),
        (json!([entry("b", 2, other.clone())]), "c", true),
        (json!([entry("b", 2, other.clone()), entry("b", 4, both.clone())]), "b", false),
        (json!([entry("a", 1, both.clone()), entry("b", 2, atomic)]), "a", false),
        (json!([entry("a", 1, json!({"f:spec": {"f:paused": {}}})), entry("b", 2, other)]), "a", false),
        (json!([entry("a", 1, json!({})), entry("c", 1, both)]), "c", false),
    ];
    for (list, name, short) in lists {
        let old = object(list, spec(1));
        let mut packed = old.clone();
        crate::codec::pack(&mut packed);
        let entries = |object: &Value| object["metadata"]["managedFields"].as_array().cloned().expect("a list");
        let (mut new, mut new_packed) = (object(Value::Null, spec(2)), object(Value::Null, spec(2)));
        for new in [&mut new, &mut new_packed] {
            new["metadata"].as_object_mut().expect("metadata").remove("managedFields");
        }
        {
            let comparison = compare(ty, Some(&old), &new);
            let (changed, removed) = (comparison.modified.clone(), comparison.removed.clone());
            let change = Change { changed: &changed, removed: &removed, taken: &changed };
            let list = entries(&packed);
            assert_eq!(kept::plan(ty, &list, &change, &manager(name)).is_some(), short, "{name}: {list:?}");
        }
        update(ty, Some(&old), &mut new, &manager(name), &[]);
        update(ty, Some(&packed), &mut new_packed, &manager(name), &[]);
        crate::codec::unpack(&mut new);
        crate::codec::unpack(&mut new_packed);
        assert_eq!(new_packed, new, "{name}");
    }
}
