//! A pod's volumes, one file per type. Mounting is repeatable: it also brings contents up to date.

mod error;
mod folders;
mod empty_dir;
mod host_path;
mod config_map;
mod secret;
mod downward_api;
mod projected;
mod trust_bundle;
mod claim;
mod local;
mod local_path;
mod block;
mod filesystem;
pub mod expand;
mod nfs;
mod csi;
mod image;
mod unsupported;
mod payload;
mod atomic_writer;
mod ownership;
mod container_mounts;
mod sub_path;
mod node_affinity;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod example;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use component_base::Clock;
use cri::v1;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Volume as VolumeSpec};
use reconcile::events::{EventType, Recorder};
use tokio_util::sync::CancellationToken;

use crate::Kubelet;
use crate::drivers::Drivers;
use crate::node::Health;
use crate::objects::Objects;
use crate::pod_certificates::PodCertificates;
use crate::tokens::Tokens;
use csi::Csi;
use error::{Error, Problem};
use folders::Folders;
use local_path::Projects;

/// Where the volumes of a pod are, by their names in the pod.
pub type Mounted = HashMap<String, Volume>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// A folder or file on this node. With `relabel`, where the machine has SELinux, its files get the label of the containers.
    Path { path: PathBuf, read_only: bool, relabel: bool },
    /// A block device of this node.
    Device { path: PathBuf, read_only: bool },
    /// An image whose files are shown, read-only.
    Image { reference: String },
}

/// A type of volume.
struct Type {
    is: fn(&VolumeSpec) -> bool,
    mount: for<'a> fn(Request<'a>) -> BoxFuture<'a, Result<Volume, Problem>>,
}

/// The types there are. A volume of none of them was made by a newer API and is refused.
static TYPES: &[&Type] = &[
    &empty_dir::TYPE,
    &host_path::TYPE,
    &config_map::TYPE,
    &secret::TYPE,
    &downward_api::TYPE,
    &projected::TYPE,
    &claim::TYPE,
    &claim::EPHEMERAL,
    &nfs::TYPE,
    &image::TYPE,
    &unsupported::GIT_REPO,
    &csi::TYPE,
    &unsupported::ISCSI,
    &unsupported::FC,
    &unsupported::TYPE,
];

/// One volume of one pod that is to be made ready.
#[derive(Clone, Copy)]
struct Request<'a> {
    objects: &'a Objects,
    events: Option<&'a Recorder>,
    node_name: &'a str,
    tokens: &'a Tokens,
    certificates: &'a PodCertificates,
    folders: &'a Folders,
    csi: &'a Csi,
    projects: &'a Arc<Projects>,
    pod: &'a Pod,
    volume: &'a VolumeSpec,
    /// Cancelled when the pod is to end.
    ending: &'a CancellationToken,
    clock: &'a Clock,
}

impl Request<'_> {
    fn tell(&self, about: &ObjectReference, kind: EventType, reason: &str, message: String) {
        if let Some(events) = self.events {
            events.event(about, kind, reason, message);
        }
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// `pods/<uid>/volumes/<plugin>/<name>`
    fn path(&self, plugin: &str) -> PathBuf {
        self.folders.volume(self.uid(), plugin, &self.volume.name)
    }

    /// A file that says that this volume has been made ready once; its content belongs to the containers from then on.
    fn ready_mark(&self, plugin: &str) -> PathBuf {
        self.folders.plugin(self.uid(), plugin, &self.volume.name).join("ready")
    }
}

pub struct Volumes {
    objects: Arc<Objects>,
    events: Option<Recorder>,
    node_name: String,
    tokens: Tokens,
    certificates: PodCertificates,
    folders: Folders,
    csi: Arc<Csi>,
    /// Of local-path volumes.
    projects: Arc<Projects>,
    clock: Clock,
}

impl Volumes {
    pub fn new(kubelet: Arc<Kubelet>, drivers: Arc<Drivers>, health: Arc<Health>) -> Volumes {
        let config = &kubelet.config;
        let clock = config.clock.clone();
        let csi = Csi::new(drivers, health, &config.root_dir, &config.root_dir_of_drivers, clock.clone());
        let made = Volumes::with(kubelet.objects.clone(), &config.node_name, &config.root_dir, csi, clock);
        Volumes { events: Some(kubelet.events.clone()), ..made }
    }

    fn with(objects: Arc<Objects>, node_name: &str, root_dir: &Path, csi: Csi, clock: Clock) -> Volumes {
        let tokens = Tokens::new(objects.client().clone(), clock.clone());
        let certificates = PodCertificates::new(objects.clone(), node_name, clock.clone());
        let (folders, csi, projects) = (Folders::new(root_dir), Arc::new(csi), Arc::new(Projects::new(root_dir)));
        let node_name = node_name.to_owned();
        Volumes { objects, events: None, node_name, tokens, certificates, folders, csi, projects, clock }
    }

    /// Makes every volume of the pod that a container uses ready, or brings its content up to date. All are tried; the error
    /// is the first that came up. The pod's objects are watched from here on until [`Volumes::unmount`]. Waiting for others ends with
    /// `ending`.
    pub async fn mount(&self, pod: &Pod, ending: &CancellationToken) -> Result<Mounted, VolumeError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let made = self.folders.make(uid);
        made.map_err(|error| VolumeError::Failed(format!("failed to make pod data directories: {error}")))?;
        self.objects.register(pod);
        let used = used_volumes(pod);
        let mut mounted = Mounted::new();
        let mut failure = None;
        let all = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        for volume in all.iter().filter(|volume| used.contains(volume.name.as_str())) {
            let request = self.request(pod, volume, ending);
            let outcome = match TYPES.iter().find(|kind| (kind.is)(volume)) {
                _ if !folders::is_safe_name(&volume.name) => Err(Error::InvalidName.into()),
                Some(kind) => (kind.mount)(request).await,
                None => Err(Error::NoPlugin.into()),
            };
            match outcome {
                Ok(place) => drop(mounted.insert(volume.name.clone(), place)),
                Err(problem) => {
                    failure.get_or_insert(problem.error(&volume.name));
                }
            }
        }
        failure.map_or(Ok(mounted), Err)
    }

    fn request<'a>(&'a self, pod: &'a Pod, volume: &'a VolumeSpec, ending: &'a CancellationToken) -> Request<'a> {
        let Volumes { objects, events, node_name, tokens, certificates, folders, csi, projects, clock } = self;
        let events = events.as_ref();
        Request { objects, events, node_name, tokens, certificates, folders, csi, projects, pod, volume, ending, clock }
    }

    /// When contents must be looked at again though no object changed: the next rotation of a token or certificate, or a
    /// look at trust bundles.
    pub(crate) fn next_refresh(&self, pod: &Pod, mounted_at: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let uid = pod.metadata.uid.as_deref()?;
        let (token, republish) = (self.tokens.next_refresh(uid), self.csi.next_refresh(uid));
        let bundle = shows_trust_bundles(pod).then(|| mounted_at + TRUST_BUNDLES_AGE_MAX);
        let certificate = self.certificates.next_refresh(uid);
        token.into_iter().chain(bundle).chain(republish).chain(certificate).min()
    }

    /// What a container's `volumeMounts` become, subPath and subPathExpr resolved inside the volume.
    pub(crate) async fn container_mounts(
        &self,
        pod: &Pod,
        container: &Container,
        mounted: &Mounted,
        environment: &[(String, String)],
    ) -> Result<Vec<v1::Mount>, VolumeError> {
        container_mounts::container_mounts(&self.folders, pod, container, mounted, environment).await
    }

    /// What a container's `volumeDevices` become.
    pub(crate) fn container_devices(
        &self,
        container: &Container,
        mounted: &Mounted,
    ) -> Result<Vec<v1::Device>, VolumeError> {
        block::container_devices(container, mounted)
    }

    /// Takes everything down once no container of the pod is left, and removes the pod's folder. Nothing is removed through
    /// a mount: what cannot be taken down stays, and so does the folder until the next try.
    pub async fn unmount(&self, uid: &str) -> Result<(), VolumeError> {
        self.tokens.forget(uid);
        self.certificates.forget(uid);
        self.objects.forget(uid);
        let failed = |error: &dyn std::fmt::Display| VolumeError::Failed(format!("Unable to unmount volumes: {error}"));
        // Parts of a volume keep it busy, so they go before the whole.
        let (folders, pod) = (self.folders.clone(), uid.to_owned());
        let parts = blocking(move || folders.unmount_sub_paths(&pod)).await;
        parts.map_err(|error| failed(&error))?;
        self.csi.take_down(uid).await.map_err(|error| failed(&error))?;
        let (folders, pod) = (self.folders.clone(), uid.to_owned());
        let removed = match blocking(move || folders.remove(&pod)).await {
            Ok(()) => local::release(&self.folders).await,
            failed => failed,
        };
        removed.map_err(|error| failed(&error))?;
        // The pod may have been the one that removes a volume.
        local_path::forget_gone(&self.projects).await;
        Ok(())
    }

    /// Pods with folders here, to find what a crash left behind.
    pub fn uids(&self) -> Vec<String> {
        self.folders.uids()
    }

    /// What storage drivers say of a pod's volumes.
    pub fn measured(&self, uid: &str) -> Vec<Measured> {
        self.csi.measured(uid)
    }

    /// What the emptyDir volumes of a pod take, for eviction and statistics. One that cannot be measured is left out.
    pub async fn usage(&self, pod: &Pod) -> Vec<empty_dir::Used> {
        let (folders, pod) = (self.folders.clone(), pod.clone());
        let measured = tokio::task::spawn_blocking(move || empty_dir::usage(&folders, &pod)).await;
        measured.unwrap_or_default()
    }
}

pub use csi::{Amount, Amounts, Measured};
pub use empty_dir::Used;
pub use error::VolumeError;

/// Trust bundles change rarely and are not watched.
const TRUST_BUNDLES_AGE_MAX: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

fn shows_trust_bundles(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    let mut sources = volumes.filter_map(|volume| volume.projected.as_ref()?.sources.as_ref()).flatten();
    sources.any(|source| source.cluster_trust_bundle.is_some())
}

/// The volumes that a container mounts; others are not made.
fn used_volumes(pod: &Pod) -> BTreeSet<&str> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let of_containers = containers.map(|container| (&container.volume_mounts, &container.volume_devices));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let of_ephemeral = ephemeral.map(|container| (&container.volume_mounts, &container.volume_devices));
    of_containers
        .chain(of_ephemeral)
        .flat_map(|(mounts, devices)| {
            let mounts = mounts.iter().flatten().map(|mount| mount.name.as_str());
            mounts.chain(devices.iter().flatten().map(|device| device.name.as_str()))
        })
        .collect()
}

/// Work on files, away from the threads that must not wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(std::io::Error::other(error)),
    }
}
