//! `apply --prune`: what was applied before and is in no file any more.

use serde_json::Value;

use super::change::{Change, LAST_APPLIED};
use crate::failure::{Failure, Result};
use crate::resource::Info;
use crate::resource::mapping::Mapping;
use crate::resource::select::{Query, info_of};
use crate::session::Call;
use crate::terminal;

/// What is pruned where nothing else is said, as upstream has it.
const KINDS: &[&str] = &[
    "/v1/ConfigMap",
    "/v1/Endpoints",
    "/v1/Namespace",
    "/v1/PersistentVolumeClaim",
    "/v1/PersistentVolume",
    "/v1/Pod",
    "/v1/ReplicationController",
    "/v1/Secret",
    "/v1/Service",
    "batch/v1/Job",
    "batch/v1/CronJob",
    "networking.k8s.io/v1/Ingress",
    "apps/v1/DaemonSet",
    "apps/v1/Deployment",
    "apps/v1/ReplicaSet",
    "apps/v1/StatefulSet",
];

/// Before anything is applied.
pub(super) fn check_allowlist(session: &crate::session::Session) -> Result<()> {
    match session.flags.list("prune-allowlist").iter().find(|kind| kind.split('/').count() != 3) {
        None => Ok(()),
        Some(kind) => Err(Failure::message(format!(
            "invalid GroupVersionKind format: {kind}, please follow <group/version/kind>"
        ))),
    }
}

pub(super) async fn prune(change: &Change<'_>, query: &Query, applied: &[Info]) -> Result<()> {
    let session = change.session;
    let mappings = mappings(session).await?;
    let mut namespaces: Vec<&str> = Vec::new();
    for info in applied.iter().filter(|info| !info.namespace.is_empty()) {
        if !namespaces.contains(&info.namespace.as_str()) {
            namespaces.push(&info.namespace);
        }
    }
    let kept: Vec<&str> = applied.iter().filter_map(|info| info.object["metadata"]["uid"].as_str()).collect();
    let all = Query { selector: query.selector.clone(), chunk: 500, ..Query::default() };
    // Namespaced things first, so that nothing is looked for in a namespace that is just going.
    let (namespaced, cluster): (Vec<&Mapping>, Vec<&Mapping>) = mappings.iter().partition(|mapping| mapping.namespaced);
    for mapping in namespaced.into_iter().chain(cluster) {
        let places: &[&str] = if mapping.namespaced { &namespaces } else { &[""] };
        for namespace in places {
            for object in session.list(mapping, namespace, &all).await? {
                if is_pruned(&object, &kept) {
                    delete(change, &info_of(mapping, object)).await?;
                }
            }
        }
    }
    Ok(())
}

/// The kinds of `--prune-allowlist`, or those that upstream prunes on its own.
async fn mappings(session: &crate::session::Session) -> Result<Vec<Mapping>> {
    let mut kinds = session.flags.list("prune-allowlist");
    if kinds.is_empty() {
        terminal::log(
            'W',
            "prune.go:71",
            "Deprecated: kubectl apply will no longer prune non-namespaced resources by default when used with the --namespace flag in a future release. To preserve the current behaviour, list the resources you want to target explicitly in the --prune-allowlist flag.",
        );
        kinds = KINDS.iter().map(|kind| kind.to_string()).collect();
    }
    let mut mappings = Vec::new();
    for kind in &kinds {
        let Some((version, kind)) = version_and_kind(kind) else { continue };
        mappings.extend(session.mapping_of_kind(&version, kind).await?);
    }
    Ok(mappings)
}

/// `core/v1/Pod` is `v1` and `Pod`, `apps/v1/Deployment` is `apps/v1` and `Deployment`.
fn version_and_kind(text: &str) -> Option<(String, &str)> {
    let (version, kind) = text.rsplit_once('/').filter(|(version, _)| version.matches('/').count() == 1)?;
    let version = version.strip_prefix("core/").or(version.strip_prefix('/')).unwrap_or(version);
    Some((version.to_string(), kind))
}

/// What was applied before and is not among what was applied now.
fn is_pruned(object: &Value, kept: &[&str]) -> bool {
    let metadata = &object["metadata"];
    metadata["annotations"][LAST_APPLIED].is_string()
        && !metadata["uid"].as_str().is_some_and(|uid| kept.contains(&uid))
}

async fn delete(change: &Change<'_>, info: &Info) -> Result<()> {
    let session = change.session;
    if !change.local() {
        let options = super::delete::options(session, session.flags.integer("grace-period"))?;
        let mut call = Call::delete(info.path(), &options);
        if change.dry == super::change::DryRun::Server {
            call = call.with("dryRun", "All");
        }
        session.send(&call).await?;
    }
    if change.format.is_human() { change.report(&info.shown(), &info.object, "pruned") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_have_group_version_and_name() {
        assert_eq!(version_and_kind("core/v1/Pod"), Some(("v1".into(), "Pod")));
        assert_eq!(version_and_kind("apps/v1/Deployment"), Some(("apps/v1".into(), "Deployment")));
        assert_eq!(version_and_kind("v1/Pod"), None);
        assert!(KINDS.iter().all(|kind| version_and_kind(kind).is_some()));
    }

    #[test]
    fn only_what_was_applied_is_pruned() {
        let applied = json!({"metadata": {"uid": "1", "annotations": {LAST_APPLIED: "{}"}}});
        assert!(is_pruned(&applied, &["2"]) && !is_pruned(&applied, &["1"]));
        assert!(!is_pruned(&json!({"metadata": {"uid": "1"}}), &[]));
    }
}
