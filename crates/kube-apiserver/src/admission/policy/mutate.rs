//! MutatingAdmissionPolicy: an expression answers what to change, as a configuration that is merged into the object, or as a
//! JSON patch. All policies that are about a request are found first; then each sees what those before it have left.

use machinery::cel::{OBJECT_COST_MAX, Val};
use machinery::object::Meta;
use machinery::patch::{apply, json};
use machinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::configuration::{Binding, Configurations, Mutation, PatchType, Policy};
use super::evaluate::{Facts, compose, with_variables};
use super::params::{self, ParamsError};
use crate::admission::outside::conditions::{ConditionsError, ExpressionError};
use crate::admission::outside::{self, Seen, Way, conditions};
use crate::admission::{Plugin, Request, webhook};

pub struct Mutating {
    configurations: Configurations,
}

impl Default for Mutating {
    fn default() -> Mutating {
        Mutating { configurations: Configurations::new("mutatingadmissionpolicies", "mutatingadmissionpolicybindings") }
    }
}

#[async_trait::async_trait]
impl Plugin for Mutating {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn is_outside(&self) -> bool {
        true
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        let policies = self.configurations.current(request.app);
        if policies.is_empty() || !outside::concerns(request) {
            return Ok(());
        }
        request.app.offload.run(run(&policies, request, object)).await
    }
}

/// One policy with one binding and one parameter.
struct Invocation<'p> {
    policy: &'p Policy,
    binding: &'p Binding,
    way: Way,
    params: Value,
}

impl Invocation<'_> {
    /// By which it is known in the second round.
    fn key(&self) -> String {
        format!("{}/{}/{}/{}", self.policy.name, self.binding.name, self.params.namespace(), self.params.name())
    }
}

/// Why policies refuse, those that do not mean to fail left out.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    fn add(&mut self, policy: &Policy, binding: Option<&Binding>, why: impl std::fmt::Display) {
        if policy.ignore_failure {
            return;
        }
        let with = binding.map_or(String::new(), |binding| format!(" with binding '{}'", binding.name));
        self.0.push(format!("policy '{}'{with} denied request: {why}", policy.name));
    }

    fn tell(self, request: &Request, object: &Value) -> Result<(), Status> {
        let Some(first) = self.0.first().cloned() else { return Ok(()) };
        let mut status = request.forbidden(Some(object), &first);
        status.message = first;
        status.reason = "Invalid";
        if let Some(details) = &mut status.details {
            let cause = |message| Cause { reason: String::new(), message, field: String::new() };
            details.causes.extend(self.0.into_iter().map(cause));
        }
        Err(status)
    }
}

async fn run(policies: &[Policy], request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
    let again = {
        let mut rounds = request.rounds.lock();
        let again = rounds.again;
        rounds.policies.begin(again, Some(object));
        again
    };
    let seen = Seen::new(request, Some(object));
    let mut failures = Failures::default();
    let invocations = find(&seen, policies, object, &mut failures).await;
    for invocation in &invocations {
        match applies(&seen, invocation, object).await? {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                failures.add(invocation.policy, Some(invocation.binding), why);
                continue;
            }
        }
        let key = invocation.key();
        if again && !request.rounds.lock().policies.to_ask.contains(&key) {
            continue;
        }
        let before = object.clone();
        for mutation in &invocation.policy.mutations {
            if let Err(why) = change(&seen, invocation, mutation, object).await? {
                failures.add(invocation.policy, Some(invocation.binding), why);
            }
        }
        let mut rounds = request.rounds.lock();
        if *object != before {
            rounds.policies.changed();
            rounds.wanted = true;
        }
        if invocation.policy.reinvoke {
            rounds.policies.asked_before.push(key);
        }
    }
    request.rounds.lock().policies.left = Some(object.clone());
    failures.tell(request, object)
}

/// Which policies are about the request as it came.
async fn find<'p>(
    seen: &Seen<'_>,
    policies: &'p [Policy],
    object: &Value,
    failures: &mut Failures,
) -> Vec<Invocation<'p>> {
    let mut found = Vec::new();
    for policy in policies {
        let way = match policy.constraints.matched(seen, Some(object)) {
            Ok(Some(way)) => way,
            Ok(None) => continue,
            Err(status) => {
                failures.add(policy, None, format!("failed to configure policy: {}", status.message));
                continue;
            }
        };
        for binding in &policy.bindings {
            let params = match binding.matched(seen, Some(object)) {
                Ok(true) => params::find(seen, policy, binding).await,
                Ok(false) => continue,
                Err(status) => Err(ParamsError::Refused(status)),
            };
            match params {
                Ok(params) => {
                    found.extend(params.into_iter().map(|params| Invocation {
                        policy,
                        binding,
                        way: way.clone(),
                        params,
                    }));
                }
                Err(why) => failures.add(policy, Some(binding), format!("failed to configure binding: {why}")),
            }
        }
    }
    found
}

/// Why a mutation does not change the object.
#[derive(Debug, PartialEq, thiserror::Error)]
enum MutationError {
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    #[error("unsupported return type from ApplyConfiguration expression: {0}")]
    NoObject(String),
    #[error("type mismatch: {0}")]
    Misnamed(String),
    #[error("invalid return type")]
    NoJson,
    #[error("type mismatch: JSONPatchType.expression should evaluate to array")]
    NoList,
    #[error("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")]
    NoOperation,
    #[error("type mismatch: {0} of JSONPatch must be a string")]
    NoText(&'static str),
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON")]
    Value,
    #[error("error applying patch: {0}")]
    Apply(apply::MergeError),
    #[error("JSON Patch: {0}")]
    Patch(json::JsonPatchError),
}

/// Whether the conditions of a policy hold for the object as it is now.
async fn applies(
    seen: &Seen<'_>,
    invocation: &Invocation<'_>,
    object: &Value,
) -> Result<Result<bool, ConditionsError>, Status> {
    let Invocation { policy, way, params, .. } = invocation;
    if policy.conditions.is_empty() {
        return Ok(Ok(true));
    }
    let (new, old) = (seen.show(way, Some(object)).await?, seen.show(way, seen.old()).await?);
    let facts = Facts { object: &new, old: &old, params };
    Ok(with_variables(seen, way, &facts, |variables| conditions::hold(&policy.conditions, &variables)))
}

/// Lets one mutation change the object; or says why not.
async fn change(
    seen: &Seen<'_>,
    invocation: &Invocation<'_>,
    mutation: &Mutation,
    object: &mut Value,
) -> Result<Result<(), MutationError>, Status> {
    let Invocation { policy, way, params, .. } = invocation;
    let (shown, old) = (seen.show(way, Some(object)).await?, seen.show(way, seen.old()).await?);
    let facts = Facts { object: &shown, old: &old, params };
    let made = with_variables(seen, way, &facts, |mut variables| {
        let mut budget = OBJECT_COST_MAX;
        compose(policy, &mut variables, &mut budget);
        match mutation.patch {
            PatchType::ApplyConfiguration => configuration(&mutation.expression.eval(&variables, &mut budget)?, &shown),
            PatchType::JsonPatch => operations(&mutation.expression.eval(&variables, &mut budget)?),
        }
    });
    let patch = match made {
        Ok(patch) => patch,
        Err(why) => return Ok(Err(why)),
    };
    let mut changed = shown.clone();
    match mutation.patch {
        PatchType::ApplyConfiguration => {
            let shape = seen.resource(way).shape();
            if let Err(error) = apply::merge_unowned(shape, &mut changed, &patch) {
                return Ok(Err(MutationError::Apply(error)));
            }
        }
        PatchType::JsonPatch => match json::apply(&mut changed, &patch) {
            Ok(()) => {}
            // A test that does not hold is no failure: the patch is not meant for this object.
            Err(error) if error.is_failed_test() => return Ok(Ok(())),
            Err(error) => return Ok(Err(MutationError::Patch(error))),
        },
    }
    if changed != shown {
        let before = object.clone();
        seen.take(way, changed, object).await?;
        webhook::settle(seen, &before, object)?;
    }
    Ok(Ok(()))
}

/// The configuration that an expression answers with, for an object of that kind.
fn configuration(answer: &Val, shown: &Value) -> Result<Value, MutationError> {
    if answer.named() != Some("Object") {
        let found = answer.named().unwrap_or_else(|| answer.type_name());
        return Err(MutationError::NoObject(found.to_string()));
    }
    if let Some(why) = answer.misnamed() {
        return Err(MutationError::Misnamed(why.to_string()));
    }
    let mut config = answer.to_json().ok_or(MutationError::NoJson)?;
    for field in ["apiVersion", "kind"] {
        config[field] = shown[field].clone();
    }
    Ok(config)
}

/// The operations of a JSON patch that an expression answers with.
fn operations(answer: &Val) -> Result<Value, MutationError> {
    let items = answer.items().ok_or(MutationError::NoList)?;
    let mut operations = Vec::with_capacity(items.len());
    for item in items.iter() {
        if item.named() != Some("JSONPatch") {
            return Err(MutationError::NoOperation);
        }
        let text = |field: &'static str| match item.entry(&Val::text(field)) {
            Some(Val::Text(text)) => Ok(text.into_owned()),
            None => Ok(String::new()),
            Some(_) => Err(MutationError::NoText(field)),
        };
        let mut operation = json!({"op": text("op")?, "path": text("path")?});
        let from = text("from")?;
        if !from.is_empty() {
            operation["from"] = from.into();
        }
        if let Some(value) = item.entry(&Val::text("value")) {
            if let Some(why) = value.misnamed() {
                return Err(MutationError::Misnamed(why.to_string()));
            }
            operation["value"] = value.to_json().ok_or(MutationError::Value)?;
        }
        operations.push(operation);
    }
    Ok(operations.into())
}

#[cfg(test)]
mod tests {
    use machinery::cel::Program;

    use super::*;

    fn answer<T>(expression: &str, act: impl Fn(&Val) -> Result<T, MutationError>) -> Result<T, MutationError> {
        let program = Program::parse(expression).expect("an expression");
        let mut budget = OBJECT_COST_MAX;
        act(&program.eval(&[], &mut budget).expect("a value"))
    }

    #[test]
    fn configurations_are_objects_of_the_kind_at_hand() {
        let shown = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let made = answer("Object{spec: Object.spec{replicas: 3}}", |value| configuration(value, &shown));
        assert_eq!(made, Ok(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3}})));
        let wrong = answer("Object.spec{replicas: 3}", |value| configuration(value, &shown));
        assert_eq!(wrong, Err(MutationError::NoObject("Object.spec".to_string())));
        assert!(answer("{'spec': 1}", |value| configuration(value, &shown)).is_err());
    }

    #[test]
    fn patches_are_lists_of_operations() {
        let patch = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}, \
                     JSONPatch{op: 'copy', from: '/a', path: '/b'}, \
                     JSONPatch{op: 'add', path: '/spec/list/-', value: Object.spec.list{name: 'x'}}]";
        let made = answer(patch, operations);
        assert_eq!(
            made,
            Ok(json!([
                {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
                {"op": "copy", "from": "/a", "path": "/b"},
                {"op": "add", "path": "/spec/list/-", "value": {"name": "x"}},
            ]))
        );
        assert!(answer("[{'op': 'add'}]", operations).is_err());
        assert!(answer("JSONPatch{op: 'add'}", operations).is_err());
    }
}
