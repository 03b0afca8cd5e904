//! One pod: deciding ([`plan`]) and doing (`worker`).

pub mod spec;
pub mod labels;
pub mod observed;
pub mod memory;
pub mod plan;
pub mod status;
pub mod worker;
pub mod source;
pub mod admission;
pub mod env;
pub mod files;
pub mod backoff;
pub mod totals;
pub mod user_ranges;
mod conditions;
mod container;
mod hooks;
mod kill;
mod linux_resources;
mod observe;
mod resize;
mod sandbox;
mod security;
mod start;
mod writer;
#[cfg(test)]
mod fake_runtime;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use reconcile::events::{EventType, reference};

use crate::Kubelet;
use crate::images::Images;
use crate::pods::Pods;
use crate::volumes::Volumes;

/// What all pods' workers share.
pub struct Shared {
    pub kubelet: Arc<Kubelet>,
    pub pods: Arc<Pods>,
    pub volumes: Arc<Volumes>,
    pub images: Arc<Images>,
    pub users: user_ranges::UserRanges,
    /// The scheme of container ids.
    pub runtime_name: String,
    pub host_ips: Vec<String>,
    pub node_memory_bytes: i64,
}

impl Shared {
    /// An event about a pod, or about one of its containers.
    fn tell(&self, pod: &Pod, field_path: Option<String>, kind: EventType, reason: &str, message: String) {
        let about = ObjectReference { field_path, ..about(pod) };
        self.kubelet.events.event(&about, kind, reason, message);
    }
}

/// Events about a static pod are about its object in the API, which carries the file's hash as its uid in events, as upstream.
fn about(pod: &Pod) -> ObjectReference {
    reference(pod)
}
