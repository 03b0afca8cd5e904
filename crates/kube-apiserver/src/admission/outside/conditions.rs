//! `matchConditions`: expressions that all must hold for a webhook or policy to be about a request. And what
//! expressions may ask of the authorizer.

use machinery::cel::{Asked, EvalError, Issues, Oracle, Program, Val, Verdict};
use serde_json::Value;

use crate::admission::Request;
use crate::authn::User;
use crate::authz::{Attributes, Decision};
use crate::refusal::together;

/// What all conditions of one webhook may cost together, a quarter of what a policy may.
const CONDITIONS_COST_MAX: u64 = 2_500_000;

/// One of them. Its name is for its author.
#[derive(Debug)]
pub struct Condition(Expression);

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("compilation error: {0}")]
    Compilation(Issues),
    #[error("expression '{text}' resulted in error: {error}")]
    Evaluation { text: String, error: EvalError },
    #[error("expression '{0}' resulted in error: must evaluate to bool")]
    NoBool(String),
    #[error(
        "valueExpression '{text}' resulted in unsupported return type: {found}. Return type must be either string or null."
    )]
    NoText { text: String, found: &'static str },
}

/// The conditions that could not be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", together(.0))]
pub struct ConditionsError(Vec<ExpressionError>);

/// An expression that was parsed once. A text that is none is an error when it is asked.
#[derive(Debug)]
pub struct Expression {
    pub text: String,
    program: Result<Program, ExpressionError>,
}

impl Expression {
    pub fn new(text: &str) -> Expression {
        let program = Program::parse(text).map_err(ExpressionError::Compilation);
        Expression { text: text.to_string(), program }
    }

    pub fn eval<'a>(&self, variables: &[(&str, Val<'a>)], budget: &mut u64) -> Result<Val<'a>, ExpressionError> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let failed = |error| ExpressionError::Evaluation { text: self.text.clone(), error };
        program.eval(variables, budget).map_err(failed)
    }

    /// The same with an error that a variable can carry.
    pub fn value<'a>(&self, variables: &[(&str, Val<'a>)], budget: &mut u64) -> Val<'a> {
        let failed = |error: EvalError| Val::Failed(std::rc::Rc::new(error));
        match &self.program {
            Err(why) => failed(EvalError::Failed(why.to_string())),
            Ok(program) => program.eval(variables, budget).unwrap_or_else(failed),
        }
    }
}

impl Condition {
    pub fn all(list: &Value) -> Vec<Condition> {
        let read = |condition: &Value| Condition(Expression::new(condition["expression"].as_str().unwrap_or("")));
        list.as_array().into_iter().flatten().map(read).collect()
    }
}

/// Whether all hold. One that is false decides, whatever becomes of the others.
pub fn hold(conditions: &[Condition], variables: &[(&str, Val)]) -> Result<bool, ConditionsError> {
    let mut budget = CONDITIONS_COST_MAX;
    let mut failed = Vec::new();
    for Condition(expression) in conditions {
        match expression.eval(variables, &mut budget) {
            Ok(Val::Bool(false)) => return Ok(false),
            Ok(Val::Bool(true)) => {}
            Ok(_) => failed.push(ExpressionError::NoBool(expression.text.clone())),
            Err(why) => failed.push(why),
        }
    }
    if failed.is_empty() { Ok(true) } else { Err(ConditionsError(failed)) }
}

/// Answers for the user of a request.
pub struct Authority<'a>(pub &'a Request<'a>);

impl Authority<'_> {
    /// What `authorizer.requestResource` asks about.
    pub fn request_resource(&self) -> Asked {
        let Authority(request) = self;
        let kind = &request.resource.kind;
        Asked {
            group: Some(kind.group.into()),
            resource: Some(kind.plural.into()),
            subresource: request.subresource.into(),
            namespace: request.namespace.into(),
            name: request.name.into(),
            ..Asked::default()
        }
    }
}

impl Oracle for Authority<'_> {
    fn ask(&self, asked: &Asked) -> Verdict {
        let Authority(request) = self;
        let account = asked.account.as_ref().map(|(namespace, name)| User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".into(),
            ],
            ..User::default()
        });
        let user = account.as_ref().unwrap_or(request.user);
        let attributes = match &asked.path {
            Some(path) => Attributes::path(user, &asked.verb, path),
            None => Attributes {
                version: "*",
                subresource: &asked.subresource,
                namespace: &asked.namespace,
                name: &asked.name,
                field_selector: &asked.field_selector,
                label_selector: &asked.label_selector,
                ..Attributes::resource(
                    user,
                    &asked.verb,
                    asked.group.as_deref().unwrap_or(""),
                    asked.resource.as_deref().unwrap_or(""),
                )
            },
        };
        match request.app.authorizer.authorize_in_place(&attributes, &request.app.views) {
            Decision::Allow(reason) => Verdict { allowed: true, reason, error: None },
            Decision::Deny(reason) | Decision::NoOpinion(reason) => Verdict { allowed: false, reason, error: None },
            Decision::Failed { reason, error, .. } => Verdict { allowed: false, reason, error: Some(error) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_must_hold_and_false_decides_over_errors() {
        let object = json!({"a": 1});
        let check = |texts: &[&str], expected: Result<bool, &str>| {
            let list: Vec<Value> = texts.iter().map(|text| json!({"name": "x", "expression": text})).collect();
            let found = hold(&Condition::all(&list.into()), &[("object", Val::json(&object, None))]);
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(String::from), "{texts:?}");
        };
        check(&[], Ok(true));
        check(&["object.a == 1", "object.a < 2"], Ok(true));
        check(&["object.a == 1", "object.a > 2"], Ok(false));
        check(&["object.b == 1", "object.a > 2"], Ok(false));
        check(&["object.b == 1"], Err("expression 'object.b == 1' resulted in error: no such key: b"));
        check(&["object.a"], Err("expression 'object.a' resulted in error: must evaluate to bool"));
    }
}
