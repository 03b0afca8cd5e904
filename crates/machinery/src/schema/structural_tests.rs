use serde_json::{Value, json};

use super::conform::Problems;
use super::structural::Structural;
use super::structural_shape::{default, drop_nulls, prune};
use super::validate::{validate, validate_lists, validate_rules};
use crate::field::Errors;

/// The schema of an object whose `spec` has that schema.
fn of_spec(spec: Value) -> Structural {
    Structural::parse(&json!({"type": "object", "properties": {"spec": spec}}))
}

fn check_pruned(spec: Value, given: Value, expected: Value, unknown: &[&str]) {
    let schema = of_spec(spec);
    let mut object = json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "x"}, "spec": given});
    let mut problems = Problems::default();
    prune(&mut object, &schema, None, &mut problems).expect("no metadata to refuse");
    assert_eq!(object["spec"], expected);
    assert_eq!(object["metadata"]["name"], "x");
    let expected: Vec<String> = unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
    assert_eq!(problems.unknown, expected);
}

#[test]
fn pruning() {
    let spec = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    check_pruned(spec.clone(), json!({"a": "x", "b": 1}), json!({"a": "x"}), &["spec.b"]);
    check_pruned(
        json!({"type": "array", "items": spec}),
        json!([{"a": "x"}, {"b": 1}]),
        json!([{"a": "x"}, {}]),
        &["spec[1].b"],
    );
    let each = json!({"type": "object", "additionalProperties": spec});
    check_pruned(each, json!({"k": {"b": 1}}), json!({"k": {}}), &["spec.k.b"]);
    let keeps = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": spec}});
    check_pruned(keeps, json!({"x": {"y": 1}, "a": {"b": 1}}), json!({"x": {"y": 1}, "a": {}}), &["spec.a.b"]);
    check_pruned(json!({"type": "object"}), json!({"a": 1}), json!({}), &["spec.a"]);
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": spec}});
    let given = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"b": 1}, "other": 1});
    let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}});
    check_pruned(embedded, given, expected, &["spec.other", "spec.spec.b"]);
}

fn check_defaulted(spec: Value, given: Value, expected: Value) {
    let schema = of_spec(spec);
    let mut object = json!({"spec": given});
    default(&mut object, &schema);
    drop_nulls(&mut object, &schema);
    assert_eq!(object["spec"], expected);
}

#[test]
fn defaults_and_nulls() {
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "string", "default": "x"},
        "n": {"type": "string", "nullable": true, "default": "x"},
        "plain": {"type": "string"},
        "deep": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer", "default": 2}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "integer", "default": 3}}}},
    }});
    check_defaulted(spec.clone(), json!({}), json!({"a": "x", "n": "x", "deep": {"b": 1}}));
    let given =
        json!({"a": null, "n": null, "plain": null, "deep": {"b": 7}, "list": [{}, {"b": 5}], "map": {"k": {}}});
    let expected = json!({"a": "x", "n": null, "deep": {"b": 7}, "list": [{"b": 2}, {"b": 5}], "map": {"k": {"b": 3}}});
    check_defaulted(spec, given, expected);
}

fn check_update(spec: Value, old: Option<Value>, given: Value, expected: &[&str]) {
    let schema = of_spec(spec);
    let (object, old) = (json!({"spec": given}), old.map(|old| json!({"spec": old})));
    let mut errors = Errors::default();
    validate(&object, old.as_ref(), &schema, &mut errors);
    validate_lists(&object, &schema, &mut errors);
    if errors.is_empty() {
        validate_rules(&object, old.as_ref(), &schema, &mut errors);
    }
    let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
    assert_eq!(found, expected);
}

fn check(spec: Value, given: Value, expected: &[&str]) {
    check_update(spec, None, given, expected);
}

#[test]
fn types() {
    check(
        json!({"type": "integer"}),
        json!("x"),
        &["spec: Invalid value: \"string\": spec in body must be of type integer: \"string\""],
    );
    check(
        json!({"type": "integer"}),
        json!(1.5),
        &["spec: Invalid value: \"number\": spec in body must be of type integer: \"number\""],
    );
    check(json!({"type": "integer"}), json!(1.0), &[]);
    check(
        json!({"type": "string"}),
        json!(1),
        &["spec: Invalid value: \"integer\": spec in body must be of type string: \"integer\""],
    );
    check(
        json!({"type": "string"}),
        json!(null),
        &["spec: Invalid value: \"null\": spec in body must be of type string: \"null\""],
    );
    check(json!({"type": "string", "nullable": true}), json!(null), &[]);
    check(json!({"x-kubernetes-int-or-string": true}), json!("80%"), &[]);
    check(
        json!({"x-kubernetes-int-or-string": true}),
        json!(true),
        &["spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\""],
    );
    let fields =
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}}});
    check(
        fields,
        json!({"b": 1}),
        &[
            "spec.a: Required value",
            "spec.b: Invalid value: \"integer\": spec.b in body must be of type boolean: \"integer\"",
        ],
    );
}

#[test]
fn bounds() {
    check(
        json!({"type": "integer", "minimum": 1}),
        json!(0),
        &["spec: Invalid value: 0: spec in body should be greater than or equal to 1"],
    );
    check(
        json!({"type": "integer", "maximum": 1, "exclusiveMaximum": true}),
        json!(1),
        &["spec: Invalid value: 1: spec in body should be less than 1"],
    );
    check(
        json!({"type": "integer", "multipleOf": 2}),
        json!(3),
        &["spec: Invalid value: 3: spec in body should be a multiple of 2"],
    );
    check(
        json!({"type": "string", "minLength": 2}),
        json!("é"),
        &["spec: Invalid value: \"é\": spec in body should be at least 2 chars long"],
    );
    check(json!({"type": "string", "maxLength": 1}), json!("ab"), &["spec: Too long: may not be more than 1 byte"]);
    check(
        json!({"type": "string", "pattern": "^a+$"}),
        json!("b"),
        &["spec: Invalid value: \"b\": spec in body should match '^a+$'"],
    );
    check(
        json!({"type": "string", "enum": ["a", "b"]}),
        json!("c"),
        &["spec: Unsupported value: \"c\": supported values: \"a\", \"b\""],
    );
    check(
        json!({"type": "string", "format": "date-time"}),
        json!("x"),
        &["spec: Invalid value: \"x\": spec in body must be of type date-time: \"x\""],
    );
    check(json!({"type": "string", "format": "made-up"}), json!("x"), &[]);
    let list = json!({"type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": true, "items": {"type": "string"}});
    check(list.clone(), json!([]), &["spec: Invalid value: 0: spec in body should have at least 1 items"]);
    check(list.clone(), json!(["a", "b", "c"]), &["spec: Too many: 3: must have at most 2 items"]);
    check(list, json!(["a", "a"]), &["spec: Invalid value: \"\": spec in body shouldn't contain duplicates"]);
    let map = json!({"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}});
    check(map, json!({"a": "", "b": ""}), &["spec: Too many: 2: must have at most 1 item"]);
}

#[test]
fn alternatives() {
    let one = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(one.clone(), json!({"a": ""}), &[]);
    check(
        one.clone(),
        json!({}),
        &[
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
            "spec.a: Required value",
        ],
    );
    check(
        one,
        json!({"a": "", "b": ""}),
        &[
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ],
    );
    let any = json!({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 1}]});
    check(any.clone(), json!(11), &[]);
    check(
        any,
        json!(5),
        &[
            "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
            "spec: Invalid value: 5: spec in body should be greater than or equal to 10",
        ],
    );
    let all = json!({"type": "integer", "allOf": [{"minimum": 10}, {"maximum": 10}]});
    check(
        all,
        json!(5),
        &[
            "spec: Invalid value: 5: spec in body should be greater than or equal to 10",
            "<nil>: Invalid value: \"\": \"spec\" must validate all the schemas (allOf)",
        ],
    );
    let not = json!({"type": "integer", "not": {"minimum": 10}});
    check(not, json!(11), &["<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)"]);
}

#[test]
fn lists_hold_nothing_twice() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    check(set, json!(["a", "b", "a"]), &["spec[2]: Duplicate value: \"a\""]);
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "protocol"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "protocol": {"type": "string", "default": "TCP"}}}});
    check(
        map,
        json!([{"name": "a", "protocol": "TCP"}, {"name": "a"}, {"name": "a", "protocol": "TCP"}]),
        &["spec[2]: Duplicate value: {\"name\":\"a\",\"protocol\":\"TCP\"}"],
    );
    let embedded =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    check(embedded, json!({"kind": "Pod"}), &["spec.apiVersion: Required value: must not be empty"]);
}

#[test]
fn what_an_update_leaves_alone_is_not_held_against_it() {
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
            "type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer", "maximum": 1}}}},
    }});
    let old = json!({"a": "long", "list": [{"name": "x", "size": 5}]});
    check_update(
        spec.clone(),
        Some(old.clone()),
        json!({"a": "long", "b": "y", "list": [{"name": "y"}, {"name": "x", "size": 5}]}),
        &[],
    );
    check_update(spec, Some(old), json!({"a": "longer"}), &["spec.a: Too long: may not be more than 1 byte"]);
}

#[test]
fn rules() {
    let rule = |rule: Value| {
        json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
        }})
    };
    let ordered = rule(json!({"rule": "self.min <= self.max"}));
    check(ordered.clone(), json!({"min": 1, "max": 2}), &[]);
    check(ordered.clone(), json!({"min": 3, "max": 2}), &["spec: Invalid value: failed rule: self.min <= self.max"]);
    check(
        ordered.clone(),
        json!({"min": 3}),
        &["spec: Invalid value: \"object\": no such key: max evaluating rule: self.min <= self.max"],
    );
    check_update(ordered, Some(json!({"min": 3, "max": 2})), json!({"min": 3, "max": 2}), &[]);
    let told = rule(json!({
        "rule": "self.min <= self.max", "message": "fallback", "messageExpression": "'min %d is too large'.format([self.min])",
        "reason": "FieldValueForbidden", "fieldPath": ".min",
    }));
    check(told, json!({"min": 3, "max": 2}), &["spec.min: Forbidden: min 3 is too large"]);
    let fixed = json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "a is immutable"},
    ]}}});
    check(fixed.clone(), json!({"a": "x"}), &[]);
    check_update(fixed.clone(), Some(json!({})), json!({"a": "x"}), &[]);
    check_update(fixed.clone(), Some(json!({"a": "x"})), json!({"a": "x"}), &[]);
    check_update(fixed, Some(json!({"a": "x"})), json!({"a": "y"}), &["spec.a: Invalid value: \"y\": a is immutable"]);
    let items =
        json!({"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}});
    check(items, json!([1, 0]), &["spec[1]: Invalid value: 0: failed rule: self > 0"]);
    let optional = rule(json!({"rule": "oldSelf.hasValue() || self.min == 1", "optionalOldSelf": true}));
    check(optional, json!({"min": 2}), &["spec: Invalid value: failed rule: oldSelf.hasValue() || self.min == 1"]);
}

#[test]
fn formats() {
    let check = |format: &str, good: &[&str], bad: &[&str]| {
        for (texts, expected) in [(good, true), (bad, false)] {
            for text in texts {
                assert_eq!(super::validate_format::is_format(format, text), expected, "{format} {text}");
            }
        }
    };
    check("date-time", &["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5+01:00"], &["2026-01-02", "soon"]);
    check("date", &["2026-01-02"], &["2026-13-02", "20260102"]);
    check("duration", &["1h30m", "0", "1.5s", "2 days"], &["1", "x", ""]);
    check("ipv4", &["10.0.0.1"], &["10.0.0", "::1"]);
    check("ipv6", &["::1"], &["10.0.0.1"]);
    check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0/33", "10.0.0.0"]);
    check("uuid", &["6f5521b4-cab9-4d7e-a799-784d73e1ff1e"], &["6f5521b4"]);
    check("uuid4", &["6f5521b4-cab9-4d7e-a799-784d73e1ff1e"], &["6f5521b4-cab9-3d7e-a799-784d73e1ff1e"]);
    check("uri", &["https://a/b", "/x"], &["a b", "relative"]);
    check("email", &["a@b.c"], &["a", "a@"]);
    check("hostname", &["a.example.com"], &["-a.b", "a..b"]);
    check("mac", &["00:11:22:33:44:55"], &["00:11:22:33:44"]);
    check("byte", &["aGk="], &["a"]);
    check("isbn13", &["978-3-16-148410-0"], &["978-3-16-148410-1"]);
    check("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]);
}
