//! The runtime half of the service.

use std::collections::HashMap;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use tonic::{Request, Status};

use super::{Answer, Service, Stream, answer, wanted};
use crate::v1::runtime_service_server::RuntimeService;
use crate::{Streaming, v1};

impl Service {
    /// The address of a stream, from the server of streams or from the runtime itself.
    async fn address(&self, stream: Stream) -> Result<String, Status> {
        if let Some(streams) = &self.config.streams {
            return Ok(streams.offer(stream).await?);
        }
        let url = match stream {
            Stream::Exec(request) => url(self.runtime.exec(request).await?),
            Stream::Attach(request) => url(self.runtime.attach(request).await?),
            Stream::PortForward(request) => {
                let port = request.port.first().and_then(|port| u16::try_from(*port).ok());
                let port = port.ok_or_else(|| Status::invalid_argument("the request has no port"))?;
                url(self.runtime.port_forward(&request.pod_sandbox_id, port).await?)
            }
        };
        url.ok_or_else(|| Status::failed_precondition("this endpoint was started without a server for streams"))
    }
}

fn url<T>(streaming: Streaming<T>) -> Option<String> {
    match streaming {
        Streaming::Url(url) => Some(url),
        Streaming::Local(_) => None,
    }
}

fn has_labels(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

fn is(id: &str, wanted: &str) -> bool {
    wanted.is_empty() || id == wanted
}

#[async_trait]
impl RuntimeService for Service {
    type GetContainerEventsStream = BoxStream<'static, Result<v1::ContainerEventResponse, Status>>;

    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        answer(self.runtime.version().await?)
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let status = Some(self.runtime.status().await?);
        answer(v1::StatusResponse { status, ..v1::StatusResponse::default() })
    }

    async fn run_pod_sandbox(&self, request: Request<v1::RunPodSandboxRequest>) -> Answer<v1::RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = wanted(request.config, "config")?;
        let pod_sandbox_id = self.runtime.run_pod_sandbox(config, &request.runtime_handler).await?;
        answer(v1::RunPodSandboxResponse { pod_sandbox_id })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        self.runtime.stop_pod_sandbox(&request.into_inner().pod_sandbox_id).await?;
        answer(v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        self.runtime.remove_pod_sandbox(&request.into_inner().pod_sandbox_id).await?;
        answer(v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let status = self.runtime.pod_sandbox_status(&request.into_inner().pod_sandbox_id).await?;
        answer(v1::PodSandboxStatusResponse { status: Some(status), ..v1::PodSandboxStatusResponse::default() })
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        let items = self.runtime.list_pod_sandboxes(request.into_inner().filter).await?;
        answer(v1::ListPodSandboxResponse { items })
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let config = wanted(request.config, "config")?;
        let sandbox_config = wanted(request.sandbox_config, "sandbox config")?;
        let container_id = self.runtime.create_container(&request.pod_sandbox_id, config, sandbox_config).await?;
        answer(v1::CreateContainerResponse { container_id })
    }

    async fn start_container(&self, request: Request<v1::StartContainerRequest>) -> Answer<v1::StartContainerResponse> {
        self.runtime.start_container(&request.into_inner().container_id).await?;
        answer(v1::StartContainerResponse {})
    }

    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> Answer<v1::StopContainerResponse> {
        let request = request.into_inner();
        self.runtime.stop_container(&request.container_id, request.timeout).await?;
        answer(v1::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        self.runtime.remove_container(&request.into_inner().container_id).await?;
        answer(v1::RemoveContainerResponse {})
    }

    async fn list_containers(&self, request: Request<v1::ListContainersRequest>) -> Answer<v1::ListContainersResponse> {
        let containers = self.runtime.list_containers(request.into_inner().filter).await?;
        answer(v1::ListContainersResponse { containers })
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let status = self.runtime.container_status(&request.into_inner().container_id).await?;
        answer(v1::ContainerStatusResponse { status: Some(status), ..v1::ContainerStatusResponse::default() })
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let linux = wanted(request.linux, "resources")?;
        self.runtime.update_container_resources(&request.container_id, linux).await?;
        answer(v1::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        self.runtime.reopen_container_log(&request.into_inner().container_id).await?;
        answer(v1::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answer<v1::ExecSyncResponse> {
        let request = request.into_inner();
        let done = self.runtime.exec_sync(&request.container_id, &request.cmd, request.timeout).await?;
        answer(v1::ExecSyncResponse { stdout: done.stdout, stderr: done.stderr, exit_code: done.exit_code })
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        let url = self.address(Stream::Exec(request.into_inner())).await?;
        answer(v1::ExecResponse { url })
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        let url = self.address(Stream::Attach(request.into_inner())).await?;
        answer(v1::AttachResponse { url })
    }

    async fn port_forward(&self, request: Request<v1::PortForwardRequest>) -> Answer<v1::PortForwardResponse> {
        let url = self.address(Stream::PortForward(request.into_inner())).await?;
        answer(v1::PortForwardResponse { url })
    }

    async fn container_stats(&self, request: Request<v1::ContainerStatsRequest>) -> Answer<v1::ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        let all = self.runtime.list_container_stats().await?;
        let own = |stats: &v1::ContainerStats| stats.attributes.as_ref().is_some_and(|attributes| attributes.id == id);
        let stats = all.into_iter().find(own);
        let stats = stats.ok_or_else(|| Status::not_found(format!("no statistics of container {id:?}")))?;
        answer(v1::ContainerStatsResponse { stats: Some(stats) })
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let mut stats = self.runtime.list_container_stats().await?;
        if !filter.pod_sandbox_id.is_empty() {
            // The statistics do not say which sandbox they belong to, the list of containers does.
            let of_sandbox =
                v1::ContainerFilter { pod_sandbox_id: filter.pod_sandbox_id.clone(), ..v1::ContainerFilter::default() };
            let containers = self.runtime.list_containers(Some(of_sandbox)).await?;
            let inside = |id: &str| containers.iter().any(|container| container.id == id);
            stats.retain(|stats| stats.attributes.as_ref().is_some_and(|attributes| inside(&attributes.id)));
        }
        stats.retain(|stats| {
            let attributes = stats.attributes.clone().unwrap_or_default();
            is(&attributes.id, &filter.id) && has_labels(&attributes.labels, &filter.label_selector)
        });
        answer(v1::ListContainerStatsResponse { stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let all = self.runtime.list_pod_sandbox_stats().await?;
        let own = |stats: &v1::PodSandboxStats| stats.attributes.as_ref().is_some_and(|attributes| attributes.id == id);
        let stats = all.into_iter().find(own);
        let stats = stats.ok_or_else(|| Status::not_found(format!("no statistics of sandbox {id:?}")))?;
        answer(v1::PodSandboxStatsResponse { stats: Some(stats) })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let mut stats = self.runtime.list_pod_sandbox_stats().await?;
        stats.retain(|stats| {
            let attributes = stats.attributes.clone().unwrap_or_default();
            is(&attributes.id, &filter.id) && has_labels(&attributes.labels, &filter.label_selector)
        });
        answer(v1::ListPodSandboxStatsResponse { stats })
    }

    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        let network = request.into_inner().runtime_config.and_then(|config| config.network_config);
        // A kubelet without a range sends an empty one.
        if let Some(network) = network.filter(|network| !network.pod_cidr.is_empty()) {
            self.runtime.update_pod_cidr(&network.pod_cidr).await?;
        }
        answer(v1::UpdateRuntimeConfigResponse {})
    }

    async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Answer<Self::GetContainerEventsStream> {
        answer(self.runtime.events().await?.map(Ok).boxed())
    }

    async fn runtime_config(&self, _: Request<v1::RuntimeConfigRequest>) -> Answer<v1::RuntimeConfigResponse> {
        let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: self.config.cgroup_driver as i32 };
        answer(v1::RuntimeConfigResponse { linux: Some(linux) })
    }

    // These three are not part of what a runtime must have; kubelets and crictl take the refusal.
    async fn checkpoint_container(
        &self,
        _: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        Err(Status::unimplemented("containers cannot be checkpointed"))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        Err(Status::unimplemented("metrics are given as statistics"))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<v1::ListPodSandboxMetricsResponse> {
        Err(Status::unimplemented("metrics are given as statistics"))
    }
}
