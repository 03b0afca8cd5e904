//! Evaluation. `&&` and `||` forgive an error on one side where the other side decides; everything else passes it on.
//! Each step costs what upstream says (`charges.rs`); what costs nothing there is counted here, so that it ends, too.

use std::cell::Cell;
use std::rc::Rc;

use super::ast::{Expr, Field, Node};
use super::functions;
use super::reach::{has, index_of, optional_entry, select, unescaped};
use super::value::Val;
use super::{DEPTH_MAX, EvalError, charges};

type Outcome<'a> = Result<Val<'a>, EvalError>;

/// How many steps an expression may take, whatever they cost.
const STEPS_MAX: u64 = 10_000_000;
/// A variable, a field or an entry.
const REACH: u64 = 1;

/// The variables in reach, innermost first; a chain on the stack.
pub(super) struct Scope<'s, 'a> {
    pub name: &'s str,
    pub value: Val<'a>,
    pub outer: Option<&'s Scope<'s, 'a>>,
}

pub(super) struct Evaluator<'b> {
    pub budget: &'b Cell<u64>,
    pub depth: Cell<usize>,
    pub steps: Cell<u64>,
    /// Within a constant, which costs nothing.
    pub is_free: Cell<bool>,
}

impl Evaluator<'_> {
    pub fn new(budget: &Cell<u64>) -> Evaluator<'_> {
        Evaluator { budget, depth: Cell::new(0), steps: Cell::new(0), is_free: Cell::new(false) }
    }

    /// Takes what something costs from the budget.
    pub fn pay(&self, cost: u64) -> Result<(), EvalError> {
        if self.is_free.get() {
            return Ok(());
        }
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

    fn refund(&self, cost: u64) {
        if !self.is_free.get() {
            self.budget.set(self.budget.get().saturating_add(cost));
        }
    }

    /// Whether something that will cost so much can be paid.
    pub fn affords(&self, cost: u64) -> Result<(), EvalError> {
        if cost > self.budget.get() { Err(EvalError::Budget) } else { Ok(()) }
    }

    /// Counts work that may cost nothing.
    pub fn work(&self, steps: u64) -> Result<(), EvalError> {
        let taken = self.steps.get().saturating_add(steps);
        self.steps.set(taken);
        if taken > STEPS_MAX { Err(EvalError::Budget) } else { Ok(()) }
    }

    pub fn eval<'s, 'a>(&self, node: &'s Node, scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        self.work(1)?;
        let depth = self.depth.get() + 1;
        if depth > DEPTH_MAX * 2 {
            return Err(EvalError::Failed("expression is nested too deeply".into()));
        }
        self.depth.set(depth);
        let was_free = self.is_free.replace(self.is_free.get() || node.is_constant);
        let outcome = self.step(node, scope);
        self.is_free.set(was_free);
        self.depth.set(depth - 1);
        outcome
    }

    fn step<'s, 'a>(&self, node: &'s Node, scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        let eval = |node: &'s Node| self.eval(node, scope);
        match &node.expr {
            Expr::Null => Ok(Val::Null),
            Expr::Bool(value) => Ok(Val::Bool(*value)),
            Expr::Int(value) => Ok(Val::Int(*value)),
            Expr::Uint(value) => Ok(Val::Uint(*value)),
            Expr::Double(value) => Ok(Val::Double(*value)),
            Expr::Text(text) => Ok(Val::text(text.to_string())),
            Expr::Bytes(bytes) => Ok(Val::Bytes(Rc::from(&**bytes))),
            Expr::Name(name) => self.name(name, scope),
            Expr::Select(of, field) => match self.type_named(node, scope) {
                Some(found) => Ok(found),
                None => select(self.operand(of, scope)?, field),
            },
            Expr::SelectOptional(of, field) => {
                let of = self.operand(of, scope)?;
                self.maybe(optional_entry(of, &Val::text(unescaped(field))))
            }
            // Looking whether a field is there is free.
            Expr::Has(of, field) => has(eval(of)?, field),
            Expr::Index(of, index) => {
                let of = self.operand(of, scope)?;
                index_of(of, &self.unseen(index, scope)?)
            }
            Expr::IndexOptional(of, index) => {
                let of = self.operand(of, scope)?;
                self.maybe(optional_entry(of, &self.unseen(index, scope)?))
            }
            Expr::Not(of) => self.not(eval(of)?),
            Expr::Minus(of) => self.minus(eval(of)?),
            Expr::And(left, right) => self.logic(left, right, scope, false),
            Expr::Or(left, right) => self.logic(left, right, scope, true),
            Expr::Choice(condition, yes, no) => match eval(condition)? {
                Val::Bool(true) => self.unseen(yes, scope),
                Val::Bool(false) => self.unseen(no, scope),
                other => Err(EvalError::overload("_?_:_", &[&other])),
            },
            Expr::Binary(sign, left, right) => {
                // Whether something is in a constant list is looked up at once.
                let is_lookup = *sign == "in" && right.is_constant && matches!(right.expr, Expr::List(_));
                match (eval(left), eval(right)) {
                    (Ok(left), Ok(right)) => {
                        self.pay(if is_lookup { 0 } else { charges::binary(sign, &left, &right) })?;
                        functions::binary(self, sign, left, right)
                    }
                    // The operator has been at work, too.
                    (Err(error), _) | (_, Err(error)) => self.pay(1).and(Err(error)),
                }
            }
            Expr::List(items) => self.list(items, scope),
            Expr::Map(entries) => self.map(entries, scope),
            Expr::Struct(name, fields) => self.named(name, fields, scope),
            Expr::Call(target, name, arguments) => self.call(target.as_deref(), name, arguments, scope),
            Expr::Macro(kind, target, names, bodies) => self.run_macro(*kind, target, names, bodies, scope),
            Expr::Bind(bound, value, body) => {
                let value = eval(value)?;
                self.eval(body, Some(&Scope { name: &bound.name, value, outer: scope }))
            }
        }
    }

    /// A value that something is reached from. What is no variable itself costs one more.
    fn operand<'s, 'a>(&self, node: &'s Node, scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        let value = self.eval(node, scope)?;
        self.pay(if node.is_attribute() { REACH } else { REACH + 1 })?;
        Ok(value)
    }

    /// What is not there costs nothing.
    fn maybe<'a>(&self, found: Outcome<'a>) -> Outcome<'a> {
        if matches!(found, Ok(Val::Optional(None))) {
            self.refund(REACH);
        }
        found
    }

    /// A part that another one looks up itself: a variable there costs nothing.
    fn unseen<'s, 'a>(&self, node: &'s Node, scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        let value = self.eval(node, scope)?;
        if node.is_attribute() && !matches!(node.expr, Expr::Choice(..)) {
            self.refund(REACH);
        }
        Ok(value)
    }

    fn not<'a>(&self, value: Val<'a>) -> Outcome<'a> {
        self.pay(1)?;
        match value {
            Val::Bool(value) => Ok(Val::Bool(!value)),
            other => Err(EvalError::overload("!_", &[&other])),
        }
    }

    fn minus<'a>(&self, value: Val<'a>) -> Outcome<'a> {
        self.pay(1)?;
        match value {
            Val::Int(value) => value.checked_neg().map(Val::Int).ok_or_else(EvalError::overflow),
            Val::Double(value) => Ok(Val::Double(-value)),
            Val::Duration(value) => value.checked_neg().map(Val::Duration).ok_or_else(EvalError::overflow),
            other => Err(EvalError::overload("-_", &[&other])),
        }
    }

    fn list<'s, 'a>(&self, items: &'s [(Node, bool)], scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        self.pay(charges::NEW_LIST)?;
        let mut list = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.eval(item, scope)?, optional) {
                (Val::Optional(None), true) => {}
                (Val::Optional(Some(value)), true) => list.push((*value).clone()),
                (value, _) => list.push(value),
            }
        }
        Ok(Val::list(list))
    }

    fn map<'s, 'a>(&self, entries: &'s [(Node, Node, bool)], scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        self.pay(charges::NEW_MAP)?;
        let mut map = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.eval(key, scope)?;
            match (self.eval(value, scope)?, optional) {
                (Val::Optional(None), true) => {}
                (Val::Optional(Some(value)), true) => map.push((key, (*value).clone())),
                (value, _) => map.push((key, value)),
            }
        }
        Ok(Val::Map(Rc::new(map)))
    }

    fn named<'s, 'a>(&self, name: &str, fields: &'s [Field], scope: Option<&'s Scope<'s, 'a>>) -> Outcome<'a> {
        self.pay(charges::NEW_OBJECT)?;
        let mut made = Vec::with_capacity(fields.len());
        for Field { name: field, value, optional, .. } in fields {
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
        if let Some(found) = variable(name, scope) {
            self.pay(REACH)?;
            return Ok(found.clone());
        }
        let missing = || EvalError::Failed(format!("undeclared reference to '{name}' (in container '')"));
        type_of_name(name).ok_or_else(missing)
    }

    /// `google.protobuf.Timestamp` and its like, where no variable has the first part of the name.
    fn type_named<'a>(&self, node: &Node, scope: Option<&Scope<'_, 'a>>) -> Option<Val<'a>> {
        let first = node.root_name().filter(|first| matches!(*first, "google" | "net"))?;
        if variable(first, scope).is_some() { None } else { type_of_name(&node.qualified()?) }
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
        if let Some(Expr::Name(namespace)) = target.map(|target| &target.expr)
            && functions::is_namespace(namespace)
            && variable(namespace, scope).is_none()
        {
            return self.global(&format!("{namespace}.{name}"), self.all(arguments, scope)?);
        }
        let Some(target) = target else { return self.global(name, self.all(arguments, scope)?) };
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
        let result = functions::member(self, target.clone(), name, values.clone())?;
        let given: Vec<&Val> = std::iter::once(&target).chain(&values).collect();
        self.pay(charges::call(name, &given, &result))?;
        Ok(result)
    }

    fn global<'a>(&self, name: &str, values: Vec<Val<'a>>) -> Outcome<'a> {
        let result = functions::global(self, name, values.clone())?;
        self.pay(charges::call(name, &values.iter().collect::<Vec<_>>(), &result))?;
        Ok(result)
    }

    fn all<'s, 'a>(&self, nodes: &'s [Node], scope: Option<&'s Scope<'s, 'a>>) -> Result<Vec<Val<'a>>, EvalError> {
        nodes.iter().map(|node| self.eval(node, scope)).collect()
    }
}

fn variable<'s, 'a>(name: &str, scope: Option<&'s Scope<'s, 'a>>) -> Option<&'s Val<'a>> {
    let mut at = scope;
    while let Some(found) = at {
        if found.name == name {
            return Some(&found.value);
        }
        at = found.outer;
    }
    None
}

impl Node {
    /// Whether it is the name of a type, such as `google.protobuf.Timestamp`.
    pub(super) fn is_type_name(&self) -> bool {
        self.qualified().is_some_and(|name| type_of_name(&name).is_some())
    }
}

fn type_of_name<'a>(name: &str) -> Option<Val<'a>> {
    const TYPES: &[&str] = &[
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "optional_type",
        "google.protobuf.Duration",
        "google.protobuf.Timestamp",
        "net.IP",
        "net.CIDR",
    ];
    TYPES.iter().find(|known| **known == name).map(|known| Val::Type(known))
}
