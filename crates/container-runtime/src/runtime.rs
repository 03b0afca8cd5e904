//! The runtime itself: what it knows of pods and containers, and finding them again when knarr starts.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cri::v1;
use futures::StreamExt;
use parking_lot::Mutex;
use rand::RngCore;
use tokio::sync::broadcast;

use crate::Config;
use crate::compress::Compressor;
use crate::container::{self, Container, Outcome, START, State};
use crate::image::{Images, ImagesConfig};
use crate::image_store::ImageStore;
use crate::records::{self, ContainerRecord, Folder, SandboxRecord};
use crate::sandbox::{self, Sandbox};
use crate::selinux::PodLabels;
use crate::shim::protocol::{ContainerState, Event};
use crate::shim::read_json;
use crate::spec::Host;
use crate::spec::seccomp::Programs;
use crate::stats::Samples;

/// Events that a slow listener may be behind before it has to ask for all again.
const EVENTS_MAX: usize = 4096;

/// Shims that are asked at the same time when knarr starts.
const LOADED_AT_ONCE: usize = 32;

/// knarr's own container runtime. Dropping it leaves all pods running.
pub struct ContainerRuntime {
    pub(crate) inner: Arc<Inner>,
    pub(crate) caller: Caller,
    connections: Arc<Connections>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Sees its own pods only: what others make beside it is not its to end.
    Kubelet,
    /// A client of the CRI socket, which sees everything.
    Socket,
}

/// The connections to all shims, which end with the last who uses the runtime.
struct Connections(Arc<Inner>);

pub(crate) struct Inner {
    pub config: Config,
    pub host: Host,
    pub cgroups: linux::cgroup::Cgroups,
    pub programs: Programs,
    pub images: Arc<dyn ImageStore>,
    /// A read-only view of the program that becomes a shim.
    pub shim_program: Arc<OwnedFd>,
    pub table: Mutex<Table>,
    /// SELinux levels of the sandboxes that are there.
    pub levels: Mutex<linux::selinux::Levels>,
    pub events: broadcast::Sender<Told>,
    /// What may be asked for by a RuntimeClass.
    pub handlers: Vec<v1::RuntimeHandler>,
    pub samples: Samples,
    pub compressor: Arc<Compressor>,
}

/// An event, and whether it is about a pod that the kubelet does not see.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub foreign: bool,
    pub event: v1::ContainerEventResponse,
}

#[derive(Default)]
pub(crate) struct Table {
    pub sandboxes: HashMap<String, Arc<Sandbox>>,
    pub containers: HashMap<String, Arc<Container>>,
}

impl ContainerRuntime {
    /// Opens the images, finds all pods again that run or have run, and takes back what is nobody's.
    pub async fn start(config: Config) -> cri::Result<ContainerRuntime> {
        let images = Images::open(ImagesConfig {
            root_dir: ImagesConfig::root_dir_of(&config.root_dir),
            registries: config.registries.clone(),
            layer_pulls_max: config.layer_pulls_max,
            built_in: Vec::new(),
        })
        .await?;
        ContainerRuntime::with_images(config, images).await
    }

    /// The same with other images.
    pub async fn with_images(config: Config, images: Arc<dyn ImageStore>) -> cri::Result<ContainerRuntime> {
        let failed = |what: &str, error: std::io::Error| cri::Error::unknown(format!("{what}: {error}"));
        let made = linux::file::make_private_folder(&config.root_dir)
            .and_then(|()| linux::file::make_private_folder(&config.root_dir.join("sandboxes")))
            // The root of a pod with users of its own passes through to its pod's folder.
            .and_then(|()| linux::file::make_passable_folder(&config.state_dir));
        made.map_err(|error| failed("create directories of the runtime", error))?;
        // What a pod mounts below it must not spread over the host.
        linux::mount::make_private(&config.state_dir)
            .map_err(|error| failed("mount directory of the runtime", error))?;
        let shim_program =
            linux::mount::read_only_view(&config.shim_program).map_err(|error| failed("open shim program", error))?;
        let mut host = Host::detect();
        crate::apparmor::load(&mut host).await;
        let handlers = crate::handlers::describe(&config).await;
        let inner = Arc::new(Inner {
            host,
            handlers,
            cgroups: linux::cgroup::Cgroups::detect(),
            programs: Programs::default(),
            images,
            shim_program: Arc::new(shim_program),
            table: Mutex::default(),
            levels: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_MAX),
            samples: Samples::default(),
            compressor: Arc::default(),
            config,
        });
        load(&inner).await.map_err(|error| failed("reload sandboxes", error))?;
        let known: Vec<String> = inner.table.lock().sandboxes.keys().cloned().collect();
        inner.config.network.keep_only(&known).await?;
        let connections = Arc::new(Connections(inner.clone()));
        Ok(ContainerRuntime { inner, caller: Caller::Kubelet, connections })
    }

    /// The same runtime for clients of the CRI socket: they see all pods, and what they make is not the kubelet's.
    pub fn for_socket(&self) -> ContainerRuntime {
        ContainerRuntime { inner: self.inner.clone(), caller: Caller::Socket, connections: self.connections.clone() }
    }

    /// The images of this runtime.
    pub fn images(&self) -> &Arc<dyn ImageStore> {
        &self.inner.images
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        for sandbox in self.0.table.lock().sandboxes.values() {
            sandbox.closing.store(true, Ordering::Relaxed);
            if let Some(shim) = &*sandbox.shim.lock() {
                shim.client.disconnect();
            }
        }
    }
}

impl Inner {
    pub(crate) fn sandbox_folder(&self, id: &str) -> Folder {
        Folder(self.config.root_dir.join("sandboxes").join(id))
    }

    pub(crate) fn find_sandbox(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.table.lock().sandboxes.get(id).cloned()
    }

    pub fn sandbox(&self, id: &str) -> cri::Result<Arc<Sandbox>> {
        self.find_sandbox(id).ok_or_else(|| {
            cri::Error::not_found(format!("an error occurred when try to find sandbox {id:?}: not found"))
        })
    }

    pub(crate) fn find_container(&self, id: &str) -> Option<Arc<Container>> {
        self.table.lock().containers.get(id).cloned()
    }

    pub fn container(&self, id: &str) -> cri::Result<Arc<Container>> {
        self.find_container(id).ok_or_else(|| {
            cri::Error::not_found(format!("an error occurred when try to find container {id:?}: not found"))
        })
    }

    pub fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        self.table.lock().containers.values().filter(|container| container.sandbox.id == sandbox).cloned().collect()
    }

    /// Tells all who listen, with the whole pod as it is now.
    pub fn send_event(&self, sandbox: &Sandbox, id: &str, kind: v1::ContainerEventType) {
        if self.events.receiver_count() == 0 {
            return;
        }
        let statuses = self.containers_of(&sandbox.id).iter().map(|container| container.status()).collect();
        let event = v1::ContainerEventResponse {
            container_id: id.to_string(),
            container_event_type: kind as i32,
            created_at: crate::shim::now(),
            pod_sandbox_status: Some(sandbox.status()),
            containers_statuses: statuses,
        };
        // Nobody listening is fine.
        let _ = self.events.send(Told { foreign: sandbox.is_foreign(), event });
    }

    /// A shim said something.
    pub fn handle_shim_event(&self, sandbox: &Sandbox, event: Event) {
        match event {
            Event::Exited { container, exit } => {
                let Some(container) = self.find_container(&container) else { return };
                if container.ended(Outcome::from(&exit)) {
                    self.send_event(sandbox, &container.id, v1::ContainerEventType::ContainerStoppedEvent);
                }
            }
            Event::LogRotated { container } => {
                let container = self.find_container(&container);
                if let Some(path) = container.and_then(|container| container.record.lock().log_path.clone()) {
                    self.compressor.rotated(path);
                }
            }
            // Told to whoever waits for the command.
            Event::ExecExited { .. } => {}
        }
    }
}

/// 64 hexadecimal digits.
pub(crate) fn new_id() -> String {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    hex::encode(bytes)
}

async fn load(inner: &Arc<Inner>) -> std::io::Result<()> {
    let folder = inner.config.root_dir.join("sandboxes");
    let found = tokio::task::spawn_blocking(move || records::load(&folder)).await??;
    // Side by side: one that does not answer must not keep all others waiting.
    let loading = found.into_iter().map(|(_, record, containers)| load_sandbox(inner, record, containers));
    futures::stream::iter(loading).buffer_unordered(LOADED_AT_ONCE).collect::<()>().await;
    Ok(())
}

async fn load_sandbox(inner: &Arc<Inner>, record: SandboxRecord, records: Vec<ContainerRecord>) {
    if let Some(level) = record.selinux.as_ref().and_then(PodLabels::level) {
        inner.levels.lock().take(&level);
    }
    let sandbox = Arc::new(Sandbox::new(inner, record));
    inner.table.lock().sandboxes.insert(sandbox.id.clone(), sandbox.clone());
    let live = match sandbox::adopt(inner, &sandbox, None).await {
        Ok(live) => Some(live),
        Err(error) => {
            tracing::info!(sandbox = sandbox.id, %error, "sandbox exited while the runtime was down");
            None
        }
    };
    for record in records {
        let state = known_state(&sandbox, &record, live.as_deref());
        let container = Arc::new(Container::new(sandbox.clone(), record, state));
        let start = sandbox.state_folder.join(&container.id).join(START);
        *container.start.lock() = read_json(&start).ok();
        inner.table.lock().containers.insert(container.id.clone(), container.clone());
        let runs = live.iter().flatten().any(|live| live.container == container.id);
        if !runs {
            // 255 is what upstream's runtimes say of an end that nobody saw.
            container::mark_exited(inner, &container, 255).await;
        }
    }
}

fn known_state(sandbox: &Sandbox, record: &ContainerRecord, live: Option<&[ContainerState]>) -> State {
    let live = live.unwrap_or_default().iter().find(|state| state.container == record.id);
    if let Some(failure) = &record.failure {
        return State::Exited(Outcome::from(failure));
    }
    match live {
        Some(ContainerState { exit: Some(exit), .. }) => State::Exited(Outcome::from(exit)),
        Some(state) => State::Running { pid: state.pid, started_at: state.started_at },
        None => match sandbox.folder.exit(&record.id) {
            Some(exit) => State::Exited(Outcome::from(&exit)),
            None => State::Created,
        },
    }
}
