use serde_json::json;

use super::*;
use crate::schema::from_json_schema::from_definitions;

/// A small kind with one field of every sort.
fn thing() -> crate::schema::Schemas {
    let reference = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
    let definitions = json!({
        "io.k8s.api.test.v1.Thing": {"type": "object", "properties": {
            "spec": {"$ref": "#/$defs/io.k8s.api.test.v1.ThingSpec", "x-go-empty": "written"},
            "data": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}, "x-go-empty": "dropped"},
        }},
        "io.k8s.api.test.v1.ThingSpec": {"type": "object", "properties": {
            "amount": reference("io.k8s.apimachinery.pkg.api.resource.Quantity"),
            "count": {"type": "integer", "format": "int32", "x-go-empty": "written"},
            "enabled": {"type": "boolean", "x-go-empty": "dropped"},
            "items": {"type": "array", "items": {"$ref": "#/$defs/io.k8s.api.test.v1.ThingSpec"}},
            "names": {"type": "array", "items": {"type": "string"}, "x-go-empty": "dropped"},
            "port": reference("io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
            "raw": reference("io.k8s.apimachinery.pkg.runtime.RawExtension"),
            "time": reference("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
        }},
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {},
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {},
        "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object"},
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {"type": "string"},
    });
    from_definitions(definitions.as_object().expect("an object"))
}

fn run(mut value: Value) -> Result<(Value, Vec<String>), String> {
    let schemas = thing();
    let mut problems = Problems::default();
    let ty = schemas.by_name("io.k8s.api.test.v1.Thing").expect("defined above");
    conform(&mut value, ty, &mut problems).map_err(|error| error.to_string())?;
    Ok((value, problems.unknown))
}

#[test]
fn values_become_what_go_holds() {
    let check = |value: Value, expected: Value| assert_eq!(run(value).expect("good"), (expected, vec![]));
    check(json!({}), json!({"spec": {"count": 0}}));
    check(json!({"spec": null, "labels": {}}), json!({"spec": {"count": 0}}));
    check(
        json!({"spec": {"count": 1, "enabled": false, "names": [null, "a"], "items": [null, {"count": 2}]}}),
        json!({"spec": {"count": 1, "names": ["", "a"], "items": [{"count": 0}, {"count": 2}]}}),
    );
    check(
        json!({"spec": {"amount": 0.5, "count": 1, "port": "http", "time": "2024-05-06T07:08:09+01:00", "raw": {"x": null}}}),
        json!({"spec": {"amount": "500m", "count": 1, "port": "http", "time": "2024-05-06T06:08:09Z", "raw": {"x": null}}}),
    );
    check(
        json!({"data": {"a": "YQ==", "b": null, "c": "YQ\n=="}, "spec": {"count": 0}}),
        json!({"data": {"a": "YQ==", "b": "", "c": "YQ=="}, "spec": {"count": 0}}),
    );
}

#[test]
fn unknown_fields_are_noted_and_removed() {
    let (value, unknown) = run(json!({"foo": 1, "spec": {"items": [{"Count": 1}], "count": 1}})).expect("good");
    assert_eq!(value, json!({"spec": {"items": [{"count": 0}], "count": 1}}));
    assert_eq!(
        strict_error(&unknown).as_deref(),
        Some(r#"strict decoding error: unknown field "foo", unknown field "spec.items[0].Count""#)
    );
}

#[test]
fn type_errors_in_gos_words() {
    let check = |value: Value, expected: &str| assert_eq!(run(value).expect_err("bad"), expected);
    check(json!([]), "json: cannot unmarshal array into Go value of type v1.Thing");
    check(
        json!({"spec": {"count": "x"}}),
        "json: cannot unmarshal string into Go struct field ThingSpec.spec.count of type int32",
    );
    check(
        json!({"spec": {"count": 1.5}}),
        "json: cannot unmarshal number 1.5 into Go struct field ThingSpec.spec.count of type int32",
    );
    check(
        json!({"spec": {"count": 3_000_000_000_u32}}),
        "json: cannot unmarshal number 3000000000 into Go struct field ThingSpec.spec.count of type int32",
    );
    check(
        json!({"spec": {"items": [{"items": 5}]}}),
        "json: cannot unmarshal number into Go struct field ThingSpec.spec.items.items of type []v1.ThingSpec",
    );
    check(
        json!({"labels": {"a": 5}}),
        "json: cannot unmarshal number into Go struct field Thing.labels of type string",
    );
    check(
        json!({"labels": "a"}),
        "json: cannot unmarshal string into Go struct field Thing.labels of type map[string]string",
    );
    check(
        json!({"spec": {"port": true}}),
        "json: cannot unmarshal bool into Go struct field ThingSpec.spec.port of type int32",
    );
    check(
        json!({"spec": {"amount": "abc"}}),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
    check(json!({"data": {"a": "!!"}}), "illegal base64 data at input byte 0");
    check(json!({"data": {"a": "YQ="}}), "illegal base64 data at input byte 3");
    check(json!({"data": {"a": "YWE"}}), "illegal base64 data at input byte 0");
}
