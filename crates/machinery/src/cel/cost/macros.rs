//! What macros cost: each is a loop with a condition, a step and a result, and these are parts of expressions like others.

use super::amount::{Entries, PER_LETTER, Size, scaled};
use super::kinds::Type;
use super::{CALL, Estimator, Found, In, NEW_LIST, NEW_MAP, Node, REACH, Scope, sum};
use crate::cel::ast::Macro;

/// What going on with an `all` costs at each item: the result so far is looked at, and joined with the next.
const ALL_STEP: u64 = 3;
/// The same for `exists`, which looks at the contrary of the result.
const EXISTS_STEP: u64 = 4;
/// Counting one more, and comparing the count in the end.
const COUNT_STEP: u64 = 2;
const COUNT_RESULT: u64 = 2;
/// Appending a list of one to the result.
const APPEND_STEP: u64 = CALL + REACH + NEW_LIST;
/// Adding an entry to the result, by its key.
const INSERT_STEP: u64 = CALL + REACH + REACH;
/// Comparing each item with each other, as sorting is estimated.
const SORT_FACTOR: f64 = 2.0;

impl<'a> Estimator<'a> {
    pub(super) fn run_macro(
        &self,
        kind: Macro,
        target: Found<'a>,
        names: &[Box<str>],
        bodies: &[Node],
        scope: In<'_, 'a>,
    ) -> Found<'a> {
        match kind {
            Macro::OptMap | Macro::OptFlatMap => return self.optional(kind, &target, names, bodies, scope),
            Macro::SortBy => return self.sort_by(target, names, bodies, scope),
            _ => {}
        }
        let parts: Vec<Found> = bodies.iter().map(|body| self.body(body, &target, names, scope)).collect();
        let body_cost = sum(parts.iter().map(|part| part.cost));
        let count = target.size();
        let looped = |begin: u64, step: u64, result: u64| {
            let rounds = count.max.saturating_mul(step.saturating_add(body_cost));
            sum([target.cost, begin, rounds, result])
        };
        match kind {
            Macro::All => self.computed(Found::new(looped(0, ALL_STEP, REACH), Type::Bool)).sized(Size::fixed(1)),
            Macro::Exists => self.computed(Found::new(looped(0, EXISTS_STEP, REACH), Type::Bool)).sized(Size::fixed(1)),
            Macro::ExistsOne => Found::new(looped(0, COUNT_STEP, COUNT_RESULT), Type::Bool).sized(Size::fixed(1)),
            Macro::Filter => {
                let item = target.each();
                // The item itself is what is appended.
                let cost = looped(NEW_LIST, APPEND_STEP + REACH, REACH);
                made(cost, count, self.name_of(&item), Type::List(item.kind.into()))
            }
            Macro::TransformMapEntry => {
                let entry = parts.last().map_or(Type::Dyn, |part| part.kind.clone());
                Found::new(looped(NEW_MAP, CALL + REACH, REACH), entry).sized(count)
            }
            Macro::TransformMap => {
                let value = parts.last().cloned().unwrap_or_else(|| Found::new(0, Type::Dyn));
                let kind = Type::Map(target.kind.key().into(), value.kind.into());
                Found::new(looped(NEW_MAP, INSERT_STEP, REACH), kind).sized(count)
            }
            _ => {
                let item = parts.last().cloned().unwrap_or_else(|| Found::new(0, Type::Dyn));
                let cost = looped(NEW_LIST, APPEND_STEP, REACH);
                made(cost, count, item.size(), Type::List(item.kind.into()))
            }
        }
    }

    /// The size of a variable where it is named.
    fn name_of(&self, variable: &Found<'a>) -> Size {
        let declared = self.declared_size(&variable.path).or(super::scalar(&variable.kind));
        declared.or(variable.size).unwrap_or(Size::UNKNOWN)
    }

    fn body(&self, body: &Node, target: &Found<'a>, names: &[Box<str>], scope: In<'_, 'a>) -> Found<'a> {
        match names {
            [one] => self.walk(body, Some(&Scope { name: one, value: target.each(), outer: scope })),
            [first, second, ..] => {
                let outer = Scope { name: first, value: target.each_key(), outer: scope };
                self.walk(body, Some(&Scope { name: second, value: target.each_value(), outer: Some(&outer) }))
            }
            [] => self.walk(body, scope),
        }
    }

    /// `cel.bind`, which is an empty loop.
    pub(super) fn bind(&self, value: Found<'a>, name: &str, body: &Node, scope: In<'_, 'a>) -> Found<'a> {
        let cost = value.cost;
        let body = self.walk(body, Some(&Scope { name, value, outer: scope }));
        Found { cost: sum([NEW_LIST, cost, body.cost]), path: Vec::new(), literal: None, ..body }
    }

    /// Asks whether there is a value, binds it to the name, and wraps what the body makes of it.
    fn optional(
        &self,
        kind: Macro,
        target: &Found<'a>,
        names: &[Box<str>],
        bodies: &[Node],
        scope: In<'_, 'a>,
    ) -> Found<'a> {
        let ([name, ..], [body, ..]) = (names, bodies) else { return Found::new(target.cost, Type::Dyn) };
        let asked = target.cost.saturating_add(CALL);
        let value = self.computed(Found::new(asked, target.kind.inner()));
        let bound = self.bind(value, name, body, scope);
        let (wrap, kind) = match kind {
            Macro::OptMap => (CALL, Type::Optional(bound.kind.into())),
            _ => (0, bound.kind),
        };
        self.computed(Found::new(sum([asked, wrap, bound.cost]), kind))
    }

    /// The keys of all items, and then all of them compared with each other.
    fn sort_by(&self, target: Found<'a>, names: &[Box<str>], bodies: &[Node], scope: In<'_, 'a>) -> Found<'a> {
        let input = Found { cost: REACH, ..target.clone() };
        let keys = self.run_macro(Macro::Map, input, names, bodies, scope);
        let squared = keys.size().times(keys.size());
        let cost = sum([NEW_LIST, target.cost, REACH, keys.cost, sorting(squared, &keys.kind.entry())]);
        Found::new(cost, target.kind).sized(squared)
    }
}

/// The cost of sorting so many pairs of items.
pub(super) fn sorting(squared: Size, item: &Type) -> u64 {
    let per_letter = if matches!(item, Type::Text | Type::Bytes) { PER_LETTER } else { 0.0 };
    sum([scaled(squared.max, SORT_FACTOR + per_letter), CALL, NEW_LIST])
}

fn made<'a>(cost: u64, count: Size, item: Size, kind: Type<'a>) -> Found<'a> {
    let value = Size::fixed(0).union(item);
    let entries = Some(Entries { is_list: true, key: Size::fixed(1), value });
    Found { entries, ..Found::new(cost, kind).sized(count) }
}
