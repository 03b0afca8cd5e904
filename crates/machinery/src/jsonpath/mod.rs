//! JSONPath as Kubernetes speaks it, in `kubectl -o jsonpath`, `--sort-by` and `wait`, and in the printer columns of custom
//! resources: text with `{expressions}`, which know ranges, filters, slices, unions and recursive descent.

mod parse;
mod walk;

use serde_json::Value;

/// A template that is ready to be followed.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    source: String,
    parts: Vec<Part>,
    /// A field that is missing is an error.
    strict: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(Value),
    Action(Vec<Step>),
    Range {
        steps: Vec<Step>,
        inner: Vec<Part>,
        /// What follows a range that has no end is followed once more, outside of it.
        ended: bool,
    },
    /// An end without a range.
    End,
}

/// Each step leads from the values at hand to the next ones.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    All,
    Descend,
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        by: Option<i64>,
        /// Only the item at `from`.
        one: bool,
    },
    /// `[0,2]` and `['a','b']`.
    Union(Vec<Vec<Step>>),
    Filter(Filter),
    /// A literal where a path may stand: `{"text"}`, `{1}`.
    Literal(Value),
    /// A word; only `range` and `end` are known.
    Identifier(String),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    /// The operator and the right side; without them the left side must lead somewhere.
    compared: Option<(String, Vec<Step>)>,
}

/// Why a template is not one, or why it cannot be followed in an object. The sentences are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unclosed action")]
    UnclosedAction,
    #[error("unrecognized character in action: U+{code:04X} {0:?}", code = *.0 as u32)]
    UnrecognizedCharacter(char),
    #[error("not in range, nothing to end")]
    NotInRange,
    #[error("cannot parse number {0}")]
    Number(String),
    #[error("unquote string {0} error invalid syntax")]
    Unquote(String),
    #[error("invalid multiple recursive descent")]
    DescendTwice,
    #[error("unterminated quoted string")]
    UnterminatedString,
    #[error("unterminated filter")]
    UnterminatedFilter,
    #[error("unterminated array")]
    UnterminatedArray,
    #[error("unclosed array expect ]")]
    UnclosedArray,
    #[error("invalid array index {0}")]
    InvalidIndex(String),
    #[error("array index {0} is not a number")]
    IndexNumber(String),
    #[error("unrecognized identifier {0}")]
    Identifier(String),
    #[error("unrecognized filter operator {0}")]
    Operator(String),
    #[error("can only compare one element at a time")]
    SeveralCompared,
    #[error("incompatible types for comparison")]
    Incompatible,
    #[error("invalid type for comparison")]
    Incomparable,
    #[error("{0} is not array or slice and cannot be filtered")]
    NotFilterable(String),
    #[error(
        "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{{name1.name2}}' or '{{.name1.name2}}'"
    )]
    UnexpectedPath,
    #[error("{0} is not found")]
    NotFound(String),
    #[error("{0} is not array or slice")]
    NotAnArray(&'static str),
    #[error("starting index {first} is greater than ending index {last}")]
    Backwards { first: i64, last: i64 },
    #[error("step must be > 0")]
    Step,
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds { index: i64, length: i64 },
}

impl Template {
    pub fn parse(source: &str) -> Result<Template, Error> {
        Ok(Template { source: source.into(), parts: parse::parts(source)?, strict: false })
    }

    /// `{.a}`, `.a` and `a`, for flags and columns that name one field.
    pub fn relaxed(text: &str) -> Result<Template, Error> {
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let inner = inner.strip_prefix('.').filter(|rest| !rest.is_empty()).unwrap_or(inner);
        if inner.is_empty() || inner.contains(['{', '}']) {
            return Err(Error::UnexpectedPath);
        }
        Template::parse(&format!("{{.{inner}}}"))
    }

    pub fn strict(self, strict: bool) -> Template {
        Template { strict, ..self }
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text for an object, each value as `shown` writes it. What is missing is nothing, unless the template is strict.
    pub fn print(&self, root: &Value, shown: fn(&Value) -> String) -> Result<String, Error> {
        let joined = |values: Vec<&Value>| values.into_iter().map(shown).collect::<Vec<String>>().join(" ");
        Ok(self.each_values(root)?.into_iter().map(joined).collect())
    }

    /// The values that everything leads to, for columns, sorting and waiting.
    pub fn values<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, Error> {
        Ok(self.each_values(root)?.concat())
    }

    /// The same, a list for each expression and for each text between them.
    pub fn each_values<'a>(&'a self, root: &'a Value) -> Result<Vec<Vec<&'a Value>>, Error> {
        walk::Walk { strict: self.strict }.parts(&self.parts, root)
    }

    /// The first value, for a cell of a column. A path that does not fit the object leads to nothing.
    pub fn first<'a>(&'a self, root: &'a Value) -> Option<&'a Value> {
        self.values(root).ok()?.first().copied()
    }
}

/// A path of plain fields as a JSON pointer: `.spec.replicas` is `/spec/replicas`.
pub fn pointer(path: &str) -> String {
    let fields = path.split('.').filter(|field| !field.is_empty());
    fields.map(|field| format!("/{}", field.replace('~', "~0").replace('/', "~1"))).collect()
}

#[cfg(test)]
mod tests;
