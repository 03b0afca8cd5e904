//! This machine as a Node of the cluster: registered, described, its heartbeat kept, and its static pods.
//!
//! `object`, `capacity` and `conditions` decide; `status` and `lease` write; `health` is where other parts say what ails the node.

pub mod object;
pub mod capacity;
pub mod conditions;
pub mod machine;
pub mod health;
pub mod manifest;
pub mod static_pods;
pub mod mirror;
pub mod addresses;

mod status;
mod lease;
mod csi_node;
#[cfg(test)]
pub(crate) mod tests;

pub use conditions::Pressure;
pub use health::Health;
pub(crate) use object::KUBELET_VERSION;
pub use static_pods::StaticPods;
pub(crate) use status::node_reference;

use std::sync::Arc;

use component_base::tasks;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use reconcile::Watching;
use tokio::sync::watch;

use crate::Kubelet;

/// The Node object as the API shows it.
#[derive(Clone, Debug)]
pub enum Seen {
    Unknown,
    Gone,
    Here(Arc<Node>),
}

impl Seen {
    pub fn uid(&self) -> Option<String> {
        match self {
            Seen::Here(node) => node.metadata.uid.clone(),
            Seen::Unknown | Seen::Gone => None,
        }
    }
}

/// This node's object, for all parts that want to know it.
pub struct NodeWatch {
    seen: watch::Sender<Seen>,
}

impl Default for NodeWatch {
    fn default() -> NodeWatch {
        NodeWatch { seen: watch::Sender::new(Seen::Unknown) }
    }
}

impl NodeWatch {
    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }
}

/// Registers the node and keeps it alive until shutdown.
pub async fn run(kubelet: Arc<Kubelet>, health: Arc<Health>, node: Arc<NodeWatch>) {
    let (client, config) = (kubelet.client.clone(), &kubelet.config);
    let csi_node = csi_node::run(client.clone(), config.node_name.clone(), node.seen());
    // A task of its own, so that nothing that takes long here keeps it waiting.
    let heartbeat =
        lease::run(client, config.node_name.clone(), config.node_lease_duration, node.seen(), config.clock.clone());
    let heartbeat = tokio_util::task::AbortOnDropHandle::new(tasks::spawn(heartbeat));
    tokio::select! {
        () = kubelet.shutdown.cancelled() => {}
        () = follow(&kubelet, &node) => {}
        () = status::run(kubelet.clone(), health.clone(), node.seen()) => {}
        () = hand_over_pod_cidr(&kubelet, &health, node.seen()) => {}
        () = csi_node => {}
    }
    drop(heartbeat);
}

/// Keeps what is seen of the Node object up to date.
async fn follow(kubelet: &Kubelet, node: &NodeWatch) {
    let selected = format!("metadata.name={}", kubelet.config.node_name);
    let mut watching = Watching::<Node>::fields(kubelet.client.clone(), None, selected);
    let mut listed = None;
    while let Some(seen) = watching.next().await {
        match seen {
            reconcile::Seen::Listing => listed = None,
            reconcile::Seen::Listed(object) => listed = Some(object),
            reconcile::Seen::Complete => node.set(listed.take()),
            reconcile::Seen::Put(object) => node.set(Some(object)),
            reconcile::Seen::Gone(_) => {
                listed = None;
                node.set(None);
            }
            reconcile::Seen::Failed(error) => {
                tracing::warn!(error, "watch of Node failed; retrying");
            }
        }
    }
}

impl NodeWatch {
    fn set(&self, object: Option<Node>) {
        self.seen.send_modify(|seen| {
            *seen = match (object, &*seen) {
                (Some(object), _) => Seen::Here(Arc::new(object)),
                // Before it has registered for the first time, a missing Node is nothing to tell.
                (None, Seen::Unknown) => Seen::Unknown,
                (None, _) => Seen::Gone,
            }
        });
    }
}

/// Tells the runtime where the pods' addresses come from: the configured range until the cluster has given one.
async fn hand_over_pod_cidr(kubelet: &Kubelet, health: &Health, mut seen: watch::Receiver<Seen>) {
    let mut told: Option<String> = None;
    loop {
        let given = match &*seen.borrow_and_update() {
            Seen::Here(node) => pod_cidr(node),
            Seen::Unknown | Seen::Gone => None,
        };
        let range = given.or_else(|| told.clone()).or_else(|| kubelet.config.pod_cidr.clone());
        let mut failed = false;
        if let Some(range) = range.filter(|range| told.as_ref() != Some(range)) {
            match kubelet.runtime.update_pod_cidr(&range).await {
                Ok(()) => {
                    tracing::info!(range, "using pod CIDR");
                    told = Some(range);
                    // The network may be ready only now.
                    health.look_again();
                }
                Err(error) => {
                    tracing::error!(%error, range, "container runtime rejected pod CIDR");
                    failed = true;
                }
            }
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { std::future::pending::<()>().await },
            () = tokio::time::sleep(kubelet.config.node_status_update_frequency), if failed => {}
        }
    }
}

/// The ranges of both families in one text, as the CRI takes them.
fn pod_cidr(node: &Node) -> Option<String> {
    let spec = node.spec.as_ref()?;
    let ranges = spec.pod_cidrs.as_ref().filter(|ranges| !ranges.is_empty()).map(|ranges| ranges.join(","));
    ranges.or_else(|| spec.pod_cidr.clone()).filter(|ranges| !ranges.is_empty())
}
