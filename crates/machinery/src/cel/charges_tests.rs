//! What expressions cost when they run: the figures of upstream's own test of their stability.

use serde_json::{Value, json};

use super::*;
use crate::schema::structural::Structural;

/// Objects with `val1`, `val2`, ... of those types and values.
fn numbered(fields: &[(Value, Value)]) -> (Value, Value) {
    let named = |part: fn(&(Value, Value)) -> Value| -> Value {
        let named = fields.iter().enumerate().map(|(at, field)| (format!("val{}", at + 1), part(field)));
        Value::Object(named.collect())
    };
    (json!({"type": "object", "properties": named(|field| field.0.clone())}), named(|field| field.1.clone()))
}

fn sample(name: &str) -> (Value, Value) {
    let (int, number, text) = (json!({"type": "integer"}), json!({"type": "number"}), json!({"type": "string"}));
    let formatted = |format: &str| json!({"type": "string", "format": format});
    let list = |item: &Value| json!({"type": "array", "items": item});
    let set = |item: &Value| json!({"type": "array", "items": item, "x-kubernetes-list-type": "set"});
    let map = |value: &Value| json!({"type": "object", "additionalProperties": value});
    let object = |fields: Value| json!({"type": "object", "properties": fields});
    let by_key = |fields: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": object(fields)});
    let same = |schema: Value, value: Value| numbered(&[(schema.clone(), value.clone()), (schema, value)]);
    match name {
        "i" => numbered(&vec![(int, json!(2_147_483_647)); 6]),
        "n" => numbered(&[
            (int, json!(5)),
            (number.clone(), json!(10.0)),
            (number.clone(), json!(10.0)),
            (number, json!(10.0)),
        ]),
        "s" => same(text, json!("Rook takes 👑")),
        "bytes" => same(formatted("byte"), json!("QUI=")),
        "dur" => same(formatted("duration"), json!("1h2m3s4ms")),
        "time" => same(formatted("date-time"), json!("2011-08-18T19:03:37.010000000+01:00")),
        "conv" => numbered(&[
            (int, json!(10)),
            (number.clone(), json!(10.0)),
            (number.clone(), json!(10.49)),
            (number, json!(10.5)),
            (json!({"type": "boolean"}), json!(true)),
            (text.clone(), json!("10")),
            (formatted("byte"), json!("MTA=")),
            (text, json!("3723.004s")),
            (formatted("duration"), json!("1h2m3s4ms")),
        ]),
        "l" => same(list(&int), json!([1, 2, 3])),
        "set" => numbered(&[(set(&text), json!(["a", "b", "c"])), (set(&text), json!(["a", "c", "b"]))]),
        "m" => same(map(&text), json!({"k1": "a", "k2": "b"})),
        "q" => numbered(&[(text.clone(), json!("20")), (text, json!("200M"))]),
        "lm" => {
            let pair = |k: &str, v: &str| json!({"k": k, "v": v});
            let objects = json!([
                [pair("a", "1"), pair("b", "2")],
                [pair("b", "2"), pair("a", "1")],
                [pair("b", "3"), pair("a", "1")],
                [pair("c", "4")],
            ]);
            (object(json!({"objs": list(&by_key(json!({"k": text, "v": text})))})), json!({"objs": objects}))
        }
        "o" => {
            let schema = object(json!({
                "a": object(json!({"b": int, "c": int})),
                "a1": object(json!({"b1": object(json!({"c1": int})), "d2": object(json!({"e2": int}))})),
            }));
            (schema, json!({"a": {"b": 1}, "a1": {"b1": {"c1": 4}}, "a3": {}}))
        }
        "ma" => (object(json!({"val": map(&int)})), json!({"val": {"b": 1, "d": 2}})),
        "lma" => {
            let schema = object(json!({"listMap": by_key(json!({"k": text, "v": text, "v2": text}))}));
            let items = json!([{"k": "a1", "v": "b1"}, {"k": "a2", "v": "b2"}, {"k": "a3", "v": "b3", "v2": "z"}]);
            (schema, json!({"listMap": items}))
        }
        "arr" => (object(json!({"array": list(&int)})), json!({"array": [1, 1, 2, 2, 3, 3, 4, 5]})),
        "opt" => {
            let schema = object(
                json!({"obj": object(json!({"field": text, "absentField": text})), "m": map(&text), "l": list(&text)}),
            );
            (schema, json!({"obj": {"field": "a"}, "m": {"k": "v"}, "l": ["a"]}))
        }
        "u" => (object(json!({"something": {"x-kubernetes-int-or-string": true}})), json!({"something": 1})),
        other => panic!("no sample {other}"),
    }
}

/// Each line is a sample, an expression that holds for it, and what that costs.
#[test]
fn expressions_cost_what_upstream_counts() {
    let mut wrong = Vec::new();
    for line in include_str!("testdata/charges.txt").lines() {
        let [name, text, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (schema, object) = sample(name);
        let env = Env::of_rules(&schema, false, false).expect("a schema");
        let checked = Program::check(text, &env);
        let structural = Structural::parse(&schema);
        let program = Program::parse(text).expect("an expression");
        let mut budget = EXPRESSION_COST_MAX;
        let outcome = program.eval(&[("self", Val::json(&object, Some(&structural)))], &mut budget);
        let cost = (EXPRESSION_COST_MAX - budget).to_string();
        if cost != expected || !matches!(outcome, Ok(Val::Bool(true))) || checked.is_err() {
            wrong.push(format!("{cost} instead of {expected}: {text} is {outcome:?}, {checked:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_costs_nothing_ends_too() {
    let object = json!({"l": vec![1; 5000]});
    let evaluate = |text: &str| {
        let program = Program::parse(text).expect("an expression");
        program.eval(&[("self", Val::json(&object, None))], &mut OBJECT_COST_MAX.clone())
    };
    let free = "self.l.exists_one(a, self.l.exists_one(b, self.l.exists_one(c, false)))";
    assert!(matches!(evaluate(free), Err(EvalError::Budget)));
    let doubled = format!("{}x{}.size() > 0", "cel.bind(x, ".repeat(60) + "self.l", ", x + x)".repeat(60));
    assert!(evaluate(&doubled).is_err(), "lists that double");
    assert!(matches!(evaluate("lists.range(9000000000).size() > 0"), Err(EvalError::Budget)));
    let squared = "cel.bind(s, self.l.map(x, 'aaaaaaaaaa').join(), s.replace('', s).replace('', s).size() > 0)";
    assert!(matches!(evaluate(squared), Err(EvalError::Budget)));
}
