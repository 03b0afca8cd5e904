//! Macros as they run. Each is a loop with a condition, a step and a result, which cost like other expressions.

use std::rc::Rc;

use super::ast::{Macro, Node};
use super::eval::{Evaluator, Scope};
use super::value::Val;
use super::{EvalError, charges, texts};

type Outcome<'a> = Result<Val<'a>, EvalError>;
type Pair<'a> = (Val<'a>, Val<'a>);

/// Looking at the result so far, before each step of `all`; `exists` looks at its contrary.
const ALL_CONDITION: u64 = 2;
const EXISTS_CONDITION: u64 = 3;
/// Naming the result so far, in a step or at the end.
const RESULT: u64 = 1;
/// Counting one more; and comparing the count in the end.
const COUNT: u64 = 2;
/// Appending a list of one to the result.
const APPEND: u64 = RESULT + charges::NEW_LIST + 1;
/// Adding an entry to the result, beside naming its key.
const INSERT: u64 = RESULT + 1;
const NAME: u64 = 1;

/// The part of a macro that is evaluated for each item.
struct Loop<'s, 'a> {
    names: &'s [Box<str>],
    scope: Option<&'s Scope<'s, 'a>>,
    of_map: bool,
}

impl Evaluator<'_> {
    pub(super) fn run_macro<'s, 'a>(
        &self,
        kind: Macro,
        target: &'s Node,
        names: &'s [Box<str>],
        bodies: &'s [Node],
        scope: Option<&'s Scope<'s, 'a>>,
    ) -> Outcome<'a> {
        let before = self.budget.get();
        let target = self.eval(target, scope)?;
        if matches!(kind, Macro::OptMap | Macro::OptFlatMap) {
            let cost = before.saturating_sub(self.budget.get());
            return self.optional(kind, target, cost, names, bodies, scope);
        }
        let Some(pairs) = target.pairs() else { return Err(EvalError::overload("comprehension", &[&target])) };
        let each = Loop { names, scope, of_map: target.is_map() };
        match (kind, bodies) {
            (Macro::All | Macro::Exists, [body]) => self.decided(kind == Macro::Exists, pairs, body, &each),
            (Macro::ExistsOne, [body]) => {
                let mut count = 0;
                for pair in pairs {
                    if self.holds(body, &pair, &each)? {
                        self.pay(COUNT)?;
                        count += 1;
                    }
                }
                self.pay(COUNT)?;
                Ok(Val::Bool(count == 1))
            }
            (Macro::Filter, [body]) => {
                let mut kept = Vec::new();
                for pair in pairs {
                    if self.holds(body, &pair, &each)? {
                        self.pay(APPEND + NAME)?;
                        kept.push(if each.of_map { pair.0 } else { pair.1 });
                    }
                }
                self.pay(RESULT)?;
                Ok(Val::list(kept))
            }
            (Macro::SortBy, [body]) => self.sort_by(&target, body, &each),
            (_, [condition, body]) => self.made(kind, pairs, Some(condition), body, &each),
            (_, [body]) => self.made(kind, pairs, None, body, &each),
            _ => Err(EvalError::overload("comprehension", &[&target])),
        }
    }

    /// One variable is the item of a list or the key of a map; two are index and item, or key and value.
    fn run<'s, 'a>(&self, body: &'s Node, pair: &Pair<'a>, each: &Loop<'s, 'a>) -> Outcome<'a> {
        match each.names {
            [one] => {
                let value = if each.of_map { pair.0.clone() } else { pair.1.clone() };
                self.eval(body, Some(&Scope { name: one, value, outer: each.scope }))
            }
            [first, second] => {
                let outer = Scope { name: first, value: pair.0.clone(), outer: each.scope };
                self.eval(body, Some(&Scope { name: second, value: pair.1.clone(), outer: Some(&outer) }))
            }
            _ => Err(EvalError::Overload),
        }
    }

    fn holds<'s, 'a>(&self, body: &'s Node, pair: &Pair<'a>, each: &Loop<'s, 'a>) -> Result<bool, EvalError> {
        match self.run(body, pair, each)? {
            Val::Bool(value) => Ok(value),
            other => Err(EvalError::overload("_?_:_", &[&other])),
        }
    }

    fn decided<'s, 'a>(
        &self,
        decides: bool,
        pairs: impl Iterator<Item = Pair<'a>>,
        body: &'s Node,
        each: &Loop<'s, 'a>,
    ) -> Outcome<'a> {
        let condition = if decides { EXISTS_CONDITION } else { ALL_CONDITION };
        let (mut failed, mut is_decided) = (None, false);
        for pair in pairs {
            self.pay(condition)?;
            if is_decided {
                break;
            }
            self.pay(RESULT)?;
            match self.run(body, &pair, each) {
                Ok(Val::Bool(value)) if value == decides => is_decided = true,
                Ok(Val::Bool(_)) => {}
                Ok(other) => failed = Some(EvalError::overload("_&&_", &[&other])),
                Err(EvalError::Budget) => return Err(EvalError::Budget),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.pay(RESULT)?;
        match failed {
            Some(error) if !is_decided => Err(error),
            _ => Ok(Val::Bool(decides == is_decided)),
        }
    }

    fn made<'s, 'a>(
        &self,
        kind: Macro,
        pairs: impl Iterator<Item = Pair<'a>>,
        condition: Option<&'s Node>,
        body: &'s Node,
        each: &Loop<'s, 'a>,
    ) -> Outcome<'a> {
        let (mut list, mut map) = (Vec::new(), Vec::new());
        for pair in pairs {
            if let Some(condition) = condition
                && !self.holds(condition, &pair, each)?
            {
                continue;
            }
            let made = self.run(body, &pair, each)?;
            match kind {
                Macro::TransformMap => {
                    self.pay(INSERT + NAME)?;
                    map.push((pair.0, made));
                }
                Macro::TransformMapEntry => {
                    self.pay(INSERT)?;
                    self.insert_all(&mut map, &made)?;
                }
                _ => {
                    self.pay(APPEND)?;
                    list.push(made);
                }
            }
        }
        self.pay(RESULT)?;
        let is_map = matches!(kind, Macro::TransformMap | Macro::TransformMapEntry);
        Ok(if is_map { Val::Map(Rc::new(map)) } else { Val::list(list) })
    }

    /// The value is asked for, and then asked again for what it holds.
    fn optional<'s, 'a>(
        &self,
        kind: Macro,
        target: Val<'a>,
        cost: u64,
        names: &'s [Box<str>],
        bodies: &'s [Node],
        scope: Option<&'s Scope<'s, 'a>>,
    ) -> Outcome<'a> {
        let (Val::Optional(value), [name], [body]) = (&target, names, bodies) else {
            return Err(EvalError::overload("hasValue", &[&target]));
        };
        self.pay(1)?;
        let Some(value) = value else {
            self.pay(1)?;
            return Ok(Val::Optional(None));
        };
        self.pay(cost.saturating_add(1))?;
        let made = self.eval(body, Some(&Scope { name, value: (**value).clone(), outer: scope }))?;
        match kind {
            Macro::OptMap => {
                self.pay(1)?;
                Ok(Val::some(made))
            }
            _ => Ok(made),
        }
    }

    fn sort_by<'s, 'a>(&self, target: &Val<'a>, body: &'s Node, each: &Loop<'s, 'a>) -> Outcome<'a> {
        let Some(items) = target.items() else { return Err(EvalError::overload("sortBy", &[target])) };
        // The list is named twice: once for its keys, and once to be sorted.
        self.pay(2 * NAME)?;
        let mut keys = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let pair = (Val::Int(index as i64), item.clone());
            keys.push(self.run(body, &pair, each)?);
            self.pay(APPEND)?;
        }
        self.pay(RESULT)?;
        let keys = Val::list(keys);
        self.pay(charges::compared_with_itself(&keys))?;
        let keys = keys.items().unwrap_or_default().into_owned();
        let mut sorted: Vec<Pair> = keys.into_iter().zip(items.iter().cloned()).collect();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0.compare(&pair[1].0).is_none()) {
            return Err(EvalError::overload("sortBy", &[&pair[0].0, &pair[1].0]));
        }
        sorted.sort_by(|left, right| left.0.compare(&right.0).unwrap_or(std::cmp::Ordering::Equal));
        Ok(Val::list(sorted.into_iter().map(|(_, item)| item).collect()))
    }

    /// Adds the entries of a map to those so far, none of which may have the same key.
    fn insert_all<'a>(&self, map: &mut Vec<Pair<'a>>, made: &Val<'a>) -> Result<(), EvalError> {
        let entries = made.pairs().filter(|_| made.is_map());
        let Some(entries) = entries else { return Err(EvalError::overload("cel.@mapInsert", &[made])) };
        for (key, value) in entries {
            self.work(map.len() as u64)?;
            if map.iter().any(|(known, _)| known.equals(&key)) {
                return Err(EvalError::Failed(format!("insert failed: key {} already exists", texts::shown(&key))));
            }
            map.push((key, value));
        }
        Ok(())
    }
}
