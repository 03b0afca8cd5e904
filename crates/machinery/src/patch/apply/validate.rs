//! Whether an applied configuration fits the schema, in the words of upstream's typed values.

use std::collections::HashSet;
use std::fmt::{self, Display};

use serde_json::{Map, Value};

use crate::go::Plain;
use crate::patch::fields::{Element, element};
use crate::schema::{ListKind, Scalar, Struct, Type, TypeRef};

#[derive(Debug, PartialEq)]
pub struct Problems(Vec<String>);

impl Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => f.write_str(only),
            several => write!(f, "errors:\n  {}", several.join("\n  ")),
        }
    }
}

pub fn validate(ty: TypeRef, config: &Value) -> Result<(), Problems> {
    let mut walker = Walker { path: Vec::new(), problems: Vec::new() };
    walker.value(ty, config);
    if walker.problems.is_empty() { Ok(()) } else { Err(Problems(walker.problems)) }
}

struct Walker<'a> {
    path: Vec<Element<'a>>,
    problems: Vec<String>,
}

impl<'a> Walker<'a> {
    fn problem(&mut self, text: impl Display) {
        let path: String = self.path.iter().map(Element::to_string).collect();
        self.problems.push(if path.is_empty() { text.to_string() } else { format!("{path}: {text}") });
    }

    fn under(&mut self, element: Element<'a>, ty: TypeRef, value: &'a Value) {
        self.path.push(element);
        self.value(ty, value);
        self.path.pop();
    }

    fn value(&mut self, ty: TypeRef, value: &'a Value) {
        match (ty.get(), value) {
            (_, Value::Null) | (Type::Any { .. }, _) => {}
            (Type::Struct(shape), Value::Object(entries)) => self.fields(ty, shape, entries),
            (Type::Map { value, .. }, Value::Object(entries)) => {
                for (name, entry) in entries {
                    self.under(Element::Field(name.as_str().into()), ty.of(*value), entry);
                }
            }
            (Type::List { item, kind }, Value::Array(items)) => self.items(ty.of(*item), kind, items),
            (Type::Struct(_) | Type::Map { .. }, other) => {
                self.problem(format!("expected map, got &{{{}}}", Plain(other)))
            }
            (Type::List { .. }, other) => self.problem(format!("expected list, got &{{{}}}", Plain(other))),
            (Type::Scalar(scalar), value) => {
                if let Some(text) = scalar_problem(*scalar, value) {
                    self.problem(text);
                }
            }
        }
    }

    fn fields(&mut self, ty: TypeRef, shape: &Struct, entries: &'a Map<String, Value>) {
        for (name, value) in entries {
            let element = Element::Field(name.as_str().into());
            let is_embedded = shape.embedded && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            match shape.field(name) {
                Some(field) => self.under(element, ty.of(field.ty), value),
                // An object without properties is free in form, whatever is pruned from it later.
                None if shape.preserve_unknown || is_embedded || shape.fields.is_empty() => {}
                None => {
                    self.path.push(element);
                    self.problem("field not declared in schema");
                    self.path.pop();
                }
            }
        }
    }

    fn items(&mut self, item: TypeRef, kind: &ListKind, items: &'a [Value]) {
        let mut seen = HashSet::new();
        for (index, value) in items.iter().enumerate() {
            let element = match kind {
                ListKind::Atomic => Element::Index(index.to_string().into()),
                ListKind::Set | ListKind::Map(_) => match element(item, kind, value) {
                    Ok(element) => element,
                    Err(error) => {
                        self.problem(format!("element {index}: {error}"));
                        continue;
                    }
                },
            };
            if !seen.insert(element.clone()) {
                self.problem(format!("duplicate entries for key {element}"));
            }
            self.under(element, item, value);
        }
    }
}

fn scalar_problem(scalar: Scalar, value: &Value) -> Option<String> {
    let is_scalar = !value.is_object() && !value.is_array();
    let (fits, wanted) = match scalar {
        Scalar::Bool => (value.is_boolean(), "boolean"),
        Scalar::Int32 | Scalar::Int64 | Scalar::Float => {
            let found = crate::go::type_name(value);
            return (!value.is_number()).then(|| format!("expected numeric (int or float), got {found}"));
        }
        Scalar::Quantity | Scalar::IntOrString => (is_scalar, "scalar"),
        Scalar::String | Scalar::Time | Scalar::MicroTime | Scalar::Duration | Scalar::Bytes => {
            (value.is_string(), "string")
        }
    };
    (!fits).then(|| format!("expected {wanted}, got &value.valueUnstructured{{Value:{}}}", GoSyntax(value)))
}

/// A value as `%#v` prints it.
struct GoSyntax<'a>(&'a Value);

impl Display for GoSyntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::Array(items) => {
                f.write_str("[]interface {}{")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if index > 0 { ", " } else { "" }, GoSyntax(item))?;
                }
                f.write_str("}")
            }
            Value::Object(entries) => {
                f.write_str("map[string]interface {}{")?;
                for (index, (name, value)) in entries.iter().enumerate() {
                    write!(f, "{}{name:?}:{}", if index > 0 { ", " } else { "" }, GoSyntax(value))?;
                }
                f.write_str("}")
            }
            scalar => write!(f, "{scalar}"),
        }
    }
}
