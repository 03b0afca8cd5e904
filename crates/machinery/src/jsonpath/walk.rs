//! Evaluates the steps of a JSONPath on an object.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Comparison, Error, Operand, Part, Step};

pub(super) fn print(parts: &[Part], root: &Value, shown: fn(&Value) -> String) -> Result<String, Error> {
    let mut out = String::new();
    print_parts(parts, root, root, shown, &mut out)?;
    Ok(out)
}

fn print_parts(
    parts: &[Part],
    root: &Value,
    current: &Value,
    shown: fn(&Value) -> String,
    out: &mut String,
) -> Result<(), Error> {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(steps) => {
                let texts: Vec<String> = walk(steps, root, current)?.into_iter().map(shown).collect();
                out.push_str(&texts.join(" "));
            }
            Part::Range(steps, inner) => {
                for value in walk(steps, root, current)? {
                    print_parts(inner, root, value, shown, out)?;
                }
            }
        }
    }
    Ok(())
}

/// Refuses an object that lacks a field which is named.
pub(super) fn check(parts: &[Part], root: &Value, current: &Value) -> Result<(), Error> {
    for part in parts {
        let (Part::Path(steps) | Part::Range(steps, _)) = part else { continue };
        let mut values = vec![current];
        for step in steps {
            let mut next = Vec::new();
            for value in values {
                let before = next.len();
                apply(step, root, value, &mut next)?;
                if let Step::Field(name) = step
                    && next.len() == before
                {
                    return Err(Error::NotFound(name.clone()));
                }
            }
            values = next;
        }
        if let Part::Range(_, inner) = part {
            values.into_iter().try_for_each(|value| check(inner, root, value))?;
        }
    }
    Ok(())
}

pub(super) fn walk<'a>(steps: &'a [Step], root: &'a Value, start: &'a Value) -> Result<Vec<&'a Value>, Error> {
    let mut current = vec![start];
    for step in steps {
        let mut next = Vec::new();
        for value in current {
            apply(step, root, value, &mut next)?;
        }
        current = next;
    }
    Ok(current)
}

fn apply<'a>(step: &'a Step, root: &'a Value, value: &'a Value, out: &mut Vec<&'a Value>) -> Result<(), Error> {
    match step {
        Step::Root => out.push(root),
        Step::Literal(literal) => out.push(literal),
        Step::Field(name) => out.extend(value.get(name).filter(|found| !found.is_null())),
        Step::All => match value {
            Value::Array(items) => out.extend(items),
            Value::Object(map) => out.extend(map.values()),
            _ => {}
        },
        Step::Descend => descend(value, out),
        Step::Union(steps) => steps.iter().try_for_each(|step| apply(step, root, value, out))?,
        Step::Slice { from, to, by } => match value {
            Value::Array(items) => out.extend(slice(items, *from, *to, *by)?),
            Value::Null => {}
            other => return Err(Error::NotAnArray(go_kind(other))),
        },
        Step::Filter(left, comparison) => {
            for item in value.as_array().into_iter().flatten() {
                if keeps(left, comparison.as_ref(), root, item)? {
                    out.push(item);
                }
            }
        }
    }
    Ok(())
}

fn slice(
    items: &[Value],
    from: Option<i64>,
    to: Option<i64>,
    by: Option<i64>,
) -> Result<impl Iterator<Item = &Value>, Error> {
    let length = items.len() as i64;
    let single = by == Some(0) && from.is_some() && to.is_none();
    let place = |at: i64| if at < 0 { at + length } else { at };
    let first = place(from.unwrap_or(0));
    let last = if single { first + 1 } else { to.map_or(length, place) };
    // Who asks for nothing gets it, from an empty list, too.
    if first != last {
        if !(0..length).contains(&first) {
            return Err(Error::OutOfBounds { index: first, length });
        }
        if !(0..=length).contains(&last) {
            return Err(Error::OutOfBounds { index: last - 1, length });
        }
        if first > last {
            return Err(Error::Backwards { first, last });
        }
        if !single && by.is_some_and(|step| step <= 0) {
            return Err(Error::Step);
        }
    }
    let step = by.filter(|step| *step > 0).unwrap_or(1) as usize;
    Ok((first..last).step_by(step).map(|at| &items[at as usize]))
}

fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>) {
    out.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| descend(item, out)),
        Value::Object(map) => map.values().for_each(|item| descend(item, out)),
        _ => {}
    }
}

fn keeps(
    left: &Operand,
    comparison: Option<&(Comparison, Operand)>,
    root: &Value,
    item: &Value,
) -> Result<bool, Error> {
    let left = operand(left, root, item)?;
    let Some((comparison, right)) = comparison else { return Ok(left.is_some()) };
    let (Some(left), Some(right)) = (left, operand(right, root, item)?) else { return Ok(false) };
    Ok(comparison.holds(left, right))
}

fn operand<'a>(operand: &'a Operand, root: &'a Value, item: &'a Value) -> Result<Option<&'a Value>, Error> {
    match operand {
        Operand::Literal(value) => Ok(Some(value)),
        Operand::Path(steps) => Ok(walk(steps, root, item)?.first().copied()),
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            _ => Some(plain(left).cmp(&plain(right))),
        };
        match self {
            Comparison::Equal => order == Some(Ordering::Equal),
            Comparison::NotEqual => order != Some(Ordering::Equal),
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// Values of different types are compared by their texts.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::Object(_) => "map[string]interface {}",
        Value::Null | Value::Array(_) => "interface {}",
    }
}
