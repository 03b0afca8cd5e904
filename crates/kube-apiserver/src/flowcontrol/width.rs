//! How many seats a request takes, guessed from what it asks for, by upstream's rules. Pure but for the count of watches.
//!
//! Simpler than upstream: every list is answered from memory, so that one with a limit costs its limit; and watches count
//! by resource and namespace.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::queues::Width;
use crate::query::Query;
use crate::target::{Target, Verb};

const SEATS_MAX: u32 = 10;
const OBJECTS_PER_SEAT: u64 = 100;
const WATCHES_PER_SEAT: u32 = 10;
/// How long one seat works on one event for its watches.
const EVENT_SECONDS: f64 = 0.005;

/// What is known of the resource that is asked for.
pub trait Counts {
    fn objects(&self, target: &Target) -> u64;
    fn watches(&self, target: &Target) -> u32;
}

/// `most` is the widest that the level allows.
pub fn estimate(target: &Target, query: &Query, counts: &impl Counts, most: impl FnOnce() -> u32) -> Width {
    if !target.is_resource || !target.subresource.is_empty() && target.verb == Verb::Get {
        return Width::ONE;
    }
    match target.verb {
        Verb::List => listed(list_cost(query, counts.objects(target)), most),
        Verb::Watch if sends_state(query) => listed(counts.objects(target), most),
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => written(counts.watches(target), most),
        _ => Width::ONE,
    }
}

fn list_cost(query: &Query, stored: u64) -> u64 {
    let selects = query.has("labelSelector") || query.has("fieldSelector");
    let limit = query.get("limit").parse::<u64>().unwrap_or(0);
    match limit {
        0 => stored,
        // All are looked at until enough are found.
        _ if selects => stored,
        limit => limit.min(stored),
    }
}

fn sends_state(query: &Query) -> bool {
    query.flag("sendInitialEvents") || (!query.has("sendInitialEvents") && query.get("resourceVersion").is_empty())
}

fn listed(objects: u64, most: impl FnOnce() -> u32) -> Width {
    let seats = u32::try_from(objects.div_ceil(OBJECTS_PER_SEAT)).unwrap_or(u32::MAX);
    match seats {
        0 | 1 => Width::ONE,
        seats => Width { running: seats.min(SEATS_MAX).min(most().max(1)), ..Width::ONE },
    }
}

/// Few watches are not worth the delay.
fn written(watches: u32, most: impl FnOnce() -> u32) -> Width {
    if watches < WATCHES_PER_SEAT {
        return Width::ONE;
    }
    let seats = watches.div_ceil(WATCHES_PER_SEAT);
    // The same work on fewer seats takes longer.
    let after = seats.min(SEATS_MAX).min(most().max(1));
    Width { running: 1, after, after_seconds: f64::from(seats) * EVENT_SECONDS / f64::from(after) }
}

/// The watches that are open, by resource and namespace.
#[derive(Clone, Default)]
pub struct Watches(Arc<Mutex<HashMap<&'static str, HashMap<String, u32>>>>);

/// A watch that counts while it lives.
pub struct Interest {
    watches: Watches,
    resource: &'static str,
    namespace: String,
}

impl Watches {
    /// None for a watch of so little that few changes concern it: one name, or the pods of one node.
    pub fn begin(&self, resource: &'static str, target: &Target, query: &Query) -> Option<Interest> {
        let fields = query.get("fieldSelector");
        let narrow = |field: &str| fields.strip_prefix(field).is_some_and(|rest| rest.starts_with('='));
        if !target.name.is_empty() || narrow("metadata.name") || narrow("spec.nodeName") {
            return None;
        }
        let mut open = self.0.lock();
        *open.entry(resource).or_default().entry(target.namespace.clone()).or_default() += 1;
        Some(Interest { watches: self.clone(), resource, namespace: target.namespace.clone() })
    }

    /// Those that see a change in that namespace.
    pub fn count(&self, resource: &str, namespace: &str) -> u32 {
        let open = self.0.lock();
        let Some(namespaces) = open.get(resource) else { return 0 };
        let of = |namespace: &str| namespaces.get(namespace).copied().unwrap_or(0);
        match namespace {
            "" => of(""),
            namespace => of("") + of(namespace),
        }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut open = self.watches.0.lock();
        let Some(namespaces) = open.get_mut(self.resource) else { return };
        if let Some(count) = namespaces.get_mut(&self.namespace) {
            *count -= 1;
            if *count == 0 {
                namespaces.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::target::parse;

    struct Fixed(u64, u32);

    impl Counts for Fixed {
        fn objects(&self, _: &Target) -> u64 {
            self.0
        }

        fn watches(&self, _: &Target) -> u32 {
            self.1
        }
    }

    #[test]
    fn seats_follow_from_objects_and_watches() {
        let check = |method: &str, url: &str, objects: u64, watches: u32, most: u32, expected: (u32, u32, f64)| {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let query = Query::parse(Some(query));
            let method: Method = method.parse().unwrap();
            let target = parse(&method, path, &query).unwrap();
            let width = estimate(&target, &query, &Fixed(objects, watches), || most);
            let found = (width.running, width.after, (width.after_seconds * 1000.0).round());
            assert_eq!(found, expected, "{method} {url}");
        };
        check("GET", "/api/v1/pods", 0, 0, 10, (1, 0, 0.0));
        check("GET", "/api/v1/pods", 101, 0, 10, (2, 0, 0.0));
        check("GET", "/api/v1/pods", 5000, 0, 10, (10, 0, 0.0));
        check("GET", "/api/v1/pods", 5000, 0, 4, (4, 0, 0.0));
        check("GET", "/api/v1/pods?limit=500", 5000, 0, 10, (5, 0, 0.0));
        check("GET", "/api/v1/pods?limit=500&labelSelector=a", 5000, 0, 10, (10, 0, 0.0));
        check("GET", "/api/v1/pods?watch=1", 5000, 0, 10, (10, 0, 0.0));
        check("GET", "/api/v1/pods?watch=1&resourceVersion=7", 5000, 0, 10, (1, 0, 0.0));
        check("GET", "/api/v1/namespaces/a/pods/b", 5000, 0, 10, (1, 0, 0.0));
        check("PUT", "/api/v1/namespaces/a/pods/b", 0, 9, 10, (1, 0, 0.0));
        check("PUT", "/api/v1/namespaces/a/pods/b", 0, 25, 10, (1, 3, 5.0));
        check("PUT", "/api/v1/namespaces/a/pods/b", 0, 400, 10, (1, 10, 20.0));
        check("GET", "/version", 5000, 0, 10, (1, 0, 0.0));
    }

    #[test]
    fn watches_count_where_they_look() {
        let watches = Watches::default();
        let begin = |url: &str| {
            let (path, query) = url.split_once('?').unwrap();
            let query = Query::parse(Some(query));
            watches.begin("pods", &parse(&Method::GET, path, &query).unwrap(), &query)
        };
        let all = begin("/api/v1/pods?watch=1");
        let _one = begin("/api/v1/namespaces/a/pods?watch=1");
        assert!(begin("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Da").is_none());
        assert_eq!((watches.count("pods", "a"), watches.count("pods", "b"), watches.count("nodes", "")), (2, 1, 0));
        drop(all);
        assert_eq!((watches.count("pods", "a"), watches.count("pods", "b")), (1, 0));
    }
}
