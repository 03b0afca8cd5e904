//! The Common Expression Language, as far as Kubernetes uses it: rules of custom resources and policies.
//!
//! An expression is parsed once and evaluated over JSON as it lies there, without copying it. There is no type checker:
//! a wrong type is an error when it is met. Every step costs, and a budget ends what costs too much.

mod lexer;
mod parser;
mod value;
mod eval;
mod functions;
mod texts;
mod lists;
mod network;
mod time;

#[cfg(test)]
mod tests;

use std::cell::Cell;

use eval::{Evaluator, Scope};
pub use value::Val;

/// Deeper expressions are refused, here and where they are evaluated.
const DEPTH_MAX: usize = 100;

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
    fn overload(_function: &str, _values: &[&Val]) -> EvalError {
        EvalError::Overload
    }

    fn overflow() -> EvalError {
        EvalError::Failed("integer overflow".into())
    }

    fn no_key(key: &Val) -> EvalError {
        let shown = match key {
            Val::Text(text) => text.to_string(),
            other => texts::shown(other),
        };
        EvalError::Failed(format!("no such key: {shown}"))
    }
}

/// How much one expression may cost, and all rules of one object together, in steps.
pub const EXPRESSION_COST_MAX: u64 = 1_000_000;
pub const OBJECT_COST_MAX: u64 = 10_000_000;

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

    /// Evaluates with those variables. What the evaluation costs is taken from the budget.
    pub fn eval<'a>(&self, variables: &[(&str, Val<'a>)], budget: &mut u64) -> Result<Val<'a>, EvalError> {
        let allowed = (*budget).min(EXPRESSION_COST_MAX);
        let left = Cell::new(allowed);
        let evaluator = Evaluator { budget: &left, depth: Cell::new(0) };
        let outcome = evaluate_in(&evaluator, &self.root, variables, None);
        *budget -= allowed - left.get();
        outcome
    }
}

/// Puts the variables on the chain one after the other, then evaluates.
fn evaluate_in<'s, 'a>(
    evaluator: &Evaluator,
    root: &'s parser::Node,
    variables: &'s [(&'s str, Val<'a>)],
    outer: Option<&Scope<'_, 'a>>,
) -> Result<Val<'a>, EvalError> {
    match variables.split_first() {
        None => evaluator.eval(root, outer),
        Some(((name, value), rest)) => {
            let scope = Scope { name, value: value.clone(), outer };
            evaluate_in(evaluator, root, rest, Some(&scope))
        }
    }
}
