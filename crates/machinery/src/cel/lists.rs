//! Functions of lists and sets.

use std::cmp::Ordering;

use super::EvalError;
use super::eval::Evaluator;
use super::value::Val;
use crate::schema::ListKind;

type Outcome<'a> = Result<Val<'a>, EvalError>;

/// Two lists as one. Sets keep each item once; of lists with keys, later items take the place of those with their key.
pub fn joined<'a>(
    cx: &Evaluator,
    left: &Val<'a>,
    first: &[Val<'a>],
    second: &[Val<'a>],
) -> Result<Vec<Val<'a>>, EvalError> {
    let kind = match left {
        Val::Json(_, Some(schema)) => schema.list.as_ref(),
        _ => None,
    };
    let mut all = first.to_vec();
    for item in second {
        if matches!(kind, Some(ListKind::Set | ListKind::Map(_))) {
            cx.work(all.len() as u64)?;
        }
        let same = match kind {
            Some(ListKind::Set) => all.iter().position(|known| known.equals(item)),
            Some(ListKind::Map(keys)) => all.iter().position(|known| {
                keys.iter().all(|key| {
                    let key = Val::text(key.to_string());
                    matches!((known.entry(&key), item.entry(&key)), (Some(known), Some(item)) if known.equals(&item))
                })
            }),
            Some(ListKind::Atomic) | None => None,
        };
        match same {
            Some(place) => all[place] = item.clone(),
            None => all.push(item.clone()),
        }
    }
    Ok(all)
}

/// The values of a list of optionals, without those that are none.
pub fn unwrapped<'a>(list: &Val<'a>) -> Option<Val<'a>> {
    let mut found = Vec::new();
    for item in list.items()?.iter() {
        match item {
            Val::Optional(None) => {}
            Val::Optional(Some(value)) => found.push((**value).clone()),
            _ => return None,
        }
    }
    Some(Val::list(found))
}

pub fn sets<'a>(cx: &Evaluator, name: &str, left: &Val<'a>, right: &Val<'a>) -> Outcome<'a> {
    let (Some(left), Some(right)) = (left.items(), right.items()) else {
        return Err(EvalError::overload(name, &[left, right]));
    };
    cx.affords((left.len() as u64).saturating_mul(right.len() as u64))?;
    let within = |item: &Val<'a>, list: &[Val<'a>]| list.iter().any(|known| known.equals(item));
    Ok(Val::Bool(match name {
        "sets.contains" => right.iter().all(|item| within(item, &left)),
        "sets.intersects" => right.iter().any(|item| within(item, &left)),
        _ => right.iter().all(|item| within(item, &left)) && left.iter().all(|item| within(item, &right)),
    }))
}

fn most<'a>(values: &[Val<'a>], wanted: Ordering) -> Option<Outcome<'a>> {
    let mut best = values.first()?;
    for value in values {
        match value.compare(best) {
            Some(order) if order == wanted => best = value,
            Some(_) => {}
            None => return Some(Err(EvalError::overload("compare", &[value, best]))),
        }
    }
    Some(Ok(best.clone()))
}

pub fn member<'a>(cx: &Evaluator, items: &[Val<'a>], name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let place = |found: Option<usize>| Val::Int(found.map_or(-1, |place| place as i64));
    Some(Ok(match (name, values) {
        ("isSorted", []) => {
            Val::Bool(items.windows(2).all(|pair| pair[0].compare(&pair[1]).is_some_and(Ordering::is_le)))
        }
        ("sum", []) => return Some(sum(cx, items)),
        ("min", []) => {
            return Some(
                most(items, Ordering::Less)
                    .unwrap_or_else(|| Err(EvalError::Failed("min called on empty list".into()))),
            );
        }
        ("max", []) => {
            return Some(
                most(items, Ordering::Greater)
                    .unwrap_or_else(|| Err(EvalError::Failed("max called on empty list".into()))),
            );
        }
        ("indexOf", [wanted]) => place(items.iter().position(|item| item.equals(wanted))),
        ("lastIndexOf", [wanted]) => place(items.iter().rposition(|item| item.equals(wanted))),
        ("join", []) => return Some(join(cx, items, "")),
        ("join", [Val::Text(separator)]) => return Some(join(cx, items, separator)),
        ("reverse", []) => Val::list(items.iter().rev().cloned().collect()),
        ("first", []) => Val::Optional(items.first().cloned().map(std::rc::Rc::new)),
        ("last", []) => Val::Optional(items.last().cloned().map(std::rc::Rc::new)),
        ("slice", [Val::Int(from), Val::Int(to)]) => return Some(slice(items, *from, *to)),
        ("unwrapOpt", []) => return unwrapped(&Val::list(items.to_vec())).map(Ok),
        ("distinct", []) => {
            let mut kept: Vec<Val<'a>> = Vec::new();
            for item in items {
                if let Err(error) = cx.work(kept.len() as u64) {
                    return Some(Err(error));
                }
                if !kept.iter().any(|known| known.equals(item)) {
                    kept.push(item.clone());
                }
            }
            Val::list(kept)
        }
        ("sort", []) => return Some(sorted(items)),
        ("flatten", []) => return Some(flattened(cx, items, 1)),
        ("flatten", [Val::Int(depth)]) => return Some(flattened(cx, items, *depth)),
        _ => return None,
    }))
}

fn slice<'a>(items: &[Val<'a>], from: i64, to: i64) -> Outcome<'a> {
    let failed = |why: String| Err(EvalError::Failed(format!("cannot slice({from}, {to}), {why}")));
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(first), Ok(end)) if first <= end && end <= items.len() => Ok(Val::list(items[first..end].to_vec())),
        (Ok(first), Ok(end)) if first > end => failed("start index must be less than or equal to end index".to_owned()),
        (Ok(_), Ok(_)) => failed(format!("list is length {}", items.len())),
        _ => failed("negative indexes not supported".to_owned()),
    }
}

fn sorted<'a>(items: &[Val<'a>]) -> Outcome<'a> {
    let mut sorted = items.to_vec();
    if sorted.windows(2).any(|pair| pair[0].type_name() != pair[1].type_name()) {
        return Err(EvalError::Failed("list elements must have the same type".into()));
    }
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].compare(&pair[1]).is_none()) {
        return Err(EvalError::overload("sort", &[&pair[0], &pair[1]]));
    }
    sorted.sort_by(|left, right| left.compare(right).unwrap_or(Ordering::Equal));
    Ok(Val::list(sorted))
}

/// Lists within the list take their own place, so many levels of them.
fn flattened<'a>(cx: &Evaluator, items: &[Val<'a>], depth: i64) -> Outcome<'a> {
    if depth < 0 {
        return Err(EvalError::Failed("level must be non-negative".into()));
    }
    let mut flat = items.to_vec();
    for _ in 0..depth {
        cx.work(flat.len() as u64)?;
        if !flat.iter().any(|item| item.items().is_some()) {
            break;
        }
        let mut next = Vec::with_capacity(flat.len());
        for item in flat {
            match item.items() {
                Some(inner) => {
                    cx.work(inner.len() as u64)?;
                    next.extend(inner.into_owned());
                }
                None => next.push(item),
            }
        }
        flat = next;
    }
    Ok(Val::list(flat))
}

fn sum<'a>(cx: &Evaluator, items: &[Val<'a>]) -> Outcome<'a> {
    let mut sum: Option<Val<'a>> = None;
    for item in items {
        sum = Some(match sum {
            None => item.clone(),
            Some(so_far) => super::functions::binary(cx, "+", so_far, item.clone())?,
        });
    }
    Ok(sum.unwrap_or(Val::Int(0)))
}

fn join<'a>(cx: &Evaluator, items: &[Val<'a>], separator: &str) -> Outcome<'a> {
    let mut text = String::new();
    for (index, item) in items.iter().enumerate() {
        let Val::Text(part) = item else { return Err(EvalError::overload("join", &[item])) };
        if index > 0 {
            text.push_str(separator);
        }
        text.push_str(part);
        super::texts::bounded(text.len())?;
    }
    cx.work(text.len() as u64 / 10)?;
    Ok(Val::text(text))
}
