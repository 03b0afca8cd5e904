//! A storage driver for tests: real gRPC, folders and loop devices, on the mounts of a test's machine. It can be told to misbehave.
//!
//! It keeps what it was asked, in order, so that tests can say what must not have happened twice.

mod node;
mod disk;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use csi::pluginregistration::registration_server::{Registration, RegistrationServer};
use csi::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use csi::v1::node_server::NodeServer;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::sync::{Notify, oneshot};
use tonic::{Request, Response, Status};

/// A state that is not reached in this time is never reached.
const LONG: Duration = Duration::from_secs(60);

/// What the driver does wrong when it is called, until told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Does nothing until it is released, then goes on as if nothing had been.
    Hang,
    /// Does its work and hangs before it answers.
    HangAfter,
    /// Refuses for good.
    Refuse,
    /// Fails with a text and details that mean nothing.
    Garbage,
    /// Puts a link to somewhere else where the volume should be.
    Climb,
    /// Mounts the volume twice.
    Twice,
    /// Says that it has done it, and has not.
    Lie,
}

/// How a driver presents itself.
#[derive(Clone, Debug)]
pub struct Options {
    pub name: String,
    /// `CSIPlugin`, unless it lies.
    pub plugin_type: String,
    pub versions: Vec<String>,
    pub stages: bool,
    pub volume_mount_group: bool,
    pub expands: bool,
    pub max_volumes: i64,
    pub topology: BTreeMap<String, String>,
    /// Where the content of volumes is, for drivers of several nodes that lead to the same storage; a folder of its own otherwise.
    pub data: Option<PathBuf>,
}

impl Options {
    pub fn new(name: &str) -> Options {
        Options {
            name: name.to_owned(),
            plugin_type: "CSIPlugin".to_owned(),
            versions: vec!["1.0.0".to_owned()],
            stages: true,
            volume_mount_group: false,
            expands: true,
            max_volumes: 0,
            topology: BTreeMap::new(),
            data: None,
        }
    }
}

/// What outlives the driver's process: its data, and the test's view of it.
pub(crate) struct State {
    pub options: Options,
    /// Where the content of volumes is.
    pub data: PathBuf,
    pub calls: Mutex<Vec<String>>,
    pub requests: Mutex<Vec<String>>,
    pub faults: Mutex<BTreeMap<String, Fault>>,
    pub released: Notify,
    pub registered: Mutex<Vec<(bool, String)>>,
}

pub struct CsiDriver {
    state: Arc<State>,
    mounts: PathBuf,
    root: PathBuf,
    socket_name: String,
    running: Option<Running>,
}

struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl CsiDriver {
    /// A driver on the mounts of a process, registered with the kubelet whose folder is `root`.
    pub fn start(pid: u32, root: &Path, options: Options) -> anyhow::Result<CsiDriver> {
        let socket_name = options.name.clone();
        CsiDriver::start_as(pid, root, options, &socket_name)
    }

    /// The same with a socket of another name, for two that want one name.
    pub fn start_as(pid: u32, root: &Path, options: Options, socket_name: &str) -> anyhow::Result<CsiDriver> {
        let data = options.data.clone().unwrap_or_else(|| root.join("csi-test-data").join(&options.name));
        std::fs::create_dir_all(&data)?;
        let state = State {
            options,
            data,
            calls: Mutex::default(),
            requests: Mutex::default(),
            faults: Mutex::default(),
            released: Notify::new(),
            registered: Mutex::default(),
        };
        let mut driver = CsiDriver {
            state: Arc::new(state),
            mounts: format!("/proc/{pid}/ns/mnt").into(),
            root: root.to_owned(),
            socket_name: socket_name.to_owned(),
            running: None,
        };
        driver.run()?;
        Ok(driver)
    }

    /// Starts its process anew; data and mounts are as they were left.
    pub fn run(&mut self) -> anyhow::Result<()> {
        let endpoint = self.root.join("plugins").join(&self.socket_name).join("csi.sock");
        let registry = self.root.join("plugins_registry").join(format!("{}-reg.sock", self.socket_name));
        for socket in [&endpoint, &registry] {
            std::fs::create_dir_all(socket.parent().context("a folder")?)?;
            match std::fs::remove_file(socket) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        let namespace = File::open(&self.mounts).with_context(|| format!("open {}", self.mounts.display()))?;
        let state = self.state.clone();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let served = enter(&namespace).and_then(|()| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let done = runtime.block_on(serve(state, endpoint, registry, &ready, stopped));
                // What hangs goes down with the process.
                runtime.shutdown_background();
                done
            });
            if let Err(error) = served {
                // Nobody listens once the driver has started.
                let _ = ready.send(Err(error));
            }
        });
        self.running = Some(Running { stop: Some(stop), thread: Some(thread) });
        is_ready.recv().context("the driver did not start")?
    }

    /// Starts its process on the machine that has taken the place of the one that is gone.
    pub fn move_to(&mut self, pid: u32) -> anyhow::Result<()> {
        self.mounts = format!("/proc/{pid}/ns/mnt").into();
        self.run()
    }

    /// Ends its process as a crash would: calls under way get no answer.
    pub fn crash(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        if let Some(stop) = running.stop.take() {
            // It may have ended by itself.
            let _ = stop.send(());
        }
        if let Some(thread) = running.thread.take() {
            let _ = thread.join();
        }
    }

    /// Removes its registration socket as a driver does that is being uninstalled.
    pub fn unregister(&mut self) -> anyhow::Result<()> {
        self.crash();
        Ok(std::fs::remove_file(self.root.join("plugins_registry").join(format!("{}-reg.sock", self.socket_name)))?)
    }

    pub fn name(&self) -> &str {
        &self.state.options.name
    }

    /// Where the content of a volume is.
    pub fn content(&self, handle: &str) -> PathBuf {
        self.state.data.join(handle)
    }

    /// The calls so far that changed something, such as `NodePublishVolume h`.
    pub fn calls(&self) -> Vec<String> {
        self.state.calls.lock().clone()
    }

    /// All that was asked, in full.
    pub fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }

    pub fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|known| known.as_str() == call).count()
    }

    pub fn break_call(&self, call: &str, fault: Fault) {
        self.state.faults.lock().insert(call.to_owned(), fault);
    }

    /// Behaves well again, also in calls that hang.
    pub fn heal(&self) {
        self.state.faults.lock().clear();
        self.state.released.notify_waiters();
    }

    /// What the kubelet has answered to its registrations.
    pub fn answers(&self) -> Vec<(bool, String)> {
        self.state.registered.lock().clone()
    }

    pub fn until_registered(&self) -> anyhow::Result<()> {
        self.until("is registered", || self.answers().last().is_some_and(|(registered, _)| *registered))
    }

    pub fn until_called(&self, call: &str, times: usize) -> anyhow::Result<()> {
        self.until(&format!("was asked {call} {times} times"), || self.count(call) >= times)
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + LONG;
        while !holds() {
            if Instant::now() > deadline {
                bail!("driver {} never {what}: {:?} {:?}", self.name(), self.answers(), self.calls());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for CsiDriver {
    fn drop(&mut self) {
        self.crash();
        disk::detach_all(&self.state.data);
    }
}

/// Mounts of the machine, for this thread and those it starts.
fn enter(namespace: &File) -> anyhow::Result<()> {
    // A thread that shares its root with others cannot move.
    linux::volume_mount::private_mounts()?;
    let kind = rustix::thread::LinkNameSpaceType::Mount;
    rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(namespace), Some(kind))?;
    Ok(())
}

async fn serve(
    state: Arc<State>,
    endpoint: PathBuf,
    registry: PathBuf,
    ready: &std::sync::mpsc::Sender<anyhow::Result<()>>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let calls = tokio_stream(UnixListener::bind(&endpoint)?);
    let node = NodeServer::new(node::Service { state: state.clone() });
    let node = tonic::transport::Server::builder().add_service(node).serve_with_incoming(calls);
    let registrations = tokio_stream(UnixListener::bind(&registry)?);
    let registrar = RegistrationServer::new(Registrar { state, endpoint });
    let registrar = tonic::transport::Server::builder().add_service(registrar).serve_with_incoming(registrations);
    ready.send(Ok(())).context("nobody waits for the driver")?;
    tokio::select! {
        served = node => served?,
        served = registrar => served?,
        _ = stopped => {}
    }
    Ok(())
}

fn tokio_stream(
    listener: UnixListener,
) -> impl futures::Stream<Item = std::io::Result<tokio::net::UnixStream>> + Send + 'static {
    futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    })
}

struct Registrar {
    state: Arc<State>,
    endpoint: PathBuf,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let options = &self.state.options;
        Ok(Response::new(PluginInfo {
            r#type: options.plugin_type.clone(),
            name: options.name.clone(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            supported_versions: options.versions.clone(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.state.registered.lock().push((status.plugin_registered, status.error));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
