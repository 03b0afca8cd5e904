//! Objects that pods refer to: ConfigMaps, Secrets, Services, claims and volumes. A ConfigMap or Secret is watched as long as
//! a pod on this node refers to it, by its name only, as the node may not see others.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};

pub struct Objects {
    client: kube::Client,
}

impl Objects {
    pub fn new(client: kube::Client) -> Arc<Objects> {
        Arc::new(Objects { client })
    }
}
