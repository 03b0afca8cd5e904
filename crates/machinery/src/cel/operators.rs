//! Which operators are for values of which types. Only what is certain is refused: values whose type is not known, or that are
//! more than numbers, texts and truth, are left to the evaluation.

use serde_json::Value;

/// What is known of a value before it is there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    Unknown,
    Schema(&'a Value),
    Plain(Plain),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Bool,
    Int,
    Uint,
    Double,
    Text,
}

impl<'a> Shape<'a> {
    pub fn schema(self) -> Option<&'a Value> {
        match self {
            Shape::Schema(schema) => Some(schema),
            Shape::Unknown | Shape::Plain(_) => None,
        }
    }

    fn plain(self) -> Option<Plain> {
        match self {
            Shape::Plain(plain) => Some(plain),
            Shape::Schema(schema) => Plain::of(schema),
            Shape::Unknown => None,
        }
    }
}

impl Plain {
    fn of(schema: &Value) -> Option<Plain> {
        if schema.get("x-kubernetes-int-or-string").is_some() {
            return None;
        }
        match schema.get("type")?.as_str()? {
            "boolean" => Some(Plain::Bool),
            "integer" => Some(Plain::Int),
            "number" => Some(Plain::Double),
            // A text with a format may be a time, a duration, bytes, or a number or text.
            "string" if schema.get("format").is_none() => Some(Plain::Text),
            _ => None,
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Plain::Int | Plain::Uint | Plain::Double)
    }

    fn name(self) -> &'static str {
        match self {
            Plain::Bool => "bool",
            Plain::Int => "int",
            Plain::Uint => "uint",
            Plain::Double => "double",
            Plain::Text => "string",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found no matching overload for '{function}' applied to '({left}, {right})'")]
pub struct NoOverload {
    function: String,
    left: &'static str,
    right: &'static str,
}

/// What an operator answers with, or in upstream's words that it is not for these values.
pub(super) fn answered<'a>(operator: &str, left: Shape<'a>, right: Shape<'a>) -> Result<Shape<'a>, NoOverload> {
    let is_comparison = matches!(operator, "==" | "!=" | "<" | "<=" | ">" | ">=");
    let (Some(left), Some(right)) = (left.plain(), right.plain()) else {
        let known = is_comparison || operator == "in";
        return Ok(if known { Shape::Plain(Plain::Bool) } else { Shape::Unknown });
    };
    let same = left == right;
    let fits = match operator {
        "==" | "!=" => same,
        // Numbers of different types may be ordered.
        "<" | "<=" | ">" | ">=" => same || (left.is_number() && right.is_number()),
        "+" => same && left != Plain::Bool,
        "-" | "*" | "/" => same && left.is_number(),
        "%" => same && matches!(left, Plain::Int | Plain::Uint),
        // Nothing is in a number or in a text.
        _ => false,
    };
    if !fits {
        let function = if operator == "in" { "@in".to_owned() } else { format!("_{operator}_") };
        return Err(NoOverload { function, left: left.name(), right: right.name() });
    }
    Ok(Shape::Plain(if is_comparison { Plain::Bool } else { left }))
}
