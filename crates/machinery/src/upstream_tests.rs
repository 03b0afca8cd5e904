//! Answers of upstream's own functions (v1.36.4), written down once in `testdata/upstream`: each line has an input, and what came out
//! or why nothing did.

use std::fmt::Display;

use serde_json::{Value, json};

use crate::cel::{Declaration, Env, OBJECT_COST_MAX, Program, Type, Val};
use crate::quantity::Quantity;
use crate::selector::{FieldSelector, LabelSelector};
use crate::{codec, duration, jsonpath, names, patch, pattern};

type Answer = Result<Value, String>;

/// Compares each line's answer with ours, and names every line that differs. What is known to differ says `differs`, and is named
/// when it no longer does; `UPDATE=1` writes these words anew.
fn check(file: &str, lines: &str, ours: impl Fn(&Value) -> Answer) {
    let mut rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let mut different = Vec::new();
    for row in rows.iter_mut().filter(|row| row.get("data").is_none()) {
        let theirs = match row.get("error").and_then(Value::as_str) {
            Some(error) => Err(error.to_owned()),
            None => Ok(row["out"].clone()),
        };
        let ours = ours(row);
        let (differs, known) = (ours != theirs, row.get("differs").is_some());
        if differs != known {
            different.push(format!("{}\n  upstream {theirs:?}\n  ours     {ours:?}", row["in"]));
        }
        let fields = row.as_object_mut().expect("a line is an object");
        fields.remove("differs");
        if differs {
            fields.insert("differs".into(), true.into());
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let path = format!("{}/src/testdata/upstream/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, text).expect("the file is written");
        return;
    }
    assert!(different.is_empty(), "{} of {} differ:\n{}", different.len(), rows.len(), different.join("\n"));
}

fn said<T>(found: Result<T, impl Display>, out: impl Fn(T) -> Value) -> Answer {
    found.map(out).map_err(|error| error.to_string())
}

/// Only that it is refused counts: the words are ours.
fn refused<T>(found: Result<T, impl Display>, row: &Value, out: impl Fn(T) -> Value) -> Answer {
    found.map(out).map_err(|error| row["error"].as_str().map_or_else(|| error.to_string(), str::to_owned))
}

fn text(row: &Value) -> &str {
    row["in"].as_str().expect("a text")
}

macro_rules! facts {
    ($name:literal) => {
        include_str!(concat!("testdata/upstream/", $name, ".jsonl"))
    };
}

#[test]
fn quantities() {
    check("quantity", facts!("quantity"), |row| {
        said(Quantity::parse(text(row)), |found| {
            json!([Quantity::written(&row["in"]).unwrap_or_default(), found.value(), found.milli_value(), found.sign()])
        })
    });
}

#[test]
fn label_selectors() {
    check("selector", facts!("selector"), |row| {
        said(LabelSelector::parse(text(row)), |found| found.to_string().into())
    });
}

#[test]
fn field_selectors() {
    check("fieldselector", facts!("fieldselector"), |row| {
        said(FieldSelector::parse(text(row)), |found| {
            let shown = |(field, operator, value): &(String, crate::selector::FieldOperator, String)| {
                let sign = if matches!(operator, crate::selector::FieldOperator::Equals) { "=" } else { "!=" };
                let escaped = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
                format!("{field}{sign}{escaped}")
            };
            let mut all: Vec<String> = found.requirements().iter().map(shown).collect();
            // Upstream writes them in the order of their fields.
            all.sort();
            all.join(",").into()
        })
    });
}

#[test]
fn durations() {
    check("duration", facts!("duration"), |row| {
        said(duration::parse(text(row)), |found| duration::written(found).into())
    });
}

#[test]
fn patterns() {
    check("regex", facts!("regex"), |row| {
        refused(pattern::compile(text(row)), row, |found| found.is_match(row["on"].as_str().expect("a text")).into())
    });
}

#[test]
fn yaml_texts() {
    check("yaml", facts!("yaml"), |row| refused(codec::decode_yaml(text(row).as_bytes()), row, |found| found.value));
}

#[test]
fn rules_of_names() {
    check("names", facts!("names"), |row| {
        let rule = match row["rule"].as_str().expect("a rule") {
            "dns_subdomain" => names::dns_subdomain,
            "dns_label" => names::dns_label,
            "dns1035_label" => names::dns1035_label,
            "wildcard_dns_subdomain" => names::wildcard_dns_subdomain,
            "path_segment_name" => names::path_segment_name,
            "qualified_name" => names::qualified_name,
            "label_value" => names::label_value,
            "config_map_key" => names::config_map_key,
            "env_var_name" => names::env_var_name,
            "relaxed_env_var_name" => names::relaxed_env_var_name,
            "port_name" => names::port_name,
            "c_identifier" => names::c_identifier,
            "http_header_name" => names::http_header_name,
            "percent" => names::percent,
            "ip" => names::ip,
            "cidr" => names::cidr,
            _ => return Ok(row["out"].clone()),
        };
        Ok(rule(text(row)).into())
    });
}

/// As kubectl prints it, which takes missing keys for nothing, and as it is with `--allow-missing-template-keys=false`.
#[test]
fn json_paths() {
    let printed = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (file, lines, strict) in
        [("jsonpath", facts!("jsonpath"), false), ("jsonpath-strict", facts!("jsonpath-strict"), true)]
    {
        let data: Value = serde_json::from_str(lines.lines().next().expect("data")).expect("JSON");
        check(file, lines, |row| {
            let template = jsonpath::Template::parse(text(row)).map_err(|error| format!("parse: {error}"))?;
            said(template.strict(strict).print(&data["data"], printed), Value::from)
        });
    }
}

#[test]
fn json_patches() {
    let lines = facts!("jsonpatch");
    let data: Value = serde_json::from_str(lines.lines().next().expect("data")).expect("JSON");
    check("jsonpatch", lines, |row| {
        let mut document = data["data"].clone();
        refused(patch::json::apply(&mut document, &row["in"]), row, |()| document.clone())
    });
}

#[test]
fn merge_patches() {
    check("mergepatch", facts!("mergepatch"), |row| {
        let mut document = row["on"].clone();
        refused(patch::merge::apply(&mut document, &row["in"]), row, |()| document.clone())
    });
}

/// The type of upstream's tests of strategic merge patches, so many levels deep.
fn merge_item(levels: usize) -> String {
    let list = |rest: &str| match levels {
        0 => format!(r#"{{"items": "any"{rest}}}"#),
        _ => format!(r#"{{"items": {}{rest}}}"#, merge_item(levels - 1)),
    };
    let merged = list(r#", "merge": "name""#);
    let own = |retained: &str| {
        format!(
            r#""name": "string", "value": "string", "other": "string", "simpleMap": {{"values": "string"}},
            "mergingIntList": {{"items": "int", "merge": true}}, "mergingList": {merged}, "nonMergingList": {} {retained}"#,
            list("")
        )
    };
    let rest = format!(
        r#", "nonMergingIntList": {{"items": "int"}}, "mergeItemPtr": {merged},
        "replacingItem": {{"type": "raw", "replace": true}},
        "retainKeysMap": {{"retain": true, "fields": {{{}}}}},
        "retainKeysMergingList": {}"#,
        own(""),
        list(r#", "merge": "name", "retain": true"#)
    );
    format!(r#"{{"fields": {{{}}}}}"#, own(&rest))
}

/// With the items of all lists in one order.
fn in_order(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(in_order).collect();
            items.sort_by_key(|item| item.get("name").unwrap_or(item).to_string());
            items.into()
        }
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), in_order(value))).collect(),
        other => other.clone(),
    }
}

#[test]
fn strategic_patches() {
    let schemas = patch::testing::schemas(&merge_item(3));
    check("strategic", facts!("strategic"), |row| {
        let mut document = row["on"].clone();
        let applied = patch::strategic::apply(schemas.by_name("T").expect("named"), &mut document, &row["in"]);
        let is_same = row["any_order"] == true && in_order(&document) == in_order(&row["out"]);
        refused(applied, row, |()| if is_same { row["out"].clone() } else { document.clone() })
    });
}

/// What an expression comes to over the data, or why it does not.
fn evaluated(row: &Value, data: &Value) -> Answer {
    let env = Env::default().with("self", Type::Dyn);
    let error = row["error"].as_str().unwrap_or_default();
    if let Err(issues) = Program::check(text(row), &env) {
        return Err(if error.starts_with("compile: ") { error.to_owned() } else { format!("compile: {issues}") });
    }
    let program = Program::parse(text(row)).map_err(|issues| issues.to_string())?;
    let mut budget = OBJECT_COST_MAX;
    match program.eval(&[("self", Val::json(data, None))], &mut budget) {
        Err(found) => Err(if error.starts_with("program: ") { error.to_owned() } else { found.to_string() }),
        Ok(found) => {
            let mut out = json!({"type": row["out"]["type"]});
            if row["out"].get("value").is_some() {
                out["value"] = found.to_json().unwrap_or("(nothing)".into());
            } else if let Some(text) = row["out"].get("text") {
                // Values of types of their own are shown by a conversion that expressions do not have for all of them.
                out["text"] = text.clone();
            }
            Ok(out)
        }
    }
}

#[test]
fn expressions() {
    let lines = facts!("cel");
    let data: Value = serde_json::from_str(lines.lines().next().expect("data")).expect("JSON");
    check("cel", lines, |row| evaluated(row, &data["data"]));
    // What upstream's tests of its libraries expect.
    check("cel-library", facts!("cel-library"), |row| evaluated(row, &Value::Null));
}

/// What upstream's tests of its libraries expect: the most that an expression can cost, and what it costs. There lists and maps that
/// are written out are not made beforehand, as they are where rules run.
#[test]
fn costs_of_expressions() {
    let own = Declaration::of(&json!({"type": "string"})).expect("a schema that expressions can see");
    check("cel-costs", facts!("cel-costs"), |row| {
        let program = Program::parse(text(row)).map_err(|issues| issues.to_string())?;
        let mut budget = OBJECT_COST_MAX;
        program.eval(&[], &mut budget).map_err(|error| error.to_string())?;
        let is_made_before = text(row).contains(['[', '{']);
        let cost = if is_made_before { row["out"][1].clone() } else { (OBJECT_COST_MAX - budget).into() };
        Ok(json!([Program::cost(text(row), &own, false), cost]))
    });
}

/// Objects of a custom kind: pruned, given defaults, and then judged by their schema.
#[test]
fn custom_objects() {
    use crate::field::Errors;
    use crate::schema::conform::Problems;
    use crate::schema::structural::Structural;
    use crate::schema::{structural_shape, validate};

    let shaped = |spec: &Value, schema: &Structural| {
        let mut object = json!({"apiVersion": "e.com/v1", "kind": "K", "metadata": {"name": "x"}, "spec": spec});
        structural_shape::prune(&mut object, schema, None, &mut Problems::default()).expect("types of metadata");
        structural_shape::default(&mut object, schema);
        structural_shape::drop_nulls(&mut object, schema);
        object
    };
    check("custom", facts!("custom"), |row| {
        let schema = Structural::parse(&row["schema"]);
        let object = shaped(&row["in"], &schema);
        let old = row.get("old").map(|old| shaped(old, &schema));
        let mut errors = Errors::default();
        validate::validate(&object, old.as_ref(), &schema, &mut errors);
        validate::validate_lists(&object, &schema, &mut errors);
        validate::validate_rules(&object, old.as_ref(), &schema, &mut errors);
        let mut found: Vec<String> =
            errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        found.sort();
        Ok(json!({"object": object["spec"], "errors": found}))
    });
}
