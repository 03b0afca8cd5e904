//! One look at one object: what it and its owners really are now, and then what `plan` says.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use reconcile::{Error, Next, Resource};

use super::graph::{Identity, Job, Node, Owner};
use super::live::{self, FOREGROUND, ORPHAN};
use super::plan::{self, Action, Dependents, Standing};
use super::{Collector, watches};

/// How long the first list of a new kind may hold up everybody else.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);
const ORPHANS_PARALLEL: usize = 16;

pub(super) async fn attempt(collector: &Collector, job: Job) -> Next {
    let mut unsynced = collector.unsynced.subscribe();
    if tokio::time::timeout(SYNC_TIMEOUT, unsynced.wait_for(|count| *count == 0)).await.is_err() {
        tracing::debug!("garbage collector starting before all kinds are synced");
    }
    let outcome = match &job {
        Job::Look(uid) => look(collector, uid).await,
        Job::Orphan(uid) => orphan(collector, uid).await,
    };
    outcome.unwrap_or_else(|error| Next::Retry(error.to_string()))
}

async fn look(collector: &Collector, uid: &str) -> Result<Next, Error> {
    let Some(node) = collector.graph.lock().get(uid).cloned() else { return Ok(Next::Done) };
    if node.deleting && !node.waiting {
        return Ok(Next::Done);
    }
    let client = &collector.cx.client;
    let resource = resource(collector, &node.identity.api_version, &node.identity.kind)?;
    if resource.namespaced && node.identity.namespace.is_empty() {
        // Named by something outside of namespaces, which cannot say in which one it is.
        return Ok(Next::Done);
    }
    let Some(live) = live::get(client, &resource, &node.identity).await? else {
        collector.change(|graph, todo| graph.forget_absent(&node.identity, todo));
        return Ok(Next::Done);
    };
    if node.waiting {
        return finish_foreground(collector, &node, &resource, &live).await;
    }
    let mut owners = Vec::new();
    for reference in live.owner_references.iter().flatten() {
        owners.push((reference.uid.clone(), standing(collector, &node.identity, reference).await?));
    }
    match plan::decide(&live, &owners, dependents(collector, uid)) {
        Action::Keep => {}
        Action::RemoveOwners(uids) => {
            let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
            live::remove_owners(client, &resource, &live, &uids).await?;
        }
        Action::Delete { unblock_owners: true, .. } if is_blocking(&live) => {
            // The object is another one afterwards, and is looked at again.
            live::unblock_owners(client, &resource, &live).await?;
            return Ok(Next::After(Duration::ZERO));
        }
        Action::Delete { policy, .. } => {
            tracing::debug!(
                kind = resource.kind,
                namespace = &*node.identity.namespace,
                name = &*node.identity.name,
                policy,
                "deleting object whose owners are gone"
            );
            live::delete(client, &resource, &live, policy).await?;
        }
    }
    if node.observed {
        Ok(Next::Done)
    } else {
        // It exists, but its watch has not brought it. Should it vanish before it does, nobody would tell.
        Ok(Next::Retry("it is not seen by a watch yet".into()))
    }
}

fn is_blocking(live: &ObjectMeta) -> bool {
    live.owner_references.iter().flatten().any(|owner| owner.block_owner_deletion == Some(true))
}

/// An object deleted in the foreground goes when no dependent holds it up.
async fn finish_foreground(
    collector: &Collector,
    node: &Node,
    resource: &Resource,
    live: &ObjectMeta,
) -> Result<Next, Error> {
    let (held, jobs) = {
        let graph = collector.graph.lock();
        let Some(node) = graph.get(&node.identity.uid) else { return Ok(Next::Done) };
        let blocking: Vec<&Node> = graph.blocking(node).collect();
        // Those that wait themselves are looked at when they have less to wait for.
        let ready = blocking.iter().filter(|one| !one.waiting);
        let jobs: Vec<Job> = ready.map(|one| Job::Look(one.identity.uid.clone())).collect();
        (!blocking.is_empty(), jobs)
    };
    jobs.into_iter().for_each(|job| collector.queue.add(job));
    if !held {
        live::remove_finalizer(&collector.cx.client, resource, live, FOREGROUND).await?;
    }
    Ok(Next::Done)
}

/// How an owner stands, by asking for it.
async fn standing(collector: &Collector, dependent: &Identity, reference: &OwnerReference) -> Result<Standing, Error> {
    let owner: Owner = watches::owner(reference);
    let (outside, within) = (owner.identity(&Arc::from("")), owner.identity(&dependent.namespace));
    let known = {
        let absent = collector.absent.lock();
        absent.has(&outside) || absent.has(&within)
    };
    if known {
        return Ok(Standing::Dangling);
    }
    let resource = resource(collector, &reference.api_version, &reference.kind)?;
    if resource.namespaced && dependent.namespace.is_empty() {
        // It cannot be told whether this owner exists, so it is taken to.
        return Ok(Standing::Solid);
    }
    let identity = if resource.namespaced { within } else { outside };
    match live::get(&collector.cx.client, &resource, &identity).await? {
        None => {
            collector.absent.lock().add(identity);
            Ok(Standing::Dangling)
        }
        Some(live) => {
            let foreground = live.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND);
            let waiting = live.deletion_timestamp.is_some() && foreground;
            Ok(if waiting { Standing::Waiting } else { Standing::Solid })
        }
    }
}

fn dependents(collector: &Collector, uid: &str) -> Dependents {
    let graph = collector.graph.lock();
    let Some(node) = graph.get(uid) else { return Dependents::None };
    if graph.dependents(node).any(|dependent| dependent.waiting) {
        Dependents::SomeWaiting
    } else if node.dependents.is_empty() {
        Dependents::None
    } else {
        Dependents::Some
    }
}

/// Takes the reference away from every dependent, then lets the owner go.
async fn orphan(collector: &Collector, uid: &str) -> Result<Next, Error> {
    let (node, dependents) = {
        let graph = collector.graph.lock();
        let Some(node) = graph.get(uid).filter(|node| node.orphaning) else { return Ok(Next::Done) };
        let dependents: Vec<Identity> = graph.dependents(node).map(|dependent| dependent.identity.clone()).collect();
        (node.clone(), dependents)
    };
    let client = &collector.cx.client;
    let releases = dependents.into_iter().map(|dependent| async move {
        let resource = resource(collector, &dependent.api_version, &dependent.kind)?;
        match live::get(client, &resource, &dependent).await? {
            Some(live) if live.owner_references.iter().flatten().any(|owner| owner.uid == uid) => {
                live::remove_owners(client, &resource, &live, &[uid]).await
            }
            _ => Ok(()),
        }
    });
    stream::iter(releases).buffer_unordered(ORPHANS_PARALLEL).try_collect::<Vec<()>>().await?;
    let resource = resource(collector, &node.identity.api_version, &node.identity.kind)?;
    if let Some(live) = live::get(client, &resource, &node.identity).await? {
        live::remove_finalizer(client, &resource, &live, ORPHAN).await?;
    }
    Ok(Next::Done)
}

fn resource(collector: &Collector, api_version: &str, kind: &str) -> Result<Resource, Error> {
    let resources = collector.resources.read().clone();
    let found = resources.of_kind(api_version, kind).cloned();
    found.ok_or_else(|| Error::Other(format!("no API resource for {api_version} {kind}")))
}
