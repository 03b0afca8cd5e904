//! Priority: a pod's priority comes from its PriorityClass, or from the one that is the default for all.

use std::sync::Arc;

use machinery::object::{Meta, child_mut};
use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};
use crate::refusal::Refusal;
use crate::write::store_status;

const CLASSES: &str = "priorityclasses";

pub struct Priority;

#[async_trait::async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if !request.is("", "pods") {
            return Ok(());
        }
        match (request.operation, request.old) {
            (Operation::Create, _) => {
                let class = class_of(request, object).await?;
                resolve(object, class.as_deref()).map_err(|why| request.forbidden(Some(object), &why))
            }
            (Operation::Update, Some(old)) => {
                keep(object, old);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(object) = object.filter(|_| request.is("scheduling.k8s.io", CLASSES)) else { return Ok(()) };
        let classes = request.app.views.all(CLASSES, "");
        second_default(object, request.operation, &classes).map_err(|why| request.forbidden(Some(object), &why))
    }
}

/// The class that the pod names; the default one where it names none; none where there is no default.
async fn class_of(request: &Request<'_>, pod: &Value) -> Result<Option<Arc<Value>>, Status> {
    let name = pod.pointer("/spec/priorityClassName").and_then(Value::as_str).unwrap_or("");
    let views = &request.app.views;
    if name.is_empty() {
        return Ok(default_class(&views.all(CLASSES, "")));
    }
    let mut class = views.one(CLASSES, "", name);
    if class.is_none() {
        request.app.cache.fresh().await.map_err(store_status)?;
        class = views.one(CLASSES, "", name);
    }
    match class {
        Some(class) => Ok(Some(class)),
        None => Err(request.forbidden(Some(pod), format!("no PriorityClass with name {name} was found"))),
    }
}

/// Should several claim to be the default, the lowest is.
fn default_class(classes: &[Arc<Value>]) -> Option<Arc<Value>> {
    let defaults = classes.iter().filter(|class| class["globalDefault"] == true);
    defaults.min_by_key(|class| class["value"].as_i64().unwrap_or(0)).cloned()
}

fn resolve(pod: &mut Value, class: Option<&Value>) -> Result<(), Refusal> {
    let priority = class.and_then(|class| class["value"].as_i64()).unwrap_or(0);
    let policy = match class {
        Some(class) => class["preemptionPolicy"].as_str(),
        None => Some("PreemptLowerPriority"),
    };
    let spec = child_mut(pod, "spec");
    let given = spec.get("priority").and_then(Value::as_i64);
    if let Some(given) = given.filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        )
        .into());
    }
    let given = spec.get("preemptionPolicy").and_then(Value::as_str);
    if let (Some(given), Some(policy)) = (given, policy)
        && given != policy
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        )
        .into());
    }
    if let Some(class) = class {
        spec.insert("priorityClassName".into(), class.name().into());
    }
    spec.insert("priority".into(), priority.into());
    if let Some(policy) = policy {
        spec.insert("preemptionPolicy".into(), policy.into());
    }
    Ok(())
}

/// A writer that leaves out what was computed means to keep it.
fn keep(pod: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        let Some(value) = old["spec"].get(field).filter(|value| !value.is_null()) else { continue };
        let slot = child_mut(pod, "spec").entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value.clone();
        }
    }
}

fn second_default(class: &Value, operation: Operation, classes: &[Arc<Value>]) -> Result<(), Refusal> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    match default_class(classes) {
        Some(other) if operation == Operation::Create || other.name() != class.name() => {
            Err(format!("PriorityClass {} is already marked as default. Only one default can exist", other.name())
                .into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, value: i64, default: bool) -> Value {
        json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "PreemptLowerPriority"})
    }

    fn check(spec: Value, class: Option<Value>, expected: Result<Value, &str>) {
        let mut pod = json!({"spec": spec});
        let outcome = resolve(&mut pod, class.as_ref()).map(|()| pod["spec"].clone());
        assert_eq!(outcome.map_err(|error| error.to_string()), expected.map_err(String::from));
    }

    #[test]
    fn priority_comes_from_the_class() {
        let policy = "PreemptLowerPriority";
        check(json!({}), None, Ok(json!({"priority": 0, "preemptionPolicy": policy})));
        let high = || Some(class("high", 9, false));
        let resolved = json!({"priorityClassName": "high", "priority": 9, "preemptionPolicy": policy});
        check(json!({"priorityClassName": "high"}), high(), Ok(resolved.clone()));
        check(json!({"priorityClassName": "high", "priority": 9}), high(), Ok(resolved));
        check(
            json!({"priority": 1}),
            high(),
            Err("the integer value of priority (1) must not be provided in pod spec; priority admission controller \
                 computed 9 from the given PriorityClass name"),
        );
        check(
            json!({"preemptionPolicy": "Never"}),
            None,
            Err("the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission \
                 controller computed PreemptLowerPriority from the given PriorityClass name"),
        );
    }

    #[test]
    fn updates_keep_what_was_computed() {
        let old = json!({"spec": {"priority": 5, "preemptionPolicy": "Never"}});
        let mut pod = json!({"spec": {"priority": 6}});
        keep(&mut pod, &old);
        assert_eq!(pod, json!({"spec": {"priority": 6, "preemptionPolicy": "Never"}}));
    }

    #[test]
    fn one_default_at_most() {
        let there = vec![Arc::new(class("a", 2, true)), Arc::new(class("b", 1, false))];
        assert_eq!(default_class(&there).map(|class| class.name().to_string()), Some("a".into()));
        let refused = second_default(&class("c", 1, true), Operation::Create, &there);
        assert_eq!(refused, Err("PriorityClass a is already marked as default. Only one default can exist".into()));
        assert_eq!(second_default(&class("a", 2, true), Operation::Update, &there), Ok(()));
        assert!(second_default(&class("b", 1, true), Operation::Update, &there).is_err());
        assert_eq!(second_default(&class("c", 1, false), Operation::Create, &there), Ok(()));
    }
}
