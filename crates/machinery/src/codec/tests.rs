use serde_json::json;

use super::*;

#[test]
fn json_values() {
    for text in [
        r#"{"a":[1,-2,1.5,true,false,null,"x\"\\\/\b\f\n\r\té\ud83d\ude00"],"b":{}, "c" : [ ] }"#,
        "18446744073709551615",
        "-9223372036854775808",
        "123456789012345678901234567890",
    ] {
        let expected: Value = serde_json::from_str(text).expect("good JSON");
        assert_eq!(decode_json(text.as_bytes()), Ok(Decoded { value: expected, duplicates: vec![] }));
    }
    let decoded = decode_json(b"\"a\xff\\ud800\"").expect("Go takes broken text");
    assert_eq!(decoded.value, json!("a\u{fffd}\u{fffd}"));
}

#[test]
fn json_errors_in_gos_words() {
    for (text, expected) in [
        ("{", "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        ("i", "invalid character 'i' looking for beginning of value"),
        ("{a", "invalid character 'a' looking for beginning of object key string"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
        ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("tru", "unexpected end of JSON input"),
        ("trux", "invalid character 'x' in literal true (expecting 'e')"),
        ("-a", "invalid character 'a' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("01", "invalid character '1' after top-level value"),
        ("\"\n\"", "invalid character '\\n' in string literal"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        ("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape"),
    ] {
        let Err(DecodeError::Json(error)) = decode_json(text.as_bytes()) else { panic!("{text:?} is decoded") };
        assert_eq!(error.to_string(), expected, "for {text:?}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(decode_json(deep.as_bytes()), Err(DecodeError::Json(JsonError::Depth)));
    assert_eq!(
        decode_json(b"{").expect_err("unfinished").to_string(),
        "couldn't get version/kind; json parse error: unexpected end of JSON input"
    );
}

#[test]
fn duplicate_fields_are_noted() {
    let decoded = decode_json(br#"{"a":1,"spec":{"x":1,"l":[{"y":1},{"y":1,"y":2}],"x":2}}"#).expect("good JSON");
    assert_eq!(decoded.duplicates, [r#"duplicate field "spec.l[1].y""#, r#"duplicate field "spec.x""#]);
    let decoded = decode_yaml(b"a: 1\nb:\n  c: 1\n  c:\n    d: 1\n").expect("good YAML");
    assert_eq!(decoded.duplicates, ["yaml: unmarshal errors:\n  line 4: key \"c\" already set in map"]);
}

#[test]
fn yaml_values() {
    let check =
        |text: &str, expected: Value| assert_eq!(decode_yaml(text.as_bytes()).expect("good YAML").value, expected);
    check(
        "a: yes\nb: 'yes'\nc: \"1\"\nd: !!str 1\ne:\nf: |\n  x\n  y\n",
        json!({"a": true, "b": "yes", "c": "1", "d": "1", "e": null, "f": "x\ny\n"}),
    );
    check("- 1\n- [2, {a: b}]\n", json!([1, [2, {"a": "b"}]]));
    check("a: 1\n---\nb: 2\n", json!({"a": 1}));
    check("---\na: 1\n...\nrubbish: [", json!({"a": 1}));
    check("", json!(null));
    check("1: a\ntrue: b\n", json!({"1": "a", "true": "b"}));
    check("{\"kind\": \"Pod\", \"x\": [1, 2]}", json!({"kind": "Pod", "x": [1, 2]}));
    check(
        "base: &base {a: 1, b: 2}\nuse:\n  <<: *base\n  b: 3\nlist: *base\n",
        json!({"base": {"a": 1, "b": 2}, "use": {"a": 1, "b": 3}, "list": {"a": 1, "b": 2}}),
    );
}

#[test]
fn yaml_errors() {
    let check = |text: &str, expected: &str| {
        assert_eq!(decode_yaml(text.as_bytes()).expect_err("bad YAML").to_string(), expected, "for {text:?}");
    };
    check("a: [", "yaml: line 1: did not find expected node content");
    check("a: .inf", "yaml: json: unsupported value: +Inf");
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    check(&bomb, "yaml: document contains excessive aliasing");
    assert!(decode_yaml("[".repeat(100_000).as_bytes()).is_err());
    assert!(decode_yaml("- ".repeat(100_000).as_bytes()).is_err());
    assert!(decode_yaml(b"\xff").is_err());
}

#[test]
fn content_types() {
    assert!(decode_body("application/json; charset=utf-8", b"{}").is_ok());
    assert!(decode_body("application/yaml", b"a: 1").is_ok());
    assert_eq!(decode_body("text/plain", b"x"), Err(DecodeError::MediaType));
    assert_eq!((summary(b"{"), summary(b"a: ["), summary(b"")), ("{".into(), "613a205b".into(), "<empty>".into()));
    let wrong = json!({"kind": 5});
    assert_eq!(
        type_meta(&wrong).expect_err("a number").to_string(),
        "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string"
    );
}

#[test]
fn yaml_text_reads_back() {
    let value = json!({
        "a": {"b": [1, {"c": "x", "d": []}, [true, null], {}], "e": {}},
        "texts": ["yes", "", " x", "x ", "a: b", "a #b", "1", "0x1", "1:30", "2024-05-06", "- x", "-x", "*", "&a", "é", "a\tb",
                  "two\nlines", "two\nlines\n", "many\nlines\n\n", " led\nby space", "a\n\nb", "trailing \nspace", "null", "~", "http://x:80/y", "{}", "@x", "'", "\"", "=", "<<"],
        "yes": "key", "1": "key", "a: b": "key",
    });
    let text = to_yaml(&value);
    assert_eq!(decode_yaml(text.as_bytes()).expect("our own YAML").value, value, "{text}");
    assert_eq!(
        to_yaml(&json!({"kind": "Pod", "spec": {"list": [{"a": 1, "b": "two"}]}})),
        "kind: Pod\nspec:\n  list:\n  - a: 1\n    b: two\n"
    );
}

#[test]
fn stored_form_and_splice() {
    let object =
        json!({"apiVersion": "v1", "data": {"metadata": {}}, "kind": "ConfigMap", "metadata": {"name": "x"}, "a": 1});
    let bytes = encode(&object);
    assert_eq!(
        String::from_utf8_lossy(&bytes),
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"a":1,"data":{"metadata":{}}}"#
    );
    let check = |text: &str, expected: Option<&str>| {
        assert_eq!(splice_offset(text.as_bytes()).map(|at| &text[at..]), expected, "for {text}");
    };
    check(&String::from_utf8_lossy(&bytes), Some(r#""name":"x"},"a":1,"data":{"metadata":{}}}"#));
    check(r#" { "a" : [{"metadata":{}}, "}\"" ] , "n": 5, "metadata" : {"x":1}}"#, Some(r#""x":1}}"#));
    check(r#"{"metadata":null}"#, None);
    check(r#"{"a":1}"#, None);
    check(r#"{"a":"x"#, None);
    check("", None);
}

#[test]
fn metadata_is_cut_out_as_it_stands() {
    let check = |text: &str, expected: Option<&str>| {
        assert_eq!(metadata_text(text.as_bytes()), expected.map(str::as_bytes), "for {text}");
    };
    check(
        r#"{"kind":"A","metadata":{"name":"}","labels":{"a":"b"}},"spec":{}}"#,
        Some(r#"{"name":"}","labels":{"a":"b"}}"#),
    );
    check(r#"{"metadata":{}}"#, Some("{}"));
    check(r#"{"metadata":{"name":"x""#, None);
    check(r#"{"metadata":null}"#, None);
    check(r#"{"spec":{"metadata":{}}}"#, None);
}

#[test]
fn long_keys_stand_by_themselves() {
    let (short, long) = ("s".repeat(128), "l".repeat(129));
    let value = serde_json::json!({
        (short.clone()): 1, (long.clone()): "text", "map": {(long.clone()): {"a": 1, "b": [2]}}, "list": [{(long.clone()): ["x", "y"]}],
    });
    let text = to_yaml(&value);
    assert!(text.contains(&format!("? {long}\n: text\n")), "{text}");
    assert!(text.contains(&format!("{short}: 1\n")), "{text}");
    assert!(text.contains(&format!("map:\n  ? {long}\n  : a: 1\n    b:\n    - 2\n")), "{text}");
    assert!(text.contains(&format!("list:\n- ? {long}\n  : - x\n    - \"y\"\n")), "{text}");
    assert_eq!(decode_yaml(text.as_bytes()).unwrap().value, value);
    // Found by fuzzing: escaped, it was longer than readers look.
    let value = serde_json::json!({"\t".repeat(600): 1});
    assert_eq!(decode_yaml(to_yaml(&value).as_bytes()).unwrap().value, value);
}
