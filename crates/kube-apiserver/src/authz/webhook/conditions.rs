//! `matchConditions` of an authorization webhook: expressions about the SubjectAccessReview that all must hold.

use machinery::cel::{Program, Val};
use serde_json::Value;

use crate::refusal::together;

/// What all conditions of one webhook may cost together for one request.
const COST_MAX: u64 = 2_500_000;

/// What could not be decided, a sentence for each condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", together(.0))]
pub struct ConditionsError(Vec<String>);

#[derive(Debug, Default)]
pub struct Conditions(Vec<(String, Program)>);

impl Conditions {
    /// Of expressions that were checked.
    pub fn new(expressions: Vec<(String, Program)>) -> Conditions {
        Conditions(expressions)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all hold. One that is false decides, whatever becomes of the others.
    pub fn hold(&self, request: &Value) -> Result<bool, ConditionsError> {
        let variables = [("request", Val::json(request, None))];
        let mut budget = COST_MAX;
        let mut failed = Vec::new();
        for (text, program) in &self.0 {
            match program.eval(&variables, &mut budget) {
                Ok(Val::Bool(true)) => {}
                Ok(Val::Bool(false)) => return Ok(false),
                Ok(other) => failed.push(format!(
                    "cel evaluation error: expression '{text}' eval result type should be bool but got {}",
                    other.type_name()
                )),
                Err(error) => {
                    failed.push(format!("cel evaluation error: expression '{text}' resulted in error: {error}"));
                }
            }
        }
        if failed.is_empty() { Ok(true) } else { Err(ConditionsError(failed)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn false_decides_over_errors() {
        let request = json!({"user": "ada", "resourceAttributes": {"namespace": "kube-system"}});
        let check = |texts: &[&str], expected: Result<bool, &str>| {
            let parsed = texts.iter().map(|text| ((*text).to_owned(), Program::parse(text).unwrap())).collect();
            let found = Conditions::new(parsed).hold(&request);
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(String::from), "{texts:?}");
        };
        check(&["has(request.resourceAttributes)", "request.user == 'ada'"], Ok(true));
        check(&["request.resourceAttributes.namespace == 'default'"], Ok(false));
        check(&["request.nonResourceAttributes.path == '/'", "request.user == 'bob'"], Ok(false));
        check(
            &["request.nonResourceAttributes.path == '/'"],
            Err("cel evaluation error: expression 'request.nonResourceAttributes.path == '/'' resulted in error: no \
                 such key: nonResourceAttributes"),
        );
    }
}
