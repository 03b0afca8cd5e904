//! RuntimeClass: what the runtime of a pod costs on top, and on which nodes it is.

use std::sync::Arc;

use machinery::object::child_mut;
use machinery::status::Status;
use serde_json::{Map, Value};

use super::pod_resources::amounts;
use super::{Operation, Plugin, Request};
use crate::refusal::Refusal;
use crate::write::store_status;

pub struct RuntimeClass;

#[async_trait::async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if request.operation != Operation::Create || !request.is("", "pods") {
            return Ok(());
        }
        if let Some(class) = class_of(request, object).await? {
            apply(object, &class).map_err(|why| request.forbidden(Some(object), &why))?;
        }
        Ok(())
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(pod) = object.filter(|_| request.operation == Operation::Create && request.is("", "pods")) else {
            return Ok(());
        };
        let class = class_of(request, pod).await?;
        check_overhead(pod, class.as_deref()).map_err(|why| request.forbidden(Some(pod), why))
    }
}

async fn class_of(request: &Request<'_>, pod: &Value) -> Result<Option<Arc<Value>>, Status> {
    let name = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str).unwrap_or("");
    if name.is_empty() {
        return Ok(None);
    }
    let look = || request.app.views.one("runtimeclasses", "", name);
    if let Some(class) = look() {
        return Ok(Some(class));
    }
    request.app.cache.fresh().await.map_err(store_status)?;
    match look() {
        Some(class) => Ok(Some(class)),
        None => Err(request.forbidden(Some(pod), format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn apply(pod: &mut Value, class: &Value) -> Result<(), Refusal> {
    let spec = child_mut(pod, "spec");
    if let Some(overhead) = class.pointer("/overhead/podFixed").filter(|overhead| !overhead.is_null()) {
        if spec.get("overhead").is_some_and(|given| !given.is_null() && amounts(given) != amounts(overhead)) {
            return Err(MISMATCH.into());
        }
        spec.insert("overhead".into(), overhead.clone());
    }
    for (key, value) in class.pointer("/scheduling/nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        let selector = spec.entry("nodeSelector").or_insert_with(|| Value::Object(Map::new()));
        match selector.get(key) {
            Some(given) if given != value => {
                let text = |value: &Value| value.as_str().unwrap_or("").to_string();
                let (wanted, given) = (text(value), text(given));
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
                ).into());
            }
            _ => selector[key] = value.clone(),
        }
    }
    let more = class.pointer("/scheduling/tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    if !more.is_empty() {
        let mut list = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
        let new: Vec<Value> = more.into_iter().filter(|toleration| !list.contains(toleration)).collect();
        list.extend(new);
        spec.insert("tolerations".into(), list.into());
    }
    Ok(())
}

fn check_overhead(pod: &Value, class: Option<&Value>) -> Result<(), Refusal> {
    let given = amounts(&pod["spec"]["overhead"]);
    match class.and_then(|class| class.pointer("/overhead/podFixed")) {
        Some(overhead) if amounts(overhead) != given => Err(MISMATCH.into()),
        None if !given.is_empty() => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_class_adds_cost_and_place() {
        let class = json!({"overhead": {"podFixed": {"cpu": "1"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm"}]}});
        let check = |spec: Value, expected: Result<Value, &str>| {
            let mut pod = json!({"spec": spec});
            let found = apply(&mut pod, &class).map(|()| pod["spec"].clone()).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(String::from));
        };
        let tolerations = json!([{"key": "a"}, {"key": "vm"}]);
        check(
            json!({"tolerations": [{"key": "a"}]}),
            Ok(json!({"overhead": {"cpu": "1"}, "nodeSelector": {"vm": "yes"}, "tolerations": tolerations})),
        );
        check(json!({"overhead": {"cpu": "2"}}), Err(MISMATCH));
        check(
            json!({"nodeSelector": {"vm": "no"}}),
            Err("conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no"),
        );
    }

    #[test]
    fn overhead_needs_a_class() {
        let pod = json!({"spec": {"overhead": {"cpu": "1"}}});
        assert!(check_overhead(&pod, None).is_err());
        assert!(check_overhead(&pod, Some(&json!({"overhead": {"podFixed": {"cpu": "1000m"}}}))).is_ok());
        assert!(check_overhead(&json!({"spec": {}}), None).is_ok());
    }
}
