//! Changes to JSON values that leave them JSON values: branches change places, scalars change their kind.

use serde_json::{Value, json};

use crate::Random;

const CHANGES_MAX: usize = 5;

pub fn value(random: &mut Random, examples: &[Value]) -> Value {
    let mut value = random.pick(examples).clone();
    for _ in 0..=random.below(CHANGES_MAX) {
        let donor = random.pick(examples).clone();
        let branch = some_branch(random, donor);
        change(random, &mut value, branch);
    }
    value
}

/// Any part of a value, found by going down for as long as chance wants.
fn some_branch(random: &mut Random, value: Value) -> Value {
    let below: Vec<Value> = match &value {
        Value::Object(map) => map.values().cloned().collect(),
        Value::Array(list) => list.clone(),
        _ => return if random.one_in(3) { scalar(random) } else { value },
    };
    match below.is_empty() || random.one_in(4) {
        true => value,
        false => some_branch(random, random.clone().pick(&below).clone()),
    }
}

fn change(random: &mut Random, value: &mut Value, branch: Value) {
    match value {
        Value::Object(map) if !map.is_empty() && !random.one_in(5) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = random.pick(&keys).clone();
            match random.below(6) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(key, branch)),
                2 => drop(map.insert(key.clone() + "x", branch)),
                3 => {
                    let moved = map.remove(&key).unwrap_or_default();
                    map.insert(random.pick(&keys).clone(), moved);
                }
                _ => change(random, map.entry(key).or_insert(Value::Null), branch),
            }
        }
        Value::Array(list) if !list.is_empty() && !random.one_in(5) => {
            let at = random.below(list.len());
            match random.below(6) {
                0 => drop(list.remove(at)),
                1 => list.insert(at, branch),
                2 => list.push(list[at].clone()),
                _ => change(random, &mut list[at], branch),
            }
        }
        other => *other = if random.one_in(2) { branch } else { scalar(random) },
    }
}

fn scalar(random: &mut Random) -> Value {
    let texts = [
        "", "a", "0", "true", "null", "~", "1e3", "- x", "a: b", "#", "\n", "\u{85}", "é", "/", "a/b", "$patch",
        "100m", "1Gi", "-1",
    ];
    match random.below(8) {
        0 => Value::Null,
        1 => random.one_in(2).into(),
        2 => json!(random.next() as i64),
        3 => json!(random.below(10)),
        4 => json!((random.next() as i32) as f64 / 16.0),
        5 => json!({}),
        6 => json!([]),
        _ => (*random.pick(&texts)).into(),
    }
}
