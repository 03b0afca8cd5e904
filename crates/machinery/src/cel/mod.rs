//! The Common Expression Language, as far as Kubernetes uses it: rules of custom resources and policies.
//!
//! An expression is parsed once and evaluated over JSON as it lies there, without copying it. Where it is written its types
//! are checked (`check.rs`), against what its environment declares (`env.rs`); what is `dyn` is an error when it is met.
//! Every step costs, and a budget ends what costs too much.

mod error;
mod lexer;
mod ast;
mod parser;
mod expand;
mod grammar;
mod predict;
mod recovery;
mod types;
mod env;
mod signatures;
mod unify;
mod check;
mod check_macros;
mod literals;
mod value;
mod eval;
mod eval_macros;
mod reach;
mod charges;
mod functions;
mod texts;
mod lists;
mod network;
mod semver;
mod url;
mod time;
mod authorizer;
mod cost;

#[cfg(test)]
mod charges_tests;
#[cfg(test)]
mod checker_tests;
#[cfg(test)]
mod syntax_tests;
#[cfg(test)]
mod upstream_tests;
#[cfg(test)]
mod tests;

use std::cell::Cell;

pub use authorizer::{Asked, Oracle, Verdict};
pub use cost::Declaration;
pub use env::Env;
pub use error::{EvalError, Issues};
use eval::{Evaluator, Scope};
pub use types::Type;
pub use value::Val;

use crate::pattern::PatternError;

/// Deeper expressions are refused, here and where they are evaluated.
const DEPTH_MAX: usize = 250;

/// How much one expression may cost, and all rules of one object together, in steps.
pub const EXPRESSION_COST_MAX: u64 = 1_000_000;
pub const OBJECT_COST_MAX: u64 = 10_000_000;

/// A parsed expression.
#[derive(Debug)]
pub struct Program {
    root: ast::Node,
}

impl Program {
    pub fn parse(text: &str) -> Result<Program, Issues> {
        let root = parser::parse(text).map_err(|issues| Issues::new(text, issues))?;
        Ok(Program { root })
    }

    /// Parses an expression that may use what the environment declares, and answers with the type of its value. What
    /// is not declared, or does not fit, is told with its place.
    pub fn check<'a>(text: &str, env: &Env<'a>) -> Result<Type<'a>, Issues> {
        let program = Program::parse(text)?;
        check::check(&program.root, env).map_err(|issues| Issues::new(text, issues))
    }

    /// Why an expression that fits its environment can still not be run: a pattern that is none.
    pub fn bad_pattern(text: &str) -> Option<PatternError> {
        literals::bad_pattern(&Program::parse(text).ok()?.root)
    }

    /// What a rule about values of that declaration can cost at most, as far as the schema bounds them.
    pub fn cost(text: &str, own: &Declaration, optional_old: bool) -> Option<u64> {
        Some(cost::estimate(&Program::parse(text).ok()?.root, own, optional_old))
    }

    /// What a selector of devices can cost at most.
    pub fn selector_cost(text: &str) -> Option<u64> {
        Some(cost::estimate_selector(&Program::parse(text).ok()?.root))
    }

    /// Whether the expression names that variable.
    pub fn mentions(&self, variable: &str) -> bool {
        self.root.mentions(variable)
    }

    /// Whether the expression reads that field of that variable.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        self.root.selects(variable, field)
    }

    /// Evaluates with those variables. What the evaluation costs is taken from the budget.
    pub fn eval<'a>(&self, variables: &[(&str, Val<'a>)], budget: &mut u64) -> Result<Val<'a>, EvalError> {
        let allowed = (*budget).min(EXPRESSION_COST_MAX);
        let left = Cell::new(allowed);
        let evaluator = Evaluator::new(&left);
        let outcome = evaluate_in(&evaluator, &self.root, variables, None);
        *budget -= allowed - left.get();
        outcome
    }
}

/// Whether the text stands for something else than a variable in every expression.
pub fn is_word(text: &str) -> bool {
    types::WORDS.contains(&text)
}

/// Puts the variables on the chain one after the other, then evaluates.
fn evaluate_in<'s, 'a>(
    evaluator: &Evaluator,
    root: &'s ast::Node,
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
