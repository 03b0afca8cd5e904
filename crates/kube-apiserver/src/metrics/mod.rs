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

/// The same of durations that no one else is to blame for.
const SLI_SECONDS: Bounds =
    &[0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];
/// Of responses, from a kilobyte to a gigabyte.
const SIZES: Bounds = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

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
    /// Of those that were meant, and of dry runs.
    durations: [Histogram; 2],
    sli_durations: Histogram,
    sizes: Histogram,
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

/// How a request went.
pub struct Ended {
    pub dry_run: bool,
    pub code: u16,
    pub took: Duration,
    /// How much of that went to webhooks and the queues of flow control.
    pub waited: Duration,
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

    pub fn observe(&self, target: &Target, ended: &Ended) {
        let &Ended { dry_run, code, took, waited } = ended;
        let mut all = self.requests.lock();
        let requests = find(&mut all, Labels::of(target));
        if target.verb != Verb::Watch {
            requests.durations[usize::from(dry_run)].observe_time(took);
            if !dry_run {
                requests.sli_durations.observe_time(took.saturating_sub(waited));
            }
        }
        match requests.ended.iter_mut().find(|(how, _)| *how == (code, dry_run)) {
            Some((_, count)) => *count += 1,
            None => requests.ended.push(((code, dry_run), 1)),
        }
    }

    /// Of what was read, how large the answer was.
    pub fn answered(&self, target: &Target, bytes: u64) {
        find(&mut self.requests.lock(), Labels::of(target)).sizes.observe(bytes as f64);
    }
}

fn find<'a>(all: &'a mut Vec<Requests>, labels: Labels<&str>) -> &'a mut Requests {
    let index = match all.binary_search_by(|requests| requests.labels.borrowed().cmp(&labels)) {
        Ok(index) => index,
        Err(index) => {
            all.insert(index, Requests::new(labels.owned()));
            index
        }
    };
    &mut all[index]
}

impl Requests {
    fn new(labels: Labels<String>) -> Requests {
        Requests {
            labels,
            durations: [Histogram::new(SECONDS), Histogram::new(SECONDS)],
            sli_durations: Histogram::new(SLI_SECONDS),
            sizes: Histogram::new(SIZES),
            ended: Vec::new(),
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
