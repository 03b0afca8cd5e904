//! Tracks Services that changed since the last sync.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use reconcile::{Cache, Key};
use tokio::sync::Notify;

use crate::health::Health;
use crate::metrics::Metrics;
use crate::rules::{HEADLESS, SERVICE_NAME};

/// When the change happened that made the controller write a slice.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// More than so many between two looks are not measured.
const TRIGGERS_MAX: usize = 1000;

pub struct Changes {
    state: Mutex<State>,
    woken: Notify,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    taken: Taken,
    /// The slices of each Service, by name.
    slices: HashMap<Key, BTreeMap<String, Arc<EndpointSlice>>>,
}

/// What has changed.
#[derive(Default)]
pub struct Taken {
    pub services: HashSet<Key>,
    pub node: bool,
    pub triggers: Vec<Timestamp>,
}

impl Changes {
    pub fn new(health: Arc<Health>, metrics: Arc<Metrics>) -> Arc<Changes> {
        Arc::new(Changes { state: Mutex::default(), woken: Notify::new(), health, metrics })
    }

    pub fn follow(self: &Arc<Self>, services: &Cache<Service>, slices: &Cache<EndpointSlice>, nodes: &Cache<Node>) {
        let changes = self.clone();
        services.listen(move |old, new| {
            if let Some(service) = new.or(old) {
                changes.state.lock().taken.services.insert(Key::of(&service.metadata));
                changes.wake(true);
            }
        });
        let changes = self.clone();
        slices.listen(move |old, new| {
            changes.state.lock().slice_changed(old, new);
            changes.wake(false);
        });
        let changes = self.clone();
        nodes.listen(move |_, _| {
            changes.state.lock().taken.node = true;
            changes.woken.notify_one();
        });
    }

    /// Until something has changed.
    pub async fn wait(&self) {
        self.woken.notified().await;
    }

    pub fn take(&self) -> Taken {
        self.metrics.taken();
        std::mem::take(&mut self.state.lock().taken)
    }

    /// The slices of a Service, in the order of their names.
    pub fn slices(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        self.state.lock().slices.get(service).map(|slices| slices.values().cloned().collect()).unwrap_or_default()
    }

    fn wake(&self, is_service: bool) {
        self.health.queued();
        self.metrics.queued(is_service);
        self.woken.notify_one();
    }
}

impl State {
    fn slice_changed(&mut self, old: Option<&Arc<EndpointSlice>>, new: Option<&Arc<EndpointSlice>>) {
        if let Some((service, name)) = old.and_then(|slice| names(slice)) {
            if let Some(slices) = self.slices.get_mut(&service) {
                slices.remove(&name);
                if slices.is_empty() {
                    self.slices.remove(&service);
                }
            }
            self.taken.services.insert(service);
        }
        if let Some(slice) = new
            && let Some((service, name)) = names(slice)
        {
            let annotations = slice.metadata.annotations.as_ref();
            let trigger: Option<Timestamp> =
                annotations.and_then(|annotations| annotations.get(TRIGGER_TIME)?.parse().ok());
            if self.taken.triggers.len() < TRIGGERS_MAX {
                self.taken.triggers.extend(trigger);
            }
            self.slices.entry(service.clone()).or_default().insert(name, slice.clone());
            self.taken.services.insert(service);
        }
    }
}

/// The Service of a slice, and the slice's own name. Nothing for one that is for DNS alone.
fn names(slice: &EndpointSlice) -> Option<(Key, String)> {
    let metadata = &slice.metadata;
    let labels = metadata.labels.as_ref().filter(|labels| !labels.contains_key(HEADLESS))?;
    let service = labels.get(SERVICE_NAME)?;
    Some((Key::new(metadata.namespace.as_deref()?, service), metadata.name.clone()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(labels: &[&str]) -> Arc<EndpointSlice> {
        let mut slice = EndpointSlice::default();
        slice.metadata.namespace = Some("default".into());
        slice.metadata.name = Some("web-1".into());
        let service = [(SERVICE_NAME.to_owned(), "web".to_owned())];
        let labels = labels.iter().map(|label| ((*label).to_owned(), String::new()));
        slice.metadata.labels = Some(service.into_iter().chain(labels).collect());
        Arc::new(slice)
    }

    #[test]
    fn a_slice_that_becomes_headless_leaves_its_service() {
        let (plain, headless) = (slice(&[]), slice(&[HEADLESS]));
        let web = Key::new("default", "web");
        let mut state = State::default();
        state.slice_changed(None, Some(&plain));
        assert_eq!(state.slices[&web].len(), 1);
        state.taken = Taken::default();
        state.slice_changed(Some(&plain), Some(&headless));
        assert!(state.taken.services.contains(&web));
        assert!(!state.slices.contains_key(&web));
        state.slice_changed(Some(&headless), Some(&plain));
        assert_eq!(state.slices[&web].len(), 1);
        // Who serves a Service is said by the Service: its slices carry the label only because they copy it.
        state.slice_changed(Some(&plain), Some(&slice(&["service.kubernetes.io/service-proxy-name"])));
        assert_eq!(state.slices[&web].len(), 1);
    }
}
