//! What upstream's own tests of merges expect (`structured-merge-diff`, v6): who applies and updates what, with which conflicts, and
//! what the object is and whose its fields are in the end. A line with a type begins the cases of that type.

use serde_json::{Value, json};

use super::*;
use crate::codec;
use crate::patch::{fields, managed, testing};

const NOW: &str = "2026-01-01T00:00:00Z";

/// Their objects have no kind: they are the `spec` of ours.
fn object_of(spec: &Value, version: &str) -> Value {
    json!({"apiVersion": version, "kind": "T", "metadata": {"name": "o"}, "spec": spec})
}

fn notation(ty: &Value) -> String {
    let metadata = json!({"fields": {"name": "string", "managedFields": {"items": "any"}}});
    json!({"fields": {"apiVersion": "string", "kind": "string", "metadata": metadata, "spec": ty}}).to_string()
}

/// The conflicts of one step, as pairs of manager and path below `spec`.
fn conflicts(error: &ApplyError) -> Value {
    let ApplyError::Conflicts(found) = error else { return error.to_string().into() };
    let pair = |conflict: &Conflict| {
        let manager = conflict.manager.split('"').nth(1).unwrap_or_default();
        json!([manager, conflict.field.strip_prefix(".spec").unwrap_or(&conflict.field)])
    };
    let mut pairs: Vec<Value> = found.iter().map(pair).collect();
    pairs.sort_by_key(Value::to_string);
    pairs.into()
}

/// The object in the end, or what a step said that it should not have said.
fn run(ty: TypeRef, steps: &[Value]) -> Result<Value, String> {
    let mut live: Option<Value> = None;
    for step in steps {
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        let manager = Manager { name: text("by"), api_version: text("version"), subresource: "", time: NOW };
        let mut sent = object_of(&step["object"], text("version"));
        let expected = step.get("conflicts").cloned();
        if text("how") == "update" {
            managed::update(ty, live.as_ref(), &mut sent, &manager, &[]);
            live = Some(sent);
            continue;
        }
        match (apply(ty, live.as_ref(), &sent, &manager, text("how") == "force", &[]), expected) {
            (Ok(applied), None) => live = Some(applied),
            (Ok(_), Some(expected)) => return Err(format!("{}: no conflict, upstream {expected}", text("by"))),
            (Err(error), expected) => {
                let found = conflicts(&error);
                if expected.as_ref() != Some(&found) {
                    return Err(format!("{}: {found}, upstream {expected:?}", text("by")));
                }
            }
        }
    }
    Ok(live.unwrap_or_default())
}

/// The paths of each manager.
fn owners(object: &mut Value) -> Value {
    codec::unpack(object);
    let mut owners = serde_json::Map::new();
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let set = fields::from_json(&entry["fieldsV1"]).expect("a set");
        let mut paths: Vec<String> =
            set.paths().iter().map(|path| path.strip_prefix(".spec").unwrap_or(path).to_owned()).collect();
        // Of `spec` itself their objects know nothing.
        paths.retain(|path| !path.is_empty());
        paths.sort();
        if !paths.is_empty() {
            owners.insert(entry["manager"].as_str().unwrap_or_default().into(), paths.into());
        }
    }
    owners.into()
}

#[test]
fn merges() {
    let mut schemas = testing::schemas(&notation(&json!("any")));
    let (mut different, mut count) = (Vec::new(), 0);
    for line in include_str!("../../testdata/upstream/merges.jsonl").lines() {
        let case: Value = serde_json::from_str(line).expect("a line is JSON");
        if let Some(ty) = case.get("type") {
            schemas = testing::schemas(&notation(ty));
            continue;
        }
        count += 1;
        let ty = schemas.by_name("T").expect("named");
        let found = run(ty, case["steps"].as_array().expect("steps"));
        let (ours, theirs) = match found {
            Err(why) => (json!(why), Value::Null),
            Ok(mut object) => {
                let owners = owners(&mut object);
                let kept = |key: &str, found: &Value| case.get(key).map(|_| found.clone());
                let spec = object.get("spec").filter(|spec| !spec.is_null()).cloned().unwrap_or(json!({}));
                let ours = json!([kept("object", &spec), kept("managed", &owners)]);
                (ours, json!([case.get("object"), case.get("managed")]))
            }
        };
        if ours != theirs {
            different.push(format!("{}\n  upstream {theirs}\n  ours     {ours}", case["name"]));
        }
    }
    assert!(different.is_empty(), "{} of {count} differ:\n{}", different.len(), different.join("\n"));
}
