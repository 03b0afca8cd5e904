//! LimitPodHardAntiAffinityTopology: a pod may keep others off its node, not off a whole zone.

use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};

const HOSTNAME: &str = "kubernetes.io/hostname";
const TERMS: &str = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";

pub struct LimitPodHardAntiAffinityTopology;

#[async_trait::async_trait]
impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(pod) = object.filter(|_| writes && request.is("", "pods")) else { return Ok(()) };
        let Some(key) = wide_key(pod) else { return Ok(()) };
        let why = format!(
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
        );
        Err(Status::forbidden(request.resource.group_resource(), pod.name(), &why))
    }
}

/// The first key that is wider than a node.
fn wide_key(pod: &Value) -> Option<&str> {
    let terms = pod.pointer(TERMS).and_then(Value::as_array).into_iter().flatten();
    terms.map(|term| term["topologyKey"].as_str().unwrap_or("")).find(|key| *key != HOSTNAME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_nodes_may_be_kept_clear() {
        let pod = |keys: &[&str]| {
            let terms: Vec<Value> = keys.iter().map(|key| json!({"topologyKey": key})).collect();
            json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}})
        };
        assert_eq!(wide_key(&json!({"spec": {}})), None);
        assert_eq!(wide_key(&pod(&[HOSTNAME])), None);
        assert_eq!(wide_key(&pod(&[HOSTNAME, "zone"])), Some("zone"));
    }
}
