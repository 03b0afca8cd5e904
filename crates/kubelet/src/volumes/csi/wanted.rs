//! A CSI volume that a pod needs, by a claim or inline.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod, Volume as VolumeSpec};
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
    Persistent,
    Ephemeral,
}

impl Lifecycle {
    pub fn name(self) -> &'static str {
        match self {
            Lifecycle::Persistent => "Persistent",
            Lifecycle::Ephemeral => "Ephemeral",
        }
    }
}

/// A Secret by namespace and name.
pub(super) type SecretName = (String, String);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    /// The persistent volume's name, or that of the volume in the pod.
    pub name: String,
    pub driver: String,
    pub handle: String,
    pub lifecycle: Lifecycle,
    pub is_block: bool,
    pub fs_type: String,
    pub attributes: BTreeMap<String, String>,
    pub access_modes: Vec<String>,
    pub mount_options: Vec<String>,
    pub read_only: bool,
    pub stage_secret: Option<SecretName>,
    pub publish_secret: Option<SecretName>,
    pub expand_secret: Option<SecretName>,
    /// The SELinux label that it is mounted with.
    pub label: Option<String>,
    /// The size that the persistent volume has, as it says and in bytes.
    pub size: String,
    pub bytes: Option<i64>,
}

impl Wanted {
    pub fn persistent(volume: &PersistentVolume, read_only: bool) -> Wanted {
        let spec = volume.spec.clone().unwrap_or_default();
        let source = spec.csi.unwrap_or_default();
        let named = |reference: Option<k8s_openapi::api::core::v1::SecretReference>| {
            reference.map(|it| (it.namespace.unwrap_or_default(), it.name.unwrap_or_default()))
        };
        let size = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        Wanted {
            name: volume.metadata.name.clone().unwrap_or_default(),
            driver: source.driver,
            handle: source.volume_handle,
            lifecycle: Lifecycle::Persistent,
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            fs_type: source.fs_type.unwrap_or_default(),
            attributes: source.volume_attributes.unwrap_or_default(),
            access_modes: spec.access_modes.unwrap_or_default(),
            mount_options: spec.mount_options.unwrap_or_default(),
            read_only,
            stage_secret: named(source.node_stage_secret_ref),
            publish_secret: named(source.node_publish_secret_ref),
            expand_secret: named(source.node_expand_secret_ref),
            label: None,
            size: size.map(|size| size.0.clone()).unwrap_or_default(),
            bytes: size.and_then(|size| bytes(&size.0)),
        }
    }

    pub fn inline(pod: &Pod, volume: &VolumeSpec) -> Wanted {
        let source = volume.csi.clone().unwrap_or_default();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        Wanted {
            name: volume.name.clone(),
            driver: source.driver,
            // Nobody has given it a handle; the driver makes a volume for this one.
            handle: format!("csi-{}", hex(format!("{uid}{}", volume.name))),
            lifecycle: Lifecycle::Ephemeral,
            is_block: false,
            fs_type: source.fs_type.unwrap_or_default(),
            attributes: source.volume_attributes.unwrap_or_default(),
            access_modes: Vec::new(),
            mount_options: Vec::new(),
            read_only: source.read_only.unwrap_or(false),
            stage_secret: None,
            publish_secret: source.node_publish_secret_ref.map(|reference| (namespace, reference.name)),
            expand_secret: None,
            label: None,
            size: String::new(),
            bytes: None,
        }
    }

    /// The mode that a driver is told; one stands for all, as upstream.
    pub fn access_mode(&self) -> &str {
        self.access_modes.first().map_or("ReadWriteOnce", String::as_str)
    }

    pub fn unique_name(&self) -> String {
        super::unique_name(&self.driver, &self.handle)
    }
}

fn bytes(text: &str) -> Option<i64> {
    machinery::quantity::Quantity::parse(text).ok().map(|quantity| quantity.value())
}

pub(super) fn hex(text: impl AsRef<[u8]>) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
