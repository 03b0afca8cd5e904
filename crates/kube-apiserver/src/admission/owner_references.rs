//! OwnerReferencesPermissionEnforcement: who gives an object an owner could delete it by deleting the owner, and who
//! blocks the owner's deletion changes the owner; both must be allowed.

use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};
use crate::refusal::Refusal;

pub struct OwnerReferencesPermissionEnforcement;

#[async_trait::async_trait]
impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        // Kubelets of old write owners into the status of pods, which never takes effect.
        let exempt = request.is_for("", "pods") && request.subresource == "status";
        let Some(object) = object.filter(|_| writes && !exempt) else { return Ok(()) };
        let old = request.old.filter(|_| request.operation == Operation::Update);
        let (now, before) = (owners(object), old.map_or(&[][..], owners));
        if now == before {
            return Ok(());
        }
        if request.operation == Operation::Update && !may_delete(request).await {
            return Err(
                request.forbidden(Some(object), "cannot set an ownerRef on a resource you can't delete: , <nil>")
            );
        }
        let blocking = newly_blocking(now, before);
        if blocking.is_empty() || request.call.may("update", "*", "*", "finalizers", "", "*").await {
            return Ok(());
        }
        for owner in blocking {
            may_block(request, owner).await.map_err(|why| request.forbidden(Some(object), &why))?;
        }
        Ok(())
    }
}

async fn may_delete(request: &Request<'_>) -> bool {
    let kind = &request.resource.kind;
    request.call.may("delete", kind.group, kind.plural, request.subresource, request.namespace, request.name).await
}

/// Why the user may not keep that owner from going.
async fn may_block(request: &Request<'_>, owner: &Value) -> Result<(), Refusal> {
    let text = |field: &str| owner[field].as_str().unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let resource = request.app.table.load().of_kind(group, version, text("kind")).cloned();
    let Some(resource) = resource else {
        return Err(format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {0} Kind {1}: no matches for kind {1:?} in version {0:?}",
            text("apiVersion"),
            text("kind")
        ).into());
    };
    let kind = &resource.kind;
    let namespace = if kind.namespaced() { request.namespace } else { "" };
    if request.call.may("update", kind.group, kind.plural, "finalizers", namespace, text("name")).await {
        return Ok(());
    }
    Err("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"
        .into())
}

fn owners(object: &Value) -> &[Value] {
    object.meta("ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn newly_blocking<'a>(now: &'a [Value], before: &[Value]) -> Vec<&'a Value> {
    let blocks = |owner: &Value| owner["blockOwnerDeletion"] == true;
    let did_block = |uid: &Value| before.iter().any(|owner| owner["uid"] == *uid && blocks(owner));
    now.iter().filter(|owner| blocks(owner) && !did_block(&owner["uid"])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_owners_that_block_now_and_did_not_before_are_asked_about() {
        let owner = |uid: &str, blocks: bool| json!({"uid": uid, "blockOwnerDeletion": blocks});
        let before = [owner("a", true), owner("b", false)];
        let now = [owner("a", true), owner("b", true), owner("c", true), owner("d", false)];
        let found: Vec<&str> = newly_blocking(&now, &before).iter().filter_map(|owner| owner["uid"].as_str()).collect();
        assert_eq!(found, ["b", "c"]);
    }
}
