//! Field paths and field errors, in the words of upstream's validation.

use std::fmt::{self, Display};
use std::rc::Rc;

use serde_json::Value;

use crate::node::Node;
use crate::status::Cause;

/// A path such as `spec.containers[0].name`. Cloning is cheap; the text is made only when an error needs it.
#[derive(Clone, Default)]
pub struct Path(Place);

#[derive(Clone, Default)]
enum Place {
    #[default]
    Root,
    Under(Rc<Segment>),
    /// Nobody will read the path, so that no step of it is kept.
    Untold,
}

struct Segment {
    parent: Path,
    step: Step,
}

enum Step {
    Field(&'static str),
    Name(Box<str>),
    Key(Box<str>),
    Index(usize),
}

impl Path {
    pub fn root() -> Path {
        Path(Place::Root)
    }

    /// A path that stays empty whatever is below it. For a first look at whether there is any error at all: most objects have
    /// none, and the steps to each of their fields would be most of the cost of looking.
    pub fn untold() -> Path {
        Path(Place::Untold)
    }

    fn is_untold(&self) -> bool {
        matches!(self.0, Place::Untold)
    }

    pub fn new(field: &'static str) -> Path {
        Path::root().child(field)
    }

    pub fn child(&self, field: &'static str) -> Path {
        self.step(Step::Field(field))
    }

    /// A field whose name is only known while running, such as a custom resource's.
    pub fn named(&self, field: &str) -> Path {
        if self.is_untold() { Path::untold() } else { self.step(Step::Name(field.into())) }
    }

    /// An entry of a map: `data[key]`.
    pub fn key(&self, key: &str) -> Path {
        if self.is_untold() { Path::untold() } else { self.step(Step::Key(key.into())) }
    }

    pub fn index(&self, index: usize) -> Path {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Path {
        if self.is_untold() {
            return Path::untold();
        }
        Path(Place::Under(Rc::new(Segment { parent: self.clone(), step })))
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place::Under(segment) = &self.0 else { return Ok(()) };
        segment.parent.fmt(f)?;
        let dot = if matches!(segment.parent.0, Place::Under(_)) { "." } else { "" };
        match &segment.step {
            Step::Field(name) => write!(f, "{dot}{name}"),
            Step::Name(name) => write!(f, "{dot}{name}"),
            Step::Key(key) => write!(f, "[{key}]"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl Problem {
    /// The machine-readable reason of a cause.
    pub fn reason(self) -> &'static str {
        match self {
            Problem::NotFound => "FieldValueNotFound",
            Problem::Required => "FieldValueRequired",
            Problem::Duplicate => "FieldValueDuplicate",
            Problem::Invalid => "FieldValueInvalid",
            Problem::NotSupported => "FieldValueNotSupported",
            Problem::Forbidden => "FieldValueForbidden",
            Problem::TooLong => "FieldValueTooLong",
            Problem::TooMany => "FieldValueTooMany",
            Problem::Internal => "InternalError",
            Problem::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Problem::NotFound => "Not found",
            Problem::Required => "Required value",
            Problem::Duplicate => "Duplicate value",
            Problem::Invalid | Problem::TypeInvalid => "Invalid value",
            Problem::NotSupported => "Unsupported value",
            Problem::Forbidden => "Forbidden",
            Problem::TooLong => "Too long",
            Problem::TooMany => "Too many",
            Problem::Internal => "Internal error",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub problem: Problem,
    pub field: String,
    /// The offending value as it stands in the message, JSON for most; empty where the message shows none.
    pub value: String,
    pub detail: String,
}

impl FieldError {
    pub fn new(
        problem: Problem,
        field: impl Display,
        value: impl Into<String>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError { problem, field: field.to_string(), value: value.into(), detail: detail.into() }
    }

    /// The message without its field: `Invalid value: "x": must be ...`.
    pub fn message(&self) -> String {
        let mut text = self.problem.words().to_string();
        for part in [&self.value, &self.detail] {
            if !part.is_empty() {
                text.push_str(": ");
                text.push_str(part);
            }
        }
        text
    }
}

/// The errors of one object, in the order found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors(pub Vec<FieldError>);

impl Errors {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub fn required(&mut self, at: &Node, detail: impl Into<String>) {
        self.push(FieldError::new(Problem::Required, &at.path, "", detail));
    }

    pub fn invalid(&mut self, at: &Node, detail: impl Into<String>) {
        self.push(FieldError::new(Problem::Invalid, &at.path, shown(at.value), detail));
    }

    /// As `invalid`, with the value written by the caller where upstream shows something else than the field.
    pub fn invalid_value(&mut self, path: &Path, value: &Value, detail: impl Into<String>) {
        self.push(FieldError::new(Problem::Invalid, path, shown(value), detail));
    }

    pub fn duplicate(&mut self, at: &Node) {
        self.push(FieldError::new(Problem::Duplicate, &at.path, shown(at.value), ""));
    }

    pub fn forbidden(&mut self, at: &Node, detail: impl Into<String>) {
        self.push(FieldError::new(Problem::Forbidden, &at.path, "", detail));
    }

    pub fn not_found(&mut self, at: &Node) {
        self.push(FieldError::new(Problem::NotFound, &at.path, shown(at.value), ""));
    }

    /// The supported values are shown in the order given; upstream sorts most of its sets.
    pub fn not_supported(&mut self, at: &Node, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        self.push(FieldError::new(Problem::NotSupported, &at.path, shown(at.value), detail));
    }

    pub fn too_long(&mut self, at: &Node, bytes_max: usize) {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        self.push(FieldError::new(Problem::TooLong, &at.path, "", format!("may not be more than {bytes_max} {unit}")));
    }

    pub fn too_many(&mut self, at: &Node, count: usize, count_max: usize) {
        let items = if count_max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {count_max} {items}");
        self.push(FieldError::new(Problem::TooMany, &at.path, count.to_string(), detail));
    }

    pub fn causes(&self) -> Vec<Cause> {
        let cause = |error: &FieldError| Cause {
            reason: error.problem.reason().into(),
            message: error.message(),
            field: error.field.clone(),
        };
        self.0.iter().map(cause).collect()
    }

    /// One error stands alone, several stand in brackets; a repeated sentence is said once.
    pub fn summary(&self) -> String {
        let mut said = std::collections::HashSet::new();
        let all = self.0.iter().map(|error| format!("{}: {}", error.field, error.message()));
        let lines: Vec<String> = all.filter(|line| said.insert(line.clone())).collect();
        match lines.as_slice() {
            [only] => only.clone(),
            _ => format!("[{}]", lines.join(", ")),
        }
    }
}

/// A value as upstream's messages show it: JSON.
pub fn shown(value: &Value) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let spec = Path::new("spec");
        for (path, expected) in [
            (Path::root(), ""),
            (spec.clone(), "spec"),
            (spec.child("containers").index(0).child("name"), "spec.containers[0].name"),
            (Path::new("metadata").child("annotations").key("a.b/c"), "metadata.annotations[a.b/c]"),
            (spec.named("x-y").index(1).index(2), "spec.x-y[1][2]"),
            (Path::root().index(3), "[3]"),
        ] {
            assert_eq!(path.to_string(), expected);
        }
    }

    /// Each way to be wrong, in upstream's words.
    #[test]
    fn messages() {
        let (text, number, list) = (json!("a\"b"), json!(-1), json!(["x", 1]));
        let at = |value| Node::new(value, Path::new("f"));
        let mut errors = Errors::default();
        errors.required(&at(&Value::Null), "");
        errors.required(&at(&Value::Null), "why");
        errors.invalid(&at(&text), "bad");
        errors.invalid(&at(&number), "");
        errors.invalid(&at(&list), "bad");
        errors.invalid(&at(&Value::Null), "bad");
        errors.invalid_value(&Path::new("g"), &json!(true), "bad");
        errors.duplicate(&at(&text));
        errors.forbidden(&at(&text), "why");
        errors.not_found(&at(&number));
        errors.not_supported(&at(&text), &["a", "b"]);
        errors.not_supported(&at(&text), &[]);
        errors.too_long(&at(&text), 5);
        errors.too_many(&at(&list), 2, 1);
        errors.too_many(&at(&list), 9, 8);
        let found: Vec<(String, String)> = errors
            .causes()
            .into_iter()
            .map(|cause| (cause.reason, format!("{}: {}", cause.field, cause.message)))
            .collect();
        let expected = [
            ("FieldValueRequired", "f: Required value"),
            ("FieldValueRequired", "f: Required value: why"),
            ("FieldValueInvalid", "f: Invalid value: \"a\\\"b\": bad"),
            ("FieldValueInvalid", "f: Invalid value: -1"),
            ("FieldValueInvalid", "f: Invalid value: [\"x\",1]: bad"),
            ("FieldValueInvalid", "f: Invalid value: null: bad"),
            ("FieldValueInvalid", "g: Invalid value: true: bad"),
            ("FieldValueDuplicate", "f: Duplicate value: \"a\\\"b\""),
            ("FieldValueForbidden", "f: Forbidden: why"),
            ("FieldValueNotFound", "f: Not found: -1"),
            ("FieldValueNotSupported", "f: Unsupported value: \"a\\\"b\": supported values: \"a\", \"b\""),
            ("FieldValueNotSupported", "f: Unsupported value: \"a\\\"b\""),
            ("FieldValueTooLong", "f: Too long: may not be more than 5 bytes"),
            ("FieldValueTooMany", "f: Too many: 2: must have at most 1 item"),
            ("FieldValueTooMany", "f: Too many: 9: must have at most 8 items"),
        ];
        let expected = expected.map(|(reason, text)| (reason.to_owned(), text.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn summaries() {
        let at = Node::new(&Value::Null, Path::new("f"));
        let mut errors = Errors::default();
        errors.required(&at, "");
        assert_eq!(errors.summary(), "f: Required value");
        errors.forbidden(&at, "no");
        errors.required(&at, "");
        // Said once in the sentence; every cause stands in the details.
        assert_eq!(errors.summary(), "[f: Required value, f: Forbidden: no]");
        assert_eq!(errors.causes().len(), 3);
    }
}
