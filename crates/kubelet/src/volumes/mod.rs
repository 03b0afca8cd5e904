//! A pod's volumes, one file per type. Mounting is repeatable: it also brings contents up to date.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::Kubelet;

/// Why a volume is not there yet; the text is the message of a FailedMount event.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("{0}")]
    Failed(String),
}

/// Where the volumes of a pod are, by their names in the pod.
pub type Mounted = HashMap<String, Volume>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// A folder or file on this node.
    Path { path: PathBuf, read_only: bool },
    /// An image whose files are shown, read-only.
    Image { reference: String },
}

pub struct Volumes {
    kubelet: Arc<Kubelet>,
}

impl Volumes {
    pub fn new(kubelet: Arc<Kubelet>) -> Volumes {
        Volumes { kubelet }
    }

    /// Makes every volume of the pod ready, or brings its content up to date.
    pub async fn mount(&self, pod: &Pod) -> Result<Mounted, VolumeError> {
        let _ = (pod, &self.kubelet);
        Ok(Mounted::new())
    }

    /// When contents must be looked at again though no object changed: the next rotation of a token.
    pub fn next_refresh(&self, pod: &Pod) -> Option<jiff::Timestamp> {
        let _ = pod;
        None
    }

    /// What a container's `volumeMounts` become, subPath and subPathExpr resolved inside the volume.
    pub async fn container_mounts(
        &self,
        pod: &Pod,
        container: &Container,
        mounted: &Mounted,
        environment: &[(String, String)],
    ) -> Result<Vec<v1::Mount>, VolumeError> {
        let _ = (pod, container, mounted, environment);
        Ok(Vec::new())
    }

    /// Takes everything down once no container of the pod is left, and removes the pod's folder.
    pub async fn unmount(&self, uid: &str) -> Result<(), VolumeError> {
        let _ = uid;
        Ok(())
    }

    /// Pods with folders here, to find what a crash left behind.
    pub fn uids(&self) -> Vec<String> {
        Vec::new()
    }
}
