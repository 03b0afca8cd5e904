//! `/metrics`, with upstream's names. Counting costs one short lock per request.

mod identity;
mod operations;
pub(crate) mod render;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram};
use parking_lot::Mutex;

use crate::target::{Target, Verb};

pub(crate) use store::Measured;

/// Upstream's buckets of request durations, in seconds.
const SECONDS: Bounds = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

#[derive(Default)]
pub struct Metrics {
    /// In the order of their labels, so that a request finds its own without making a key.
    requests: Mutex<Vec<Requests>>,
    watches: Mutex<BTreeMap<&'static str, Arc<AtomicI64>>>,
    inflight: [Arc<AtomicI64>; 2],
    pub webhooks: crate::admission::WebhookMetrics,
    pub identity: identity::Identity,
    pub operations: operations::Operations,
}

/// The requests of one sort.
struct Requests {
    labels: Labels<String>,
    durations: Histogram,
    /// How many ended with which code, and whether as a dry run.
    ended: Vec<((u16, bool), u64)>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Labels<T> {
    verb: &'static str,
    group: T,
    version: T,
    resource: T,
    subresource: T,
    scope: &'static str,
}

/// Counted while it lives.
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    fn new(value: &Arc<AtomicI64>) -> Gauge {
        value.fetch_add(1, Ordering::Relaxed);
        Gauge(value.clone())
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub fn watching(&self, resource: &'static str) -> Gauge {
        Gauge::new(self.watches.lock().entry(resource).or_default())
    }

    pub fn running(&self, mutating: bool) -> Gauge {
        Gauge::new(&self.inflight[usize::from(mutating)])
    }

    /// How many requests of that sort run now.
    pub fn inflight(&self, mutating: bool) -> i64 {
        self.inflight[usize::from(mutating)].load(Ordering::Relaxed)
    }

    pub fn observe(&self, target: &Target, dry_run: bool, code: u16, took: Duration) {
        let labels = Labels::of(target);
        let mut all = self.requests.lock();
        let index = match all.binary_search_by(|requests| requests.labels.borrowed().cmp(&labels)) {
            Ok(index) => index,
            Err(index) => {
                let labels = labels.owned();
                all.insert(index, Requests { labels, durations: Histogram::new(SECONDS), ended: Vec::new() });
                index
            }
        };
        let requests = &mut all[index];
        if target.verb != Verb::Watch {
            requests.durations.observe_time(took);
        }
        match requests.ended.iter_mut().find(|(how, _)| *how == (code, dry_run)) {
            Some((_, count)) => *count += 1,
            None => requests.ended.push(((code, dry_run), 1)),
        }
    }
}

impl<'a> Labels<&'a str> {
    fn of(target: &'a Target) -> Labels<&'a str> {
        Labels {
            verb: upper(target.verb),
            group: &target.group,
            version: &target.version,
            resource: &target.resource,
            subresource: &target.subresource,
            scope: match (target.name.is_empty(), target.namespace.is_empty()) {
                (false, _) => "resource",
                (true, false) => "namespace",
                (true, true) => "cluster",
            },
        }
    }

    fn owned(&self) -> Labels<String> {
        let &Labels { verb, group, version, resource, subresource, scope } = self;
        let [group, version, resource, subresource] = [group, version, resource, subresource].map(str::to_string);
        Labels { verb, group, version, resource, subresource, scope }
    }
}

impl Labels<String> {
    fn borrowed(&self) -> Labels<&str> {
        let Labels { verb, group, version, resource, subresource, scope } = self;
        Labels { verb, group, version, resource, subresource, scope }
    }

    fn written(&self) -> [(&str, &str); 7] {
        let Labels { verb, group, version, resource, subresource, scope } = self;
        [
            ("component", "apiserver"),
            ("group", group),
            ("resource", resource),
            ("scope", scope),
            ("subresource", subresource),
            ("verb", verb),
            ("version", version),
        ]
    }
}

fn upper(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create | Verb::Post => "POST",
        Verb::Update | Verb::Put => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
        Verb::Unknown | Verb::Head | Verb::Options => verb.as_str(),
    }
}
