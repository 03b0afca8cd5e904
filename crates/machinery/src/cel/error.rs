//! Why an expression cannot be parsed, does not fit what is declared, or cannot be evaluated, in upstream's words.

use std::fmt;

use super::Val;
use super::texts;

/// No more issues than this are told of one expression.
const ISSUES_MAX: usize = 100;

/// One thing that is wrong with an expression, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issue {
    pub at: usize,
    pub problem: Problem,
}

impl Issue {
    pub fn new(at: usize, problem: Problem) -> Issue {
        Issue { at, problem }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("Syntax error: token recognition error at: '{0}'")]
    Token(String),
    #[error("Syntax error: mismatched input '{found}' expecting {wanted}")]
    Mismatched { found: String, wanted: String },
    #[error("Syntax error: extraneous input '{found}' expecting {wanted}")]
    Extraneous { found: String, wanted: String },
    #[error("Syntax error: missing {wanted} at '{found}'")]
    Missing { found: String, wanted: String },
    #[error("Syntax error: no viable alternative at input '{0}'")]
    NoAlternative(String),
    #[error("Syntax error: error recovery attempt limit exceeded: {0}")]
    Recoveries(usize),
    #[error("error recovery token lookahead limit exceeded: {0}")]
    Skipped(usize),
    #[error("max recursion depth exceeded")]
    Depth,
    #[error("expression code point size exceeds limit: size: {0}, limit {1}")]
    Length(usize, usize),
    /// `int`, `uint` or `double`.
    #[error("invalid {0} literal")]
    Number(&'static str),
    #[error("invalid unicode code point")]
    CodePoint,
    #[error("unsupported syntax: '`'")]
    Backtick,
    #[error("reserved identifier: {0}")]
    Reserved(String),
    #[error("invalid argument to has() macro")]
    Has,
    #[error("cel.bind() variable names must be simple identifiers")]
    Bind,
    #[error("argument must be a simple name")]
    NotSimple,
    #[error("argument is not an identifier")]
    NotIdentifier,
    #[error("{0}() variable name must be a simple identifier")]
    OptionalVariable(&'static str),
    #[error("duplicate variable name: {0}")]
    DuplicateVariable(String),
    #[error("iteration variable overwrites accumulator variable")]
    Accumulator,
    #[error("sortBy can only be applied to a list, identifier, comprehension, call or select expression")]
    SortBy,
    #[error("undeclared reference to '{0}' (in container '')")]
    Reference(String),
    #[error("undefined field '{0}'")]
    Field(String),
    #[error("found no matching overload for '{function}' applied to '{signature}'")]
    Overload { function: String, signature: String },
    #[error("expected type '{wanted}' but found '{found}'")]
    Mismatch { wanted: String, found: String },
    #[error("expected type of field '{field}' is '{wanted}' but provided type is '{found}'")]
    FieldMismatch { field: String, wanted: String, found: String },
    #[error("type '{0}' does not support field selection")]
    NoFields(String),
    #[error("expression of type '{0}' cannot be range of a comprehension (must be list, map, or dynamic)")]
    Range(String),
    #[error("unexpected failed resolution of '{0}'")]
    Resolution(String),
    #[error("'{0}' is not a message type")]
    NoMessage(String),
    /// `duration`, `timestamp` or `matches`.
    #[error("invalid {0} argument")]
    Literal(&'static str),
    #[error("{0}")]
    Format(String),
    #[error("too many arguments supplied to string.format (expected {0}, got {1})")]
    FormatArguments(usize, usize),
    #[error("expression is too complex to be checked")]
    Complexity,
}

impl Problem {
    /// Upstream has no place for some, and tells them first.
    fn has_place(&self) -> bool {
        !matches!(self, Problem::Depth | Problem::Length(..) | Problem::Skipped(_))
    }
}

/// Everything that is wrong with an expression: each issue with its line and place, as upstream prints them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issues {
    shown: String,
}

impl Issues {
    pub(super) fn new(text: &str, mut issues: Vec<Issue>) -> Issues {
        issues.sort_by_key(|issue| (issue.problem.has_place(), issue.at));
        let more = issues.len().saturating_sub(ISSUES_MAX);
        let mut lines: Vec<String> = issues.iter().take(ISSUES_MAX).map(|issue| shown(text, issue)).collect();
        if more > 0 {
            lines.push(format!("{more} more errors were truncated"));
        }
        Issues { shown: lines.join("\n") }
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl std::error::Error for Issues {}

/// Longer lines are left out of messages.
const LINE_BYTES_MAX: usize = 16384;

fn shown(text: &str, issue: &Issue) -> String {
    if !issue.problem.has_place() {
        return format!("ERROR: <input>:-1:0: {}", issue.problem);
    }
    let before = text.get(..issue.at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let letters = &before[start..];
    let said = format!("ERROR: <input>:{line}:{}: {}", letters.chars().count() + 1, issue.problem);
    let whole = text[start..].split('\n').next().unwrap_or_default();
    if text.is_empty() || whole.len() > LINE_BYTES_MAX {
        return said;
    }
    let is_wide = |letter: char| letter.len_utf8() > 1;
    let dots: String = letters.chars().map(|letter| if is_wide(letter) { '．' } else { '.' }).collect();
    let mark = if text[before.len()..].starts_with(is_wide) { '＾' } else { '^' };
    format!("{said}\n | {}\n | {dots}{mark}", whole.replace('\t', " "))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("operation cancelled: actual cost limit exceeded")]
    Budget,
    #[error("no such overload")]
    Overload,
    #[error("{0}")]
    Failed(String),
}

impl EvalError {
    /// The types do not fit the function.
    pub(super) fn overload(_function: &str, _values: &[&Val]) -> EvalError {
        EvalError::Overload
    }

    pub(super) fn overflow() -> EvalError {
        EvalError::Failed("integer overflow".into())
    }

    pub(super) fn no_key(key: &Val) -> EvalError {
        let shown = match key {
            Val::Text(text) => text.to_string(),
            other => texts::shown(other),
        };
        EvalError::Failed(format!("no such key: {shown}"))
    }

    /// A function refused its argument; the answer is what that function's own error says.
    pub(super) fn failed(error: impl std::error::Error) -> EvalError {
        EvalError::Failed(error.to_string())
    }
}
