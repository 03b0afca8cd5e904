//! The class of volumes that are folders of nodes: there from the first start, and the default.

use serde_json::{Value, json};

/// A class that somebody has changed or replaced stays as it is; only one that is not there is made.
pub fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "local-path",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": kube_controller_manager::LOCAL_STORAGE_PROVISIONERS[0],
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    })
}
