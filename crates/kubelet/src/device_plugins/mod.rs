//! Devices that plugins offer as extended resources: plugins register, list their devices, and are asked for them when the node takes
//! a pod. Who has what is on disk before the pod counts as taken, so that it keeps exactly its devices, whoever is restarted.

mod state;
mod choose;
mod allocate;
mod hints;
mod container;
mod listing;
mod metrics;
mod checkpoint;
mod watch;
mod serve;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use devices::v1beta1::Device;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::node::Health;
use crate::pods::Pods;
use state::{Connected, State};

pub(crate) use allocate::Reusable;
pub use choose::AllocateError;
pub use container::Options;
pub use state::Count;

/// The folder's name below the kubelet's root.
const FOLDER: &str = "device-plugins";
const VERSION: &str = "v1beta1";
/// No node has more kinds of devices.
const RESOURCES_MAX: usize = 256;

pub struct DevicePlugins {
    folder: PathBuf,
    health: Arc<Health>,
    pods: Arc<Pods>,
    metrics: metrics::Metrics,
    state: Mutex<State>,
    /// What follows each resource's plugin.
    following: Mutex<BTreeMap<String, AbortOnDropHandle<()>>>,
    /// One at a time writes the file, and what is written later is newer.
    writing: Mutex<()>,
    number: AtomicU64,
    /// A plugin went.
    stopped: Notify,
}

/// Why a plugin is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("requested API version {version:?} is not supported by kubelet. Supported version is [\"v1beta1\"]")]
    Version { version: String },
    #[error("manager version, v1beta1, is not among plugin supported versions {versions:?}")]
    Versions { versions: Vec<String> },
    #[error("the ResourceName {name:?} is invalid")]
    Name { name: String },
    #[error("the endpoint {endpoint:?} is not the name of a socket in the device plugin folder")]
    Endpoint { endpoint: String },
    #[error("there are {RESOURCES_MAX} resources of device plugins already")]
    TooMany,
    #[error("failed to get device plugin options: {0}")]
    Options(#[source] devices::Error),
    #[error("failed to list devices: {0}")]
    List(#[source] devices::Error),
}

impl DevicePlugins {
    /// As the last kubelet left it.
    pub fn new(root: &Path, health: Arc<Health>, pods: Arc<Pods>) -> DevicePlugins {
        let folder = root.join(FOLDER);
        let plugins = DevicePlugins {
            state: Mutex::new(restore(&folder)),
            folder,
            health,
            pods,
            metrics: metrics::Metrics::default(),
            following: Mutex::default(),
            writing: Mutex::default(),
            number: AtomicU64::new(0),
            stopped: Notify::new(),
        };
        plugins.announce();
        plugins
    }

    /// Takes registrations, and forgets plugins that do not come back, until it is dropped.
    pub async fn run(self: Arc<DevicePlugins>) {
        let serving = async {
            let served = match linux::file::make_private_folder(&self.folder) {
                Ok(()) => serve::run(self.clone()).await,
                Err(error) => Err(error),
            };
            let error = served.err().map(|error| error.to_string()).unwrap_or_default();
            tracing::error!(error, "cannot listen for device plugin registrations");
            std::future::pending::<()>().await
        };
        tokio::join!(serving, self.expire());
    }

    /// Registers who has come through `plugins_registry`. The number tells it from others of its name.
    pub(crate) async fn register(
        self: &Arc<DevicePlugins>,
        resource: &str,
        versions: &[String],
        socket: &Path,
    ) -> Result<u64, RegisterError> {
        if !versions.iter().any(|version| version == VERSION) {
            return Err(RegisterError::Versions { versions: versions.to_vec() });
        }
        self.connect(resource, socket).await
    }

    /// The newest plugin serves a resource, as upstream.
    async fn connect(self: &Arc<DevicePlugins>, resource: &str, socket: &Path) -> Result<u64, RegisterError> {
        if !is_extended(resource) {
            return Err(RegisterError::Name { name: resource.to_owned() });
        }
        let known = self.state.lock().resources.len();
        if known >= RESOURCES_MAX && !self.state.lock().resources.contains_key(resource) {
            return Err(RegisterError::TooMany);
        }
        let plugin = devices::Plugin::new(socket);
        let options = plugin.options().await.map_err(RegisterError::Options)?;
        let lists = plugin.list_and_watch().await.map_err(RegisterError::List)?;
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        self.state.lock().connect(resource, Connected { plugin, options, number }, Instant::now());
        self.metrics.registered(resource);
        tracing::info!(resource, socket = %socket.display(), "registered device plugin");
        let following = component_base::tasks::spawn(watch::follow(self.clone(), resource.to_owned(), number, lists));
        self.following.lock().insert(resource.to_owned(), AbortOnDropHandle::new(following));
        self.announce();
        Ok(number)
    }

    /// The plugin's socket is gone. One that has taken its place stays.
    pub(crate) fn disconnected(&self, resource: &str, number: u64) {
        if !self.state.lock().disconnect(resource, number, Instant::now()) {
            return;
        }
        self.stopped.notify_one();
        self.announce();
        self.save_or_tell();
    }

    fn listed(&self, resource: &str, number: u64, devices: Vec<Device>) {
        let Some(changed) = self.state.lock().list(resource, number, devices) else { return };
        let holders = self.state.lock().holders(resource, &changed);
        self.pods.devices_changed(holders);
        self.save_or_tell();
        self.announce();
    }

    /// The node's status says what there is.
    fn announce(&self) {
        let counts = self.state.lock().counts();
        self.health.set_devices(counts);
    }

    async fn expire(&self) {
        loop {
            let (before, next) = {
                let mut state = self.state.lock();
                let before = state.resources.len();
                let next = state.expire(Instant::now());
                (before > state.resources.len(), next)
            };
            if before {
                self.announce();
                self.save_or_tell();
            }
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.stopped.notified() => {}
            }
        }
    }

    fn save(&self) -> std::io::Result<()> {
        let _writing = self.writing.lock();
        let bytes = {
            let state = self.state.lock();
            checkpoint::write(&state.pods, state.registered())?
        };
        crate::checkpoint::write(&self.folder, checkpoint::FILE, &bytes)
    }

    /// What is lost by it is only which resources there were.
    fn save_or_tell(&self) {
        if let Err(error) = self.save() {
            tracing::error!(%error, folder = %self.folder.display(), "cannot write device checkpoint");
        }
    }
}

/// Without its file a kubelet goes on, as upstream: pods that run keep their devices anyway.
fn restore(folder: &Path) -> State {
    let now = Instant::now();
    let bytes = match crate::checkpoint::read(folder, checkpoint::FILE) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return State::default(),
        Err(error) => {
            tracing::error!(%error, folder = %folder.display(), "cannot read device checkpoint");
            return State::default();
        }
    };
    match checkpoint::read(&bytes) {
        Ok((pods, resources)) => State::restored(pods, resources, now),
        Err(error) => {
            let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%error, reason, folder = %folder.display(), "cannot use device checkpoint");
            State::default()
        }
    }
}

/// A resource that is not Kubernetes' own.
fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    let as_quota = format!("requests.{name}");
    !is_native && !name.starts_with("requests.") && machinery::names::qualified_name(&as_quota).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_extended_resources_have_plugins() {
        for good in ["x.test/gpu", "nvidia.com/gpu", "a/b"] {
            assert!(is_extended(good), "{good}");
        }
        for bad in ["cpu", "gpu", "kubernetes.io/gpu", "requests.x.test/gpu", "x.test/", "x.test/a b", ""] {
            assert!(!is_extended(bad), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_broken_file_stops_nobody() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(FOLDER);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(checkpoint::FILE), "{\"Data\":{}").unwrap();
        let health = Arc::new(Health::new(1));
        assert!(DevicePlugins::new(root.path(), health, Arc::default()).state.lock().pods.is_empty());
    }
}
