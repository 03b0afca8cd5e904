//! `apply --prune`: what was applied before and is in no file any more.

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
    let allowed = session.flags.list("prune-allowlist");
    if allowed.is_empty() {
        terminal::log(
            'W',
            "prune.go:71",
            "Deprecated: kubectl apply will no longer prune non-namespaced resources by default when used with the --namespace flag in a future release. To preserve the current behaviour, list the resources you want to target explicitly in the --prune-allowlist flag.",
        );
    }
    let kinds: Vec<String> =
        if allowed.is_empty() { KINDS.iter().map(|kind| kind.to_string()).collect() } else { allowed.clone() };
    let mut mappings: Vec<Mapping> = Vec::new();
    for kind in &kinds {
        let parts: Vec<&str> = kind.split('/').collect();
        let [group, version, kind] = parts[..] else { continue };
        let group = if group == "core" { "" } else { group };
        let version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
        if let Some(mapping) = session.mapping_of_kind(&version, kind).await? {
            mappings.push(mapping);
        }
    }
    let mut namespaces: Vec<String> = Vec::new();
    for info in applied.iter().filter(|info| !info.namespace.is_empty()) {
        if !namespaces.contains(&info.namespace) {
            namespaces.push(info.namespace.clone());
        }
    }
    let kept: Vec<&str> = applied.iter().filter_map(|info| info.object["metadata"]["uid"].as_str()).collect();
    let all = Query { selector: query.selector.clone(), chunk: 500, ..Query::default() };
    // Namespaced things first, so that nothing is looked for in a namespace that is just going.
    for mapping in mappings
        .iter()
        .filter(|mapping| mapping.namespaced)
        .chain(mappings.iter().filter(|mapping| !mapping.namespaced))
    {
        let places: Vec<&str> =
            if mapping.namespaced { namespaces.iter().map(String::as_str).collect() } else { vec![""] };
        for namespace in places {
            for object in session.list(mapping, namespace, &all).await? {
                let info = info_of(mapping, object);
                let ours = info.object["metadata"]["annotations"][LAST_APPLIED].is_string();
                let kept = info.object["metadata"]["uid"].as_str().is_some_and(|uid| kept.contains(&uid));
                if !ours || kept {
                    continue;
                }
                if !change.local() {
                    let options = super::delete::options(session, session.flags.integer("grace-period"))?;
                    let mut call = Call::delete(info.path(), &options);
                    if change.dry == super::change::DryRun::Server {
                        call = call.with("dryRun", "All");
                    }
                    session.send(&call).await?;
                }
                if change.format.is_human() {
                    change.report(&info.shown(), &info.object, "pruned")?
                } else {
                    terminal::err("")
                }
            }
        }
    }
    Ok(())
}
