//! Objects that pods refer to: ConfigMaps, Secrets, Services, claims and volumes. A ConfigMap or Secret is watched as long as
//! a pod on this node refers to it, by its name only, as the node may not see others.

mod references;
mod watched;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, ListParams};
use tokio::sync::{broadcast, watch};

use watched::{Watched, WatchedList};

use crate::node::Seen;

/// Why an object could not be had.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ObjectError {
    /// `configmap "x" not found`
    #[error("{kind} {name:?} not found")]
    NotFound { kind: &'static str, name: String },
    #[error("{0}")]
    Other(String),
}

impl ObjectError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, ObjectError::NotFound { .. })
    }
}

/// Changes that wait to be read by a slow listener; one that falls behind looks at all its pods again.
const CHANGES_MAX: usize = 1024;

pub struct Objects {
    client: kube::Client,
    config_maps: Watched<ConfigMap>,
    secrets: Watched<Secret>,
    services: WatchedList<Service>,
    changes: broadcast::Sender<String>,
    /// The watch of this node's own object.
    own_node: OnceLock<watch::Receiver<Seen>>,
}

impl Objects {
    pub fn new(client: kube::Client) -> Arc<Objects> {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        Arc::new(Objects {
            config_maps: Watched::new(client.clone(), "configmap", changes.clone()),
            secrets: Watched::new(client.clone(), "secret", changes.clone()),
            services: WatchedList::new(client.clone()),
            client,
            changes,
            own_node: OnceLock::new(),
        })
    }

    /// Watches what the pod refers to until it is forgotten. Registering it again takes its new references.
    pub fn register(&self, pod: &Pod) {
        let Some(uid) = pod.metadata.uid.as_deref() else { return };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let names = references::references(pod);
        self.config_maps.register(uid, namespace, names.config_maps);
        self.secrets.register(uid, namespace, names.secrets);
    }

    pub fn forget(&self, uid: &str) {
        self.config_maps.forget(uid);
        self.secrets.forget(uid);
    }

    /// The uids of pods one of whose ConfigMaps or Secrets has changed.
    pub fn changes(&self) -> broadcast::Receiver<String> {
        self.changes.subscribe()
    }

    pub async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, ObjectError> {
        match self.config_maps.get(namespace, name).await {
            Some(answer) => answer,
            None => got("configmap", name, Api::namespaced(self.client.clone(), namespace).get_opt(name).await),
        }
    }

    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, ObjectError> {
        match self.secrets.get(namespace, name).await {
            Some(answer) => answer,
            None => got("secret", name, Api::namespaced(self.client.clone(), namespace).get_opt(name).await),
        }
    }

    /// All services of the cluster, once the first list has been read.
    pub async fn services(&self) -> Result<Vec<Arc<Service>>, ObjectError> {
        self.services.all().await
    }

    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, ObjectError> {
        got("persistentvolumeclaim", name, Api::namespaced(self.client.clone(), namespace).get_opt(name).await)
    }

    pub(crate) async fn persistent_volume(&self, name: &str) -> Result<Arc<PersistentVolume>, ObjectError> {
        got("persistentvolume", name, Api::all(self.client.clone()).get_opt(name).await)
    }

    pub async fn storage_class(&self, name: &str) -> Result<Arc<StorageClass>, ObjectError> {
        got("storageclass", name, Api::all(self.client.clone()).get_opt(name).await)
    }

    pub async fn csi_driver(&self, name: &str) -> Result<Arc<CSIDriver>, ObjectError> {
        got("csidriver", name, Api::all(self.client.clone()).get_opt(name).await)
    }

    pub(crate) async fn volume_attachment(&self, name: &str) -> Result<Arc<VolumeAttachment>, ObjectError> {
        got("volumeattachment", name, Api::all(self.client.clone()).get_opt(name).await)
    }

    pub async fn csi_node(&self, name: &str) -> Result<Arc<CSINode>, ObjectError> {
        got("csinode", name, Api::all(self.client.clone()).get_opt(name).await)
    }

    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Arc<ServiceAccount>, ObjectError> {
        got("serviceaccount", name, Api::namespaced(self.client.clone(), namespace).get_opt(name).await)
    }

    /// From now on this node's object is what the watch shows.
    pub(crate) fn follow_node(&self, seen: watch::Receiver<Seen>) {
        // There is one watch for as long as the kubelet runs.
        let _ = self.own_node.set(seen);
    }

    /// The watch of this node's object, if it is followed.
    pub(crate) fn node_seen(&self) -> Option<watch::Receiver<Seen>> {
        self.own_node.get().cloned()
    }

    /// This node's object, as the watch last showed it; asked for only before the watch has shown anything.
    pub async fn node(&self, name: &str) -> Result<Arc<Node>, ObjectError> {
        if let Some(Seen::Here(node)) = self.own_node.get().map(|seen| seen.borrow().clone()) {
            return Ok(node);
        }
        self.fresh_node(name).await
    }

    /// This node's object as it is now: what the watch shows may be a moment old.
    pub(crate) async fn fresh_node(&self, name: &str) -> Result<Arc<Node>, ObjectError> {
        got("node", name, Api::all(self.client.clone()).get_opt(name).await)
    }

    pub async fn trust_bundle(&self, name: &str) -> Result<Arc<ClusterTrustBundle>, ObjectError> {
        got("clustertrustbundle", name, Api::all(self.client.clone()).get_opt(name).await)
    }

    /// The bundles of a signer that have these labels.
    pub(crate) async fn trust_bundles(
        &self,
        signer: &str,
        labels: &str,
    ) -> Result<Vec<ClusterTrustBundle>, ObjectError> {
        let which = ListParams::default().fields(&format!("spec.signerName={signer}")).labels(labels);
        let list = Api::<ClusterTrustBundle>::all(self.client.clone()).list(&which).await;
        list.map(|list| list.items).map_err(|error| ObjectError::Other(in_words(&error)))
    }

    /// What pods may use of this node.
    pub async fn allocatable(&self, node: &str) -> Result<BTreeMap<String, Quantity>, ObjectError> {
        let node = self.node(node).await?;
        Ok(node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default())
    }

    pub fn client(&self) -> &kube::Client {
        &self.client
    }
}

fn got<K>(kind: &'static str, name: &str, answer: kube::Result<Option<K>>) -> Result<Arc<K>, ObjectError> {
    match answer {
        Ok(Some(object)) => Ok(Arc::new(object)),
        Ok(None) => Err(ObjectError::NotFound { kind, name: name.to_owned() }),
        Err(error) => Err(ObjectError::Other(in_words(&error))),
    }
}

/// What the API said, without the rest of its answer: users read this.
pub(crate) fn in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
