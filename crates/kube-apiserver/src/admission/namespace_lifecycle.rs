//! NamespaceLifecycle: nothing is created in a namespace that is missing or going, and three namespaces never go.

use machinery::status::{Cause, GroupResource, Status};
use serde_json::Value;

use super::{Operation, Plugin, Request};
use crate::write::store_status;

/// What the cluster itself lives in. `kube-node-lease` may go, as upstream: kubelets make it whole again.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub struct NamespaceLifecycle;

#[async_trait::async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        // A namespace's own path names it, also where applying is about to make it.
        if request.namespace.is_empty() || request.is("", "namespaces") || is_access_review(request) {
            return Ok(());
        }
        let views = &request.app.views;
        let mut namespace = views.one("namespaces", "", request.namespace);
        if namespace.is_none() {
            // The cache may lag behind another server that has just created it.
            request.app.cache.fresh().await.map_err(store_status)?;
            namespace = views.one("namespaces", "", request.namespace);
        }
        let Some(namespace) = namespace else {
            return Err(Status::not_found(GroupResource { group: "", resource: "namespaces" }, request.namespace));
        };
        if request.operation == Operation::Create && is_terminating(&namespace) {
            return Err(terminating(
                request.forbidden(Some(object), terminating_why(request.namespace)),
                request.namespace,
            ));
        }
        Ok(())
    }

    async fn validate(&self, request: &Request<'_>, _object: Option<&Value>) -> Result<(), Status> {
        if request.operation == Operation::Delete && request.is("", "namespaces") && IMMORTAL.contains(&request.name) {
            return Err(request.forbidden(None, "this namespace may not be deleted"));
        }
        Ok(())
    }
}

/// Saying whether a namespace exists would tell more than the review may.
fn is_access_review(request: &Request<'_>) -> bool {
    request.is("authorization.k8s.io", "localsubjectaccessreviews")
}

fn is_terminating(namespace: &Value) -> bool {
    namespace.pointer("/status/phase").and_then(Value::as_str) == Some("Terminating")
}

fn terminating_why(namespace: &str) -> String {
    format!("unable to create new content in namespace {namespace} because it is being terminated")
}

/// Controllers look for the cause to know that trying again is of no use.
fn terminating(mut status: Status, namespace: &str) -> Status {
    let cause = Cause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".into(),
    };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_terminating_namespace_is_told_by_its_phase() {
        assert!(is_terminating(&json!({"status": {"phase": "Terminating"}})));
        assert!(!is_terminating(&json!({"status": {"phase": "Active"}})));
        assert!(!is_terminating(&json!({})));
    }

    #[test]
    fn the_refusal_carries_the_cause() {
        let resource = GroupResource { group: "", resource: "configmaps" };
        let status = terminating(Status::forbidden(resource, "x", &terminating_why("going")), "going");
        assert_eq!(
            status.message,
            "configmaps \"x\" is forbidden: unable to create new content in namespace going because it is being terminated"
        );
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        assert_eq!(causes.len(), 1);
        assert_eq!(
            (causes[0].reason.as_str(), causes[0].field.as_str()),
            ("NamespaceTerminating", "metadata.namespace")
        );
    }
}
