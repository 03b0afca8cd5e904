//! What the tests of cel-go's extensions expect, as far as Kubernetes has them: texts, formats, lists, sets, and comprehensions of two
//! variables. A line is an expression that is true, or one that fails with a message.

use serde_json::Value;

use super::{Env, OBJECT_COST_MAX, Program, Type, Val};

/// Why an expression is not true.
fn outcome(row: &Value) -> Result<(), String> {
    let expression = row["in"].as_str().expect("an expression");
    let data = row.get("data").and_then(Value::as_object);
    if row["unchecked"] != true {
        let env = data.iter().flat_map(|data| data.keys()).fold(Env::default(), |env, name| env.with(name, Type::Dyn));
        Program::check(expression, &env).map_err(|issues| issues.to_string())?;
    }
    let program = Program::parse(expression).map_err(|issues| issues.to_string())?;
    let variables: Vec<(&str, Val)> =
        data.into_iter().flatten().map(|(name, value)| (name.as_str(), Val::json(value, None))).collect();
    match program.eval(&variables, &mut OBJECT_COST_MAX.clone()) {
        Ok(Val::Bool(true)) => Ok(()),
        Ok(found) => Err(format!("it is {:?}", found.to_json())),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn extensions() {
    let lines: Vec<Value> = include_str!("../testdata/upstream/cel-extensions.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    let mut different = Vec::new();
    for row in &lines {
        let ours = outcome(row);
        let as_upstream = match row.get("error").and_then(Value::as_str) {
            Some(error) => ours.as_ref().is_err_and(|found| found.contains(error)),
            None => ours.is_ok(),
        };
        if !as_upstream {
            different.push(format!("{}\n  upstream {}\n  ours     {ours:?}", row["in"], row["error"]));
        }
    }
    assert!(different.is_empty(), "{} of {} differ:\n{}", different.len(), lines.len(), different.join("\n"));
}
