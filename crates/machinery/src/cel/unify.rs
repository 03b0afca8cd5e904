//! Whether one type can stand for another, and what types that are not known yet turn out to be by that.

use std::rc::Rc;

use super::signatures::Wanted;
use super::types::Type;

/// How many types may be compared for one expression: some expressions have types that double with each step.
const STEPS_MAX: usize = 2_000_000;

#[derive(Default)]
pub(super) struct Unifier<'a> {
    /// What each free type has turned out to be.
    found: Vec<Option<Type<'a>>>,
    /// What was known before, to be put back where a guess was wrong.
    undo: Vec<(usize, Option<Type<'a>>)>,
    steps: usize,
}

impl<'a> Unifier<'a> {
    pub fn free(&mut self) -> Type<'a> {
        self.found.push(None);
        Type::Free(self.found.len() - 1)
    }

    /// Whether the expression is too complex to say anything about it.
    pub fn is_exhausted(&self) -> bool {
        self.steps > STEPS_MAX
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        !self.is_exhausted()
    }

    /// A type of a signature, with these types for its letters.
    pub fn instance(&self, wanted: &Wanted, letters: &[(char, Type<'a>)]) -> Type<'a> {
        let inner = |wanted: &Wanted| Rc::new(self.instance(wanted, letters));
        match wanted {
            Wanted::Letter(letter) => {
                letters.iter().find(|(known, _)| known == letter).map_or(Type::Dyn, |(_, found)| found.clone())
            }
            Wanted::List(item) => Type::List(inner(item)),
            Wanted::Map(key, value) => Type::Map(inner(key), inner(value)),
            Wanted::Optional(value) => Type::Optional(inner(value)),
            Wanted::Kind(of) => Type::Kind(inner(of)),
            Wanted::Name(name) => named(name),
        }
    }

    /// Whether each of the first can stand for the one in the same place. If not, nothing has been learned.
    pub fn all_fit(&mut self, given: &[Type<'a>], wanted: &[Type<'a>]) -> bool {
        let mark = self.undo.len();
        let fits =
            given.len() == wanted.len() && given.iter().zip(wanted).all(|(given, wanted)| self.unify(given, wanted));
        if !fits {
            self.back(mark);
        }
        fits
    }

    pub fn fits(&mut self, one: &Type<'a>, other: &Type<'a>) -> bool {
        self.all_fit(std::slice::from_ref(one), std::slice::from_ref(other))
    }

    fn back(&mut self, mark: usize) {
        while self.undo.len() > mark {
            if let Some((number, before)) = self.undo.pop() {
                self.found[number] = before;
            }
        }
    }

    fn learn(&mut self, number: usize, found: Type<'a>) {
        let before = self.found[number].replace(found);
        self.undo.push((number, before));
    }

    fn unify(&mut self, one: &Type<'a>, other: &Type<'a>) -> bool {
        if !self.step() {
            return true;
        }
        if let Type::Free(number) = other {
            match self.replaces(one, *number) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Free(number) = one {
            return self.replaces(other, *number).0;
        }
        match (one, other) {
            (Type::Dyn | Type::Any | Type::Error, _) | (_, Type::Dyn | Type::Any | Type::Error) => true,
            (Type::Null, other) | (other, Type::Null) => can_be_null(other),
            (Type::Kind(_), Type::Kind(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(a, b), Type::Map(c, d)) => self.unify(a, c) && self.unify(b, d),
            (Type::Object(a), Type::Object(b)) => a.name == b.name,
            _ => one.is(other),
        }
    }

    /// Whether the type can be what the free one is, and whether something was known of that one.
    fn replaces(&mut self, one: &Type<'a>, number: usize) -> (bool, bool) {
        if matches!(one, Type::Free(own) if *own == number) {
            return (true, true);
        }
        match self.found[number].clone() {
            Some(found) if one.is(&found) => (true, true),
            Some(found) => {
                if !self.unify(one, &found) {
                    return (false, true);
                }
                let general = most_general(one, &found);
                if !self.occurs(number, &general) {
                    self.learn(number, general);
                }
                (true, true)
            }
            None if self.occurs(number, one) => (false, false),
            None => {
                self.learn(number, one.clone());
                (true, false)
            }
        }
    }

    fn occurs(&mut self, number: usize, within: &Type<'a>) -> bool {
        if !self.step() {
            return false;
        }
        match within {
            Type::Free(other) if *other == number => true,
            Type::Free(other) => match self.found[*other].clone() {
                Some(found) => self.occurs(number, &found),
                None => false,
            },
            Type::List(of) | Type::Optional(of) | Type::Kind(of) => self.occurs(number, of),
            Type::Map(key, value) => self.occurs(number, key) || self.occurs(number, value),
            _ => false,
        }
    }

    /// The type with all that is known by now.
    pub fn resolved(&mut self, of: &Type<'a>) -> Type<'a> {
        self.resolve(of, false)
    }

    /// The same, with `dyn` for what is still not known.
    pub fn settled(&mut self, of: &Type<'a>) -> Type<'a> {
        self.resolve(of, true)
    }

    fn resolve(&mut self, of: &Type<'a>, settle: bool) -> Type<'a> {
        if !self.step() {
            return Type::Dyn;
        }
        let mut inner = |of: &Type<'a>| Rc::new(self.resolve(of, settle));
        match of {
            Type::Free(number) => match self.found[*number].clone() {
                Some(found) => self.resolve(&found, settle),
                None if settle => Type::Dyn,
                None => of.clone(),
            },
            Type::List(item) => Type::List(inner(item)),
            Type::Map(key, value) => Type::Map(inner(key), inner(value)),
            Type::Optional(value) => Type::Optional(inner(value)),
            Type::Kind(of) => Type::Kind(inner(of)),
            other => other.clone(),
        }
    }
}

fn named<'a>(name: &str) -> Type<'a> {
    match name {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        other => Type::named(other),
    }
}

fn can_be_null(other: &Type) -> bool {
    matches!(other, Type::Null | Type::Optional(_) | Type::Object(_) | Type::Duration | Type::Timestamp)
}

/// Of two types that fit each other, the one that says less.
pub(super) fn most_general<'a>(one: &Type<'a>, other: &Type<'a>) -> Type<'a> {
    if says_less(one, other) { one.clone() } else { other.clone() }
}

fn says_less(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Any | Type::Free(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Free(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => says_less(a, b),
        (Type::Map(a, b), Type::Map(c, d)) => says_less(a, c) && says_less(b, d),
        (Type::Kind(_), Type::Kind(_)) => true,
        _ => one.is(other),
    }
}
