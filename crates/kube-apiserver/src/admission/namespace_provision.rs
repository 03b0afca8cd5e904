//! NamespaceAutoProvision creates the namespace that a write names; NamespaceExists refuses every write in one that is
//! not there. Upstream runs neither by default, as NamespaceLifecycle does what most want.

use std::sync::Arc;

use machinery::status::{GroupResource, Status};
use serde_json::{Value, json};

use super::{Operation, Plugin, Request};
use crate::bootstrap;
use crate::write::store_status;

pub struct NamespaceAutoProvision;

#[async_trait::async_trait]
impl Plugin for NamespaceAutoProvision {
    fn name(&self) -> &'static str {
        "NamespaceAutoProvision"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        let creates = request.operation == Operation::Create && !request.dry_run;
        if !creates || !is_inside(request) || exists(request).await? {
            return Ok(());
        }
        let app = Arc::clone(&request.call.app);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": request.namespace}});
        // The new namespace passes admission itself: a task of its own keeps this request's future from holding its own kind.
        let created = tokio::spawn(async move { bootstrap::ensure(&app, namespace).await }).await;
        let outcome = created.map_err(|_| Status::internal("cannot create namespace")).and_then(|done| done);
        outcome.map_err(|status| request.forbidden(Some(object), &status.message))
    }
}

pub struct NamespaceExists;

#[async_trait::async_trait]
impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    async fn validate(&self, request: &Request<'_>, _object: Option<&Value>) -> Result<(), Status> {
        if request.operation == Operation::Connect || !is_inside(request) || exists(request).await? {
            return Ok(());
        }
        Err(Status::not_found(GroupResource { group: "", resource: "namespaces" }, request.namespace))
    }
}

fn is_inside(request: &Request<'_>) -> bool {
    !request.namespace.is_empty() && !request.is_for("", "namespaces")
}

async fn exists(request: &Request<'_>) -> Result<bool, Status> {
    let look = || request.app.views.exists("namespaces", "", request.namespace);
    if look() {
        return Ok(true);
    }
    // The cache may lag behind another server that has just created it.
    request.app.cache.fresh().await.map_err(store_status)?;
    Ok(look())
}
