//! PodResizeValidator: a running pod is not made larger than its node could ever hold, and is resized on Linux only.

use machinery::quantity::Quantity;
use machinery::status::{Cause, Status};
use serde_json::Value;

use machinery::object::Meta;

use super::pod_resources::{Side, amounts, of_pod};
use super::{Operation, Plugin, Request};

const OS_LABEL: &str = "kubernetes.io/os";

pub struct PodResizeValidator;

#[async_trait::async_trait]
impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let resizes =
            request.operation == Operation::Update && request.is_for("", "pods") && request.subresource == "resize";
        let Some(pod) = object.filter(|_| resizes) else { return Ok(()) };
        let name = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
        if name.is_empty() || request.old.is_some_and(|old| old["spec"] == pod["spec"]) {
            return Ok(());
        }
        let Some(node) = request.app.views.one("nodes", "", name) else {
            return Err(request.forbidden(Some(pod), format!("node {name:?} not found")));
        };
        let refused = unsupported(&node)
            .map(|why| ("UnsupportedPlatform", why))
            .or_else(|| too_large(pod, &node).map(|why| ("NodeCapacity", why)));
        let Some((cause, why)) = refused else { return Ok(()) };
        let mut status = request.forbidden(Some(pod), &why);
        let cause = Cause { reason: cause.into(), message: String::new(), field: String::new() };
        status.details.get_or_insert_default().causes.push(cause);
        Err(status)
    }
}

fn unsupported(node: &Value) -> Option<String> {
    let os = node.label(OS_LABEL).filter(|os| *os != "linux")?;
    Some(format!("pod resize is only supported on linux nodes, node {:?} is {os:?}", node.name()))
}

fn too_large(pod: &Value, node: &Value) -> Option<String> {
    let (asked, there) = (of_pod(pod, Side::Requests), amounts(&node["status"]["allocatable"]));
    let beyond = ["cpu", "memory"].into_iter().filter_map(|name| {
        let number = |amount: &Quantity| if name == "cpu" { amount.milli_value() } else { amount.value() };
        let (asked, there) = (asked.get(name)?, there.get(name));
        let is_beyond = there.map_or(asked.sign() > 0, |there| asked > there);
        is_beyond.then(|| format!("{name}, requested: {}, allocatable: {}", number(asked), there.map_or(0, number)))
    });
    let beyond: Vec<String> = beyond.collect();
    (!beyond.is_empty()).then(|| format!("node didn't have enough allocatable resources: {}", beyond.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_stays_within_its_node() {
        let node = json!({"status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
        let pod = |cpu: &str, memory: &str| json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}]}});
        assert_eq!(too_large(&pod("2", "1Gi"), &node), None);
        assert_eq!(
            too_large(&pod("2001m", "2Gi"), &node).as_deref(),
            Some(
                "node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824"
            )
        );
        assert_eq!(too_large(&json!({"spec": {"containers": [{}]}}), &json!({})), None);
    }

    #[test]
    fn only_linux_resizes() {
        let node = |os: &str| json!({"metadata": {"name": "a", "labels": {OS_LABEL: os}}});
        assert_eq!(unsupported(&node("linux")), None);
        assert_eq!(unsupported(&json!({"metadata": {"name": "a"}})), None);
        assert_eq!(
            unsupported(&node("windows")).as_deref(),
            Some("pod resize is only supported on linux nodes, node \"a\" is \"windows\"")
        );
    }
}
