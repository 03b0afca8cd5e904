//! Kinds that configure a cluster (networking, RBAC, autoscaling, policy, certificates, admission, flow control and so
//! on): recorded exchanges with upstream, and cases of each rule. Each file of cases is a list of lines.

use api::KINDS;
use machinery::field::Errors;
use machinery::kind::Kind;
use machinery::node::Node;
use machinery::object::Meta;
use machinery::schema::conform::{Problems, conform};
use serde_json::{Value, json};

const DEFAULTS: &str = include_str!("testdata/configuration/defaults.jsonl");
const ERRORS: &str = include_str!("testdata/configuration/errors.jsonl");
const CASES: &str = include_str!("testdata/configuration/cases.jsonl");
const UPDATES: &str = include_str!("testdata/configuration/updates.jsonl");
const ROWS: &str = include_str!("testdata/configuration/rows.jsonl");

#[test]
fn objects_become_what_upstream_makes_of_them() {
    for case in lines(DEFAULTS) {
        let mut made = created(&case["request"]);
        let mut expected = case["response"].clone();
        for object in [&mut made, &mut expected] {
            object.meta_mut().retain(|field, _| field == "name");
        }
        assert_eq!(made, expected, "{}", case["request"]);
    }
}

#[test]
fn bad_objects_are_refused_in_the_words_of_upstream() {
    for case in lines(ERRORS) {
        let causes: Vec<Value> = errors_of(&created(&case["request"]))
            .causes()
            .into_iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        assert_eq!(Value::from(causes), case["causes"], "{}", case["request"]);
    }
}

/// Lines with an object and the errors it must have, each as `field: message`; none for a good object.
#[test]
fn every_rule_has_a_case() {
    for case in lines(CASES) {
        check(&errors_of(&created(&case["object"])), &case);
    }
}

/// Lines with an object, the changes of an update, and the errors that update must have.
#[test]
fn updates_change_only_what_may_change() {
    for case in lines(UPDATES) {
        let old = created(&case["object"]);
        let mut new = created(&case["object"]);
        merge(&mut new, &case["change"]);
        let kind = kind_of(&new);
        let mut errors = Errors::default();
        (kind.validate_update)(&Node::root(&new), &Node::root(&old), &mut errors);
        check(&errors, &case);
    }
}

#[test]
fn rows_read_as_kubectl_shows_them() {
    let now = "2030-01-01T00:00:00Z".parse().expect("a time");
    for case in lines(ROWS) {
        let mut object = case["object"].clone();
        object["metadata"]["creationTimestamp"] = "2029-12-31T23:59:00Z".into();
        let kind = kind_of(&object);
        let row = (kind.row)(&object, now);
        assert_eq!(row.len(), kind.columns.len(), "{}", kind.kind);
        assert_eq!(Value::from(row), case["row"], "{object}");
    }
}

/// What comes out of the defaults must not change when it comes in again.
#[test]
fn defaults_are_stable() {
    for case in lines(DEFAULTS).into_iter().chain(lines(ROWS)) {
        let object = case.get("request").unwrap_or(&case["object"]);
        let once = defaulted(object);
        assert_eq!(defaulted(&once), once);
    }
}

fn check(errors: &Errors, case: &Value) {
    let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
    assert_eq!(json!(found), case["errors"], "{case}");
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn kind_of(object: &Value) -> &'static Kind {
    let version = object["apiVersion"].as_str().expect("apiVersion");
    let matches = |kind: &&&Kind| object["kind"] == kind.kind && version == kind.api_version();
    KINDS.iter().find(matches).unwrap_or_else(|| panic!("no kind for {object}"))
}

fn defaulted(object: &Value) -> Value {
    let mut object = object.clone();
    let kind = kind_of(&object);
    let mut problems = Problems::default();
    conform(&mut object, api::schema::type_of(kind), &mut problems).expect("the types are right");
    assert!(problems.unknown.is_empty(), "{:?}", problems.unknown);
    (kind.defaults)(&mut object);
    object
}

fn created(object: &Value) -> Value {
    let mut object = defaulted(object);
    (kind_of(&object).prepare_create)(&mut object);
    object
}

fn errors_of(object: &Value) -> Errors {
    let mut errors = Errors::default();
    (kind_of(object).validate)(&Node::root(object), &mut errors);
    errors
}

/// A merge patch without deletions.
fn merge(into: &mut Value, change: &Value) {
    match change {
        Value::Object(fields) if into.is_object() => {
            for (field, value) in fields {
                merge(&mut into[field], value);
            }
        }
        _ => *into = change.clone(),
    }
}
