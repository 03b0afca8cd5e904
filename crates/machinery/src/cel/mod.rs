//! The Common Expression Language, as far as Kubernetes uses it: rules of custom resources and policies.
//!
//! An expression is parsed once and evaluated over JSON as it lies there, without copying it. There is no type checker:
//! a wrong type is an error when it is met. Every step costs, and a budget ends what costs too much.

mod lexer;
mod parser;

/// Deeper expressions are refused, here and where they are evaluated.
const DEPTH_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERROR: <input>:1:{}: Syntax error: {why}", at + 1)]
pub struct ParseError {
    at: usize,
    why: String,
}

impl ParseError {
    fn new(at: usize, why: impl Into<String>) -> ParseError {
        ParseError { at, why: why.into() }
    }
}

/// A parsed expression.
#[derive(Debug)]
pub struct Program {
    root: parser::Node,
}

impl Program {
    pub fn parse(text: &str) -> Result<Program, ParseError> {
        Ok(Program { root: parser::parse(text)? })
    }

    /// Whether the expression names that variable.
    pub fn mentions(&self, variable: &str) -> bool {
        parser::mentions(&self.root, variable)
    }
}
