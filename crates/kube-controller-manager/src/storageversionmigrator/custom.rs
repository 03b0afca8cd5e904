//! CustomResourceDefinitions say that their objects are being written anew, and forget the versions that none is stored in any more.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use reconcile::{Error, is_not_found};
use serde_json::{Value, json};

use crate::Context;

const MANAGER: &str = "migration-runner-controller";
const MIGRATING: &str = "StorageMigrating";

/// `migration` is about to write all objects of that definition, if it is one.
pub(super) async fn begin(cx: &Context, definition: &str, migration: &str) -> Result<(), Error> {
    let Some(found) = get(cx, definition).await? else { return Ok(()) };
    let message = format!("Migration {migration} is running");
    apply(cx, definition, &found, condition(cx, &found, "True", "MigrationRunning", &message)).await
}

pub(super) async fn finish(cx: &Context, definition: &str, succeeded: bool) -> Result<(), Error> {
    let Some(found) = get(cx, definition).await? else { return Ok(()) };
    apply(cx, definition, &found, outcome(cx, &found, succeeded)).await
}

fn outcome(cx: &Context, found: &CustomResourceDefinition, succeeded: bool) -> Value {
    if !succeeded {
        return condition(cx, found, "False", "MigrationFailed", "The migration has failed");
    }
    // A definition that has changed meanwhile may store in another version than the one that was written.
    if !is_as_it_was(found) {
        let message =
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch";
        return condition(cx, found, "False", "MigrationSucceeded", message);
    }
    let message = "The migration has succeeded and the stored versions have been updated";
    let mut status = condition(cx, found, "False", "MigrationSucceeded", message);
    let stored = found.spec.versions.iter().find(|version| version.storage).map(|version| &version.name);
    status["storedVersions"] = json!(stored.into_iter().collect::<Vec<_>>());
    status
}

fn is_as_it_was(found: &CustomResourceDefinition) -> bool {
    let conditions = found.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let migrating = conditions.iter().find(|condition| condition.type_ == MIGRATING);
    migrating.is_some_and(|condition| condition.observed_generation == found.metadata.generation)
}

async fn get(cx: &Context, name: &str) -> Result<Option<CustomResourceDefinition>, Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cx.client.clone());
    match definitions.get(name).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(Error::api(format!("get customresourcedefinition {name}"), error)),
    }
}

fn condition(cx: &Context, found: &CustomResourceDefinition, status: &str, reason: &str, message: &str) -> Value {
    json!({"conditions": [{
        "type": MIGRATING, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": cx.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "observedGeneration": found.metadata.generation,
    }]})
}

/// As it was seen: whoever was faster makes it be looked at again.
async fn apply(cx: &Context, name: &str, seen: &CustomResourceDefinition, status: Value) -> Result<(), Error> {
    let body = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "resourceVersion": seen.metadata.resource_version}, "status": status,
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(cx.client.clone());
    let parameters = PatchParams::apply(MANAGER).force();
    match definitions.patch_status(name, &parameters, &Patch::Apply(body)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::api(format!("apply status of customresourcedefinition {name}"), error)),
    }
}
