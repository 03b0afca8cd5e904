use machinery::schema::conform::{Problems, conform, strict_error};
use machinery::schema::from_json_schema::EMPTY;
use machinery::schema::{Empty, ListKind, Type};
use serde_json::Value;

use super::*;

fn type_of_object(object: &Value) -> TypeRef<'static> {
    let api_version = object["apiVersion"].as_str().expect("an apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = object["kind"].as_str().expect("a kind");
    type_named(group, version, kind).unwrap_or_else(|| panic!("no type for {api_version} {kind}"))
}

/// The object as Go would hold it, or the message of the refusal.
fn conformed(object: &Value) -> Result<Value, String> {
    let mut object = object.clone();
    let ty = type_of_object(&object);
    let mut problems = Problems::default();
    conform(&mut object, ty, &mut problems).map_err(|error| error.to_string())?;
    match strict_error(&problems.unknown) {
        Some(error) => Err(error),
        None => Ok(object),
    }
}

fn cases(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("test data is JSON"))
}

#[test]
fn every_kind_has_a_struct() {
    for kind in every_kind() {
        assert!(matches!(type_of(kind).get(), Type::Struct(_)), "{}", kind.kind);
    }
}

#[test]
fn what_upstream_took_conforms() {
    for case in cases(include_str!("testdata/upstream-answers.jsonl")) {
        conformed(&case["request"]).unwrap_or_else(|error| panic!("{error}: {}", case["request"]));
    }
}

/// Go's zero values are all in upstream's answers already, so an answer does not change.
#[test]
fn what_upstream_answered_stays() {
    let mut differences = Vec::new();
    for case in cases(include_str!("testdata/upstream-answers.jsonl")) {
        let answer = &case["response"];
        let conformed = conformed(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        compare(answer["kind"].as_str().unwrap_or(""), answer, &conformed, &mut differences);
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// What the server writes for a field nobody has set is there before any default: `status: {}`, `resources: {}`.
#[test]
fn zero_values_are_written() {
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": null, "spec": {"containers": [{"name": "c"}]}});
    assert_eq!(
        conformed(&pod).expect("good"),
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {},
            "spec": {"containers": [{"name": "c", "resources": {}}]}, "status": {}})
    );
}

/// Times that Go holds without a pointer are null in every answer.
#[test]
fn times_without_a_pointer_are_null() {
    let condition = serde_json::json!({"type": "A", "status": "True", "reason": "R", "message": "m"});
    for (version, kind) in [("v1", "Service"), ("policy/v1", "PodDisruptionBudget")] {
        let object = serde_json::json!({"apiVersion": version, "kind": kind, "status": {"conditions": [condition]}});
        let answer = conformed(&object).expect("good");
        assert_eq!(answer["status"]["conditions"][0].get("lastTransitionTime"), Some(&Value::Null), "{answer}");
    }
    for version in ["v1", "events.k8s.io/v1"] {
        let answer = conformed(&serde_json::json!({"apiVersion": version, "kind": "Event"})).expect("good");
        assert_eq!(answer.get("eventTime"), Some(&Value::Null), "{answer}");
    }
}

#[test]
fn undecodable_objects_get_upstreams_message() {
    for case in cases(include_str!("testdata/undecodable.jsonl")) {
        let message = conformed(&case["request"]).expect_err("upstream refused it");
        assert_eq!(message, case["message"].as_str().expect("a message"), "{}", case["request"]);
    }
}

#[test]
fn lists_and_merge_keys() {
    let spec = schemas().by_name("io.k8s.api.core.v1.PodSpec").expect("a type");
    let containers = spec.field("containers").expect("a field");
    assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
    assert!(containers.patch.merge && containers.empty == Empty::Written);
    let Type::List { kind, .. } = schemas().get(containers.ty) else { panic!("a list") };
    assert_eq!(*kind, ListKind::Map(vec!["name".into()]));
    let selector = schemas().by_name("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").expect("a type");
    assert!(matches!(selector.get(), Type::Struct(shape) if shape.atomic));
    assert!(spec.field("volumes").is_some_and(|field| field.patch.retain_keys));
}

#[test]
fn the_tables_name_only_what_exists() {
    assert_eq!(facts::strangers(&with_facts(packed::shapes(named().map(|(_, name)| name)))), Vec::<String>::new());
}

#[test]
fn custom_resources_have_metadata() {
    let schema = serde_json::json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let schemas = custom_schemas(&schema, "com.example.v1.Box");
    let mut object = serde_json::json!({"apiVersion": "example.com/v1", "kind": "Box",
        "metadata": {"name": "x", "labels": {}, "foo": 1}, "spec": {"size": 1, "bar": 2}});
    let mut problems = Problems::default();
    let ty = schemas.by_name("com.example.v1.Box").expect("named above");
    conform(&mut object, ty, &mut problems).expect("types are right");
    assert_eq!(problems.unknown, [r#"unknown field "metadata.foo""#, r#"unknown field "spec.bar""#]);
    assert_eq!(object["metadata"], serde_json::json!({"name": "x"}));
}

#[test]
fn openapi_definitions_carry_no_word_of_ours() {
    let text = Value::Object(openapi_definitions()).to_string();
    assert!(!text.contains(EMPTY) && text.contains("x-kubernetes-patch-merge-key"));
}

#[test]
fn the_table_of_lists_names_only_what_exists() {
    let definitions = openapi_definitions();
    let mut type_name = "";
    for line in include_str!("lists.txt").lines().filter(|line| !line.starts_with('#')) {
        let first = line.split_whitespace().next().expect("no empty line");
        if !line.starts_with(' ') {
            type_name = first;
        }
        let definition = definitions.get(type_name).unwrap_or_else(|| panic!("no type {type_name}"));
        let known = !line.starts_with(' ') || first == "." || definition["properties"].get(first).is_some();
        assert!(known, "{type_name} has no field {first}");
    }
}

#[test]
fn openapi_says_what_a_text_may_be() {
    let definitions = openapi_definitions();
    let field =
        |name: &str, field: &str| definitions[&format!("io.k8s.api.core.v1.{name}")]["properties"][field].clone();
    assert_eq!(field("PodSpec", "restartPolicy")["enum"], serde_json::json!(["Always", "Never", "OnFailure"]));
    assert_eq!(field("HostPathVolumeSource", "type")["enum"][0], "");
    assert_eq!(field("PersistentVolumeSpec", "accessModes")["items"]["enum"][0], "ReadOnlyMany");
}

fn compare(path: &str, left: &Value, right: &Value, into: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => compare(&format!("{path}.{key}"), left, right, into),
                    (Some(left), None) => into.push(format!("{path}.{key} lost: {left}")),
                    (_, right) => into.push(format!("{path}.{key} added: {right:?}")),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(&format!("{path}[{index}]"), left, right, into);
            }
        }
        _ if left == right => {}
        _ => into.push(format!("{path}: {left} became {right}")),
    }
}
