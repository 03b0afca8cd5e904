//! The one task that follows the store's watch: hands each change to its resource, and starts over from a new
//! list where the store cannot tell what happened in between.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::RwLock;
use tokio::time::{Instant, MissedTickBehavior};

use super::ages::Ages;
use super::resource::Past;
use super::{Published, Resource};
use crate::{Entry, Event, Range, RangeRequest, Revision, Store, StoreError};

/// How many entries a load asks for at once.
const LOAD_PAGE: usize = 1_000;
/// How often a load begins again because the history moved away under its pages.
const LOAD_RETRIES_MAX: usize = 5;
const RELIST_WAIT_MIN: Duration = Duration::from_millis(50);
const RELIST_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often quiet resources let go of old changes.
const TRIM_INTERVAL: Duration = Duration::from_secs(30);

const REGISTRY: &str = "/registry/";

pub(super) type Events = BoxStream<'static, Result<Vec<Event>, StoreError>>;

/// The registered resources by the prefix of their keys.
#[derive(Default)]
pub(super) struct Table {
    resources: RwLock<HashMap<Arc<str>, Arc<Resource>>>,
}

impl Table {
    pub fn get_or_insert(&self, storage: &str, make: impl FnOnce(Arc<str>) -> Arc<Resource>) -> Arc<Resource> {
        let prefix: Arc<str> = prefix(storage).into();
        self.resources.write().entry(prefix.clone()).or_insert_with(|| make(prefix)).clone()
    }

    /// Ends a resource while no change can be routed past it: a watcher that is not ended yet has been shown all that is published.
    pub fn remove(&self, storage: &str) {
        let mut resources = self.resources.write();
        if let Some(resource) = resources.remove(prefix(storage).as_str()) {
            resource.close();
        }
    }

    pub fn close(&self) {
        for (_, resource) in self.resources.write().drain() {
            resource.close();
        }
    }

    pub fn all(&self) -> Vec<Arc<Resource>> {
        self.resources.read().values().cloned().collect()
    }

    /// Splits a batch by resource. Changes of one resource stay together, so that watchers never see half of
    /// what was written at once.
    fn route(&self, events: Vec<Event>) -> Vec<(Arc<Resource>, Vec<Event>)> {
        let resources = self.resources.read();
        let mut routed: Vec<(Arc<Resource>, Vec<Event>)> = Vec::new();
        for event in events {
            let Some(resource) = folders(&event.key).find_map(|folder| resources.get(folder)) else { continue };
            match routed.iter_mut().find(|(other, _)| Arc::ptr_eq(other, resource)) {
                Some((_, events)) => events.push(event),
                None => routed.push((resource.clone(), vec![event])),
            }
        }
        routed
    }
}

pub(super) async fn run(store: Arc<dyn Store>, table: Arc<Table>, published: Arc<Published>, mut events: Events) {
    let mut ages = Ages::default();
    loop {
        let error = follow(&table, &published, &mut ages, events).await;
        tracing::warn!(revision = %published.get(), %error, "watch of the store ended; relisting");
        let mut wait = RELIST_WAIT_MIN;
        events = loop {
            match relist(&*store, &table, &published).await {
                Ok(events) => break events,
                Err(error) => tracing::warn!(%error, "cannot relist the store; retrying"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RELIST_WAIT_MAX);
        };
    }
}

/// Hands on changes until there are no more.
async fn follow(table: &Table, published: &Published, ages: &mut Ages, mut stream: Events) -> StoreError {
    let mut trim = tokio::time::interval(TRIM_INTERVAL);
    trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let batch = tokio::select! {
            batch = stream.next() => batch,
            _ = trim.tick() => {
                let now = Instant::now();
                let expired = ages.expired(now, published.get());
                table.all().iter().for_each(|resource| resource.trim(now, expired));
                continue;
            }
        };
        let mut events = match batch {
            Some(Ok(events)) => events,
            Some(Err(error)) => return error,
            None => return StoreError::Unavailable("watch of the store ended".to_owned()),
        };
        // A store that repeats itself after a reconnection must not make watchers see a change twice.
        let seen = published.get();
        events.retain(|event| event.revision > seen);
        let Some(newest) = events.last().map(|event| event.revision) else { continue };
        for (resource, events) in table.route(events) {
            resource.arrive(events);
        }
        published.set(newest);
    }
}

async fn relist(store: &dyn Store, table: &Table, published: &Published) -> Result<Events, StoreError> {
    let revision = store.revision().await?;
    let past = if revision < published.get() { Past::Rewritten } else { Past::Known };
    if let Past::Rewritten = past {
        tracing::error!(%revision, seen = %published.get(), "store revision went backwards; ending all watches");
    }
    for resource in table.all() {
        let (entries, _) = load(store, resource.prefix(), Some(revision)).await?;
        resource.relist(entries, revision, past);
    }
    let events = store.watch_from(revision).await?;
    published.set(revision);
    Ok(events)
}

/// Every entry under a prefix as of one revision: the given one, or the newest.
pub(super) async fn load(
    store: &dyn Store,
    prefix: &str,
    at: Option<Revision>,
) -> Result<(Vec<Entry>, Revision), StoreError> {
    let mut retries = 0;
    loop {
        match load_once(store, prefix, at).await {
            Err(StoreError::Compacted { .. }) if at.is_none() && retries < LOAD_RETRIES_MAX => retries += 1,
            result => return result,
        }
    }
}

async fn load_once(
    store: &dyn Store,
    prefix: &str,
    mut at: Option<Revision>,
) -> Result<(Vec<Entry>, Revision), StoreError> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let after = all.last().map(|entry| entry.key.to_string());
        let request = RangeRequest { prefix: prefix.to_owned(), after, limit: LOAD_PAGE, at };
        let Range { entries, revision, more } = store.range(request).await?;
        // The first page decides which state the others show.
        let shown = *at.get_or_insert(revision);
        let done = !more || entries.is_empty();
        all.extend(entries);
        if done {
            return Ok((all, shown));
        }
    }
}

fn prefix(storage: &str) -> String {
    format!("{REGISTRY}{storage}/")
}

/// `/registry/a/`, `/registry/a/b/` and so on: what a key's resource may be registered as.
fn folders(key: &str) -> impl Iterator<Item = &str> {
    let rest = key.strip_prefix(REGISTRY).unwrap_or_default();
    rest.match_indices('/').map(|(at, _)| &key[..=REGISTRY.len() + at])
}
