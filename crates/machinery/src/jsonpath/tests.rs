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
    check("{.labels['a\\.b/c']}", "dotted");
    // A dot goes one deeper, in brackets, too.
    check("{.labels['a.b/c']}", "");
    check("{.items[*].name}", "a b");
    check("{.items[*]['name','size']}", "a b 1 20");
    check("{.items[0].name}{.items[-1].name}", "ab");
    check("{.items[-1:].name}", "b");
    check("{.items[0:1].name}", "a");
    check("{.items[::2].name}", "a");
    check("{range .items[*]}{.name}={.size};{end}", "a=1;b=20;");
    // A range without an end: what follows is followed once more outside of it.
    check("{range .items[*]}{.name} ", "a b  ");
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
    check("{.kind} {1}", "List 1");
    check("{1-2}", "-2");
    check("{.items[*].tags[*]}", "x y");
    check("plain", "plain");
}

/// What upstream's own tests expect.
#[test]
fn paths_lead_where_upstream_says() {
    let check = |data: &Value, cases: &[(&str, &str)]| {
        for (template, expected) in cases {
            let parsed = Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
            let found = parsed.strict(true).print(data, text).unwrap_or_else(|error| format!("error: {error}"));
            assert_eq!(found, *expected, "{template}");
        }
    };
    let points = json!([
        {"id": "i1", "x": 4}, {"id": "i2", "x": -2, "z": 1}, {"id": "i5", "x": 0, "z": 1}, {"id": "i7", "x": null},
    ]);
    check(&points, &[("{[?(@.z)].id}", "i2 i5"), ("{[0]['id']}", "i1"), ("{[-1]['x']}", "null")]);
    let store = json!({
        "Name": "jsonpath",
        "Book": [{"Author": "Rees", "Price": 8.95}, {"Author": "Waugh", "Price": 12.99}, {"Author": "Melville", "Price": 8.99}],
        "Bicycle": [{"Color": "red", "Price": 19.95, "IsNew": true}, {"Color": "green", "Price": 20.01, "IsNew": false}],
        "Labels": {"engieer": 10, "web/html": 15, "k8s-app": 20},
    });
    check(
        &store,
        &[
            ("hello jsonpath", "hello jsonpath"),
            (r#"{"{"}"#, "{"),
            ("hello {.Name}", "hello jsonpath"),
            ("{$.Labels.web/html}", "15"),
            ("{.Labels.k8s-app}", "20"),
            ("{.Bicycle[*].Color}", "red green"),
            ("{.Book[*].Author}", "Rees Waugh Melville"),
            (r#"{range .Bicycle[*]}{ "{" }{ @.Color }{ "} " }{end}"#, "{red} {green} "),
            ("{...Price}", "19.95 20.01 8.95 12.99 8.99"),
            (r#"{range .Bicycle[*]}{ @.Color }{ " " }{end}"#, "red green "),
            ("{.Book[-1:].Author}", "Melville"),
            ("{..Book[2].Author}", "Melville"),
            ("{.Bicycle[?(@.IsNew==true)].Color}", "red"),
            ("{hello}", "error: unrecognized identifier hello"),
            ("{.hello}", "error: hello is not found"),
            ("{.Labels[0]}", "error: map[string]interface {} is not array or slice"),
            ("{.Book[?(@.Price<>10.0)]}", "error: unrecognized filter operator <>"),
            ("{range .Labels.*}{@}{end}{end}", "error: not in range, nothing to end"),
            (
                "{.Labels[?(@.x)]}",
                "error: map[engieer:10 k8s-app:20 web/html:15] is not array or slice and cannot be filtered",
            ),
        ],
    );
    check(
        &json!([2, 6, 3, 7]),
        &[("{[?(@<5)]}", "2 3"), ("{[1,3]}", "6 7"), ("{[0:2]}", "2 6"), ("{..}", "[2,6,3,7]")],
    );
    let nodes = json!({
        "kind": "List",
        "items": [
            {"kind": "None", "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
                "status": {"capacity": {"cpu": "4"}, "ready": true, "addresses": [{"address": "127.0.0.1"}]}},
            {"kind": "None", "metadata": {"name": "127.0.0.2", "labels": {"kubernetes.io/hostname": "127.0.0.2"}},
                "status": {"capacity": {"cpu": "8"}, "ready": false, "addresses": [{"address": "127.0.0.2"}, {"address": "127.0.0.3"}]}},
        ],
        "users": [{"name": "myself", "user": {}}, {"name": "e2e", "user": {"username": "admin", "password": "secret"}}],
    });
    check(
        &nodes,
        &[
            ("{range .items[*]}{.metadata.name}, {end}{.kind}", "127.0.0.1, 127.0.0.2, List"),
            (r#"{range .items[*]}{.metadata.name}{"\t"}{end}"#, "127.0.0.1\t127.0.0.2\t"),
            ("{.items[*].status.addresses[*].address}", "127.0.0.1 127.0.0.2 127.0.0.3"),
            (
                "{range .items[*]}{range .status.addresses[*]}{.address}, {end}{end}",
                "127.0.0.1, 127.0.0.2, 127.0.0.3, ",
            ),
            ("{.items[*]['metadata.name', 'status.capacity']}", r#"127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}"#),
            (
                "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
                r#"[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] "#,
            ),
            (r#"{.users[?(@.name=="e2e")].user.password}"#, "secret"),
            (r"{.items[0].metadata.labels.kubernetes\.io/hostname}", "127.0.0.1"),
            (r#"{.items[?(@.metadata.labels.kubernetes\.io/hostname=="127.0.0.1")].kind}"#, "None"),
            ("{.items[?(@..ready==true)].metadata.name}", "127.0.0.1"),
            (
                r#"{range .items[?(.status.ready==true)]}{.metadata.name}{" is Running\n"}{end}"#,
                "127.0.0.1 is Running\n",
            ),
        ],
    );
}

#[test]
fn indexes_count_from_both_ends() {
    let object = json!({"c": ["0", "1", "2", "3", "4", "5"], "four": ["0", "1", "2", "3"]});
    let outside = "array index out of bounds: index";
    for (index, expected) in [
        ("four[0]", "0".to_owned()),
        ("four[0:0]", String::new()),
        ("four[0:-1]", "0 1 2".into()),
        ("four[-1:0]", "starting index 3 is greater than ending index 0".into()),
        ("four[-1]", "3".into()),
        ("four[-1:]", "3".into()),
        ("four[-2]", "2".into()),
        ("four[-2:]", "2 3".into()),
        ("four[-4]", "0".into()),
        ("four[-4:]", "0 1 2 3".into()),
        ("four[-5]", format!("{outside} -1, length 4")),
        ("four[5:5]", String::new()),
        ("four[-5:-5]", String::new()),
        ("four[3:1]", "starting index 3 is greater than ending index 1".into()),
        ("four[-1:-2]", "starting index 3 is greater than ending index 2".into()),
        ("c[0:]", "0 1 2 3 4 5".into()),
        ("c[0:6:]", "0 1 2 3 4 5".into()),
        ("c[0:6:1]", "0 1 2 3 4 5".into()),
        ("c[0:6:0]", "step must be > 0".into()),
        ("c[0:6:-1]", "step must be > 0".into()),
        ("c[1:4:2]", "1 3".into()),
        ("c[1:4:3]", "1".into()),
        ("c[1:4:4]", "1".into()),
        ("c[0:6:2]", "0 2 4".into()),
        ("c[0:6:5]", "0 5".into()),
        ("c[0:6:6]", "0".into()),
        ("c[0:7]", format!("{outside} 6, length 6")),
    ] {
        let template = Template::parse(&format!("{{.{index}}}")).unwrap();
        let found = template.print(&object, text).unwrap_or_else(|error| error.to_string());
        assert_eq!(found, expected, "{index}");
    }
}

#[test]
fn what_is_no_template_is_refused() {
    let check = |template: &str, error: &str| {
        assert_eq!(Template::parse(template).unwrap_err().to_string(), error, "{template}");
    };
    check("{.a", "unclosed action");
    check("{.a[0", "unterminated array");
    check("{.a[x]}", "invalid array index x");
    check("{.a[ 1 ]}", "invalid array index  1 ");
    check("{.a[1:2:3:4]}", "invalid array index 1:2:3:4");
    check("{.a[-]}", "array index - is not a number");
    check("{.a['b}", "unterminated array");
    check("{'b}", "unterminated quoted string");
    check(r#"{"\q"}"#, r#"unquote string "\q" error invalid syntax"#);
    check("{.a[?(@.b==1}", "unterminated filter");
    check("{.a[?(@.b==1)}", "unclosed array expect ]");
    check("{.a[?(@.b==)]}", "unrecognized character in action: U+003D '='");
    check("{.a[?(@.b == ~)]}", "unrecognized character in action: U+007E '~'");
    check("{;}", "unrecognized character in action: U+003B ';'");
    check("{1.2.3}", "cannot parse number 1.2.3");
    check("{......a}", "invalid multiple recursive descent");
}

/// Texts in quotes, as Go reads them.
#[test]
fn quotes_have_the_escapes_of_go() {
    for (template, expected) in [
        (r#"{"a\tb\n"}"#, "a\tb\n"),
        (r"{'\''}", "'"),
        (r#"{"\""}"#, "\""),
        (r#"{"\x41\101\u00e9\U0001F600"}"#, "AA\u{e9}\u{1F600}"),
        (r#"{'"'}"#, "\""),
        (r#"{"a\\b"}"#, "a\\b"),
    ] {
        let printed = Template::parse(template).and_then(|template| template.print(&json!({}), text));
        assert_eq!(printed.as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn only_values_of_one_type_are_compared() {
    let object = json!({"items": [{"i": 1, "f": 1.5, "s": "1", "b": true, "n": null, "l": [1, 2], "m": {}}]});
    for (filter, expected) in [
        ("@.i==1", "yes"),
        ("@.i>=1", "yes"),
        ("@.i<1", ""),
        ("1==@.i", "yes"),
        ("@.i==@.i", "yes"),
        ("@.f>1.4", "yes"),
        ("@.i==1.0", "incompatible types for comparison"),
        ("@.f>1", "incompatible types for comparison"),
        ("@.i==\"1\"", "incompatible types for comparison"),
        ("@.s!=1", "incompatible types for comparison"),
        ("@.s==\"1\"", "yes"),
        ("@.s < \"2\"", "yes"),
        ("@.b==true", "yes"),
        ("@.b!=false", "yes"),
        ("@.b>false", "invalid type for comparison"),
        ("@.n==1", "invalid type for comparison"),
        ("@.m==1", "invalid type for comparison"),
        ("@.l[*]==1", "can only compare one element at a time"),
        ("@.l[1]==2", "yes"),
        ("@.none==1", ""),
        ("1==@.none", ""),
        ("@.n", "yes"),
        ("@.none", ""),
        ("@.s=\"1\"", "unrecognized filter operator ="),
        ("@.s==\")]\"", ""),
    ] {
        let template = Template::parse(&format!("{{range .items[?({filter})]}}yes{{end}}")).unwrap();
        assert_eq!(template.print(&object, text).unwrap_or_else(|error| error.to_string()), expected, "{filter}");
    }
}

#[test]
fn a_path_that_does_not_fit_is_an_error() {
    let object = object();
    let check = |template: &str, error: &str| {
        let parsed = Template::parse(template).unwrap();
        assert_eq!(parsed.print(&object, text).unwrap_err().to_string(), error, "{template}");
    };
    check("{end}", "not in range, nothing to end");
    check("{.items[9].name}", "array index out of bounds: index 9, length 2");
    check("{.kind[0]}", "string is not array or slice");
    check("{.n[0]}", "int64 is not array or slice");
    check("{.items[1].tags[0]}", "array index out of bounds: index 0, length 0");
    check("{.labels[*]}", "map[string]interface {} is not array or slice");
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
    check(".metadata.annotations['a.b/c']", Value::Null);
    check(r".metadata.annotations['a\.b/c']", json!("note"));
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
