//! Why an expression cannot be parsed, does not fit what is declared, or cannot be evaluated, in upstream's words.

use super::Val;
use super::operators::NoOverload;
use super::texts;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERROR: <input>:1:{}: Syntax error: {why}", at + 1)]
pub struct ParseError {
    pub(super) at: usize,
    why: Syntax,
}

impl ParseError {
    pub(super) fn new(at: usize, why: Syntax) -> ParseError {
        ParseError { at, why }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Syntax {
    #[error("token recognition error at: '{0}'")]
    Token(char),
    #[error("mismatched input {0}")]
    Unexpected(String),
    #[error("expression is nested too deeply")]
    Depth,
    #[error("unterminated field name")]
    FieldName,
    #[error("unterminated string")]
    Unterminated,
    /// `int`, `uint` or `double`.
    #[error("invalid {0} literal")]
    Number(&'static str),
    #[error("invalid text")]
    Text,
    #[error("unfinished escape")]
    UnfinishedEscape,
    #[error("invalid escape: {0}")]
    Escape(String),
    #[error("invalid code point")]
    CodePoint,
    #[error("invalid argument to has() macro")]
    Has,
    #[error("cel.bind() variable names must be simple identifiers")]
    Bind,
    #[error("argument must be a simple name")]
    MacroVariable,
}

/// Why an expression cannot be used where it stands, with its place and the line in question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    #[error("{error}{pointed}")]
    Syntax { error: ParseError, pointed: String },
    #[error("ERROR: <input>:{line}:{column}: {problem}{pointed}")]
    Undeclared { line: usize, column: usize, problem: Undeclared, pointed: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undeclared {
    #[error("undeclared reference to '{0}' (in container '')")]
    Reference(String),
    #[error("undefined field '{0}'")]
    Field(String),
    #[error(transparent)]
    Overload(NoOverload),
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
