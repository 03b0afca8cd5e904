//! Privileged containers, where the operator does not allow them (`--allow-privileged=false`). Upstream asks this while it
//! validates pods; here it is one more question of admission, with the same answer.

use machinery::field::{Errors, FieldError, Problem};
use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};

pub struct Privileged {
    pub allowed: bool,
}

#[async_trait::async_trait]
impl Plugin for Privileged {
    fn name(&self) -> &'static str {
        "AllowPrivileged"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(object) = object.filter(|_| writes && !self.allowed) else { return Ok(()) };
        let kind = &request.resource.kind;
        let Some(path) = pod_spec_of(kind.group, kind.plural) else { return Ok(()) };
        let found = privileged(object, path);
        if found.is_empty() {
            return Ok(());
        }
        let mut errors = Errors::default();
        for field in found {
            errors.push(FieldError::new(Problem::Forbidden, field, "", "disallowed by cluster policy"));
        }
        use machinery::object::Meta;
        Err(Status::invalid(kind.group, kind.kind, object.name(), &errors))
    }
}

fn pod_spec_of(group: &str, plural: &str) -> Option<&'static [&'static str]> {
    match (group, plural) {
        ("", "pods") => Some(&["spec"]),
        ("", "podtemplates") => Some(&["template", "spec"]),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets")
        | ("batch", "jobs") => Some(&["spec", "template", "spec"]),
        ("batch", "cronjobs") => Some(&["spec", "jobTemplate", "spec", "template", "spec"]),
        _ => None,
    }
}

/// The fields that ask for it.
fn privileged(object: &Value, path: &[&str]) -> Vec<String> {
    let spec = path.iter().fold(object, |value, part| &value[*part]);
    let mut found = Vec::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            if container["securityContext"]["privileged"] == true {
                found.push(format!("{}.{list}[{index}].securityContext.privileged", path.join(".")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_privileged_container_is_named() {
        let asks = json!({"securityContext": {"privileged": true}});
        let spec =
            json!({"initContainers": [{}, asks], "containers": [asks, {"securityContext": {"privileged": false}}]});
        let pod = privileged(&json!({"spec": spec}), pod_spec_of("", "pods").unwrap());
        assert_eq!(
            pod,
            ["spec.initContainers[1].securityContext.privileged", "spec.containers[0].securityContext.privileged"]
        );
        let job = json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}});
        assert_eq!(privileged(&job, pod_spec_of("batch", "cronjobs").unwrap()).len(), 2);
        assert_eq!(pod_spec_of("apps", "controllerrevisions"), None);
    }
}
