//! What policies and bindings say, read once per change of either.

use std::sync::Arc;

use arc_swap::ArcSwap;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use crate::admission::outside::conditions::{Condition, Expression};
use crate::admission::outside::rules::Rule;
use crate::admission::outside::selectors::Selectors;
use crate::admission::outside::{Seen, Way};
use crate::app::App;
use crate::authn::Objects;

pub struct Policy {
    pub name: String,
    pub constraints: Constraints,
    /// apiVersion and kind of its parameters.
    pub param_kind: Option<(String, String)>,
    pub conditions: Vec<Condition>,
    pub variables: Vec<(String, Expression)>,
    pub validations: Vec<Validation>,
    pub mutations: Vec<Mutation>,
    /// Whether it is asked again where something changed behind it.
    pub reinvoke: bool,
    /// Key and value.
    pub annotations: Vec<(String, Expression)>,
    pub ignore_failure: bool,
    pub bindings: Vec<Binding>,
}

pub struct Validation {
    pub expression: Expression,
    pub message: String,
    pub message_expression: Option<Expression>,
    pub reason: &'static str,
}

/// What is to be changed, and how the expression says it.
pub struct Mutation {
    pub patch: PatchType,
    pub expression: Expression,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    ApplyConfiguration,
    JsonPatch,
}

pub struct Binding {
    pub name: String,
    /// Null where nothing is said.
    pub param_ref: Value,
    pub actions: Actions,
    constraints: Option<Constraints>,
}

pub struct Actions {
    pub deny: bool,
    pub warn: bool,
    pub audit: bool,
    pub names: Value,
}

/// Match resources: of a policy what it is about, of a binding what is left of that.
pub struct Constraints {
    selectors: Selectors,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
}

pub struct Configurations {
    policies: &'static str,
    bindings: &'static str,
    read: ArcSwap<Read>,
}

#[derive(Default)]
struct Read {
    /// The revisions of the last changes; none before the first look.
    seen: Option<(u64, u64)>,
    policies: Arc<Vec<Policy>>,
}

impl Configurations {
    /// Those of two resources.
    pub fn new(policies: &'static str, bindings: &'static str) -> Configurations {
        Configurations { policies, bindings, read: ArcSwap::default() }
    }

    /// Policies that are bound, by name.
    pub fn current(&self, app: &App) -> Arc<Vec<Policy>> {
        let changed = (app.views.last_changed(self.policies), app.views.last_changed(self.bindings));
        let read = self.read.load();
        if read.seen == Some(changed) {
            return read.policies.clone();
        }
        let bindings = app.views.all(self.bindings, "");
        let policies = app.views.all(self.policies, "");
        let policies = policies.iter().map(|policy| Policy::read(policy, &bindings));
        let policies: Arc<Vec<Policy>> = Arc::new(policies.filter(|policy| !policy.bindings.is_empty()).collect());
        self.read.store(Arc::new(Read { seen: Some(changed), policies: policies.clone() }));
        policies
    }
}

impl Policy {
    pub(super) fn read(policy: &Value, bindings: &[Arc<Value>]) -> Policy {
        let spec = &policy["spec"];
        let items = |field: &str| spec[field].as_array().into_iter().flatten();
        let own = bindings.iter().filter(|binding| binding["spec"]["policyName"] == policy.name());
        Policy {
            name: policy.name().into(),
            constraints: Constraints::read(&spec["matchConstraints"]),
            param_kind: spec["paramKind"].is_object().then(|| {
                let kind = &spec["paramKind"];
                (text(kind, "apiVersion").to_string(), text(kind, "kind").to_string())
            }),
            conditions: Condition::all(&spec["matchConditions"]),
            variables: items("variables")
                .map(|variable| (text(variable, "name").into(), Expression::new(text(variable, "expression"))))
                .collect(),
            validations: items("validations").map(Validation::read).collect(),
            mutations: items("mutations").map(Mutation::read).collect(),
            reinvoke: spec["reinvocationPolicy"] == "IfNeeded",
            annotations: items("auditAnnotations")
                .map(|annotation| {
                    (text(annotation, "key").into(), Expression::new(text(annotation, "valueExpression")))
                })
                .collect(),
            ignore_failure: spec["failurePolicy"] == "Ignore",
            bindings: own.map(|binding| Binding::read(binding)).collect(),
        }
    }
}

impl Validation {
    fn read(validation: &Value) -> Validation {
        let message = text(validation, "messageExpression");
        Validation {
            expression: Expression::new(text(validation, "expression")),
            message: text(validation, "message").trim().into(),
            message_expression: (!message.is_empty()).then(|| Expression::new(message)),
            reason: match text(validation, "reason") {
                "Forbidden" => "Forbidden",
                "Unauthorized" => "Unauthorized",
                "RequestEntityTooLarge" => "RequestEntityTooLarge",
                _ => "Invalid",
            },
        }
    }
}

impl Mutation {
    fn read(mutation: &Value) -> Mutation {
        let (patch, source) = match text(mutation, "patchType") {
            "JSONPatch" => (PatchType::JsonPatch, &mutation["jsonPatch"]),
            _ => (PatchType::ApplyConfiguration, &mutation["applyConfiguration"]),
        };
        Mutation { patch, expression: Expression::new(text(source, "expression")) }
    }
}

impl Binding {
    fn read(binding: &Value) -> Binding {
        let spec = &binding["spec"];
        let has = |action: &str| {
            spec["validationActions"].as_array().into_iter().flatten().any(|known| known.as_str() == Some(action))
        };
        Binding {
            name: binding.name().into(),
            param_ref: spec["paramRef"].clone(),
            actions: Actions {
                deny: has("Deny"),
                warn: has("Warn"),
                audit: has("Audit"),
                names: spec["validationActions"].clone(),
            },
            constraints: spec["matchResources"].is_object().then(|| Constraints::read(&spec["matchResources"])),
        }
    }

    pub fn matched(&self, seen: &Seen, object: Option<&Value>) -> Result<bool, Status> {
        match &self.constraints {
            None => Ok(true),
            Some(constraints) => Ok(constraints.matched(seen, object)?.is_some()),
        }
    }
}

impl Constraints {
    fn read(resources: &Value) -> Constraints {
        Constraints {
            selectors: Selectors::of(resources),
            rules: Rule::all(&resources["resourceRules"]),
            excluded: Rule::all(&resources["excludeResourceRules"]),
            equivalent: resources["matchPolicy"] != "Exact",
        }
    }

    /// Whether the request is meant, and in which version it is looked at.
    pub fn matched(&self, seen: &Seen, object: Option<&Value>) -> Result<Option<Way>, Status> {
        let in_namespace = self.selectors.match_namespace(seen, object);
        if matches!(in_namespace, Ok(false)) {
            return Ok(None);
        }
        let labelled = self.selectors.match_object(object, seen.old());
        if matches!(labelled, Ok(false)) || seen.matched(&self.excluded, self.equivalent).is_some() {
            return Ok(None);
        }
        let way = if self.rules.is_empty() { Some(Way::Asked) } else { seen.matched(&self.rules, self.equivalent) };
        if way.is_some() {
            in_namespace?;
            labelled?;
        }
        Ok(way)
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}
