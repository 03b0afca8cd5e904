//! The driver of claimed devices: every device that it prepares has a name of CDI.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use csi::pluginregistration::registration_server::{Registration, RegistrationServer};
use csi::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use devices::dra::health::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use devices::dra::health::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
};
use devices::dra::v1::dra_plugin_server::{DraPlugin, DraPluginServer};
use devices::dra::v1::*;
use devices::dra::v1beta1;
use devices::dra::v1beta1::dra_plugin_server::{DraPlugin as BetaPlugin, DraPluginServer as BetaServer};
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status};

use super::{Fault, Running, Seen, incoming, listen};

#[derive(Clone, Debug)]
pub struct DriverOptions {
    pub name: String,
    /// Such as `v1.DRAPlugin`.
    pub services: Vec<String>,
    /// Names of CDI by the claims that get them, or by what the names of claims begin with and a hyphen; the request that each is for.
    pub devices: BTreeMap<String, Vec<(String, String)>>,
}

impl DriverOptions {
    pub fn new(name: &str) -> DriverOptions {
        DriverOptions { name: name.to_owned(), services: vec!["v1.DRAPlugin".to_owned()], devices: BTreeMap::new() }
    }
}

impl DriverOptions {
    fn of_claim(&self, claim: &str) -> Vec<(String, String)> {
        let generated = || self.devices.iter().find(|(name, _)| name.ends_with('-') && claim.starts_with(*name));
        let given = self.devices.get(claim).or_else(|| generated().map(|(_, devices)| devices));
        given.cloned().unwrap_or_default()
    }
}

/// Where every device of the driver is.
const POOL: &str = "node-1";

struct State {
    options: DriverOptions,
    seen: Seen,
    /// What it says of its devices' health; nothing is said before the first.
    health: watch::Sender<Vec<DeviceHealth>>,
}

pub struct Driver {
    state: Arc<State>,
    root: PathBuf,
    running: Option<Running>,
}

impl Driver {
    pub fn start(root: &Path, options: DriverOptions) -> anyhow::Result<Driver> {
        let state = Arc::new(State { options, seen: Seen::default(), health: watch::Sender::default() });
        let mut driver = Driver { state, root: root.to_owned(), running: None };
        driver.run()?;
        Ok(driver)
    }

    fn registry(&self) -> PathBuf {
        self.root.join("plugins_registry").join(format!("{}-reg.sock", self.state.options.name))
    }

    /// Starts its process anew.
    pub fn run(&mut self) -> anyhow::Result<()> {
        let endpoint = self.root.join("plugins").join(&self.state.options.name).join("dra.sock");
        let (state, registry) = (self.state.clone(), self.registry());
        self.running = Some(Running::start(move |ready, stopped| serve(state, endpoint, registry, ready, stopped))?);
        Ok(())
    }

    pub fn crash(&mut self) {
        self.running = None;
    }

    pub fn unregister(&mut self) -> anyhow::Result<()> {
        self.crash();
        Ok(std::fs::remove_file(self.registry())?)
    }

    /// Says of one of its devices how it is, and for how long that counts.
    pub fn report(&self, device: &str, health: HealthStatus, timeout_seconds: i64, message: &str) {
        let identifier = DeviceIdentifier { pool_name: POOL.to_owned(), device_name: device.to_owned() };
        let report = DeviceHealth {
            device: Some(identifier.clone()),
            health: health.into(),
            last_updated_time: 0,
            health_check_timeout_seconds: timeout_seconds,
            message: message.to_owned(),
        };
        self.state.health.send_modify(|reports| {
            reports.retain(|other| other.device.as_ref() != Some(&identifier));
            reports.push(report);
        });
    }

    pub fn break_call(&self, call: &str, fault: Fault) {
        self.state.seen.faults.lock().insert(call.to_owned(), fault);
    }

    pub fn heal(&self) {
        self.state.seen.faults.lock().clear();
        self.state.seen.released.notify_waiters();
    }

    /// Such as `NodePrepareResources claim`.
    pub fn calls(&self) -> Vec<String> {
        self.state.seen.calls.lock().clone()
    }

    pub fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|known| known.as_str() == call).count()
    }

    pub fn answers(&self) -> Vec<(bool, String)> {
        self.state.seen.registered.lock().clone()
    }

    pub fn until_registered(&self) -> anyhow::Result<()> {
        self.state.seen.until("registered", || self.answers().last().is_some_and(|(registered, _)| *registered))
    }

    pub fn until_called(&self, call: &str, times: usize) -> anyhow::Result<()> {
        self.state.seen.until(&format!("{call} {times} times"), || self.count(call) >= times)
    }
}

async fn serve(
    state: Arc<State>,
    endpoint: PathBuf,
    registry: PathBuf,
    ready: std::sync::mpsc::Sender<anyhow::Result<()>>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let calls = incoming(listen(&endpoint)?);
    let service = Service { state: state.clone() };
    let serving = tonic::transport::Server::builder()
        .add_service(DraPluginServer::new(service.clone()))
        .add_service(BetaServer::new(service.clone()))
        .add_service(DraResourceHealthServer::new(service))
        .serve_with_incoming(calls);
    let registrations = incoming(listen(&registry)?);
    let registrar = RegistrationServer::new(Registrar { state: state.clone(), endpoint });
    let registrar = tonic::transport::Server::builder().add_service(registrar).serve_with_incoming(registrations);
    ready.send(Ok(())).context("nobody waits for it")?;
    tokio::select! {
        served = serving => served?,
        served = registrar => served?,
        () = state.seen.dying.notified() => {}
        _ = stopped => {}
    }
    Ok(())
}

struct Registrar {
    state: Arc<State>,
    endpoint: PathBuf,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.state.options.name.clone(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            supported_versions: self.state.options.services.clone(),
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

#[derive(Clone)]
struct Service {
    state: Arc<State>,
}

impl Service {
    async fn prepare(&self, claims: Vec<Claim>) -> Result<BTreeMap<String, NodePrepareResourceResponse>, Status> {
        let mut answers = BTreeMap::new();
        for claim in claims {
            let call = format!("NodePrepareResources {}", claim.name);
            let fault = self.state.seen.take("NodePrepareResources", call).await?;
            let given = self.state.options.of_claim(&claim.name);
            let device = |(request, cdi): (String, String)| Device {
                request_names: vec![request],
                pool_name: POOL.to_owned(),
                device_name: cdi.rsplit('=').next().unwrap_or_default().to_owned(),
                cdi_device_ids: vec![cdi],
                share_id: None,
            };
            let answer =
                NodePrepareResourceResponse { devices: given.into_iter().map(device).collect(), error: String::new() };
            match fault {
                Some(Fault::Empty) => {}
                Some(Fault::Lie) => drop(answers.insert("of-nobody".to_owned(), answer)),
                _ => drop(answers.insert(claim.uid, answer)),
            }
        }
        Ok(answers)
    }

    async fn unprepare(&self, claims: Vec<Claim>) -> Result<BTreeMap<String, NodeUnprepareResourceResponse>, Status> {
        let mut answers = BTreeMap::new();
        for claim in claims {
            let call = format!("NodeUnprepareResources {}", claim.name);
            let fault = self.state.seen.take("NodeUnprepareResources", call).await?;
            if fault != Some(Fault::Empty) {
                answers.insert(claim.uid, NodeUnprepareResourceResponse { error: String::new() });
            }
        }
        Ok(answers)
    }
}

#[tonic::async_trait]
impl DraPlugin for Service {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = self.prepare(request.into_inner().claims).await?;
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = self.unprepare(request.into_inner().claims).await?;
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Service {
    type NodeWatchResourcesStream =
        std::pin::Pin<Box<dyn futures::Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        self.state.seen.take("NodeWatchResources", "NodeWatchResources".to_owned()).await?;
        let mut reports = self.state.health.subscribe();
        reports.mark_changed();
        let stream = futures::stream::unfold(reports, |mut reports| async move {
            reports.changed().await.ok()?;
            let devices = reports.borrow_and_update().clone();
            Some((Ok(NodeWatchResourcesResponse { devices }), reports))
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

fn newer(claim: v1beta1::Claim) -> Claim {
    Claim { namespace: claim.namespace, uid: claim.uid, name: claim.name }
}

#[tonic::async_trait]
impl BetaPlugin for Service {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let claims = self.prepare(request.into_inner().claims.into_iter().map(newer).collect()).await?;
        let device = |device: Device| v1beta1::Device {
            request_names: device.request_names,
            pool_name: device.pool_name,
            device_name: device.device_name,
            cdi_device_ids: device.cdi_device_ids,
        };
        let older = |(uid, answer): (String, NodePrepareResourceResponse)| {
            let devices = answer.devices.into_iter().map(device).collect();
            (uid, v1beta1::NodePrepareResourceResponse { devices, error: answer.error })
        };
        let claims = claims.into_iter().map(older).collect();
        Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let claims = self.unprepare(request.into_inner().claims.into_iter().map(newer).collect()).await?;
        let older = |(uid, answer): (String, NodeUnprepareResourceResponse)| {
            (uid, v1beta1::NodeUnprepareResourceResponse { error: answer.error })
        };
        let claims = claims.into_iter().map(older).collect();
        Ok(Response::new(v1beta1::NodeUnprepareResourcesResponse { claims }))
    }
}
