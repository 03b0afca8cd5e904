//! Evaluation. `&&` and `||` forgive an error on one side where the other side decides; everything else passes it on.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;

use super::authorizer;
use super::functions;
use super::parser::{Macro, Node, Operator};
use super::value::Val;
use super::{DEPTH_MAX, EvalError, texts};

type Outcome<'a> = Result<Val<'a>, EvalError>;

/// The variables in reach, innermost first; a chain on the stack.
pub(super) struct Scope<'s, 'a> {
    pub name: &'s str,
    pub value: Val<'a>,
    pub outer: Option<&'s Scope<'s, 'a>>,
}

pub(super) struct Evaluator<'b> {
    pub budget: &'b Cell<u64>,
    pub depth: Cell<usize>,
}

impl Evaluator<'_> {
    /// Pays for work that grows with the values.
    pub fn pay(&self, cost: u64) -> Result<(), EvalError> {
        match self.budget.get().checked_sub(cost) {
            Some(left) => {
                self.budget.set(left);
                Ok(())
            }
            None => {
                self.budget.set(0);
                Err(EvalError::Budget)
            }
        }
    }

    pub fn eval<'s, 'a>(&self, node: &'s Node, scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        self.pay(1)?;
        let depth = self.depth.get() + 1;
        if depth > DEPTH_MAX * 2 {
            return Err(EvalError::Failed("expression is nested too deeply".into()));
        }
        self.depth.set(depth);
        let outcome = self.step(node, scope);
        self.depth.set(depth - 1);
        outcome
    }

    fn step<'s, 'a>(&self, node: &'s Node, scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        let eval = |node: &'s Node| self.eval(node, scope);
        match node {
            Node::Null => Ok(Val::Null),
            Node::Bool(value) => Ok(Val::Bool(*value)),
            Node::Int(value) => Ok(Val::Int(*value)),
            Node::Uint(value) => Ok(Val::Uint(*value)),
            Node::Double(value) => Ok(Val::Double(*value)),
            Node::Text(text) => Ok(Val::text(text.to_string())),
            Node::Bytes(bytes) => Ok(Val::Bytes(Rc::from(&**bytes))),
            Node::Name(name) => self.name(name, scope),
            Node::Select(of, field) => select(eval(of)?, field),
            Node::SelectOptional(of, field) => optional_entry(eval(of)?, &Val::text(unescaped(field))),
            Node::Has(of, field) => has(eval(of)?, field),
            Node::Index(of, index) => index_of(eval(of)?, &eval(index)?),
            Node::IndexOptional(of, index) => optional_entry(eval(of)?, &eval(index)?),
            Node::Not(of) => match eval(of)? {
                Val::Bool(value) => Ok(Val::Bool(!value)),
                other => Err(EvalError::overload("!_", &[&other])),
            },
            Node::Minus(of) => match eval(of)? {
                Val::Int(value) => value.checked_neg().map(Val::Int).ok_or_else(EvalError::overflow),
                Val::Double(value) => Ok(Val::Double(-value)),
                Val::Duration(value) => value.checked_neg().map(Val::Duration).ok_or_else(EvalError::overflow),
                other => Err(EvalError::overload("-_", &[&other])),
            },
            Node::And(left, right) => self.logic(left, right, scope, false),
            Node::Or(left, right) => self.logic(left, right, scope, true),
            Node::Choice(condition, yes, no) => match eval(condition)? {
                Val::Bool(true) => eval(yes),
                Val::Bool(false) => eval(no),
                other => Err(EvalError::overload("_?_:_", &[&other])),
            },
            Node::Binary(Operator { sign: operator, .. }, left, right) => {
                let (left, right) = (eval(left)?, eval(right)?);
                self.pay(weight(&left).min(weight(&right)))?;
                functions::binary(self, operator, left, right)
            }
            Node::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (item, optional) in items {
                    match (eval(item)?, optional) {
                        (Val::Optional(None), true) => {}
                        (Val::Optional(Some(value)), true) => list.push((*value).clone()),
                        (value, _) => list.push(value),
                    }
                }
                Ok(Val::list(list))
            }
            Node::Map(entries) => {
                let mut map = Vec::with_capacity(entries.len());
                for (key, value, optional) in entries {
                    let key = eval(key)?;
                    match (eval(value)?, optional) {
                        (Val::Optional(None), true) => {}
                        (Val::Optional(Some(value)), true) => map.push((key, (*value).clone())),
                        (value, _) => map.push((key, value)),
                    }
                }
                Ok(Val::Map(Rc::new(map)))
            }
            Node::Struct(name, fields) => self.named(name, fields, scope),
            Node::Call(target, name, arguments) => self.call(target.as_deref(), name, arguments, scope),
            Node::Macro(kind, target, names, bodies) => self.run_macro(*kind, eval(target)?, names, bodies, scope),
            Node::Bind(name, value, body) => {
                let value = eval(value)?;
                self.eval(body, Some(&Scope { name, value, outer: scope }))
            }
        }
    }

    fn named<'s, 'a>(
        &self,
        name: &str,
        fields: &'s [(Box<str>, Node, bool)],
        scope: Option<&'s Scope<'s, 'a>>,
    ) -> Outcome<'a> {
        let mut made = Vec::with_capacity(fields.len());
        for (field, value, optional) in fields {
            let key = Val::text(unescaped(field));
            match (self.eval(value, scope)?, optional) {
                (Val::Optional(None), true) => {}
                (Val::Optional(Some(value)), true) => made.push((key, (*value).clone())),
                (value, _) => made.push((key, value)),
            }
        }
        Ok(Val::Object(Rc::new((name.into(), made))))
    }

    fn name<'a>(&self, name: &str, scope: Option<&Scope<'_, 'a>>) -> Outcome<'a> {
        let mut at = scope;
        while let Some(found) = at {
            if found.name == name {
                return Ok(found.value.clone());
            }
            at = found.outer;
        }
        const TYPES: &[&str] =
            &["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];
        match TYPES.iter().find(|known| **known == name) {
            Some(known) => Ok(Val::Type(known)),
            None => Err(EvalError::Failed(format!("undeclared reference to '{name}' (in container '')"))),
        }
    }

    fn logic<'s, 'a>(
        &self,
        left: &'s Node,
        right: &'s Node,
        scope: Option<&'s Scope<'s, 'a>>,
        decides: bool,
    ) -> Outcome<'a> {
        let first = self.eval(left, scope);
        if matches!(first, Ok(Val::Bool(value)) if value == decides) || matches!(first, Err(EvalError::Budget)) {
            return first;
        }
        let second = self.eval(right, scope);
        match (first, second) {
            (_, Ok(Val::Bool(value))) if value == decides => Ok(Val::Bool(decides)),
            (_, Err(EvalError::Budget)) => Err(EvalError::Budget),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decides)),
            (Ok(left), Ok(right)) => Err(EvalError::overload(if decides { "_||_" } else { "_&&_" }, &[&left, &right])),
        }
    }

    fn call<'s, 'a>(
        &self,
        target: Option<&'s Node>,
        name: &str,
        arguments: &'s [Node],
        scope: Option<&'s Scope<'s, 'a>>,
    ) -> Outcome<'a> {
        // `optional.of`, `sets.contains`: the name before the dot is no variable but part of the function's name.
        if let Some(Node::Name(namespace)) = target
            && functions::is_namespace(namespace)
            && self.name(namespace, scope).is_err()
        {
            let values = self.all(arguments, scope)?;
            return functions::global(self, &format!("{namespace}.{name}"), values);
        }
        let Some(target) = target else {
            let values = self.all(arguments, scope)?;
            return functions::global(self, name, values);
        };
        let target = self.eval(target, scope)?;
        // The other way is not looked at where there is no need for it.
        if let (Val::Optional(value), [other]) = (&target, arguments) {
            match (name, value) {
                ("or", Some(_)) => return Ok(target),
                ("or", None) => return self.eval(other, scope),
                ("orValue", Some(value)) => return Ok((**value).clone()),
                ("orValue", None) => return self.eval(other, scope),
                _ => {}
            }
        }
        let values = self.all(arguments, scope)?;
        self.pay(weight(&target))?;
        functions::member(self, target, name, values)
    }

    fn all<'s, 'a>(&self, nodes: &'s [Node], scope: Option<&'s Scope<'s, 'a>>) -> Result<Vec<Val<'a>>, EvalError> {
        nodes.iter().map(|node| self.eval(node, scope)).collect()
    }

    fn run_macro<'s, 'a>(
        &self,
        kind: Macro,
        target: Val<'a>,
        names: &'s [Box<str>],
        bodies: &'s [Node],
        scope: Option<&'s Scope<'s, 'a>>,
    ) -> Outcome<'a> {
        if let (Macro::OptMap | Macro::OptFlatMap, Val::Optional(value)) = (kind, &target) {
            let Some(value) = value else { return Ok(Val::Optional(None)) };
            let inner = Scope { name: &names[0], value: (**value).clone(), outer: scope };
            let made = self.eval(&bodies[0], Some(&inner))?;
            return Ok(if kind == Macro::OptMap { Val::some(made) } else { made });
        }
        // One variable is the item of a list or the key of a map; two are index and item, or key and value.
        let Some(pairs) = target.pairs() else { return Err(EvalError::overload("comprehension", &[&target])) };
        let of_map = target.is_map();
        let run = |body: &'s Node, pair: &(Val<'a>, Val<'a>)| match names {
            [one] => {
                let value = if of_map { pair.0.clone() } else { pair.1.clone() };
                self.eval(body, Some(&Scope { name: one, value, outer: scope }))
            }
            _ => {
                let outer = Scope { name: &names[0], value: pair.0.clone(), outer: scope };
                self.eval(body, Some(&Scope { name: &names[1], value: pair.1.clone(), outer: Some(&outer) }))
            }
        };
        match kind {
            Macro::All | Macro::Exists => {
                let decides = kind == Macro::Exists;
                let mut failed = None;
                for pair in pairs {
                    match run(&bodies[0], &pair) {
                        Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
                        Ok(Val::Bool(_)) => {}
                        Ok(other) => failed = Some(EvalError::overload("_&&_", &[&other])),
                        Err(EvalError::Budget) => return Err(EvalError::Budget),
                        Err(error) => failed = failed.or(Some(error)),
                    }
                }
                failed.map_or(Ok(Val::Bool(!decides)), Err)
            }
            Macro::ExistsOne => {
                let mut count = 0;
                for pair in pairs {
                    count += usize::from(truth(run(&bodies[0], &pair)?)?);
                }
                Ok(Val::Bool(count == 1))
            }
            Macro::Filter if of_map => {
                let mut kept = Vec::new();
                for pair in pairs {
                    if truth(run(&bodies[0], &pair)?)? {
                        kept.push(pair.0);
                    }
                }
                Ok(Val::list(kept))
            }
            Macro::Filter => {
                let mut kept = Vec::new();
                for pair in pairs {
                    if truth(run(&bodies[0], &pair)?)? {
                        kept.push(pair.1);
                    }
                }
                Ok(Val::list(kept))
            }
            Macro::Map | Macro::TransformList | Macro::TransformMap | Macro::TransformMapEntry => {
                let (condition, body) = match bodies {
                    [condition, body] => (Some(condition), body),
                    [body, ..] => (None, body),
                    [] => return Err(EvalError::Failed("a macro without a body".into())),
                };
                let (mut list, mut map) = (Vec::new(), Vec::new());
                for pair in pairs {
                    if let Some(condition) = condition
                        && !truth(run(condition, &pair)?)?
                    {
                        continue;
                    }
                    let made = run(body, &pair)?;
                    match kind {
                        Macro::TransformMap => map.push((pair.0, made)),
                        Macro::TransformMapEntry => self.insert_all(&mut map, &made)?,
                        _ => list.push(made),
                    }
                }
                let is_map = matches!(kind, Macro::TransformMap | Macro::TransformMapEntry);
                Ok(if is_map { Val::Map(Rc::new(map)) } else { Val::list(list) })
            }
            Macro::SortBy => {
                let mut keyed = Vec::new();
                for pair in pairs {
                    keyed.push((run(&bodies[0], &pair)?, pair.1));
                }
                keyed.sort_by(|left, right| left.0.compare(&right.0).unwrap_or(std::cmp::Ordering::Equal));
                Ok(Val::list(keyed.into_iter().map(|(_, item)| item).collect()))
            }
            Macro::OptMap | Macro::OptFlatMap => Err(EvalError::overload("optMap", &[&target])),
        }
    }
}

impl Evaluator<'_> {
    /// Adds the entries of a map to those so far, none of which may have the same key.
    fn insert_all<'a>(&self, map: &mut Vec<(Val<'a>, Val<'a>)>, made: &Val<'a>) -> Result<(), EvalError> {
        let entries = made.pairs().filter(|_| made.is_map());
        let Some(entries) = entries else { return Err(EvalError::overload("cel.@mapInsert", &[made])) };
        for (key, value) in entries {
            self.pay(map.len() as u64)?;
            if map.iter().any(|(known, _)| known.equals(&key)) {
                return Err(EvalError::Failed(format!("insert failed: key {} already exists", texts::shown(&key))));
            }
            map.push((key, value));
        }
        Ok(())
    }
}

fn truth(value: Val) -> Result<bool, EvalError> {
    match value {
        Val::Bool(value) => Ok(value),
        other => Err(EvalError::overload("_?_:_", &[&other])),
    }
}

/// What looking at a value costs beside the step itself.
fn weight(value: &Val) -> u64 {
    match value {
        Val::Text(text) => text.len() as u64 / 10,
        other => other.size().unwrap_or(0) as u64,
    }
}

fn select<'a>(of: Val<'a>, field: &str) -> Outcome<'a> {
    let key = Val::text(unescaped(field));
    match of {
        Val::Optional(None) => Ok(Val::Optional(None)),
        Val::Optional(Some(value)) => optional_entry((*value).clone(), &key),
        of if of.is_map() => match of.entry(&key) {
            Some(Val::Failed(error)) => Err((*error).clone()),
            found => found.ok_or_else(|| EvalError::no_key(&key)),
        },
        Val::Asking(asking) if field == "requestResource" => {
            authorizer::request_resource(&asking).ok_or_else(|| EvalError::no_key(&key))
        }
        of => Err(EvalError::overload("field selection", &[&of])),
    }
}

fn has<'a>(of: Val<'a>, field: &str) -> Outcome<'a> {
    let key = Val::text(unescaped(field));
    match of {
        Val::Optional(value) => Ok(Val::Bool(value.is_some_and(|value| value.entry(&key).is_some()))),
        of if of.is_map() => Ok(Val::Bool(of.entry(&key).is_some())),
        of => Err(EvalError::overload("has", &[&of])),
    }
}

fn index_of<'a>(of: Val<'a>, index: &Val<'a>) -> Outcome<'a> {
    if let Val::Optional(inner) = of {
        return match inner {
            None => Ok(Val::Optional(None)),
            Some(inner) => optional_entry((*inner).clone(), index),
        };
    }
    if of.is_map() {
        return of.entry(index).ok_or_else(|| EvalError::no_key(index));
    }
    let place = match index {
        Val::Int(place) => *place,
        Val::Uint(place) => i64::try_from(*place).unwrap_or(i64::MAX),
        Val::Double(place) if place.fract() == 0.0 => *place as i64,
        other => return Err(EvalError::overload("_[_]", &[&of, other])),
    };
    let at = usize::try_from(place).ok();
    let found = match &of {
        Val::List(items) => at.and_then(|at| items.get(at).cloned()),
        // Only the one item is read, however long the list is.
        Val::Json(Value::Array(items), schema) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            at.and_then(|at| items.get(at)).map(|item| Val::json(item, schema))
        }
        _ => return Err(EvalError::overload("_[_]", &[&of, index])),
    };
    found.ok_or_else(|| EvalError::Failed(format!("index out of bounds: {place}")))
}

fn optional_entry<'a>(of: Val<'a>, key: &Val<'a>) -> Outcome<'a> {
    let of = match of {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => (*inner).clone(),
        of => of,
    };
    let found = if of.is_map() { of.entry(key) } else { index_of(of, key).ok() };
    Ok(Val::Optional(found.map(Rc::new)))
}

/// Fields whose names are no names of the language are written with escapes, as Kubernetes defines them.
pub(super) fn unescaped(field: &str) -> String {
    const WORDS: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
    ];
    if !field.contains("__") {
        return field.to_string();
    }
    if let Some(word) = field.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && WORDS.contains(&word)
    {
        return word.to_string();
    }
    let mut name = String::with_capacity(field.len());
    let mut rest = field;
    const ESCAPES: &[(&str, &str)] =
        &[("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];
    while let Some(first) = rest.chars().next() {
        match ESCAPES.iter().find(|(escape, _)| rest.starts_with(escape)) {
            Some((escape, sign)) => {
                name.push_str(sign);
                rest = &rest[escape.len()..];
            }
            None => {
                name.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    name
}
