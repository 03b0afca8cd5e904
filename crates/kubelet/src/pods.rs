//! What the whole kubelet knows about its pods: the wish (API or file), and the last status that was worked out.
//! Written by the pod workers, read by the server, eviction, garbage collection and statistics.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};

/// A pod as the kubelet sees it now.
#[derive(Clone, Debug)]
pub struct PodState {
    /// As it is wished: from the API, or from a file for a static pod.
    pub pod: Arc<Pod>,
    /// As it was last worked out here; newer than what the API shows.
    pub status: PodStatus,
    /// Current and earlier containers, newest attempt first within a name.
    pub containers: Vec<ContainerRef>,
    /// The newest sandbox.
    pub sandbox: Option<String>,
    /// Whether every container has ended and nothing will be started any more.
    pub finished: bool,
}

impl PodState {
    /// Whether the pod takes no room on the node any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.finished || matches!(self.status.phase.as_deref(), Some("Failed" | "Succeeded"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRef {
    pub name: String,
    pub id: String,
    pub attempt: u32,
    pub running: bool,
    /// CRI's log path, absolute.
    pub log_path: String,
}

/// What others may ask of a pod's worker.
#[derive(Clone, Debug)]
pub enum Order {
    /// End it as Failed with this reason and message, within the grace period; its object stays.
    Evict { reason: String, message: String, condition: Option<EvictionCondition>, grace_period_seconds: Option<i64> },
}

/// The `DisruptionTarget` condition to set with an eviction.
#[derive(Clone, Debug)]
pub struct EvictionCondition {
    pub reason: String,
    pub message: String,
}

#[derive(Default)]
pub struct Pods {
    by_uid: RwLock<HashMap<String, Entry>>,
    allocatable: RwLock<BTreeMap<String, i128>>,
    /// Rung when a pod has ended, though its object may stay.
    ended: Notify,
    /// Pods whose devices are in another state than their status says.
    devices: Mutex<BTreeSet<String>>,
    devices_changed: Notify,
}

struct Entry {
    state: Arc<PodState>,
    orders: mpsc::Sender<Order>,
}

impl Pods {
    pub fn list(&self) -> Vec<Arc<PodState>> {
        self.by_uid.read().values().map(|entry| entry.state.clone()).collect()
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<PodState>> {
        self.by_uid.read().get(uid).map(|entry| entry.state.clone())
    }

    /// The pod of that name; of several the one that is not ending.
    pub fn by_name(&self, namespace: &str, name: &str) -> Option<Arc<PodState>> {
        let pods = self.by_uid.read();
        let mut named: Vec<_> = pods
            .values()
            .filter(|entry| {
                let metadata = &entry.state.pod.metadata;
                metadata.namespace.as_deref() == Some(namespace) && metadata.name.as_deref() == Some(name)
            })
            .collect();
        named.sort_by_key(|entry| entry.state.pod.metadata.deletion_timestamp.is_some());
        named.first().map(|entry| entry.state.clone())
    }

    /// What the node has for pods, in thousandths; empty until it is known.
    pub fn allocatable(&self) -> BTreeMap<String, i128> {
        self.allocatable.read().clone()
    }

    pub(crate) fn set_allocatable(&self, allocatable: BTreeMap<String, i128>) {
        *self.allocatable.write() = allocatable;
    }

    /// Tells a pod's worker; false when there is no such pod any more.
    pub async fn order(&self, uid: &str, order: Order) -> bool {
        let orders = self.by_uid.read().get(uid).map(|entry| entry.orders.clone());
        match orders {
            Some(orders) => orders.send(order).await.is_ok(),
            None => false,
        }
    }

    /// The worker of a pod says how it is.
    pub fn set(&self, uid: &str, state: PodState, orders: &mpsc::Sender<Order>) {
        let has_ended = state.has_ended();
        let entry = Entry { state: Arc::new(state), orders: orders.clone() };
        let before = self.by_uid.write().insert(uid.to_owned(), entry);
        if has_ended && before.is_none_or(|before| !before.state.has_ended()) {
            self.ended.notify_one();
        }
    }

    /// Some pod has ended since this was waited for last.
    pub(crate) async fn one_ended(&self) {
        self.ended.notified().await
    }

    /// The status of these pods shows how their devices are, which has changed.
    pub(crate) fn devices_changed(&self, uids: impl IntoIterator<Item = String>) {
        self.devices.lock().extend(uids);
        self.devices_changed.notify_one();
    }

    /// Pods whose devices have changed since this was waited for last.
    pub(crate) async fn with_changed_devices(&self) -> BTreeSet<String> {
        self.devices_changed.notified().await;
        std::mem::take(&mut self.devices.lock())
    }

    pub fn remove(&self, uid: &str) {
        self.by_uid.write().remove(uid);
    }
}
