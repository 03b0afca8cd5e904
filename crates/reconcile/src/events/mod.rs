//! Events: what happened to an object, in words for users. Repeated ones are counted, not repeated, as upstream does.
//!
//! `correlate` decides what becomes of an event; `write` brings it to the API and tries again while that is away.

mod correlate;
mod write;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use component_base::tasks;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use tokio::sync::mpsc;

use component_base::Clock;

/// Events that wait to be written; upstream's broadcaster keeps as many.
const WAITING_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// Writes events in the background. When more come than can be written, the newest are dropped and counted.
#[derive(Clone)]
pub struct Recorder {
    source: EventSource,
    clock: Clock,
    waiting: mpsc::Sender<Event>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// `component` and `host` become the event's source, `kubelet` and the node's name. Must be called within a runtime;
    /// the writer ends with the last copy of the recorder.
    pub fn new(client: Client, component: &str, host: &str) -> Recorder {
        Recorder::with_clock(client, component, host, Clock::system())
    }

    /// As [`Recorder::new`], with a clock that a test may own.
    pub fn with_clock(client: Client, component: &str, host: &str, clock: Clock) -> Recorder {
        let (waiting, events) = mpsc::channel(WAITING_MAX);
        tasks::spawn(write::run(client, clock.clone(), events));
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let source = EventSource { component: some(component), host: some(host) };
        Recorder { source, clock, waiting, dropped: Arc::default() }
    }

    pub fn event(&self, about: &ObjectReference, kind: EventType, reason: &str, message: impl Into<String>) {
        let event = make(&self.source, self.clock.now(), about, kind, reason, message.into());
        if self.waiting.try_send(event).is_err() {
            // Said at the first and then ever more rarely: a flood of events must not become a flood of lines.
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, reason, "event queue is full; dropping the newest events");
            }
        }
    }

    /// How many events were never written because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The reference that an event about this object carries.
pub fn reference<K: crate::cache::Kind>(object: &K) -> ObjectReference {
    let metadata = object.metadata();
    ObjectReference {
        api_version: Some(<K as k8s_openapi::Resource>::API_VERSION.to_owned()),
        kind: Some(<K as k8s_openapi::Resource>::KIND.to_owned()),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        field_path: None,
    }
}

fn make(
    source: &EventSource,
    now: jiff::Timestamp,
    about: &ObjectReference,
    kind: EventType,
    reason: &str,
    message: String,
) -> Event {
    // Events about what is in no namespace are kept in `default`.
    let namespace = about.namespace.clone().filter(|namespace| !namespace.is_empty());
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(about, now)),
            namespace: Some(namespace.unwrap_or_else(|| "default".into())),
            ..ObjectMeta::default()
        },
        involved_object: about.clone(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        type_: Some(format!("{kind:?}")),
        reporting_component: source.component.clone(),
        reporting_instance: source.host.clone(),
        source: Some(source.clone()),
        ..Event::default()
    }
}

fn event_name(about: &ObjectReference, now: jiff::Timestamp) -> String {
    format!("{}.{:x}", about.name.as_deref().unwrap_or(""), now.as_nanosecond())
}
