//! Evaluates a policy for one object and one parameter.

use std::rc::Rc;

use machinery::cel::{OBJECT_COST_MAX, Val};
use serde_json::Value;

use super::configuration::{Policy, Validation};
use crate::admission::outside::conditions::{self, Authority, ExpressionError};
use crate::admission::outside::{Seen, Way};

/// Longer messages of expressions are not told, as upstream.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

pub type Variables<'n, 'a> = Vec<(&'n str, Val<'a>)>;

pub struct Facts<'a> {
    pub object: &'a Value,
    pub old: &'a Value,
    pub params: &'a Value,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// Of the validation.
    pub index: usize,
    pub message: String,
    pub reason: &'static str,
}

#[derive(Default)]
pub struct Found {
    pub denied: Vec<Decision>,
    /// Key and value, or why there is none.
    pub annotations: Vec<(String, Result<String, ExpressionError>)>,
}

pub fn evaluate(seen: &Seen, way: &Way, policy: &Policy, facts: &Facts) -> Found {
    with_variables(seen, way, facts, |variables| decide(policy, variables))
}

/// What expressions of policies may name, but for the policy's own variables.
pub(crate) fn with_variables<T>(seen: &Seen, way: &Way, facts: &Facts, act: impl FnOnce(Variables<'_, '_>) -> T) -> T {
    let described = seen.described(way);
    let authority = Authority(seen.request);
    let is_namespace = seen.request.is_for("", "namespaces");
    let views = &seen.request.app.views;
    let namespace = (!seen.namespace.is_empty() && !is_namespace).then(|| views.one("namespaces", "", &seen.namespace));
    let namespace = namespace.flatten();
    let namespace = namespace.as_deref().unwrap_or(&Value::Null);
    let variables = vec![
        ("object", Val::json(facts.object, None)),
        ("oldObject", Val::json(facts.old, None)),
        ("request", Val::json(&described, None)),
        ("params", Val::json(facts.params, None)),
        ("namespaceObject", Val::json(namespace, None)),
        ("authorizer", Val::authorizer(&authority, authority.request_resource())),
    ];
    act(variables)
}

fn decide<'a>(policy: &Policy, mut variables: Variables<'_, 'a>) -> Found {
    let mut found = Found::default();
    let fail = |found: &mut Found, index: usize, message: String| {
        if !policy.ignore_failure {
            found.denied.push(Decision { index, message, reason: "Invalid" });
        }
    };
    match conditions::hold(&policy.conditions, &variables) {
        Ok(true) => {}
        Ok(false) => return found,
        Err(why) => {
            fail(&mut found, 0, why.to_string());
            return found;
        }
    }
    let mut budget = OBJECT_COST_MAX;
    compose(policy, &mut variables, &mut budget);
    for (index, validation) in policy.validations.iter().enumerate() {
        match validation.expression.eval(&variables, &mut budget) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => {
                let message = message(validation, &variables, &mut budget);
                found.denied.push(Decision { index, message, reason: validation.reason });
            }
            Ok(_) => {
                let why = ExpressionError::NoBool(validation.expression.text.clone());
                fail(&mut found, index, why.to_string());
            }
            Err(why) => fail(&mut found, index, why.to_string()),
        }
    }
    for (key, expression) in &policy.annotations {
        let value = match expression.eval(&variables, &mut budget) {
            Ok(Val::Text(text)) if text.trim().is_empty() => continue,
            Ok(Val::Null) => continue,
            Ok(Val::Text(text)) => Ok(text.trim().to_string()),
            Err(_) if policy.ignore_failure => continue,
            Ok(_) if policy.ignore_failure => continue,
            Ok(other) => Err(ExpressionError::NoText { text: expression.text.clone(), found: other.type_name() }),
            Err(why) => Err(why),
        };
        found.annotations.push((key.clone(), value));
    }
    found
}

/// `variables`: each may name those before it. One that fails is an error only for those who use it.
pub(crate) fn compose<'a>(policy: &Policy, variables: &mut Variables<'_, 'a>, budget: &mut u64) {
    let mut own: Vec<(Val<'a>, Val<'a>)> = Vec::new();
    for (name, expression) in &policy.variables {
        variables.push(("variables", Val::Map(Rc::new(own.clone()))));
        let value = expression.value(variables, budget);
        variables.pop();
        own.push((Val::text(name.clone()), value));
    }
    variables.push(("variables", Val::Map(Rc::new(own))));
}

/// What its expression makes, else its own words, else the expression that does not hold.
fn message(validation: &Validation, variables: &Variables, budget: &mut u64) -> String {
    let made = validation.message_expression.as_ref().and_then(|expression| {
        let Ok(Val::Text(text)) = expression.eval(variables, budget) else { return None };
        let text = text.trim();
        let fits = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
        fits.then(|| text.to_string())
    });
    made.unwrap_or_else(|| match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::policy::configuration::Policy;
    use serde_json::json;

    fn found(spec: Value, object: &Value) -> Found {
        let policy = Policy::read(&json!({"metadata": {"name": "p"}, "spec": spec}), &[]);
        decide(&policy, vec![("object", Val::json(object, None))])
    }

    #[test]
    fn validations_say_why() {
        let object = json!({"spec": {"replicas": 7}});
        let check = |validation: Value, expected: &[&str]| {
            let found = found(
                json!({"validations": [validation],
                "variables": [{"name": "bad", "expression": "object.nothing"},
                    {"name": "count", "expression": "object.spec.replicas"},
                    {"name": "twice", "expression": "variables.count * 2"}]}),
                &object,
            );
            let said: Vec<String> = found.denied.iter().map(|one| format!("{}: {}", one.reason, one.message)).collect();
            assert_eq!(said, expected, "{validation}");
        };
        check(json!({"expression": "variables.twice == 14"}), &[]);
        check(json!({"expression": " variables.count < 5 "}), &["Invalid: failed expression: variables.count < 5"]);
        check(json!({"expression": "false", "message": "too many", "reason": "Forbidden"}), &["Forbidden: too many"]);
        let made = "'at most 5, not ' + string(variables.count)";
        check(json!({"expression": "false", "messageExpression": made}), &["Invalid: at most 5, not 7"]);
        check(json!({"expression": "false", "message": "m", "messageExpression": "variables.bad"}), &["Invalid: m"]);
        check(
            json!({"expression": "variables.bad == 1"}),
            &["Invalid: expression 'variables.bad == 1' resulted in error: no such key: nothing"],
        );
    }

    #[test]
    fn failures_count_as_the_policy_says_and_conditions_come_first() {
        let object = json!({"a": 1});
        let bad = json!([{"expression": "object.nothing"}]);
        assert_eq!(found(json!({"validations": bad}), &object).denied.len(), 1);
        assert_eq!(found(json!({"validations": bad, "failurePolicy": "Ignore"}), &object).denied.len(), 0);
        let never = json!([{"name": "c", "expression": "object.a == 2"}]);
        assert_eq!(found(json!({"validations": bad, "matchConditions": never}), &object).denied.len(), 0);
        let noted = found(
            json!({"auditAnnotations": [{"key": "k", "valueExpression": "'a is ' + string(object.a)"},
                {"key": "none", "valueExpression": "null"}, {"key": "bad", "valueExpression": "object.a"}]}),
            &object,
        );
        assert_eq!(noted.annotations[0], ("k".to_string(), Ok("a is 1".to_string())));
        assert_eq!(noted.annotations.len(), 2);
        assert!(noted.annotations[1].1.is_err());
    }
}
