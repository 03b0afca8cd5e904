//! What fields a file may have, and of which types.

use serde_json::Value;

pub enum Shape {
    Text,
    Flag,
    Number,
    /// What its owner reads by rules of its own.
    Anything,
    List(&'static Shape),
    /// Any names, each with such a value.
    Map(&'static Shape),
    Object(&'static [(&'static str, Shape)]),
}

impl Shape {
    /// Adds what is wrong: the path of the field, and a sentence.
    pub fn check(&self, value: &Value, path: &str, problems: &mut Vec<(String, String)>) {
        match (self, value) {
            (Shape::Text, Value::String(_)) | (Shape::Flag, Value::Bool(_)) => {}
            (Shape::Number, Value::Number(number)) if number.is_i64() => {}
            (Shape::Anything, _) => {}
            (Shape::Map(item), Value::Object(values)) => {
                for (name, value) in values {
                    item.check(value, &format!("{path}.{name}"), problems);
                }
            }
            (Shape::List(item), Value::Array(values)) => {
                for (index, value) in values.iter().enumerate() {
                    item.check(value, &format!("{path}[{index}]"), problems);
                }
            }
            (Shape::Object(fields), Value::Object(values)) => {
                for (name, value) in values {
                    let own = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    match fields.iter().find(|(known, _)| known == name) {
                        Some((_, shape)) => shape.check(value, &own, problems),
                        None => problems.push((own.clone(), format!("unknown field \"{own}\""))),
                    }
                }
            }
            (shape, value) => {
                let why = format!("{path}: expected {}, got {}", shape.name(), name_of(value));
                problems.push((path.to_owned(), why));
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Shape::Text => "a string",
            Shape::Flag => "true or false",
            Shape::Number => "a whole number",
            Shape::Anything => "anything",
            Shape::Map(_) => "an object",
            Shape::List(_) => "a list",
            Shape::Object(_) => "an object",
        }
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
