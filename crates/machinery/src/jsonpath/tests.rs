use serde_json::json;

use super::*;

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn object() -> Value {
    json!({
        "kind": "List",
        "n": 3,
        "labels": {"app": "web", "a.b/c": "dotted"},
        "items": [
            {"name": "a", "size": 1, "ready": true, "tags": ["x", "y"]},
            {"name": "b", "size": 20, "ready": false, "tags": []},
        ],
    })
}

#[test]
fn expressions_print_what_they_find() {
    let object = object();
    let check = |template: &str, expected: &str| {
        let parsed = Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
        assert_eq!(parsed.print(&object, text).as_deref(), Ok(expected), "{template}");
    };
    check("kind is {.kind}", "kind is List");
    check("{.labels.app} {.n}{\"\\n\"}", "web 3\n");
    check("{.labels}", r#"{"a.b/c":"dotted","app":"web"}"#);
    check("{.labels.a\\.b/c}", "dotted");
    check("{.labels['a.b/c']}", "dotted");
    check("{.items[*].name}", "a b");
    check("{.items[*]['name','size']}", "a 1 b 20");
    check("{.items[0].name}{.items[-1].name}", "ab");
    check("{.items[-1:].name}", "b");
    check("{.items[0:1].name}", "a");
    check("{.items[::2].name}", "a");
    check("{range .items[*]}{.name}={.size};{end}", "a=1;b=20;");
    check("{range .items[*]}{.name} ", "a b ");
    check("{.items[?(@.name==\"b\")].size}", "20");
    check("{.items[?(@.name=='b')].size}", "20");
    check("{.items[?(@.size>5)].name}", "b");
    check("{.items[?(@.size<=1)].name}", "a");
    check("{.items[?(@.name!=\"b\")].name}", "a");
    check("{.items[?(@.ready==true)].name}", "a");
    check("{.items[?(@.missing)].name}", "");
    check("{..name}", "a b");
    check("{.nothing.here}", "");
    check("{.items[0].tags}", r#"["x","y"]"#);
    check("{.items[1].tags[:]}", "");
    check("{$.kind}", "List");
    check("{kind} {1}", "List 1");
    check("plain", "plain");
}

#[test]
fn what_is_no_template_is_refused() {
    let check = |template: &str, error: &str| {
        assert_eq!(Template::parse(template).unwrap_err().to_string(), error, "{template}");
    };
    check("{.a", "unclosed action");
    check("{end}", "not in range, nothing to end");
    check("{.a[0", "unterminated array");
    check("{.a[x]}", "invalid array index x");
    check("{.a['b}", "unterminated quoted string");
    check("{.a[?(@.b==1}", "unterminated filter");
    check("{.a[?(@.b ~ 1)]}", "unrecognized character in action: U+007E '~'");
    check("{;}", "unrecognized character in action: U+003B ';'");
    check("{1-2}", "cannot parse number");
}

#[test]
fn a_path_that_does_not_fit_is_an_error() {
    let object = object();
    let check = |template: &str, error: &str| {
        let parsed = Template::parse(template).unwrap();
        assert_eq!(parsed.print(&object, text).unwrap_err().to_string(), error, "{template}");
    };
    check("{.items[9].name}", "array index out of bounds: index 9, length 2");
    check("{.kind[0]}", "string is not array or slice");
    check("{.n[0]}", "int64 is not array or slice");
    check("{.items[1].tags[0]}", "array index out of bounds: index 0, length 0");
    check("{.items[0:5].name}", "array index out of bounds: index 4, length 2");
    check("{.items[1:0].name}", "starting index 1 is greater than ending index 0");
    check("{.items[::-1].name}", "step must be > 0");
    check("{.labels[0]}", "map[string]interface {} is not array or slice");
}

#[test]
fn only_a_strict_template_needs_every_field() {
    let object = object();
    let strict = |template: &str| Template::parse(template).unwrap().strict(true).print(&object, text);
    assert_eq!(strict("{.kind}"), Ok("List".into()));
    assert_eq!(strict("{.labels.none}"), Err(Error::NotFound("none".into())));
    assert_eq!(strict("{range .items[*]}{.none}{end}"), Err(Error::NotFound("none".into())));
}

#[test]
fn one_field_may_be_named_in_four_ways() {
    for path in [".kind", "{.kind}", "kind", "{kind}"] {
        assert_eq!(Template::relaxed(path).unwrap().values(&object()).unwrap(), [&json!("List")], "{path}");
    }
    assert_eq!(Template::relaxed(""), Err(Error::UnexpectedPath));
    assert_eq!(Template::relaxed("{.a}{.b}"), Err(Error::UnexpectedPath));
}

#[test]
fn columns_take_the_first_value() {
    let object = json!({
        "metadata": {"annotations": {"a.b/c": "note"}},
        "spec": {"replicas": 3, "list": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]},
        "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]},
    });
    let check = |path: &str, expected: Value| {
        let found = Template::relaxed(path).ok().and_then(|path| path.first(&object).cloned());
        assert_eq!(found.unwrap_or_default(), expected, "{path}");
    };
    check(".spec.replicas", json!(3));
    check("{.spec.replicas}", json!(3));
    check(".metadata.annotations['a.b/c']", json!("note"));
    check(r".metadata.annotations.a\.b/c", json!("note"));
    check(".spec.list[1].name", json!("b"));
    check(".spec.list[-1].name", json!("b"));
    check(".spec.list[*].name", json!("a"));
    check(r#".status.conditions[?(@.type=="Ready")].status"#, json!("True"));
    check(".status.conditions[?(@.type == 'Ready')].status", json!("True"));
    check(".spec.list[?(@.n>1)].name", json!("b"));
    check(".spec.list[?(@.missing)].name", Value::Null);
    check(".spec.list[9].name", Value::Null);
    check(".spec.nothing.at.all", Value::Null);
    check(".spec[", Value::Null);
}

#[test]
fn a_path_of_plain_fields_is_a_pointer() {
    assert_eq!(pointer(".spec.replicas"), "/spec/replicas");
    assert_eq!(pointer(".status.a/b~c"), "/status/a~1b~0c");
}
