//! What upstream's own tests of custom kinds expect (`apiextensions-apiserver`, v1.36), written down in `testdata/upstream`: a line
//! with a schema begins a case, the lines below it are rules of that schema.

use serde_json::{Value, json};

use super::conform::Problems;
use super::structural::Structural;
use super::{structural_shape, validate};
use crate::cel::{Declaration, EXPRESSION_COST_MAX, Env, OBJECT_COST_MAX, Program, Val};
use crate::field::Errors;

macro_rules! facts {
    ($name:literal) => {
        include_str!(concat!("../testdata/upstream/", $name, ".jsonl"))
    };
}

fn rows(lines: &str) -> impl Iterator<Item = Value> + '_ {
    lines.lines().map(|line| crate::codec::decode_json(line.as_bytes()).expect("a line is JSON").value)
}

/// Each rule with the case that it belongs to.
fn rules(lines: &str) -> Vec<(Value, Value)> {
    let mut case = Value::Null;
    let mut found = Vec::new();
    for row in rows(lines) {
        if row.get("schema").is_some() {
            case = row;
        } else {
            found.push((case.clone(), row));
        }
    }
    found
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

#[track_caller]
fn none_differs(count: usize, different: &[String]) {
    assert!(different.is_empty(), "{} of {count} differ:\n{}", different.len(), different.join("\n"));
}

/// Upstream's tests begin their paths with `root`, which stands for the object itself.
fn without_root(text: &str) -> String {
    text.replace("root.", "").replace("root[", "[")
}

/// The type of a problem, its field, and all of it as users see it.
fn problems(object: &Value, old: Option<&Value>, schema: &Value) -> Vec<(String, String, String)> {
    let structural = Structural::parse(schema);
    let mut errors = Errors::default();
    validate::validate_rules(object, old, &structural, &mut errors);
    let told = |error: &crate::field::FieldError| {
        let all = format!("{}: {}", error.field, error.message());
        (error.problem.reason().to_owned(), error.field.to_string(), all)
    };
    errors.0.iter().map(told).collect()
}

fn old_of(case: &Value) -> Option<&Value> {
    case.get("old").filter(|old| !old.is_null())
}

/// What is wrong with a rule before it runs, as definitions are refused for it.
fn compiles(rule: &str, schema: &Value, is_root: bool, optional_old: bool) -> Result<(), String> {
    let env = Env::of_rules(schema, is_root, optional_old).ok_or("expressions cannot see such values")?;
    match Program::check(rule, &env) {
        Err(why) => Err(format!("compile error: compilation failed: {why}")),
        Ok(found) if !found.is_bool() => Err("cel expression must evaluate to a bool".into()),
        Ok(_) => Program::bad_pattern(rule)
            .map_or(Ok(()), |why| Err(format!("compile error: program instantiation failed: {why}"))),
    }
}

/// What upstream finds wrong with an object by a rule at its root, or nothing.
#[test]
fn rules_of_custom_objects() {
    let all = rules(facts!("custom-rules"));
    let mut different = Vec::new();
    for (case, row) in &all {
        let rule = text(row, "in");
        let mut schema = case["schema"].clone();
        let found = match compiles(rule, &schema, case["root"] == true, false) {
            Err(why) => vec![why],
            Ok(()) => {
                schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
                problems(&case["object"], old_of(case), &schema).into_iter().map(|(_, _, all)| all).collect()
            }
        };
        let as_upstream = match row.get("error").and_then(Value::as_str) {
            Some(error) => !found.is_empty() && found.iter().all(|one| one.contains(error)),
            None => found.is_empty(),
        };
        // What is known to differ says so, and is named when it no longer does.
        if as_upstream == row.get("differs").is_some() {
            different.push(format!("{}: {rule}\n  upstream {}\n  ours     {found:?}", case["name"], row["error"]));
        }
    }
    none_differs(all.len(), &different);
}

/// Rules below the root, rules that compare with an old object, and which field is blamed.
#[test]
fn rules_at_all_levels() {
    let mut different = Vec::new();
    let all: Vec<Value> = rows(facts!("custom-levels")).collect();
    for case in &all {
        let found = problems(&case["object"], old_of(case), &case["schema"]);
        let expected = |key: &str| case[key].as_array().cloned().unwrap_or_default();
        let as_upstream = if case.get("fields").is_some() {
            let mut fields: Vec<Value> = found.iter().map(|(reason, field, _)| json!([reason, field])).collect();
            let mut expected: Vec<Value> = expected("fields");
            expected.iter_mut().for_each(|one| one[1] = without_root(one[1].as_str().unwrap_or_default()).into());
            fields.sort_by_key(Value::to_string);
            expected.sort_by_key(Value::to_string);
            fields == expected
        } else {
            let expected = expected("errors");
            let is_told = |one: &Value| {
                let one = without_root(one.as_str().unwrap_or_default());
                found.iter().any(|(_, _, all)| all.contains(&one))
            };
            found.len() == expected.len() && expected.iter().all(is_told)
        };
        if !as_upstream {
            let theirs = format!("{}{}", case["errors"], case["fields"]);
            different.push(format!("{}\n  upstream {theirs}\n  ours     {found:?}", case["name"]));
        }
    }
    none_differs(all.len(), &different);
}

/// Whether definitions with such rules are taken, and which rules compare with the old object.
#[test]
fn rules_of_definitions() {
    let all = rules(facts!("custom-compile"));
    let mut different = Vec::new();
    for (case, row) in &all {
        let (rule, schema) = (text(row, "in"), &case["schema"]);
        let optional = row["optionalOldSelf"] == true;
        let found = compiles(rule, schema, case["root"] == true, optional);
        let transition = Program::parse(rule).is_ok_and(|program| program.mentions("oldSelf"));
        let as_upstream = match row.get("error").and_then(Value::as_str) {
            Some(error) => found.as_ref().is_err_and(|why| why.contains(error)),
            None => found.is_ok(),
        };
        if !as_upstream || row.get("transition").is_some_and(|theirs| theirs != transition) {
            different.push(format!("{}: {row}\n  ours     {found:?}, transition {transition}", case["name"]));
        }
        let message = text(row, "messageExpression");
        if let Some(error) = row.get("message_error").and_then(Value::as_str) {
            let env = Env::of_rules(schema, false, optional).expect("values that expressions see");
            let found = match Program::check(message, &env) {
                Err(why) => format!("messageExpression compilation failed: {why}"),
                Ok(found) if !found.is_text() => "messageExpression must evaluate to a string".to_owned(),
                Ok(_) => String::new(),
            };
            if !found.contains(error) {
                different.push(format!("{}: {message}\n  upstream {error}\n  ours     {found}", case["name"]));
            }
        }
    }
    none_differs(all.len(), &different);
}

/// What a rule costs over an object, and the most that it can cost over any.
#[test]
fn costs_of_rules() {
    let all = rules(facts!("custom-costs"));
    let mut different = Vec::new();
    for (case, row) in &all {
        let rule = text(row, "in");
        let own = Declaration::of(&case["schema"]).expect("values that expressions see");
        let most = Program::cost(rule, &own, false);
        let is_most = row.get("most").is_none_or(|theirs| Some(theirs.as_u64().unwrap_or(u64::MAX)) == most);
        let is_over =
            row.get("over").and_then(Value::as_u64).is_none_or(|limit| most.is_some_and(|most| most >= limit));
        let cost = row.get("cost").map(|_| {
            let structural = Structural::parse(&case["schema"]);
            let program = Program::parse(rule).expect("an expression");
            let mut budget = OBJECT_COST_MAX;
            let found = program.eval(&[("self", Val::json(&case["object"], Some(&structural)))], &mut budget);
            found.map(|_| OBJECT_COST_MAX - budget).map_err(|error| error.to_string())
        });
        let is_cost = cost.as_ref().is_none_or(|cost| cost.as_ref().ok() == row["cost"].as_u64().as_ref());
        if !is_most || !is_over || !is_cost {
            different.push(format!("{rule}\n  upstream {row}\n  ours     at most {most:?}, here {cost:?}"));
        }
    }
    none_differs(all.len(), &different);
}

#[test]
fn lists_that_are_sets_and_maps() {
    let mut different = Vec::new();
    let all: Vec<Value> = rows(facts!("custom-lists")).collect();
    for case in &all {
        let mut errors = Errors::default();
        validate::validate_lists(&case["object"], &Structural::parse(&case["schema"]), &mut errors);
        let mut found: Vec<Value> =
            errors.0.iter().map(|error| json!([error.problem.reason(), error.field.to_string()])).collect();
        let mut expected = case["errors"].as_array().cloned().unwrap_or_default();
        expected.iter_mut().for_each(|one| one[1] = without_root(one[1].as_str().unwrap_or_default()).into());
        found.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
        if found != expected {
            different.push(format!("{}\n  upstream {expected:?}\n  ours     {found:?}", case["name"]));
        }
    }
    none_differs(all.len(), &different);
}

#[test]
fn unknown_fields_are_pruned() {
    let mut different = Vec::new();
    let all: Vec<Value> = rows(facts!("custom-prune")).collect();
    for case in &all {
        let (mut object, schema) = (case["in"].clone(), Structural::parse(&case["schema"]));
        let mut told = Problems::default();
        if case["root"] == true {
            structural_shape::prune(&mut object, &schema, None, &mut told).expect("types of metadata");
        } else {
            structural_shape::prune_value(&mut object, &schema);
        }
        let mut unknown: Vec<String> = told
            .unknown
            .iter()
            .map(|one| one.trim_start_matches("unknown field ").trim_matches('"').to_owned())
            .collect();
        unknown.sort();
        let pruned = case["pruned"].as_array().cloned().unwrap_or_default();
        let is_told =
            case["root"] != true || unknown.iter().map(String::as_str).eq(pruned.iter().filter_map(Value::as_str));
        if object != case["out"] || !is_told {
            different.push(format!(
                "{}\n  upstream {} {pruned:?}\n  ours     {object} {unknown:?}",
                case["name"], case["out"]
            ));
        }
    }
    none_differs(all.len(), &different);
}

#[test]
fn missing_fields_get_defaults() {
    let mut different = Vec::new();
    let all: Vec<Value> = rows(facts!("custom-default")).collect();
    for case in &all {
        let (mut object, schema) = (case["in"].clone(), Structural::parse(&case["schema"]));
        if case["what"] == "default" {
            structural_shape::default(&mut object, &schema);
        } else {
            structural_shape::drop_nulls(&mut object, &schema);
        }
        if object != case["out"] {
            different.push(format!("{}\n  upstream {}\n  ours     {object}", case["name"], case["out"]));
        }
    }
    none_differs(all.len(), &different);
}

/// A message that an expression makes, in place of the one that is written.
#[test]
fn messages_made_by_expressions() {
    let cases = [
        ("", r#""static string""#, "static string"),
        ("invisible", r#""this is messageExpression""#, "this is messageExpression"),
        ("", "true", "failed rule"),
        ("", r#""str1 " + self.str"#, "str1 a string"),
        ("message", r#""str1 " + ["a", "b", "c", "d"][4]"#, "message"),
        ("", r#""str1 " + ["a", "b", "c", "d"][4]"#, "failed rule"),
        ("message", r#""str with \na newline""#, "message"),
        ("message", r#"string("")"#, "message"),
        ("message", r#"string("     ")"#, "message"),
        ("message", r#"self.long"#, "message"),
    ];
    for (message, expression, expected) in cases {
        let rule = json!({"rule": "false", "message": message, "messageExpression": expression});
        let text = json!({"type": "string"});
        let schema =
            json!({"type": "object", "properties": {"str": text, "long": text}, "x-kubernetes-validations": [rule]});
        let object = json!({"str": "a string", "long": "a".repeat(5121)});
        let found = problems(&object, None, &schema);
        let [(_, _, told)] = found.as_slice() else { panic!("{expression}: {found:?}") };
        assert!(told.contains(&format!(": {expected}")), "{expression}: {told}");
    }
}

/// A message costs as well: where it costs too much, that is what is told, and no further rule runs.
#[test]
fn messages_have_a_budget() {
    let rule = json!({"rule": "false", "messageExpression": "self.map(x, self.map(y, x)).size() > 0 ? 'a' : 'b'"});
    let schema =
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [rule, {"rule": "false"}]});
    let object = Value::from(vec!["x"; (EXPRESSION_COST_MAX as f64).sqrt() as usize]);
    let found = problems(&object, None, &schema);
    let told: Vec<&str> = found.iter().map(|(_, _, all)| all.as_str()).collect();
    let text = "no further validation rules will be run due to call cost exceeds limit for messageExpression: ";
    assert!(told.len() == 1 && told[0].contains(text), "{told:?}");
}
