//! Estimates of upstream for rules over schemas with and without bounds.

use serde_json::{Value, json};

use super::Declaration;
use crate::cel::Program;

fn check(schema: Value, rule: &str, expected: u64) {
    let own = Declaration::of(&schema).expect("a schema that expressions can see");
    assert_eq!(Program::cost(rule, &own, false), Some(expected), "{rule} over {schema}");
}

fn text() -> Value {
    json!({"type": "string"})
}

fn list(item: Value) -> Value {
    json!({"type": "array", "items": item})
}

fn map(value: Value) -> Value {
    json!({"type": "object", "additionalProperties": value})
}

fn object() -> Value {
    json!({"type": "object", "required": ["required"], "properties": {"required": text(), "optional": text()}})
}

fn with(mut schema: Value, field: &str, max: u64) -> Value {
    schema[field] = max.into();
    schema
}

#[test]
fn loops_cost_by_what_they_go_through() {
    let every = "self.all(x, true)";
    let formatted = |format: &str| json!({"type": "string", "format": format});
    let union = json!({"x-kubernetes-int-or-string": true});
    for (item, of_list, of_map) in [
        (json!({"type": "number"}), 4_718_591, 1_348_169),
        (text(), 3_145_727, 1_179_647),
        (json!({"type": "boolean"}), 1_887_437, 943_718),
        (list(json!({"type": "number"})), 3_145_727, 1_179_647),
        (map(json!({"type": "number"})), 3_145_727, 1_179_647),
        (formatted("duration"), 2_359_295, 1_048_577),
        (formatted("date"), 725_936, 524_288),
        (formatted("date-time"), 428_963, 349_526),
        (union, 4_718_591, 1_348_169),
    ] {
        check(list(item.clone()), every, of_list);
        check(map(item.clone()), every, of_map);
        check(with(list(item.clone()), "maxItems", 10), every, 32);
        check(with(map(item), "maxProperties", 10), every, 32);
    }
    check(map(object()), every, 428_963);
    let numbers = || list(json!({"type": "number"}));
    check(with(numbers(), "maxItems", 10), "self.all(x, self.all(y, true))", 352);
    check(with(numbers(), "maxItems", 10), "self.all(x, self.all(y, self.all(z, true)))", 3552);
    check(numbers(), "self.all(x, x == 0.0)", 6_291_454);
    check(with(numbers(), "maxItems", 3 * 1024 * 2048), "self.all(x, x == 0.0)", 25_165_826);
    let maps = || list(map(json!({"type": "number"})));
    check(maps(), "self.all(x, x.y == 25.2)", 6_291_452);
    check(with(maps(), "maxItems", 12), "self.all(x, x.y == 25.2)", 74);
    check(list(map(object())), r#"self.all(x, x["y"].required == "z")"#, 7_340_027);
    check(map(text()), "self.all(x, x.contains(self[x]))", 2_752_507);
    let bounded = with(map(with(text(), "maxLength", 10)), "maxProperties", 10);
    check(bounded, "self.all(x, x.contains(self[x]))", 72);
}

#[test]
fn texts_cost_by_their_length() {
    for (rule, unbounded, length, bounded) in [
        ("self.contains('test')", 314_574, 10, 5),
        ("self.startsWith('test')", 2, 15, 2),
        ("self.endsWith('test')", 2, 30, 2),
        (r#"size(self + "hello") > size("hello")"#, 314_578, 4, 7),
        (r#"self.matches("x")"#, 314_574, 50, 22),
        (r#""".matches("(((((((((())))))))))[0-9]")"#, 7, 10, 7),
        (r#"self.matches("")"#, 1, 100, 1),
        (r#"self == "x""#, 2, 0, 1),
        ("self.find('[0-9]+') == ''", 629_147, 10, 11),
        ("self.lowerAscii() == 'lower!'", 314_575, 10, 6),
    ] {
        check(text(), rule, unbounded);
        check(with(text(), "maxLength", length), rule, bounded);
    }
    check(json!({"type": "string", "enum": ["A", "B", "C", "LongValue"]}), "self.contains('A')", 2);
    check(json!({"type": "string", "format": "byte"}), r#"self == b"x""#, 2);
    check(json!({"type": "string", "format": "byte", "maxLength": 0}), r#"self == b"x""#, 1);
    check(json!({"x-kubernetes-int-or-string": true}), "isQuantity(self)", 314_574);
    check(json!({"x-kubernetes-int-or-string": true, "maxLength": 20}), "isQuantity(self)", 9);
}

#[test]
fn fields_and_items_are_found_in_the_schema() {
    let number = || json!({"type": "number"});
    check(list(number()), "self[1] == 0.0", 2);
    check(map(number()), r#"self["x"] == 0.0"#, 2);
    check(list(text()), "self[1] == self[1]", 314_577);
    check(list(json!({"x-kubernetes-int-or-string": true})), "self[0] == 5", 3);
    check(list(json!({"type": "boolean"})), "self[0] == false", 2);
    check(list(object()), "self[0] == null", 2);
    check(list(list(number())), "self[0][0] == -1.0", 3);
    check(list(map(number())), "self[0].x > 2.0", 4);
    let formatted = |format: &str| json!({"type": "string", "format": format});
    check(list(formatted("duration")), "self[0].getHours() == 2", 4);
    check(list(formatted("date")), "self[2].getDayOfMonth() == 13", 4);
    check(map(json!({"type": "integer"})), "oldSelf.size() == self.size()", 5);
    check(map(formatted("date-time")), r#"self["a"] == self["b"]"#, 8);
    check(map(formatted("duration")), r#"self["c"] == self["d"]"#, 8);
}

#[test]
fn functions_tell_the_size_of_their_answer() {
    check(list(text()), "self.join(' ') == 'aa bb'", 329_853_068_905);
    check(list(text()), "self.isSorted() == true", 329_854_432_052);
    let bounded = || with(list(with(text(), "maxLength", 10)), "maxItems", 10);
    check(bounded(), "self.join(' ') == 'aa bb'", 43);
    check(bounded(), "self.isSorted() == true", 52);
    let replaced = |string: Value| {
        let (before, after) = (with(text(), "maxLength", 2), with(text(), "maxLength", 4));
        json!({"type": "object", "properties": {"str": string, "before": before, "after": after}})
    };
    let rule = "self.str.replace(self.before, self.after) == 'does not matter'";
    check(replaced(text()), rule, 629_154);
    check(replaced(with(text(), "maxLength", 4)), rule, 12);
    let split = |string: Value| json!({"type": "object", "properties": {"str": string, "separator": string}});
    check(split(text()), "self.str.split(self.separator) == []", 629_160);
    check(split(with(text(), "maxLength", 10)), "self.str.split(self.separator) == []", 22);
}

#[test]
fn nothing_overflows() {
    let own = Declaration::of(&list(list(list(text())))).unwrap();
    let nested = "self.all(a, self.all(b, self.all(c, self.all(d, self.all(e, a == b && c == d)))))";
    assert_eq!(Program::cost(nested, &own, false), Some(u64::MAX));
}

/// Each line is an estimate of upstream and the expression it is for.
#[test]
fn functions_cost_what_upstream_says() {
    let own = Declaration::of(&json!({"type": "object"})).unwrap();
    let mut wrong = Vec::new();
    for line in include_str!("testdata/functions.txt").lines() {
        let (expected, expression) = line.split_once('\t').expect("a number and an expression");
        let cost = Program::cost(expression, &own, false).map(|cost| cost.to_string());
        if cost.as_deref() != Some(expected) {
            wrong.push(format!("{cost:?} instead of {expected}: {expression}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The figures of upstream's own tests of device selectors.
#[test]
fn selectors_of_devices() {
    let all = r#"
device.capacity["dra.example.com"].quantity.isGreaterThan(quantity("1Ki")) &&
device.attributes["dra.example.com"].bool &&
device.attributes["dra.example.com"].int > 0 &&
device.attributes["dra.example.com"].string == "fish" &&
device.attributes["dra.example.com"].version.isGreaterThan(semver("0.0.1")) &&
device.capacity["dra.example.com"]["quantity"].isGreaterThan(quantity("1Ki")) &&
device.attributes["dra.example.com"]["bool"] &&
device.attributes["dra.example.com"]["int"] > 0 &&
device.attributes["dra.example.com"]["string"] == "fish" &&
device.attributes["dra.example.com"]["version"].isGreaterThan(semver("0.0.1"))
"#;
    for (selector, expected) in [
        ("true", 0),
        (r#"device.attributes["no-such-domain"].noSuchAttr.isGreaterThan(quantity("0"))"#, 6),
        (r#"device.attributes["no-such-domain"]["noSuchAttr"].isGreaterThan(quantity("0"))"#, 6),
        (r#""dra.example.com" in device.attributes"#, 3),
        (r#"device.driver == """#, 2),
        (r#"device.driver == "dra.example.com""#, 4),
        (r#"device.attributes["dra.example.com"].name"#, 4),
        (r#"device.attributes["dra.example.com"]["name"]"#, 4),
        (r#"cel.bind(dra, device.attributes["dra.example.com"], dra.name)"#, 15),
        (r#"device.attributes["dra.example.com"].name > 0"#, 5),
        (r#"device.attributes["dra.example.com"].name == "fish""#, 5),
        (r#"device.attributes["dra.example.com"].name.isGreaterThan(semver("0.0.1"))"#, 6),
        (
            r#"device.attributes["dra.example.com"].name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)"#,
            7,
        ),
        (r#"device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#, 6),
        (
            r#""name" in device.capacity["dra.example.com"] && device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#,
            10,
        ),
        (
            r#"!("name" in device.capacity["dra.example.com"]) || device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#,
            11,
        ),
        (all, 52),
        (r#"device.attributes.exists_one(x, x == "dra.example.com")"#, 164),
        (r#"device.attributes["dra.example.com"].exists_one(x, x == "services")"#, 133),
        (r#"device.attributes["dra.example.com"].services.split("example").size() >= 2"#, 19),
        (r#"device.attributes["dra.example.com"].services.matches("[^a]?sym")"#, 18),
        (r#"device.capacity.exists_one(x, x == "dra.example.com")"#, 164),
        (r#"device.capacity["dra.example.com"].exists_one(x, x == "memory")"#, 133),
    ] {
        assert_eq!(Program::selector_cost(selector), Some(expected), "{selector}");
    }
}
