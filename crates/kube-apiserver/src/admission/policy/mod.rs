//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: expressions that users bring decide, within this server. A policy
//! does nothing by itself; its bindings say where it counts, with which parameters, and what becomes of those it is against.
//!
//! `configuration.rs` keeps what policies and bindings say, read once per change; `params.rs` finds parameters;
//! `evaluate.rs` decides, `mutate.rs` changes. Pure but for the authorizer, which expressions may ask.

mod configuration;
mod params;
mod evaluate;
mod mutate;

use machinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::outside::{self, Seen, Way};
use super::{Plugin, Request};
use configuration::{Binding, Configurations, Policy};
use evaluate::{Decision, Facts, evaluate};
pub use mutate::Mutating;

const FAILURE_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

pub struct Validating {
    configurations: Configurations,
}

impl Default for Validating {
    fn default() -> Validating {
        let configurations = Configurations::new("validatingadmissionpolicies", "validatingadmissionpolicybindings");
        Validating { configurations }
    }
}

#[async_trait::async_trait]
impl Plugin for Validating {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn is_outside(&self) -> bool {
        true
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let policies = self.configurations.current(request.app);
        if policies.is_empty() || !outside::concerns(request) {
            return Ok(());
        }
        let seen = Seen::new(request, object);
        let mut noted = Noted::default();
        let checks = async {
            for policy in policies.iter() {
                check(&seen, policy, object, &mut noted).await?;
            }
            Ok(())
        };
        request.app.offload.run(checks).await?;
        noted.tell(request, object)
    }
}

/// What all policies together have found.
#[derive(Default)]
struct Noted {
    /// The first refusal, which is the one that is told.
    denied: Option<(String, &'static str)>,
    failures: Vec<Value>,
    annotations: Vec<(String, Vec<String>)>,
}

async fn check(seen: &Seen<'_>, policy: &Policy, object: Option<&Value>, noted: &mut Noted) -> Result<(), Status> {
    let way = match policy.constraints.matched(seen, object) {
        Ok(Some(way)) => way,
        Ok(None) => return Ok(()),
        Err(status) => {
            noted.misconfigured(policy, None, &status.message);
            return Ok(());
        }
    };
    let mut shown: Option<(Value, Value)> = None;
    for binding in &policy.bindings {
        match binding.matched(seen, object) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(status) => {
                noted.misconfigured(policy, Some(binding), &status.message);
                continue;
            }
        }
        let params = match params::find(seen, policy, binding).await {
            Ok(params) => params,
            Err(why) => {
                noted.misconfigured(policy, Some(binding), &why.to_string());
                continue;
            }
        };
        let (new, old) = match &shown {
            Some(shown) => shown,
            None => shown.insert((seen.show(&way, object).await?, seen.show(&way, seen.old()).await?)),
        };
        for params in &params {
            one(seen, &way, policy, binding, Facts { object: new, old, params }, noted);
        }
    }
    Ok(())
}

fn one(seen: &Seen, way: &Way, policy: &Policy, binding: &Binding, facts: Facts, noted: &mut Noted) {
    let found = evaluate(seen, way, policy, &facts);
    for Decision { index, message, reason } in found.denied {
        if binding.actions.deny {
            noted.deny(policy, Some(binding), &message, reason);
        }
        if binding.actions.warn {
            seen.request.call.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                policy.name, binding.name
            ));
        }
        if binding.actions.audit {
            noted.failures.push(json!({
                "message": message, "policy": policy.name, "binding": binding.name, "expressionIndex": index,
                "validationActions": binding.actions.names,
            }));
        }
    }
    for (key, value) in found.annotations {
        match value {
            Ok(text) => noted.annotate(format!("{}/{key}", policy.name), text),
            Err(why) => noted.deny(policy, Some(binding), &why.to_string(), "Invalid"),
        }
    }
}

impl Noted {
    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, message: &str, reason: &'static str) {
        let with = binding.map_or(String::new(), |binding| format!(" with binding '{}'", binding.name));
        let text = format!("ValidatingAdmissionPolicy '{}'{with} denied request: {message}", policy.name);
        self.denied.get_or_insert((text, reason));
    }

    /// Something about the policy itself is wrong: it decides what that means.
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if !policy.ignore_failure {
            let what = if binding.is_some() { "binding" } else { "policy" };
            self.deny(policy, binding, &format!("failed to configure {what}: {why}"), "Invalid");
        }
    }

    fn annotate(&mut self, key: String, value: String) {
        match self.annotations.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => self.annotations.push((key, vec![value])),
        }
    }

    fn tell(self, request: &Request, object: Option<&Value>) -> Result<(), Status> {
        if !self.failures.is_empty() {
            request.call.annotate(FAILURE_KEY, Value::from(self.failures).to_string());
        }
        for (key, values) in self.annotations {
            request.call.annotate(key, values.join(", "));
        }
        let Some((message, reason)) = self.denied else { return Ok(()) };
        let mut status = request.forbidden(object, &message);
        status.reason = reason;
        status.code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        if let Some(details) = &mut status.details {
            details.causes.push(Cause { reason: String::new(), message, field: String::new() });
        }
        Err(status)
    }
}
