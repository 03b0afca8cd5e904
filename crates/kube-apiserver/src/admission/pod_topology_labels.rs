//! PodTopologyLabels: a pod carries the zone and region of its node, so that it can read them itself.

use machinery::object::Meta;
use machinery::status::Status;
use serde_json::{Map, Value};

use super::{Operation, Plugin, Request};

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub struct PodTopologyLabels;

#[async_trait::async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        let placed = request.operation == Operation::Create && request.subresource.is_empty()
            || request.subresource == "binding";
        if !placed || !request.is_for("", "pods") {
            return Ok(());
        }
        let name = object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
        if name.is_empty() {
            return Ok(());
        }
        // A pod can be bound to a node that is not there yet; it then goes without.
        if let Some(labels) = request.app.views.labels("nodes", "", name) {
            copy(object, &labels);
        }
        Ok(())
    }
}

fn copy(pod: &mut Value, node: &[(Box<str>, Box<str>)]) {
    for (key, value) in node.iter().filter(|(key, _)| LABELS.contains(&&**key)) {
        let labels = pod.meta_mut().entry("labels").or_insert_with(|| Value::Object(Map::new()));
        labels[&**key] = Value::from(&**value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn zone_and_region_are_copied() {
        let node =
            [("other", "x"), ("topology.kubernetes.io/zone", "z")].map(|(key, value)| (key.into(), value.into()));
        let mut pod = json!({"metadata": {"labels": {"a": "b", "topology.kubernetes.io/zone": "old"}}});
        copy(&mut pod, &node);
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b", "topology.kubernetes.io/zone": "z"}));
    }
}
