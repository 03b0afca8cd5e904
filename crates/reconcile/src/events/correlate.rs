//! What becomes of an event: a new object, a higher count on an older one, or nothing because its object talks too much.
//! Pure: an event and the time go in, a decision comes out. The rules and numbers are those of client-go's correlator.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::event_name;

/// So many different messages of one kind about one object within the interval become one event.
const SIMILAR_MAX: usize = 10;
const SIMILAR_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
const COMBINED: &str = "(combined from similar events): ";
/// How many events one source may write about one object at once, and how soon it may write another.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// How many objects, events and messages are remembered. Upstream keeps as many.
const REMEMBERED_MAX: usize = 4096;

#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    Create(Box<Event>),
    /// The object exists with a lower count; should it be gone, this is the event to create.
    Count(Box<Event>),
    /// Too many about this object.
    Drop,
}

#[derive(Default)]
pub(super) struct Correlator {
    /// Messages seen lately, by everything else that events have.
    similar: Remembered<Similar>,
    /// What was last written, by the whole event but its times.
    written: Remembered<Written>,
    spam: Remembered<Bucket>,
}

#[derive(Default)]
struct Similar {
    messages: HashSet<String>,
    last: Timestamp,
}

struct Written {
    name: String,
    first: Option<Time>,
    count: i32,
    resource_version: Option<String>,
}

struct Bucket {
    tokens: f64,
    last: Timestamp,
}

/// The key under which an event was counted, to be given back with what the server answered.
pub(super) type EventKey = String;

impl Correlator {
    pub(super) fn decide(&mut self, event: Event, now: Timestamp) -> (EventKey, Decision) {
        let (mut event, key) = self.aggregate(event, now);
        let known = match self.written.get(&key) {
            Some(written) => {
                event.metadata.name = Some(written.name.clone());
                event.metadata.resource_version = written.resource_version.clone();
                event.first_timestamp = written.first.clone();
                event.count = Some(written.count + 1);
                true
            }
            None => false,
        };
        self.written.put(&key, written(&event));
        if !self.may_speak(&event, now) {
            return (key, Decision::Drop);
        }
        let event = Box::new(event);
        (key, if known { Decision::Count(event) } else { Decision::Create(event) })
    }

    /// What the server now has under this key.
    pub(super) fn stored(&mut self, key: &EventKey, event: &Event) {
        self.written.put(key, written(event));
    }

    /// Many different messages of one kind become one event whose message is the last of them.
    fn aggregate(&mut self, mut event: Event, now: Timestamp) -> (Event, EventKey) {
        let group = group_key(&event);
        let message = event.message.clone().unwrap_or_default();
        let similar = self.similar.get_or(&group, || Similar { messages: HashSet::new(), last: now });
        if now.duration_since(similar.last) > SIMILAR_INTERVAL {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.clone());
        if similar.messages.len() < SIMILAR_MAX {
            let key = full_key(&event);
            return (event, key);
        }
        // One is forgotten, so that the set stays as large as it must be to go on combining.
        if let Some(other) = similar.messages.iter().find(|other| **other != message).cloned() {
            similar.messages.remove(&other);
        }
        event.metadata.name = Some(event_name(&event.involved_object, now));
        event.message = Some(format!("{COMBINED}{message}"));
        (event, group)
    }

    fn may_speak(&mut self, event: &Event, now: Timestamp) -> bool {
        let bucket = self.spam.get_or(&object_key(event), || Bucket { tokens: BURST, last: now });
        let passed = now.duration_since(bucket.last).as_secs_f64().max(0.0);
        bucket.tokens = (bucket.tokens + passed / REFILL_SECONDS).min(BURST);
        bucket.last = now;
        let speaks = bucket.tokens >= 1.0;
        if speaks {
            bucket.tokens -= 1.0;
        }
        speaks
    }
}

fn written(event: &Event) -> Written {
    Written {
        name: event.metadata.name.clone().unwrap_or_default(),
        first: event.first_timestamp.clone(),
        count: event.count.unwrap_or(1),
        resource_version: event.metadata.resource_version.clone(),
    }
}

/// Source and object.
fn object_key(event: &Event) -> String {
    let source = event.source.clone().unwrap_or_default();
    let about = &event.involved_object;
    key(&[&source.component, &source.host, &about.kind, &about.namespace, &about.name, &about.uid, &about.api_version])
}

/// Everything but the message and the place in the object.
fn group_key(event: &Event) -> String {
    let rest = key(&[&event.type_, &event.reason, &event.reporting_component, &event.reporting_instance]);
    object_key(event) + &rest
}

fn full_key(event: &Event) -> String {
    let rest = key(&[&event.involved_object.field_path, &event.type_, &event.reason, &event.message]);
    object_key(event) + &rest
}

fn key(parts: &[&Option<String>]) -> String {
    // A character that no part holds keeps `ab`+`c` and `a`+`bc` apart.
    parts.iter().map(|part| format!("{}\u{0}", part.as_deref().unwrap_or(""))).collect()
}

/// A map that forgets what was not used longest when it is full.
struct Remembered<T> {
    entries: HashMap<String, (u64, T)>,
    uses: u64,
}

impl<T> Default for Remembered<T> {
    fn default() -> Remembered<T> {
        Remembered { entries: HashMap::new(), uses: 0 }
    }
}

impl<T> Remembered<T> {
    fn get(&mut self, key: &str) -> Option<&mut T> {
        self.uses += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.uses;
        Some(value)
    }

    fn get_or(&mut self, key: &str, new: impl FnOnce() -> T) -> &mut T {
        if !self.entries.contains_key(key) {
            self.put(key, new());
        }
        self.get(key).expect("put above when it was missing")
    }

    fn put(&mut self, key: &str, value: T) {
        self.uses += 1;
        if self.entries.len() >= REMEMBERED_MAX && !self.entries.contains_key(key) {
            self.forget_oldest();
        }
        self.entries.insert(key.to_owned(), (self.uses, value));
    }

    /// The older half at once, so that a full map is not searched for every new entry.
    fn forget_oldest(&mut self) {
        let mut uses: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
        uses.sort_unstable();
        let middle = uses[uses.len() / 2];
        self.entries.retain(|_, (used, _)| *used >= middle);
    }
}
