//! ExtendedResourceToleration: who asks for a device tolerates the taint by which its nodes keep others away.

use std::collections::BTreeSet;

use api::common::pod_spec::resources::is_extended;
use machinery::object::child_mut;
use machinery::status::Status;
use serde_json::{Value, json};

use super::{Operation, Plugin, Request};

pub struct ExtendedResourceToleration;

#[async_trait::async_trait]
impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        if writes && request.is("", "pods") {
            tolerate(object);
        }
        Ok(())
    }
}

fn tolerate(pod: &mut Value) {
    let names = asked(&pod["spec"]);
    if names.is_empty() {
        return;
    }
    let spec = child_mut(pod, "spec");
    let mut list = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    for name in names {
        let wanted = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
        let mut same = list.iter_mut().filter(|one| is_same(one, &wanted)).peekable();
        match same.peek() {
            Some(_) => same.for_each(|one| *one = wanted.clone()),
            None => list.push(wanted),
        }
    }
    spec.insert("tolerations".into(), list.into());
}

/// The extended resources that containers request, in order.
fn asked(spec: &Value) -> BTreeSet<String> {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array()).flatten();
    let names = containers.flat_map(|container| container.pointer("/resources/requests").and_then(Value::as_object));
    names.flat_map(|requests| requests.keys()).filter(|name| is_extended(name)).cloned().collect()
}

/// Tolerations are the same by key, effect, operator and value; how long they hold may differ.
fn is_same(one: &Value, other: &Value) -> bool {
    ["key", "effect", "operator", "value"].into_iter().all(|field| {
        let text = |of: &'_ Value| of.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        text(one) == text(other)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_tolerated_once() {
        let mut pod = json!({"spec": {
            "containers": [{"resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}}}],
            "initContainers": [{"resources": {"requests": {"example.com/fpga": "1", "hugepages-2Mi": "2Mi"}}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
        }});
        let expected = json!([
            {"key": "a", "operator": "Exists"},
            {"key": "example.com/fpga", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ]);
        for _ in 0..2 {
            tolerate(&mut pod);
            assert_eq!(pod["spec"]["tolerations"], expected);
        }
        let mut plain = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
        tolerate(&mut plain);
        assert_eq!(plain["spec"].get("tolerations"), None);
    }
}
