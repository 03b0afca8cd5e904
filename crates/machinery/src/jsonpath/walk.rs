//! Evaluates the steps of a JSONPath on an object.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Error, Filter, Part, Step};
use crate::go;

static NOTHING: Value = Value::Null;

pub(super) struct Walk {
    /// A field that none of the values at hand has is an error.
    pub(super) strict: bool,
}

impl Walk {
    pub(super) fn parts<'a>(&self, parts: &'a [Part], current: &'a Value) -> Result<Vec<Vec<&'a Value>>, Error> {
        let mut found = Vec::new();
        for part in parts {
            match part {
                Part::Text(text) => found.push(vec![text]),
                Part::Action(steps) => found.push(self.steps(steps, vec![current])?),
                Part::Range { steps, inner, ended } => {
                    let values = self.steps(steps, vec![current])?;
                    if values.is_empty() {
                        // What a range over nothing holds is followed all the same, and may fail.
                        self.parts(inner, &NOTHING)?;
                    }
                    for value in values {
                        found.extend(self.parts(inner, value)?);
                    }
                    if !ended {
                        found.extend(self.parts(inner, current)?);
                    }
                }
                Part::End => return Err(Error::NotInRange),
            }
        }
        Ok(found)
    }

    fn steps<'a>(&self, steps: &'a [Step], start: Vec<&'a Value>) -> Result<Vec<&'a Value>, Error> {
        steps.iter().try_fold(start, |values, step| self.step(step, values))
    }

    fn step<'a>(&self, step: &'a Step, values: Vec<&'a Value>) -> Result<Vec<&'a Value>, Error> {
        Ok(match step {
            Step::Literal(text @ Value::String(_)) => vec![text],
            Step::Literal(literal) => vec![literal; values.len()],
            Step::Identifier(word) => return Err(Error::Identifier(word.clone())),
            Step::Field(name) => {
                let found: Vec<&Value> = values.iter().filter_map(|value| value.as_object()?.get(name)).collect();
                if self.strict && found.is_empty() && !values.is_empty() {
                    return Err(Error::NotFound(name.clone()));
                }
                found
            }
            Step::All => values.into_iter().flat_map(children).collect(),
            Step::Descend => {
                let mut found = Vec::new();
                values.into_iter().for_each(|value| descend(value, &mut found));
                found
            }
            Step::Union(members) => {
                let mut found = Vec::new();
                for member in members {
                    found.extend(self.steps(member, values.clone())?);
                }
                found
            }
            Step::Slice { from, to, by, one } => slices(values, *from, *to, *by, *one)?,
            Step::Filter(filter) => {
                let mut found = Vec::new();
                for value in values {
                    let Value::Array(items) = value else {
                        return Err(Error::NotFilterable(go::Plain(value).to_string()));
                    };
                    for item in items {
                        if self.keeps(filter, item)? {
                            found.push(item);
                        }
                    }
                }
                found
            }
        })
    }

    fn keeps(&self, filter: &Filter, item: &Value) -> Result<bool, Error> {
        let left = self.steps(&filter.left, vec![item]);
        let Some((operator, right)) = &filter.compared else {
            // Only a field that is missing is not there; another error counts as a value.
            return Ok(left.map_or_else(|error| !matches!(error, Error::NotFound(_)), |found| !found.is_empty()));
        };
        let one = |found: Vec<&Value>| match found[..] {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            _ => Err(Error::SeveralCompared),
        };
        let Some(left) = one(left?)? else { return Ok(false) };
        let Some(right) = one(self.steps(right, vec![item])?)? else { return Ok(false) };
        let (equal, less) = (equal(&left, &right), || less(&left, &right));
        match operator.as_str() {
            "==" => equal,
            "!=" => equal.map(|equal| !equal),
            "<" => less(),
            "<=" => Ok(less()? || equal?),
            ">" => Ok(!(less()? || equal?)),
            ">=" => less().map(|less| !less),
            other => Err(Error::Operator(other.into())),
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

/// The value and all below it, but for what is empty, and numbers and the like.
fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>) {
    let children = children(value);
    if !children.is_empty() || value.as_str().is_some_and(|text| !text.is_empty()) {
        out.push(value);
        children.into_iter().for_each(|child| descend(child, out));
    }
}

fn slices(
    values: Vec<&Value>,
    from: Option<i64>,
    to: Option<i64>,
    by: Option<i64>,
    one: bool,
) -> Result<Vec<&Value>, Error> {
    let mut found = Vec::new();
    for value in values {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => continue,
            other => return Err(Error::NotAnArray(go::type_name(other))),
        };
        let length = items.len() as i64;
        let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
        let first = place(from.unwrap_or(0));
        let last = if one { first.saturating_add(1) } else { to.map_or(length, place) };
        if first == last {
            // Upstream stops at the first list of which nothing is asked, an empty one above all.
            return Ok(found);
        }
        if !(0..length).contains(&first) {
            return Err(Error::OutOfBounds { index: first, length });
        }
        if !(0..=length).contains(&last) {
            return Err(Error::OutOfBounds { index: last - 1, length });
        }
        if first > last {
            return Err(Error::Backwards { first, last });
        }
        let step = match by {
            Some(step) if step <= 0 => return Err(Error::Step),
            Some(step) => usize::try_from(step).unwrap_or(usize::MAX),
            None => 1,
        };
        found.extend((first..last).step_by(step).map(|at| &items[at as usize]));
    }
    Ok(found)
}

fn equal(left: &Value, right: &Value) -> Result<bool, Error> {
    Ok(order(left, right)? == Some(Ordering::Equal))
}

fn less(left: &Value, right: &Value) -> Result<bool, Error> {
    let order = order(left, right)?;
    if left.is_boolean() {
        return Err(Error::Incomparable);
    }
    Ok(order == Some(Ordering::Less))
}

/// Only values of one type are compared; a whole number and one with a point are not of one type.
fn order(left: &Value, right: &Value) -> Result<Option<Ordering>, Error> {
    let basic = |value: &Value| matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
    if !basic(left) || !basic(right) {
        return Err(Error::Incomparable);
    }
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(right))),
        (Value::String(left), Value::String(right)) => Ok(Some(left.cmp(right))),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            let whole = left.as_i64().zip(right.as_i64()).map(|(left, right)| left.cmp(&right));
            Ok(whole.or_else(|| left.as_f64().partial_cmp(&right.as_f64())))
        }
        _ => Err(Error::Incompatible),
    }
}
