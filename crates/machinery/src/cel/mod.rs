//! The Common Expression Language, as far as Kubernetes uses it: rules of custom resources and policies.
//!
//! An expression is parsed once and evaluated over JSON as it lies there, without copying it. Types are checked before only
//! where schema and literals tell them (`operators.rs`); any other wrong type is an error when it is met. Every step costs,
//! and a budget ends what costs too much.

mod error;
mod lexer;
mod parser;
mod value;
mod eval;
mod functions;
mod texts;
mod lists;
mod network;
mod semver;
mod declared;
mod operators;
mod time;
mod authorizer;
mod cost;

#[cfg(test)]
mod tests;

use std::cell::Cell;

pub use authorizer::{Asked, Oracle, Verdict};
pub use cost::Declaration;
pub use declared::Answer;
use declared::Unknown;
pub use error::{CheckError, EvalError, ParseError, Undeclared};
use eval::{Evaluator, Scope};
use serde_json::Value;
pub use value::Val;

/// Deeper expressions are refused, here and where they are evaluated.
const DEPTH_MAX: usize = 100;

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

    /// Parses the text of a rule that may name those variables, each with its schema where that is known, and refuses
    /// it, with the place, where it names others, a field that there is not, or an operator that is not for its values.
    pub fn check(text: &str, variables: &[(&str, Option<&Value>)]) -> Result<(), CheckError> {
        let program = Program::parse(text).map_err(|error| {
            let pointed = pointed(text, error.at);
            CheckError::Syntax { error, pointed }
        })?;
        let Some(unknown) = declared::undeclared(&program.root, variables) else { return Ok(()) };
        let at = place(text, &unknown);
        let problem = match unknown {
            Unknown::Name(name) | Unknown::Function(name) => Undeclared::Reference(name.to_owned()),
            Unknown::Field(name) => Undeclared::Field(name.to_owned()),
            Unknown::Overload(overload, _) => Undeclared::Overload(overload),
        };
        let (line, column) = line_and_column(text, at);
        Err(CheckError::Undeclared { line, column: column + 1, problem, pointed: pointed(text, at) })
    }

    /// What kind of value the expression answers with, where that can be told without running it.
    pub fn answers(text: &str, variables: &[(&str, Option<&Value>)]) -> Option<Answer> {
        declared::answer(&Program::parse(text).ok()?.root, variables)
    }

    /// What a rule about values of that declaration can cost at most, as far as the schema bounds them.
    pub fn cost(text: &str, own: &Declaration, optional_old: bool) -> Option<u64> {
        Some(cost::estimate(&Program::parse(text).ok()?.root, own, optional_old))
    }

    /// Whether the expression names that variable.
    pub fn mentions(&self, variable: &str) -> bool {
        parser::mentions(&self.root, variable)
    }

    /// Whether the expression reads that field of that variable.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        parser::selects(&self.root, variable, field)
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

/// Where it stands first as a word of its own; a call is placed at its parenthesis, a field at its dot.
fn place(text: &str, unknown: &Unknown) -> usize {
    let dotted = |before: &str| before.trim_end_matches('?').ends_with('.');
    match *unknown {
        Unknown::Name(name) => word(text, name, |before, _| !dotted(before)),
        Unknown::Function(name) => {
            let start = word(text, name, |_, after| after.trim_start().starts_with('('));
            text[start..].find('(').map_or(start, |offset| start + offset)
        }
        Unknown::Field(name) => {
            let start = word(text, name, |before, _| dotted(before));
            text[..start].rfind('.').unwrap_or(start)
        }
        Unknown::Overload(_, at) => at,
    }
}

/// Where a word stands first between texts that fit.
fn word(text: &str, name: &str, fits: impl Fn(&str, &str) -> bool) -> usize {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let found = text.match_indices(name).map(|(at, _)| at).find(|at| {
        let (before, after) = (&text[..*at], &text[at + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part) && fits(before, after)
    });
    found.unwrap_or(0)
}

fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    (line, before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()))
}

/// The line in question, and under it a mark at the place.
fn pointed(text: &str, at: usize) -> String {
    let (line, column) = line_and_column(text, at);
    let shown = text.split('\n').nth(line - 1).unwrap_or_default().replace('\t', " ");
    format!("\n | {shown}\n | {}^", ".".repeat(column))
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
