//! What an expression can cost at most, told before it runs: by the sizes that the schema of its values allows.
//!
//! The figures are those of upstream, step by step, because they decide which rules a definition may have. That goes for
//! oddities, too: a value without a place in the schema, such as an item of a list written in the expression, is taken to be
//! as large as the value that the rule is about.

mod amount;
mod calls;
mod declaration;
mod kinds;
mod macros;
#[cfg(test)]
mod tests;

use amount::{Entries, PER_LETTER, Size};
pub use declaration::Declaration;
use declaration::Kind;
use kinds::Type;

use super::ast::{Expr, Node};
use super::functions::is_namespace;
use super::reach::unescaped;

/// Reaching for a variable or a field.
const REACH: u64 = 1;
const CALL: u64 = 1;
const NEW_LIST: u64 = 10;
const NEW_MAP: u64 = 30;
const NEW_OBJECT: u64 = 40;

/// The longest name of a format.
const FORMAT_NAME: Size = Size::up_to(64);

/// The most that a rule about values of this declaration can cost. `self` and `oldSelf` are such values.
pub(super) fn estimate(node: &Node, own: &Declaration, optional_old: bool) -> u64 {
    Estimator { own, about: About::Object { optional_old } }.walk(node, None).cost
}

/// The most that a selector of devices can cost. `device` is the only variable.
pub(super) fn estimate_selector(node: &Node) -> u64 {
    Estimator { own: &Declaration::device(), about: About::Device }.walk(node, None).cost
}

struct Estimator<'a> {
    own: &'a Declaration,
    about: About,
}

/// Which variables there are.
#[derive(Clone, Copy, PartialEq)]
enum About {
    Object { optional_old: bool },
    Device,
}

/// What is known of a part of an expression.
#[derive(Clone, Debug)]
struct Found<'a> {
    cost: u64,
    kind: Type<'a>,
    /// How it is reached from a variable: fields, `@items`, `@keys`, `@values`. Empty for what is computed.
    path: Vec<String>,
    size: Option<Size>,
    entries: Option<Entries>,
    /// The number that is written there.
    literal: Option<u64>,
}

impl<'a> Found<'a> {
    fn new(cost: u64, kind: Type<'a>) -> Found<'a> {
        Found { cost, kind, path: Vec::new(), size: None, entries: None, literal: None }
    }

    fn sized(self, size: Size) -> Found<'a> {
        Found { size: Some(size), ..self }
    }

    fn size(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }

    fn below(&self, step: &str) -> Vec<String> {
        self.path.iter().cloned().chain([step.to_owned()]).collect()
    }

    /// The variable of a macro that goes through it: an item, or a key.
    fn each(&self) -> Found<'a> {
        if self.holds_items() { self.each_value() } else { self.each_key() }
    }

    fn each_key(&self) -> Found<'a> {
        let step = if self.holds_items() { "@indices" } else { "@keys" };
        self.variable(self.kind.key(), step, self.entries.map(|entries| entries.key))
    }

    fn each_value(&self) -> Found<'a> {
        let step = if self.holds_items() { "@items" } else { "@values" };
        self.variable(self.kind.entry(), step, self.entries.map(|entries| entries.value))
    }

    fn holds_items(&self) -> bool {
        self.entries.map_or(self.kind.is_list(), |entries| entries.is_list)
    }

    fn variable(&self, kind: Type<'a>, step: &str, size: Option<Size>) -> Found<'a> {
        Found { path: self.below(step), size, ..Found::new(REACH, kind) }
    }
}

/// Variables of macros, innermost first.
struct Scope<'s, 'a> {
    name: &'s str,
    value: Found<'a>,
    outer: Option<&'s Scope<'s, 'a>>,
}

impl<'s, 'a> Scope<'s, 'a> {
    fn find(&self, name: &str) -> Option<&Found<'a>> {
        if self.name == name { Some(&self.value) } else { self.outer?.find(name) }
    }
}

type In<'s, 'a> = Option<&'s Scope<'s, 'a>>;

impl<'a> Estimator<'a> {
    fn walk(&self, node: &Node, scope: In<'_, 'a>) -> Found<'a> {
        let below = |node: &Node| self.walk(node, scope);
        match &node.expr {
            Expr::Null => Found::new(0, Type::Dyn).sized(Size::fixed(1)),
            Expr::Bool(_) => Found::new(0, Type::Bool).sized(Size::fixed(1)),
            Expr::Double(_) => Found::new(0, Type::Number).sized(Size::fixed(1)),
            Expr::Int(value) => {
                Found { literal: u64::try_from(*value).ok(), ..Found::new(0, Type::Number).sized(Size::fixed(1)) }
            }
            Expr::Uint(value) => Found { literal: Some(*value), ..Found::new(0, Type::Number).sized(Size::fixed(1)) },
            Expr::Text(text) => Found::new(0, Type::Text).sized(Size::fixed(text.chars().count() as u64)),
            Expr::Bytes(bytes) => Found::new(0, Type::Bytes).sized(Size::fixed(bytes.len() as u64)),
            Expr::Name(name) => self.name(name, scope),
            Expr::Select(of, field) => match node.root_name().filter(|root| self.is_free(root, scope)) {
                Some("google" | "net") if node.is_type_name() => {
                    self.name(&node.qualified().unwrap_or_default(), scope)
                }
                _ => self.select(below(of), field),
            },
            // Looking whether a field is there is free.
            Expr::Has(of, _) => self.computed(Found::new(below(of).cost, Type::Bool)),
            Expr::SelectOptional(of, field) => {
                let of = below(of);
                let kind = Type::Optional(of.kind.field(&unescaped(field)).into());
                self.computed(Found::new(of.cost.saturating_add(CALL), kind))
            }
            Expr::Index(of, index) => self.index(below(of), &below(index)),
            Expr::IndexOptional(of, index) => {
                let (of, index) = (below(of), below(index));
                let kind = Type::Optional(of.kind.entry().into());
                self.computed(Found::new(sum([of.cost, index.cost, CALL]), kind))
            }
            Expr::Not(of) => self.computed(Found::new(below(of).cost.saturating_add(CALL), Type::Bool)),
            Expr::Minus(of) => {
                let of = below(of);
                self.computed(Found::new(of.cost.saturating_add(CALL), of.kind))
            }
            Expr::And(left, right) | Expr::Or(left, right) => {
                let cost = below(left).cost.saturating_add(below(right).cost);
                self.computed(Found::new(cost, Type::Bool))
            }
            Expr::Choice(condition, yes, no) => choice(below(condition).cost, &below(yes), &below(no)),
            Expr::Binary(operator, left, right) => self.binary(operator, &below(left), &below(right)),
            Expr::List(items) => self.list(items.iter().map(|(item, _)| below(item))),
            Expr::Map(entries) => self.map(entries.iter().map(|(key, value, _)| (below(key), below(value)))),
            Expr::Struct(_, fields) => {
                let fields = fields.iter().map(|field| below(&field.value).cost);
                Found::new(fields.fold(NEW_OBJECT, u64::saturating_add), Type::Dyn)
            }
            Expr::Call(target, name, arguments) => {
                let arguments: Vec<Found> = arguments.iter().map(below).collect();
                match target.as_deref() {
                    Some(Node { expr: Expr::Name(namespace), .. })
                        if is_namespace(namespace) && self.is_free(namespace, scope) =>
                    {
                        self.call(&format!("{namespace}.{name}"), None, &arguments)
                    }
                    target => self.call(name, target.map(below).as_ref(), &arguments),
                }
            }
            Expr::Macro(kind, target, names, bodies) => self.run_macro(*kind, below(target), names, bodies, scope),
            Expr::Bind(bound, value, body) => self.bind(below(value), &bound.name, body, scope),
        }
    }

    /// Whether no variable has this name.
    fn is_free(&self, name: &str, scope: In<'_, 'a>) -> bool {
        let is_variable = match self.about {
            About::Object { .. } => matches!(name, "self" | "oldSelf"),
            About::Device => name == "device",
        };
        !is_variable && scope.is_none_or(|scope| scope.find(name).is_none())
    }

    fn name(&self, name: &str, scope: In<'_, 'a>) -> Found<'a> {
        if let Some(local) = scope.and_then(|scope| scope.find(name)) {
            let found = Found { cost: REACH, literal: None, ..local.clone() };
            let size = self.declared_size(&found.path).or(scalar(&found.kind)).or(local.size);
            return Found { size, ..found };
        }
        let kind = match (name, self.about) {
            ("oldSelf", About::Object { optional_old: true }) => Type::Optional(Type::of(self.own).into()),
            ("self" | "oldSelf", About::Object { .. }) | ("device", About::Device) => Type::of(self.own),
            _ => Type::Dyn,
        };
        self.computed(Found { path: vec![name.to_owned()], ..Found::new(REACH, kind) })
    }

    fn select(&self, of: Found<'a>, field: &str) -> Found<'a> {
        let field = unescaped(field);
        let cost = of.cost.saturating_add(if of.kind.has_fields() { REACH } else { 0 });
        self.computed(Found { path: of.below(&field), ..Found::new(cost, of.kind.field(&field)) })
    }

    fn index(&self, of: Found<'a>, index: &Found<'a>) -> Found<'a> {
        let cost = sum([of.cost, index.cost, CALL]);
        let step = if of.kind.is_list() { "@items" } else { "@values" };
        let found = self.computed(Found { path: of.below(step), ..Found::new(cost, of.kind.entry()) });
        let size = of.entries.map(|entries| entries.value).or(found.size);
        Found { size, ..found }
    }

    fn list(&self, items: impl Iterator<Item = Found<'a>>) -> Found<'a> {
        let (mut cost, mut count, mut size, mut kind) = (NEW_LIST, 0, Size::NONE, Type::Dyn);
        for item in items {
            cost = cost.saturating_add(item.cost);
            size = size.union(item.size());
            kind = item.kind;
            count += 1;
        }
        let value = if count == 0 { Size::fixed(0) } else { size };
        let entries = Some(Entries { is_list: true, key: Size::fixed(1), value });
        Found { entries, ..Found::new(cost, Type::List(kind.into())).sized(Size::fixed(count)) }
    }

    fn map(&self, pairs: impl Iterator<Item = (Found<'a>, Found<'a>)>) -> Found<'a> {
        let (mut cost, mut count, mut sizes) = (NEW_MAP, 0, (Size::NONE, Size::NONE));
        let mut kinds = (Type::Dyn, Type::Dyn);
        for (key, value) in pairs {
            cost = sum([cost, key.cost, value.cost]);
            sizes = (sizes.0.union(key.size()), sizes.1.union(value.size()));
            kinds = (key.kind, value.kind);
            count += 1;
        }
        let (key, value) = if count == 0 { (Size::fixed(0), Size::fixed(0)) } else { sizes };
        let entries = Some(Entries { is_list: false, key, value });
        let kind = Type::Map(kinds.0.into(), kinds.1.into());
        Found { entries, ..Found::new(cost, kind).sized(Size::fixed(count)) }
    }

    fn binary(&self, operator: &str, left: &Found<'a>, right: &Found<'a>) -> Found<'a> {
        let operands = left.cost.saturating_add(right.cost);
        let smaller = Size::up_to(left.size().max.min(right.size().max));
        let found = |cost: u64, kind: Type<'a>| self.computed(Found::new(operands.saturating_add(cost), kind));
        match operator {
            "==" | "!=" => {
                let cost = match (operator, &left.kind, &right.kind) {
                    ("==", Type::Small, Type::Small) => CALL,
                    ("==", Type::Url, Type::Url) => right.size.unwrap_or(Size::fixed(1)).cost(PER_LETTER),
                    ("==", Type::Format, Type::Format) => FORMAT_NAME.cost(PER_LETTER),
                    _ => smaller.cost(PER_LETTER),
                };
                found(cost, Type::Bool)
            }
            "<" | "<=" | ">" | ">=" => found(calls::compared(&left.kind, &right.kind, smaller), Type::Bool),
            "in" => match &right.kind {
                Type::List(_) => found(right.size().max, Type::Bool),
                Type::Map(..) => found(CALL, Type::Bool),
                _ => found(right.size().max.max(CALL), Type::Bool),
            },
            "+" => calls::added(operands, left, right),
            _ => found(CALL, left.kind.clone()),
        }
    }

    /// With the size that the schema or the kind tells.
    fn computed(&self, found: Found<'a>) -> Found<'a> {
        let size = self.declared_size(&found.path).or(scalar(&found.kind));
        Found { size, ..found }
    }

    /// The size of what is at the end of a path; of a rule, whatever variable it begins with.
    fn declared_size(&self, path: &[String]) -> Option<Size> {
        let (variable, steps) = path.split_first()?;
        if self.about == About::Device && variable != "device" {
            return None;
        }
        let mut at = self.own;
        for step in steps {
            at = match (&at.kind, step.as_str()) {
                (Kind::List(entry) | Kind::Map(entry), "@items" | "@values") => entry,
                (Kind::Map(_), "@keys") => return Some(Size::up_to(at.key_max)),
                // Attributes have one size, whatever their names.
                (Kind::Map(entry), _) if matches!(entry.kind, Kind::Dyn) && self.about == About::Device => entry,
                (Kind::Object(fields), field) => fields.get(field)?,
                _ => return None,
            };
        }
        Some(Size::up_to(at.max))
    }
}

fn scalar(kind: &Type) -> Option<Size> {
    kind.is_scalar().then_some(Size::fixed(1))
}

/// The condition, and the dearer of both ways.
fn choice<'a>(condition: u64, yes: &Found<'a>, no: &Found<'a>) -> Found<'a> {
    let cost = condition.saturating_add(yes.cost.max(no.cost));
    let entries = Entries::union(yes.entries, no.entries);
    Found { entries, ..Found::new(cost, yes.kind.clone()).sized(yes.size().union(no.size())) }
}

fn sum(costs: impl IntoIterator<Item = u64>) -> u64 {
    costs.into_iter().fold(0, u64::saturating_add)
}
