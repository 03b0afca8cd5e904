//! Answers of upstream's own functions (v1.36.4) about built-in kinds, written down once in `testdata/upstream`. What is known
//! to differ says so, and is named when it no longer does.

use machinery::kind::Kind;
use machinery::object::Meta;
use machinery::patch::managed::{self, Manager};
use machinery::patch::{apply, strategic};
use serde_json::{Value, json};

use crate::KINDS;
use crate::schema::type_of;

fn rows(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn kind(name: &Value) -> &'static Kind {
    KINDS.iter().find(|kind| *name == kind.kind).expect("the kind is served")
}

#[test]
fn strategic_merge_patches() {
    let mut different = Vec::new();
    for row in rows(include_str!("testdata/upstream/strategic.jsonl")) {
        let mut document = row["on"].clone();
        let found = strategic::apply(type_of(kind(&row["kind"])), &mut document, &row["in"]);
        let (ours, theirs) = match (&found, row.get("error").and_then(Value::as_str)) {
            (Err(error), theirs) => {
                (Err(error.to_string()), theirs.map_or(Ok(&row["out"]), |text| Err(text.to_owned())))
            }
            (Ok(()), theirs) => (Ok(&document), theirs.map_or(Ok(&row["out"]), |text| Err(text.to_owned()))),
        };
        if (ours != theirs) != row.get("differs").is_some() {
            different.push(format!("{} {}\n  upstream {theirs:?}\n  ours     {ours:?}", row["kind"], row["in"]));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

/// Applies and updates one after the other: each step's error, the object in the end, and who owns what.
#[test]
fn server_side_apply() {
    let mut different = Vec::new();
    for row in rows(include_str!("testdata/upstream/apply.jsonl")) {
        let mut live: Option<Value> = None;
        let mut told = Vec::new();
        let steps = row["steps"].as_array().expect("steps");
        for step in steps {
            let (name, object) = (step[1].as_str().expect("a name"), &step[2]);
            let api_version = object["apiVersion"].as_str().expect("a version");
            let ty = type_of(kind(&object["kind"]));
            let manager = Manager { name, api_version, subresource: "", time: "2026-01-01T00:00:00Z" };
            let result = match step[0].as_str() {
                Some("update") => {
                    let mut new = object.clone();
                    if let Some(list) = live.as_ref().and_then(|live| live.meta("managedFields")) {
                        new.meta_mut().insert("managedFields".into(), list.clone());
                    }
                    managed::update(ty, live.as_ref(), &mut new, &manager, &[]);
                    Ok(new)
                }
                force => apply::apply(ty, live.as_ref(), object, &manager, force == Some("force"), &[]),
            };
            match result {
                Ok(object) => live = Some(object),
                Err(error) => told.push(error.status().message),
            }
        }
        let mut object = live.unwrap_or_else(|| json!({"metadata": {}}));
        machinery::codec::unpack(&mut object);
        let list = object.meta_mut().remove("managedFields").unwrap_or_default();
        let entry = |one: &Value| {
            let who = format!("{} {}", one["operation"].as_str().unwrap_or(""), one["manager"].as_str().unwrap_or(""));
            json!([who, one["fieldsV1"]])
        };
        let mut owners: Vec<Value> = list.as_array().into_iter().flatten().map(entry).collect();
        owners.sort_by_key(|one| one[0].to_string());
        let expected: Vec<&str> = steps.iter().filter_map(|step| step[3].as_str()).collect();
        let same_object = crate::check::same(&object, &row["out"]) || told.len() == steps.len();
        let differs = told != expected || !same_object || Value::from(owners.clone()) != row["owners"];
        if differs != row.get("differs").is_some() {
            different.push(format!(
                "{}\n  upstream {expected:?} {} {}\n  ours     {told:?} {object} {}",
                row["steps"],
                row["out"],
                row["owners"],
                Value::from(owners)
            ));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}
