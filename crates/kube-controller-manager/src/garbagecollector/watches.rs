//! One watch for the metadata of every resource that can be deleted, the set of which changes while the server runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Resource as _};
use reconcile::{Resource, Seen as Event, Shutdown, Watched, Watching, discover};
use tokio::sync::Notify;

use super::Collector;
use super::graph::{Identity, Owner, Seen, Uid};
use super::live::{FOREGROUND, ORPHAN};

/// Nobody owns or is owned by these, and there are many.
const IGNORED: &[(&str, &str)] = &[("", "events"), ("events.k8s.io", "events")];
/// A change of one of these changes which resources there are.
const DEFINITIONS: &[(&str, &str)] =
    &[("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];
/// When resources are looked at after a definition changed: the server may need a moment to serve what it defines.
const LOOKS: &[Duration] =
    &[Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30)];
const DISCOVERY_RETRY: Duration = Duration::from_secs(2);

/// Follows everything until it is told to stop.
pub(super) async fn follow(collector: Arc<Collector>, shutdown: Shutdown) {
    let mut watches =
        Watches { collector, running: HashMap::new(), redefined: Arc::default(), shutdown: shutdown.clone() };
    while !watches.update().await {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(DISCOVERY_RETRY) => {}
        }
    }
    watches.collector.unsynced.send_modify(|count| *count -= 1);
    // After every look but the last one the next is due; a definition that changes begins anew.
    let mut due = LOOKS.len();
    loop {
        let look = async {
            match LOOKS.get(due) {
                Some(delay) => tokio::time::sleep(*delay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = watches.redefined.notified() => due = 0,
            () = look => {
                watches.update().await;
                due += 1;
            }
        }
    }
}

struct Watches {
    collector: Arc<Collector>,
    running: HashMap<Resource, Shutdown>,
    /// Told when a definition changes.
    redefined: Arc<Notify>,
    shutdown: Shutdown,
}

impl Watches {
    /// Starts and stops watches so that there is one for each resource; answers whether it could find out.
    async fn update(&mut self) -> bool {
        let found = match discover(&self.collector.cx.client).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "garbage collector cannot discover resources");
                return false;
            }
        };
        let wanted = |resource: &&Resource| {
            let name = (resource.group.as_str(), resource.plural.as_str());
            resource.supports(&["delete", "list", "watch"]) && !IGNORED.contains(&name)
        };
        let wanted: HashSet<Resource> = found.resources.iter().filter(wanted).cloned().collect();
        // Resources of a group that does not answer now are unknown, not gone.
        let stale: HashSet<&str> = found.stale.iter().filter_map(|name| name.split('/').next()).collect();
        self.running.retain(|resource, stop| {
            let stays = wanted.contains(resource) || stale.contains(resource.group.as_str());
            if !stays {
                stop.cancel();
            }
            stays
        });
        *self.collector.resources.write() = Arc::new(found);
        for resource in wanted {
            if !self.running.contains_key(&resource) {
                let stop = self.shutdown.child_token();
                self.running.insert(resource.clone(), stop.clone());
                self.collector.unsynced.send_modify(|count| *count += 1);
                tasks::spawn(one(self.collector.clone(), resource, self.redefined.clone(), stop));
            }
        }
        true
    }
}

/// Follows one resource.
async fn one(collector: Arc<Collector>, resource: Resource, redefined: Arc<Notify>, stop: Shutdown) {
    let mut unsynced = Unsynced(Some(collector.clone()));
    let defines = DEFINITIONS.contains(&(resource.group.as_str(), resource.plural.as_str()));
    let (api_version, kind): (Arc<str>, Arc<str>) = (resource.api_version().into(), resource.kind.as_str().into());
    let api_resource = ApiResource {
        group: resource.group,
        version: resource.version,
        api_version: api_version.to_string(),
        kind: resource.kind,
        plural: resource.plural,
    };
    let path = PartialObjectMeta::<DynamicObject>::url_path(&api_resource, None);
    let watched = Watched { kind: kind.to_string(), path, ..Watched::default() };
    let mut events =
        Watching::<PartialObjectMeta<DynamicObject>>::new(collector.cx.component_client().clone(), watched);
    let mut listed: HashSet<Uid> = HashSet::new();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            None => return,
            // There are many watches, and when the server restarts all of them fail: the caches' watches say so.
            Some(Event::Failed(error)) => tracing::debug!(kind = &*kind, error, "watch failed; retrying"),
            Some(Event::Listing) => listed.clear(),
            Some(Event::Listed(object)) => {
                let seen = seen(&api_version, &kind, object.metadata);
                listed.insert(seen.identity.uid.clone());
                collector.change(|graph, todo| graph.observe(seen, todo));
            }
            Some(Event::Complete) => {
                collector.change(|graph, todo| graph.keep_only(&api_version, &kind, &listed, todo));
                listed = HashSet::new();
                unsynced.done();
            }
            Some(Event::Put(object)) => {
                let seen = seen(&api_version, &kind, object.metadata);
                collector.change(|graph, todo| graph.observe(seen, todo));
                if defines {
                    redefined.notify_one();
                }
            }
            Some(Event::Gone(object)) => {
                let uid = object.metadata.uid.unwrap_or_default();
                collector.change(|graph, todo| graph.forget(&uid, todo));
                if defines {
                    redefined.notify_one();
                }
            }
        }
    }
}

/// Counts a watch among the unsynced until it is done, or ends.
struct Unsynced(Option<Arc<Collector>>);

impl Unsynced {
    fn done(&mut self) {
        if let Some(collector) = self.0.take() {
            collector.unsynced.send_modify(|count| *count -= 1);
        }
    }
}

impl Drop for Unsynced {
    fn drop(&mut self) {
        self.done();
    }
}

fn seen(api_version: &Arc<str>, kind: &Arc<str>, metadata: ObjectMeta) -> Seen {
    let has = |name: &str| metadata.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    Seen {
        deleting: metadata.deletion_timestamp.is_some(),
        foreground: has(FOREGROUND),
        orphan: has(ORPHAN),
        owners: metadata.owner_references.iter().flatten().map(owner).collect(),
        identity: Identity {
            api_version: api_version.clone(),
            kind: kind.clone(),
            namespace: metadata.namespace.unwrap_or_default().into(),
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default().into(),
        },
    }
}

pub(super) fn owner(reference: &OwnerReference) -> Owner {
    Owner {
        api_version: reference.api_version.as_str().into(),
        kind: reference.kind.as_str().into(),
        name: reference.name.as_str().into(),
        uid: reference.uid.as_str().into(),
        blocks: reference.block_owner_deletion == Some(true),
    }
}
