//! Checks the types of an expression before it runs, by upstream's rules: what is not declared, and what does not fit, is
//! told with its place, and everything else has a type.

use std::collections::HashMap;
use std::rc::Rc;

use super::ast::{Expr, Field, Node};
use super::env::Env;
use super::error::{Issue, Problem};
use super::signatures::{Overload, overloads};
use super::types::{Fields, Type};
use super::unify::{Unifier, most_general};

pub(super) struct Checker<'e, 'a> {
    env: &'e Env<'a>,
    /// Variables of macros, innermost last.
    locals: Vec<(Box<str>, Type<'a>)>,
    pub(super) unifier: Unifier<'a>,
    pub(super) issues: Vec<Issue>,
    /// Lists, keys and values that are written out, each part with its place, to be compared in the end.
    pub(super) written: Vec<Vec<(usize, Type<'a>)>>,
    /// Texts with arguments for `format`, to be looked at in the end.
    pub(super) formats: Vec<super::literals::Format<'a>>,
    /// How many calls of `format` this is within: their lists may hold anything.
    within_format: usize,
    /// The types of what is formatted, by node.
    pub(super) formatted: HashMap<*const Node, Type<'a>>,
}

/// The type of an expression, or everything that is wrong with it.
pub(super) fn check<'a>(root: &Node, env: &Env<'a>) -> Result<Type<'a>, Vec<Issue>> {
    let mut checker = Checker {
        env,
        locals: Vec::new(),
        unifier: Unifier::default(),
        issues: Vec::new(),
        written: Vec::new(),
        formats: Vec::new(),
        within_format: 0,
        formatted: HashMap::new(),
    };
    let found = checker.node(root);
    let answer = checker.unifier.settled(&found);
    if checker.issues.is_empty() {
        checker.literals(root);
    }
    if checker.unifier.is_exhausted() {
        checker.issues = vec![Issue::new(root.at, Problem::Complexity)];
    }
    if checker.issues.is_empty() { Ok(answer) } else { Err(checker.issues) }
}

/// What is told of an operator that upstream calls by another name.
fn operator_name(sign: &str) -> String {
    match sign {
        "in" => "@in".to_owned(),
        sign => format!("_{sign}_"),
    }
}

impl<'a> Checker<'_, 'a> {
    pub(super) fn tell(&mut self, at: usize, problem: Problem) {
        self.issues.push(Issue::new(at, problem));
    }

    pub(super) fn node(&mut self, node: &Node) -> Type<'a> {
        let found = self.found(node);
        if self.within_format > 0 {
            self.formatted.insert(node, found.clone());
        }
        found
    }

    fn found(&mut self, node: &Node) -> Type<'a> {
        let at = node.at;
        match &node.expr {
            Expr::Null => Type::Null,
            Expr::Bool(_) => Type::Bool,
            Expr::Int(_) => Type::Int,
            Expr::Uint(_) => Type::Uint,
            Expr::Double(_) => Type::Double,
            Expr::Text(_) => Type::Text,
            Expr::Bytes(_) => Type::Bytes,
            Expr::Name(name) => self.name(at, name),
            Expr::Select(of, field) => match node.qualified().and_then(|name| self.find(&name)) {
                Some(found) => found,
                None => self.select(at, of, field, false),
            },
            Expr::SelectOptional(of, field) => self.select(at, of, field, true),
            Expr::Has(of, field) => {
                self.select(at, of, field, false);
                Type::Bool
            }
            Expr::Index(of, index) => self.operator(at, "_[_]", &[of, index]),
            Expr::IndexOptional(of, index) => self.operator(at, "_[?_]", &[of, index]),
            Expr::Not(of) => self.operator(at, "!_", &[of]),
            Expr::Minus(of) => self.operator(at, "-_", &[of]),
            Expr::And(left, right) | Expr::Or(left, right) => self.logic(left, right),
            Expr::Choice(condition, yes, no) => self.operator(at, "_?_:_", &[condition, yes, no]),
            Expr::Binary(sign, left, right) => self.operator(at, &operator_name(sign), &[left, right]),
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(entries),
            Expr::Struct(name, fields) => self.named(at, name, fields),
            Expr::Call(target, name, arguments) => self.call(at, target.as_deref(), name, arguments),
            Expr::Macro(kind, target, names, bodies) => self.run_macro(at, *kind, target, names, bodies),
            Expr::Bind(bound, value, body) if self.env.has_bindings => {
                let value = self.node(value);
                self.within(&[(&bound.name, value)], |checker| checker.node(body))
            }
            Expr::Bind(bound, value, body) => {
                self.name(bound.at, &bound.name);
                self.node(value);
                self.node(body);
                self.name(bound.cel_at, "cel");
                self.tell(at, Problem::Reference("bind".to_owned()));
                Type::Error
            }
        }
    }

    /// Checks something with more variables than there are around it.
    pub(super) fn within<T>(&mut self, more: &[(&str, Type<'a>)], check: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.locals.len();
        self.locals.extend(more.iter().map(|(name, of)| ((*name).into(), of.clone())));
        let outcome = check(self);
        self.locals.truncate(before);
        outcome
    }

    fn find(&self, name: &str) -> Option<Type<'a>> {
        let local = self.locals.iter().rev().find(|(known, _)| &**known == name).map(|(_, found)| found);
        local.or_else(|| self.env.find(name)).cloned().or_else(|| self.type_named(name))
    }

    /// The names of types are values, too.
    fn type_named(&self, name: &str) -> Option<Type<'a>> {
        let dynamic = || Rc::new(Type::Dyn);
        Some(Type::Kind(Rc::new(match name {
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::Text,
            "bytes" => Type::Bytes,
            "null_type" => Type::Null,
            "list" => Type::List(dynamic()),
            "map" => Type::Map(dynamic(), dynamic()),
            "type" => Type::Kind(dynamic()),
            "optional_type" => Type::Optional(dynamic()),
            "google.protobuf.Duration" => Type::Duration,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "net.IP" | "net.CIDR" => Type::named(name),
            _ if self.env.has_patches => self.patch_named(name)?,
            _ => return None,
        })))
    }

    fn patch_named(&self, name: &str) -> Option<Type<'a>> {
        match name {
            "JSONPatch" => {
                let fields = vec![("op", Type::Text), ("path", Type::Text), ("from", Type::Text), ("value", Type::Dyn)];
                Some(Type::object(name, fields))
            }
            _ if name == "Object" || name.starts_with("Object.") => Some(Type::open(name)),
            _ => None,
        }
    }

    fn name(&mut self, at: usize, name: &str) -> Type<'a> {
        self.find(name).unwrap_or_else(|| {
            self.tell(at, Problem::Reference(name.to_owned()));
            Type::Error
        })
    }

    fn select(&mut self, at: usize, of: &Node, field: &str, optional: bool) -> Type<'a> {
        let of = self.node(of);
        let of = self.unifier.resolved(&of);
        let (target, is_optional) = match &of {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let found = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) if !matches!(object.fields, Fields::None) => {
                object.field(field).unwrap_or_else(|| {
                    self.tell(at, Problem::Field(field.to_owned()));
                    Type::Error
                })
            }
            Type::Object(object) if !object.name.starts_with("net.") => {
                self.tell(at, Problem::Resolution(object.name.to_string()));
                Type::Error
            }
            Type::Free(_) => {
                self.unifier.fits(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                self.tell(at, Problem::NoFields(other.to_string()));
                Type::Dyn
            }
        };
        let found = if is_optional || optional { Type::optional(found) } else { found };
        self.unifier.resolved(&found)
    }

    fn operator(&mut self, at: usize, name: &str, operands: &[&Node]) -> Type<'a> {
        let given: Vec<Type> = operands.iter().map(|operand| self.node(operand)).collect();
        self.resolve(at, name, false, given)
    }

    /// `&&` and `||` tell which side is no bool.
    fn logic(&mut self, left: &Node, right: &Node) -> Type<'a> {
        let sides = [(left.at, self.node(left)), (right.at, self.node(right))];
        let mut answer = Type::Bool;
        for (at, side) in sides {
            if !self.unifier.fits(&side, &Type::Bool) {
                self.tell(at, Problem::Mismatch { wanted: Type::Bool.to_string(), found: side.to_string() });
                answer = Type::Error;
            }
        }
        answer
    }

    fn call(&mut self, at: usize, target: Option<&Node>, name: &str, arguments: &[Node]) -> Type<'a> {
        let is_format = name == "format" && target.is_some();
        self.within_format += usize::from(is_format);
        let mut given: Vec<Type> = arguments.iter().map(|argument| self.node(argument)).collect();
        let answer = match target {
            None if self.is_function(name) => self.resolve(at, name, false, given),
            None => self.undeclared(at, name),
            Some(target) => {
                let full = target.qualified().map(|prefix| format!("{prefix}.{name}"));
                match full.filter(|full| self.is_function(full)) {
                    Some(full) => self.resolve(at, &full, false, given),
                    None => {
                        given.insert(0, self.node(target));
                        if self.is_function(name) {
                            self.resolve(at, name, true, given)
                        } else {
                            self.undeclared(at, name)
                        }
                    }
                }
            }
        };
        self.within_format -= usize::from(is_format);
        if let (true, Some(Node { expr: Expr::Text(text), .. }), [list]) = (is_format, target, arguments) {
            self.note_format(at, text, list);
        }
        answer
    }

    fn is_function(&self, name: &str) -> bool {
        overloads(name).is_some() || (self.env.has_patches && name == "jsonpatch.escapeKey")
    }

    fn undeclared(&mut self, at: usize, name: &str) -> Type<'a> {
        self.tell(at, Problem::Reference(name.to_owned()));
        Type::Error
    }

    /// The type that a function answers with; where no way to call it fits, that is told.
    pub(super) fn resolve(&mut self, at: usize, name: &str, is_member: bool, given: Vec<Type<'a>>) -> Type<'a> {
        if name == "jsonpatch.escapeKey" {
            return if self.unifier.all_fit(&given, &[Type::Text]) {
                Type::Text
            } else {
                self.no_overload(at, name, false, &given)
            };
        }
        let mut answer: Option<Type<'a>> = None;
        for overload in overloads(name).unwrap_or_default() {
            if overload.is_member != is_member {
                continue;
            }
            let Some(result) = self.applied(overload, &given) else { continue };
            answer = Some(match answer {
                None => result,
                Some(known) if known.is_dyn() || known.is(&result) => known,
                Some(_) => Type::Dyn,
            });
        }
        answer.unwrap_or_else(|| self.no_overload(at, name, is_member, &given))
    }

    fn applied(&mut self, overload: &Overload, given: &[Type<'a>]) -> Option<Type<'a>> {
        let letters: Vec<(char, Type)> = overload.letters.iter().map(|letter| (*letter, self.unifier.free())).collect();
        let wanted: Vec<Type> =
            overload.arguments.iter().map(|wanted| self.unifier.instance(wanted, &letters)).collect();
        if !self.unifier.all_fit(given, &wanted) {
            return None;
        }
        let result = self.unifier.instance(&overload.result, &letters);
        Some(self.unifier.resolved(&result))
    }

    fn no_overload(&mut self, at: usize, name: &str, is_member: bool, given: &[Type<'a>]) -> Type<'a> {
        let shown: Vec<String> = given.iter().map(|one| self.unifier.settled(one).to_string()).collect();
        let (target, rest) = shown.split_at(usize::from(is_member).min(shown.len()));
        let dot = if is_member { "." } else { "" };
        let signature = format!("{}{dot}({})", target.concat(), rest.join(", "));
        self.tell(at, Problem::Overload { function: name.to_owned(), signature });
        Type::Error
    }

    fn list(&mut self, items: &[(Node, bool)]) -> Type<'a> {
        let mut parts = Vec::with_capacity(items.len());
        let mut joined = None;
        for (item, optional) in items {
            let found = self.entry(item, *optional);
            joined = Some(self.join(joined, &found));
            parts.push((item.at, found));
        }
        self.note(parts);
        Type::list(joined.unwrap_or_else(|| self.unifier.free()))
    }

    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Type<'a> {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let (mut key_type, mut value_type) = (None, None);
        for (key, value, optional) in entries {
            let found = self.node(key);
            key_type = Some(self.join(key_type, &found));
            keys.push((key.at, found));
            let found = self.entry(value, *optional);
            value_type = Some(self.join(value_type, &found));
            values.push((value.at, found));
        }
        self.note(keys);
        self.note(values);
        let key = key_type.unwrap_or_else(|| self.unifier.free());
        let value = value_type.unwrap_or_else(|| self.unifier.free());
        Type::Map(key.into(), value.into())
    }

    /// Parts must be of one type, except where they are formatted.
    fn note(&mut self, parts: Vec<(usize, Type<'a>)>) {
        if self.within_format == 0 && parts.len() > 1 {
            self.written.push(parts);
        }
    }

    /// An entry that may be left out must be an optional.
    fn entry(&mut self, node: &Node, optional: bool) -> Type<'a> {
        let found = self.node(node);
        match found {
            Type::Optional(inner) if optional => (*inner).clone(),
            other if optional && !other.is_dyn() => {
                let wanted = Type::optional(other.clone()).to_string();
                self.tell(node.at, Problem::Mismatch { wanted, found: other.to_string() });
                other
            }
            other => other,
        }
    }

    fn join(&mut self, before: Option<Type<'a>>, next: &Type<'a>) -> Type<'a> {
        match before {
            None => next.clone(),
            Some(before) if self.unifier.fits(&before, next) => most_general(&before, next),
            Some(_) => Type::Dyn,
        }
    }

    fn named(&mut self, at: usize, name: &str, fields: &[Field]) -> Type<'a> {
        let made = match self.type_named(name) {
            Some(Type::Kind(made)) => (*made).clone(),
            _ => return self.undeclared(at, name),
        };
        let object = match &made {
            Type::Object(object) if !matches!(object.fields, Fields::None) => object.clone(),
            other => {
                self.tell(at, Problem::NoMessage(other.erased().to_owned()));
                return Type::Error;
            }
        };
        for field in fields {
            let found = self.entry(&field.value, field.optional);
            let wanted = object.field(&field.name).unwrap_or_else(|| {
                self.tell(field.at, Problem::Field(field.name.to_string()));
                Type::Error
            });
            if !self.unifier.fits(&wanted, &found) {
                let (wanted, found) = (wanted.to_string(), found.to_string());
                self.tell(field.at, Problem::FieldMismatch { field: field.name.to_string(), wanted, found });
            }
        }
        made
    }
}
