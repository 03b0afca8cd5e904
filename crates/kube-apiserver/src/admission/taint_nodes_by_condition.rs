//! TaintNodesByCondition: a new node takes no pods until the node controller has seen it ready.

use machinery::object::child_mut;
use machinery::status::Status;
use serde_json::{Value, json};

use super::{Operation, Plugin, Request};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub struct TaintNodesByCondition;

#[async_trait::async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if request.operation == Operation::Create && request.is("", "nodes") {
            add_taint(object);
        }
        Ok(())
    }
}

fn add_taint(node: &mut Value) {
    let taints = child_mut(node, "spec").entry("taints").or_insert(Value::Null);
    if !taints.is_array() {
        *taints = Value::Array(Vec::new());
    }
    let Some(list) = taints.as_array_mut() else { return };
    if !list.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        list.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: Value, expected: Value) {
        let mut node = json!({"spec": given});
        add_taint(&mut node);
        assert_eq!(node["spec"]["taints"], expected);
    }

    #[test]
    fn a_new_node_is_tainted_once() {
        let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
        check(Value::Null, json!([taint]));
        check(
            json!({"taints": [{"key": "a", "effect": "NoExecute"}]}),
            json!([{"key": "a", "effect": "NoExecute"}, taint]),
        );
        check(json!({"taints": [taint]}), json!([taint]));
    }
}
