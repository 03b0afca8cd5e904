//! The types of macros. Each is a loop that gathers a result; what is told of them is told of the parts of that loop.

use super::ast::{Macro, Node};
use super::check::Checker;
use super::error::Problem;
use super::types::Type;

impl<'a> Checker<'_, 'a> {
    pub(super) fn run_macro(
        &mut self,
        at: usize,
        kind: Macro,
        target: &Node,
        names: &[Box<str>],
        bodies: &[Node],
    ) -> Type<'a> {
        match kind {
            Macro::OptMap | Macro::OptFlatMap => return self.optional_macro(at, kind, target, names, bodies),
            Macro::SortBy => return self.sort_by(at, target, names, bodies),
            _ => {}
        }
        let range = self.node(target);
        self.looped(at, kind, (target.at, range), names, bodies)
    }

    fn looped(
        &mut self,
        at: usize,
        kind: Macro,
        (range_at, range): (usize, Type<'a>),
        names: &[Box<str>],
        bodies: &[Node],
    ) -> Type<'a> {
        let result = match kind {
            Macro::All | Macro::Exists => Type::Bool,
            Macro::ExistsOne => Type::Int,
            Macro::TransformMap | Macro::TransformMapEntry => {
                let (key, value) = (self.unifier.free(), self.unifier.free());
                Type::Map(key.into(), value.into())
            }
            _ => Type::list(self.unifier.free()),
        };
        let variables = self.variables(range_at, range, names.len());
        let more: Vec<(&str, Type)> = names.iter().map(|name| &**name).zip(variables).collect();
        let answer = self.within(&more, |checker| checker.step(at, kind, &result, &more, bodies));
        if kind == Macro::ExistsOne { Type::Bool } else { answer }
    }

    /// The types of one variable, an item or a key, or of two: index and item, or key and value.
    fn variables(&mut self, at: usize, range: Type<'a>, count: usize) -> Vec<Type<'a>> {
        let range = self.unifier.resolved(&range);
        let both = |key: Type<'a>, value: Type<'a>| vec![key, value];
        match &range {
            Type::List(item) if count == 1 => vec![(**item).clone()],
            Type::List(item) => both(Type::Int, (**item).clone()),
            Type::Map(key, value) => both((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Free(_) => {
                self.unifier.fits(&Type::Dyn, &range);
                both(Type::Dyn, Type::Dyn)
            }
            other => {
                self.tell(at, Problem::Range(other.to_string()));
                both(Type::Error, Type::Error)
            }
        }
    }

    /// What the loop does with one item, joined with the result so far.
    fn step(
        &mut self,
        at: usize,
        kind: Macro,
        result: &Type<'a>,
        variables: &[(&str, Type<'a>)],
        bodies: &[Node],
    ) -> Type<'a> {
        let (condition, body) = match (kind, bodies) {
            (Macro::ExistsOne | Macro::Filter, [condition]) => (Some(condition), None),
            (_, [condition, body]) => (Some(condition), Some(body)),
            (_, [body]) => (None, Some(body)),
            _ => return Type::Error,
        };
        if let (Macro::All | Macro::Exists, Some(body)) = (kind, body) {
            let found = self.node(body);
            if !self.unifier.fits(&found, &Type::Bool) {
                let wanted = Type::Bool.to_string();
                self.tell(body.at, Problem::Mismatch { wanted, found: found.to_string() });
            }
            return Type::Bool;
        }
        let condition = condition.map(|condition| self.node(condition));
        let made = match (kind, body) {
            (Macro::ExistsOne, _) => Type::Int,
            (Macro::Filter, _) => variables.first().map_or(Type::Dyn, |(_, of)| of.clone()),
            (_, Some(body)) => self.node(body),
            (_, None) => Type::Error,
        };
        let next = match kind {
            Macro::ExistsOne => Type::Int,
            Macro::TransformMap => {
                let key = variables.first().map_or(Type::Dyn, |(_, of)| of.clone());
                self.resolve(at, "cel.@mapInsert", false, vec![result.clone(), key, made])
            }
            Macro::TransformMapEntry => self.resolve(at, "cel.@mapInsert", false, vec![result.clone(), made]),
            _ => self.resolve(at, "_+_", false, vec![result.clone(), Type::list(made)]),
        };
        let next = match condition {
            Some(condition) => self.resolve(at, "_?_:_", false, vec![condition, next, result.clone()]),
            None => next,
        };
        if !self.unifier.fits(result, &next) {
            self.tell(at, Problem::Mismatch { wanted: result.to_string(), found: next.to_string() });
        }
        self.unifier.resolved(result)
    }

    /// Whether there is a value, then what is made of it, wrapped again. The target is written once but stands twice in
    /// what upstream makes of this, so what is wrong with it is told twice.
    fn optional_macro(
        &mut self,
        at: usize,
        kind: Macro,
        target: &Node,
        names: &[Box<str>],
        bodies: &[Node],
    ) -> Type<'a> {
        let ([name], [body]) = (names, bodies) else { return Type::Error };
        let before = self.issues.len();
        let of = self.node(target);
        let told = self.issues[before..].to_vec();
        let asked = self.resolve(at, "hasValue", true, vec![of.clone()]);
        self.issues.extend(told);
        let value = self.resolve(at, "value", true, vec![of]);
        let made = self.within(&[(name, value)], |checker| checker.node(body));
        let made = match kind {
            Macro::OptMap => self.resolve(at, "optional.of", false, vec![made]),
            _ => made,
        };
        let none = self.resolve(at, "optional.none", false, Vec::new());
        self.resolve(at, "_?_:_", false, vec![asked, made, none])
    }

    fn sort_by(&mut self, at: usize, target: &Node, names: &[Box<str>], bodies: &[Node]) -> Type<'a> {
        let of = self.node(target);
        let keys = self.looped(at, Macro::Map, (at, of.clone()), names, bodies);
        self.resolve(at, "@sortByAssociatedKeys", true, vec![of, keys])
    }
}
