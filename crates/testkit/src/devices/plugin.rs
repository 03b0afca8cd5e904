//! The device plugin: offers devices that a test names, each a real device of the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use csi::pluginregistration::registration_server::{Registration, RegistrationServer};
use csi::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use devices::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use devices::v1beta1::registration_client::RegistrationClient;
use devices::v1beta1::{self, *};
use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status};

use super::{Fault, Running, Seen, incoming, listen};

/// How a plugin presents itself.
#[derive(Clone, Debug)]
pub struct PluginOptions {
    pub resource: String,
    pub version: String,
    /// Devices by their ids, each with the machine's own that a container gets for it.
    pub devices: BTreeMap<String, String>,
    pub pre_start: bool,
    /// What it prefers to have allocated, in this order.
    pub preferred: Vec<String>,
    /// Registers at `plugins_registry` instead of the kubelet's own socket.
    pub by_registry: bool,
    /// What it tells the kubelet its socket is called.
    pub endpoint: Option<String>,
    /// Named by CDI, instead of being devices of the answer.
    pub cdi_kind: Option<String>,
}

impl PluginOptions {
    pub fn new(resource: &str, devices: &[(&str, &str)]) -> PluginOptions {
        PluginOptions {
            resource: resource.to_owned(),
            version: "v1beta1".to_owned(),
            devices: devices.iter().map(|(id, path)| ((*id).to_owned(), (*path).to_owned())).collect(),
            pre_start: false,
            preferred: Vec::new(),
            by_registry: false,
            endpoint: None,
            cdi_kind: None,
        }
    }
}

struct State {
    options: PluginOptions,
    /// Of the machine, mounted into every container that has a device.
    mounted: PathBuf,
    seen: Seen,
    sick: Mutex<Vec<String>>,
    lists: watch::Sender<u64>,
    flooding: watch::Sender<bool>,
}

pub struct Plugin {
    state: Arc<State>,
    root: PathBuf,
    running: Option<Running>,
}

impl Plugin {
    /// Starts it beside the kubelet whose folder is `root`. Whether it registers is another matter.
    pub fn start(root: &Path, options: PluginOptions) -> anyhow::Result<Plugin> {
        let mounted = root.join("device-test-data");
        std::fs::create_dir_all(&mounted)?;
        std::fs::write(mounted.join("library"), "of the vendor")?;
        let state = State {
            options,
            mounted,
            seen: Seen::default(),
            sick: Mutex::default(),
            lists: watch::Sender::new(0),
            flooding: watch::Sender::new(false),
        };
        let mut plugin = Plugin { state: Arc::new(state), root: root.to_owned(), running: None };
        plugin.run()?;
        Ok(plugin)
    }

    fn folder(&self) -> PathBuf {
        self.root.join(if self.state.options.by_registry { "plugins_registry" } else { "device-plugins" })
    }

    fn socket_name(&self) -> String {
        format!("{}.sock", self.state.options.resource.replace('/', "-"))
    }

    /// Starts its process anew, which registers again.
    pub fn run(&mut self) -> anyhow::Result<()> {
        let (state, folder, name) = (self.state.clone(), self.folder(), self.socket_name());
        self.running = Some(Running::start(move |ready, stopped| serve(state, folder, name, ready, stopped))?);
        Ok(())
    }

    /// Ends its process as a crash would.
    pub fn crash(&mut self) {
        self.running = None;
    }

    /// Ends it and removes its socket.
    pub fn remove(&mut self) -> anyhow::Result<()> {
        self.crash();
        Ok(std::fs::remove_file(self.folder().join(self.socket_name()))?)
    }

    /// These devices are not well from now on, the others are.
    pub fn set_sick(&self, ids: &[&str]) {
        *self.state.sick.lock() = ids.iter().map(|id| (*id).to_owned()).collect();
        self.state.lists.send_modify(|number| *number += 1);
    }

    /// Sends lists without end, each different from the last.
    pub fn flood(&self, on: bool) {
        self.state.flooding.send_replace(on);
    }

    pub fn break_call(&self, call: &str, fault: Fault) {
        self.state.seen.faults.lock().insert(call.to_owned(), fault);
    }

    /// Behaves well again, also in calls that hang.
    pub fn heal(&self) {
        self.state.seen.faults.lock().clear();
        self.state.seen.released.notify_waiters();
    }

    pub fn calls(&self) -> Vec<String> {
        self.state.seen.calls.lock().clone()
    }

    pub fn count(&self, start: &str) -> usize {
        self.calls().iter().filter(|call| call.starts_with(start)).count()
    }

    /// What the kubelet has answered to its registrations.
    pub fn answers(&self) -> Vec<(bool, String)> {
        self.state.seen.registered.lock().clone()
    }

    pub fn until_registered(&self) -> anyhow::Result<()> {
        self.state.seen.until("registered", || self.answers().last().is_some_and(|(registered, _)| *registered))
    }

    pub fn until_called(&self, start: &str, times: usize) -> anyhow::Result<()> {
        self.state.seen.until(&format!("{start} {times} times"), || self.count(start) >= times)
    }
}

async fn serve(
    state: Arc<State>,
    folder: PathBuf,
    name: String,
    ready: std::sync::mpsc::Sender<anyhow::Result<()>>,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    loop {
        let calls = incoming(listen(&folder.join(&name))?);
        let mut server = tonic::transport::Server::builder();
        let mut router = server.add_service(DevicePluginServer::new(Service { state: state.clone() }));
        if state.options.by_registry {
            router = router.add_service(RegistrationServer::new(Registrar { state: state.clone() }));
        }
        let serving = router.serve_with_incoming(calls);
        // Only the first time somebody waits for it.
        let _ = ready.send(Ok(()));
        let registering = async {
            match state.options.by_registry {
                true => std::future::pending().await,
                false => register(&state, &folder, &name).await,
            }
        };
        tokio::select! {
            served = serving => return served.context("serve"),
            () = registering => {}
            () = state.seen.dying.notified() => return Ok(()),
            _ = &mut stopped => return Ok(()),
        }
    }
}

/// As vendors' plugins do: registers, and ends when the kubelet's socket is a new one, since a new kubelet has removed all others.
async fn register(state: &State, folder: &Path, name: &str) {
    let kubelet = folder.join("kubelet.sock");
    let identity = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&kubelet).ok().map(|found| (found.ino(), found.ctime(), found.ctime_nsec()))
    };
    let mut known = None;
    loop {
        let found = identity();
        if known.is_some() && found.is_some() && found != known {
            return;
        }
        if known.is_none() && found.is_some() {
            let mut client = RegistrationClient::new(csi::channel::channel(&kubelet));
            let request = RegisterRequest {
                version: state.options.version.clone(),
                endpoint: state.options.endpoint.clone().unwrap_or_else(|| name.to_owned()),
                resource_name: state.options.resource.clone(),
                options: None,
            };
            match client.register(request).await {
                Ok(_) => {
                    known = found;
                    state.seen.registered.lock().push((true, String::new()));
                }
                // A kubelet that is gone answers nothing; its socket lies there until the next one comes.
                Err(error) if error.code() == tonic::Code::Unavailable => {}
                Err(error) => state.seen.registered.lock().push((false, error.message().to_owned())),
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

struct Registrar {
    state: Arc<State>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DevicePlugin".to_owned(),
            name: self.state.options.resource.clone(),
            endpoint: String::new(),
            supported_versions: vec![self.state.options.version.clone()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.state.seen.registered.lock().push((status.plugin_registered, status.error));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

struct Service {
    state: Arc<State>,
}

impl Service {
    fn list(&self) -> ListAndWatchResponse {
        let sick = self.state.sick.lock();
        let device = |id: &String| v1beta1::Device {
            id: id.clone(),
            health: if sick.contains(id) { "Unhealthy" } else { "Healthy" }.to_owned(),
            topology: None,
        };
        ListAndWatchResponse { devices: self.state.options.devices.keys().map(device).collect() }
    }

    fn answer(&self, ids: &[String]) -> ContainerAllocateResponse {
        let options = &self.state.options;
        let key = format!("DEVICES_OF_{}", options.resource.rsplit('/').next().unwrap_or_default().to_uppercase());
        let mut answer = ContainerAllocateResponse {
            envs: [(key, ids.join(","))].into(),
            mounts: vec![Mount {
                container_path: "/vendor".to_owned(),
                host_path: self.state.mounted.to_string_lossy().into_owned(),
                read_only: true,
            }],
            annotations: [("vendor.test/devices".to_owned(), ids.join(","))].into(),
            ..Default::default()
        };
        for id in ids {
            match &options.cdi_kind {
                Some(kind) => answer.cdi_devices.push(CdiDevice { name: format!("{kind}={id}") }),
                None => answer.devices.push(DeviceSpec {
                    container_path: format!("/dev/test-{id}"),
                    host_path: options.devices.get(id).cloned().unwrap_or_default(),
                    permissions: "r".to_owned(),
                }),
            }
        }
        answer
    }
}

type Lists = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        self.state.seen.take("GetDevicePluginOptions", "GetDevicePluginOptions".to_owned()).await?;
        Ok(Response::new(DevicePluginOptions {
            pre_start_required: self.state.options.pre_start,
            get_preferred_allocation_available: !self.state.options.preferred.is_empty(),
        }))
    }

    type ListAndWatchStream = Lists;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Lists>, Status> {
        self.state.seen.take("ListAndWatch", "ListAndWatch".to_owned()).await?;
        let service = Service { state: self.state.clone() };
        let (changes, flooding) = (self.state.lists.subscribe(), self.state.flooding.subscribe());
        let stream = futures::stream::unfold((service, changes, flooding, 0_u64), |held| async move {
            let (service, mut changes, mut flooding, number) = held;
            let mut list = service.list();
            if number > 0 {
                if *flooding.borrow() {
                    // Every list is another one, and a long one.
                    let more = (0..100).map(|one| v1beta1::Device {
                        id: format!("flood-{number}-{one}"),
                        health: "Unhealthy".to_owned(),
                        topology: None,
                    });
                    list.devices.extend(more);
                } else {
                    tokio::select! {
                        _ = changes.changed() => {}
                        _ = flooding.changed() => {}
                    }
                    list = service.list();
                }
            }
            Some((Ok(list), (service, changes, flooding, number + 1)))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let call = format!("GetPreferredAllocation {:?}", request.get_ref().container_requests);
        let fault = self.state.seen.take("GetPreferredAllocation", call).await?;
        let device_i_ds = match fault {
            Some(Fault::Lie) => vec!["of-somebody-else".to_owned()],
            _ => self.state.options.preferred.clone(),
        };
        let container_responses = vec![ContainerPreferredAllocationResponse { device_i_ds }];
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let ids: Vec<String> = requests.iter().flat_map(|request| request.devices_ids.clone()).collect();
        let fault = self.state.seen.take("Allocate", format!("Allocate {}", ids.join(","))).await?;
        let container_responses = match fault {
            Some(Fault::Empty) => Vec::new(),
            // A device that the machine does not have.
            Some(Fault::Lie) => {
                let nowhere = DeviceSpec {
                    container_path: "/dev/test".to_owned(),
                    host_path: "/dev/../etc/shadow".to_owned(),
                    permissions: "rw".to_owned(),
                };
                vec![ContainerAllocateResponse { devices: vec![nowhere], ..Default::default() }]
            }
            _ => requests.iter().map(|request| self.answer(&request.devices_ids)).collect(),
        };
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let call = format!("PreStartContainer {}", request.into_inner().devices_ids.join(","));
        self.state.seen.take("PreStartContainer", call).await?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
