//! Conversations recorded upstream, replayed with the schemas of the built-in kinds: each request, put on the answer
//! before it, gives the managed fields of its answer.

use machinery::patch::apply::apply;
use machinery::patch::managed::{Manager, update};
use machinery::schema::TypeRef;
use serde_json::Value;

#[test]
fn apply_conversation() {
    check(include_str!("../../machinery/src/patch/testdata/apply.jsonl"), 10);
}

#[test]
fn update_then_apply() {
    check(include_str!("../../machinery/src/patch/testdata/update-then-apply.jsonl"), 5);
}

#[test]
fn strategic_merge() {
    check(include_str!("../../machinery/src/patch/testdata/strategic-merge.jsonl"), 9);
}

#[test]
fn status() {
    check(include_str!("../../machinery/src/patch/testdata/status.jsonl"), 4);
}

#[test]
fn json_patch() {
    check(include_str!("../../machinery/src/patch/testdata/json-patch.jsonl"), 3);
}

/// A write to `scale` is a write to the object behind it, under the name of the subresource and without a time.
#[test]
fn scale() {
    let conversation = include_str!("../../machinery/src/patch/testdata/update-then-apply.jsonl");
    let answer = |step: usize| {
        let line = conversation.lines().nth(step).expect("recorded");
        serde_json::from_str::<Value>(line).expect("test data is JSON")["response"].clone()
    };
    let (live, scaled) = (answer(3), answer(7));
    let mut new = live.clone();
    new["spec"]["replicas"] = scaled["spec"]["replicas"].clone();
    let manager = Manager { name: "hpa", api_version: "apps/v1", subresource: "scale", time: "" };
    update(type_of(&live), Some(&live), &mut new, &manager, &[]);
    assert_eq!(managed(&new), managed(&scaled));
}

#[track_caller]
fn check(conversation: &str, expected: usize) {
    let mut live: Option<Value> = None;
    let mut replayed = 0;
    for line in conversation.lines() {
        let step: Value = serde_json::from_str(line).expect("test data is JSON");
        let is_apply = step["contentType"] == "application/apply-patch+yaml";
        let answer = &step["response"];
        let has_object = answer["metadata"].get("managedFields").is_some();
        if is_apply && is_about_fields(&step) {
            replay_apply(live.as_ref(), &step);
            replayed += 1;
        } else if !is_apply && has_object && step["method"] != "GET" {
            replay_update(live.as_ref(), &step);
            replayed += 1;
        }
        if has_object {
            live = Some(answer.clone());
        }
    }
    assert_eq!(replayed, expected);
}

/// Without a manager, or with another name than the path's, a request does not get as far as its fields.
fn is_about_fields(step: &Value) -> bool {
    step["path"].as_str().is_some_and(|path| path.contains("fieldManager")) && step["body"]["metadata"]["name"] == "d"
}

fn replay_apply(live: Option<&Value>, step: &Value) {
    let (manager, reset) = request(step, "apps/v1");
    let force = step["path"].as_str().is_some_and(|path| path.contains("force=true"));
    let answer = &step["response"];
    match apply(type_of(&step["body"]), live, &step["body"], &manager, force, reset) {
        Err(error) => assert_eq!(&error.status().to_value(), answer, "{}", step["body"]),
        Ok(object) => assert_eq!(managed(&object), managed(answer), "{}", step["body"]),
    }
}

fn replay_update(live: Option<&Value>, step: &Value) {
    let answer = &step["response"];
    let (manager, reset) = request(step, answer["apiVersion"].as_str().expect("a version"));
    let mut new = answer.clone();
    new["metadata"]["managedFields"] = live.map_or(Value::Null, |live| live["metadata"]["managedFields"].clone());
    update(type_of(answer), live, &mut new, &manager, reset);
    assert_eq!(managed(&new), managed(answer), "{}", step["body"]);
}

fn request<'a>(step: &'a Value, api_version: &'a str) -> (Manager<'a>, &'static [&'static str]) {
    let path = step["path"].as_str().expect("a path");
    let name = path.split(['?', '&']).find_map(|part| part.strip_prefix("fieldManager=")).unwrap_or("curl");
    let (subresource, reset): (_, &[&str]) =
        if path.contains("/status") { ("status", &["spec", "metadata.labels"]) } else { ("", &["status"]) };
    (Manager { name, api_version, subresource, time: "<time>" }, reset)
}

fn type_of(object: &Value) -> TypeRef<'static> {
    let api_version = object["apiVersion"].as_str().expect("a version");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    api::schema::type_named(group, version, object["kind"].as_str().expect("a kind")).expect("a built-in kind")
}

/// Controllers wrote between the recorded steps; their entries are not ours to find.
fn managed(object: &Value) -> Vec<Value> {
    let mut object = object.clone();
    machinery::codec::unpack(&mut object);
    let list = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    list.into_iter().filter(|entry| entry["manager"] != "kube-controller-manager").collect()
}
