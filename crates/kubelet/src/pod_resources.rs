//! The socket at which agents of a node ask which container has which device: `pod-resources/kubelet.sock`, as upstream.

use std::path::Path;
use std::sync::Arc;

use devices::podresources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use devices::podresources::*;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

use crate::claims::{Claimed, Claims};
use crate::device_plugins::DevicePlugins;
use crate::managers::Managers;
use crate::managers::memory::Block;
use crate::pod::spec;
use crate::pods::Pods;

const FOLDER: &str = "pod-resources";
const SOCKET: &str = "kubelet.sock";

#[derive(Clone)]
pub struct PodResourcesServer {
    pub pods: Arc<Pods>,
    pub device_plugins: Arc<DevicePlugins>,
    pub claims: Arc<Claims>,
    pub managers: Arc<Managers>,
}

impl PodResourcesServer {
    /// Serves until it is dropped.
    pub async fn run(self, root: &Path) {
        let folder = root.join(FOLDER);
        let served = match listen(&folder) {
            Ok(listener) => self.serve(listener).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::error!(%error, folder = %folder.display(), "cannot serve PodResources API");
        }
        std::future::pending().await
    }

    async fn serve(self, listener: UnixListener) -> std::io::Result<()> {
        let incoming = futures::stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let service = PodResourcesListerServer::new(self);
        let served = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await;
        served.map_err(std::io::Error::other)
    }

    fn of_pod(&self, pod: &Pod) -> PodResources {
        let sidecars = spec::init_containers(pod).filter(|container| spec::is_sidecar(container));
        let containers = sidecars.chain(spec::regular_containers(pod));
        PodResources {
            name: spec::name(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            containers: containers.map(|container| self.of_container(pod, container)).collect(),
        }
    }

    fn of_container(&self, pod: &Pod, container: &Container) -> ContainerResources {
        ContainerResources {
            name: container.name.clone(),
            devices: self.device_plugins.of_container(spec::uid(pod), &container.name),
            cpu_ids: self.managers.exclusive_cpus(spec::uid(pod), &container.name),
            memory: memory(self.managers.memory_of(spec::uid(pod), &container.name)),
            dynamic_resources: self.claims.of_container(pod, container).into_iter().map(dynamic).collect(),
        }
    }
}

fn listen(folder: &Path) -> std::io::Result<UnixListener> {
    linux::file::make_private_folder(folder)?;
    let socket = folder.join(SOCKET);
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(socket)
}

fn memory(blocks: Vec<Block>) -> Vec<ContainerMemory> {
    let of_block = |block: Block| {
        let nodes = block.nodes.into_iter().map(|node| NumaNode { id: node as i64 }).collect();
        ContainerMemory { memory_type: block.resource, size: block.size, topology: Some(TopologyInfo { nodes }) }
    };
    blocks.into_iter().map(of_block).collect()
}

fn dynamic(claimed: Claimed) -> DynamicResource {
    let devices = claimed.devices.into_iter().map(|device| ClaimResource {
        cdi_devices: device.cdi.into_iter().map(|name| CdiDevice { name }).collect(),
        driver_name: device.driver,
        pool_name: device.pool,
        device_name: device.name,
        share_id: device.share,
    });
    DynamicResource {
        claim_name: claimed.claim,
        claim_namespace: claimed.namespace,
        claim_resources: devices.collect(),
    }
}

#[tonic::async_trait]
impl PodResourcesLister for PodResourcesServer {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        let active = self.pods.list().into_iter().filter(|state| !state.finished);
        let pod_resources = active.map(|state| self.of_pod(&state.pod)).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let devices = self.device_plugins.allocatable();
        let memory = memory(self.managers.allocatable_memory());
        Ok(Response::new(AllocatableResourcesResponse { devices, cpu_ids: self.managers.allocatable_cpus(), memory }))
    }

    async fn get(&self, request: Request<GetPodResourcesRequest>) -> Result<Response<GetPodResourcesResponse>, Status> {
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let Some(state) = self.pods.by_name(&pod_namespace, &pod_name) else {
            return Err(Status::unknown(format!("pod {pod_name} in namespace {pod_namespace} not found")));
        };
        let pod_resources = Some(self.of_pod(&state.pod));
        Ok(Response::new(GetPodResourcesResponse { pod_resources }))
    }
}
