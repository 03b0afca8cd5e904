//! `pods/binding`: the scheduler's decision. It can be made once.

use bytes::Bytes;
use machinery::field::{Errors, FieldError, Problem};
use machinery::object::{Meta, child_mut};
use machinery::status::{GroupResource, Status};
use serde_json::{Map, Value, json};

use crate::call::{Call, decode_as, decode_object};
use crate::decode::Expected;
use crate::respond::{self, Reply};
use crate::write::{self, Owner, Part, Update};

const PODS_BINDING: GroupResource = GroupResource { group: "", resource: "pods/binding" };

/// `POST .../bindings`, where the body names the pod.
pub(crate) async fn create_by_body(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let binding = decode_object(call, &call.resource, &body, call.strictness("CreateOptions")?)?;
    let name = binding.name().to_string();
    bind(call, &name, binding).await
}

pub async fn create(call: &Call, name: &str, body: Bytes) -> Result<Reply, Status> {
    let shape = api::schema::schemas().by_name("io.k8s.api.core.v1.Binding").ok_or_else(Status::no_such_resource)?;
    let expected =
        Expected { group: "", version: "v1", kind: "Binding", shape, defaults: |_| {}, custom: None, packed: false };
    let strictness = call.strictness("CreateOptions")?;
    let binding = decode_as(call, &expected, &body, strictness)?;
    if !binding.name().is_empty() && binding.name() != name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    bind(call, name, binding).await
}

async fn bind(call: &Call, name: &str, binding: Value) -> Result<Reply, Status> {
    let node = validated(name, &binding)?.to_string();
    let dry_run = call.dry_run("CreateOptions")?;
    // A binding is nobody's field: ownership stays as it is, as upstream.
    let owner = Owner::Applied;
    let table = call.app.table.load();
    let pods = table.get("", "v1", "pods").ok_or_else(Status::no_such_resource)?.clone();
    drop(table);
    let now = call.app.clock.stamp();
    let refused = |why: String| Err(Status::conflict(PODS_BINDING, name, &why));
    let change = |pod: &mut Value| {
        if !binding.uid().is_empty() && binding.uid() != pod.uid() {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                binding.uid(),
                pod.uid()
            );
            return refused(why);
        }
        if !binding.resource_version().is_empty() && binding.resource_version() != pod.resource_version() {
            let (wanted, found) = (binding.resource_version(), pod.resource_version());
            return refused(format!(
                "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {found}"
            ));
        }
        if pod.is_deleting() {
            return refused(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let assigned = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
        if !assigned.is_empty() {
            return refused(format!("pod {name} is already assigned to node \"{assigned}\""));
        }
        if pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
            return refused(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        Ok(bound(pod, &node, &binding, &now))
    };
    write::update_moving(
        Update {
            call,
            resource: &pods,
            namespace: &call.target.namespace,
            name,
            part: Part::Sub("binding"),
            owner: &owner,
            dry_run,
        },
        change,
    )
    .await?;
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(respond::value(201, &call.answer, &done))
}

/// The pod on its node; labels and annotations of the binding (topology, for instance) come with it.
fn bound(pod: &mut Value, node: &str, binding: &Value, now: &str) -> Value {
    let mut next = moved(pod);
    child_mut(&mut next, "spec").insert("nodeName".into(), node.into());
    for field in ["annotations", "labels"] {
        let Some(added) = binding.meta(field).and_then(Value::as_object) else { continue };
        let slot = next.meta_mut().entry(field).or_insert_with(|| Value::Object(Map::new()));
        if let Some(map) = slot.as_object_mut() {
            map.extend(added.clone());
        }
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now, "lastProbeTime": null});
    let status = child_mut(&mut next, "status");
    // The promise of a node is kept, so it need not stand there any more.
    status.remove("nominatedNodeName");
    let conditions = status.entry("conditions").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|entry| entry["type"] == "PodScheduled") {
            Some(entry) => *entry = condition,
            None => list.push(condition),
        }
    }
    next
}

/// The pod as it is, with containers, volumes and all else of its specification that is no plain value moved out of the given one: they
/// are most of a pod, and a binding neither changes nor compares them.
fn moved(pod: &mut Value) -> Value {
    let mut nested = Map::new();
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let is_nested = |value: &Value| value.is_array() || value.is_object();
        let (moving, kept) = std::mem::take(spec).into_iter().partition(|(_, value)| is_nested(value));
        (nested, *spec) = (moving, kept);
    }
    let mut next = pod.clone();
    if let Some(spec) = next.get_mut("spec").and_then(Value::as_object_mut) {
        spec.append(&mut nested);
    }
    next
}

/// The node that a good binding names.
fn validated<'a>(name: &str, binding: &'a Value) -> Result<&'a str, Status> {
    let mut errors = Errors::default();
    let target = &binding["target"];
    let kind = target["kind"].as_str().unwrap_or("");
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::new(
            Problem::NotSupported,
            "target.kind",
            format!("{kind:?}"),
            "supported values: \"Node\", \"<empty>\"",
        ));
    }
    let node = target["name"].as_str().unwrap_or("");
    if node.is_empty() {
        errors.push(FieldError::new(Problem::Required, "target.name", "", ""));
    }
    if errors.is_empty() { Ok(node) } else { Err(Status::invalid("", "Binding", name, &errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_pod_is_the_pod_with_its_node() {
        let binding = json!({"metadata": {"annotations": {"b": "2"}}, "target": {"name": "n"}});
        let pod = json!({
            "kind": "Pod",
            "metadata": {"name": "p", "annotations": {"a": "1"}, "managedFields": [{"manager": "m"}]},
            "spec": {"containers": [{"name": "c"}], "priority": 0, "securityContext": {}, "tolerations": []},
            "status": {"phase": "Pending", "nominatedNodeName": "m", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}, {"type": "Other"}]}});
        let mut old = pod.clone();
        let next = bound(&mut old, "n", &binding, "now");
        let mut expected = pod.clone();
        expected["metadata"]["annotations"]["b"] = "2".into();
        expected["spec"]["nodeName"] = "n".into();
        expected["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "now", "lastProbeTime": null}, {"type": "Other"}]});
        assert_eq!(next, expected);
        // What others look at behind this is still there, what is large has been moved.
        assert_eq!((&old["metadata"], &old["status"]), (&pod["metadata"], &pod["status"]));
        assert_eq!(old["spec"], json!({"priority": 0}));
    }
}
