//! The runtime half of the service.

use std::collections::HashMap;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use tonic::{Request, Status};

use super::lists::{Pieces, pieces};
use super::{Answer, Service, Stream, answer, metrics, verbose, wanted};
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

    async fn metrics(&self) -> Result<Vec<v1::PodSandboxMetrics>, Status> {
        let stats = self.runtime.list_pod_sandbox_stats().await?;
        let containers = self.runtime.list_containers(None).await?;
        let image = |container: v1::Container| (container.id, container.image.unwrap_or_default().image);
        let images: HashMap<String, String> = containers.into_iter().map(image).collect();
        Ok(stats.iter().map(|stats| metrics::of_sandbox(stats, &images)).collect())
    }
}

fn url<T>(streaming: Streaming<T>) -> Option<String> {
    match streaming {
        Streaming::Url(url) => Some(url),
        Streaming::Local(_) => None,
    }
}

#[async_trait]
impl RuntimeService for Service {
    type GetContainerEventsStream = BoxStream<'static, Result<v1::ContainerEventResponse, Status>>;
    type StreamPodSandboxesStream = Pieces<v1::StreamPodSandboxesResponse>;
    type StreamContainersStream = Pieces<v1::StreamContainersResponse>;
    type StreamContainerStatsStream = Pieces<v1::StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = Pieces<v1::StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = Pieces<v1::StreamPodSandboxMetricsResponse>;

    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        answer(self.runtime.version().await?)
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let mut status = self.runtime.status_response().await?;
        let socket = &self.config.socket;
        status.info.extend(verbose::shown(request.into_inner().verbose, || serde_json::json!({"socket": socket})));
        answer(status)
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
        let request = request.into_inner();
        let status = self.runtime.pod_sandbox_status(&request.pod_sandbox_id).await?;
        let info = self.sandbox_info(&status.id, request.verbose);
        answer(v1::PodSandboxStatusResponse { status: Some(status), info, ..v1::PodSandboxStatusResponse::default() })
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        let items = self.runtime.list_pod_sandboxes(request.into_inner().filter).await?;
        answer(v1::ListPodSandboxResponse { items })
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let items = self.runtime.list_pod_sandboxes(request.into_inner().filter).await?;
        answer(pieces(items, |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        self.runtime.update_pod_sandbox_resources(request.into_inner()).await?;
        answer(v1::UpdatePodSandboxResourcesResponse {})
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

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let items = self.runtime.list_containers(request.into_inner().filter).await?;
        answer(pieces(items, |containers| v1::StreamContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let request = request.into_inner();
        let status = self.runtime.container_status(&request.container_id).await?;
        let info = self.container_info(&status, request.verbose);
        answer(v1::ContainerStatusResponse { status: Some(status), info })
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
        let stats = self.container_stats_of(request.into_inner().filter).await?;
        answer(v1::ListContainerStatsResponse { stats })
    }

    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let stats = self.container_stats_of(request.into_inner().filter).await?;
        answer(pieces(stats, |container_stats| v1::StreamContainerStatsResponse { container_stats }))
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
        let stats = self.sandbox_stats_of(request.into_inner().filter).await?;
        answer(v1::ListPodSandboxStatsResponse { stats })
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let stats = self.sandbox_stats_of(request.into_inner().filter).await?;
        answer(pieces(stats, |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats }))
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

    // Not part of what a runtime must have; kubelets and crictl take the refusal.
    async fn checkpoint_container(
        &self,
        _: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        Err(Status::unimplemented("this runtime cannot checkpoint containers: it does not use CRIU"))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        answer(v1::ListMetricDescriptorsResponse { descriptors: metrics::descriptors() })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<v1::ListPodSandboxMetricsResponse> {
        answer(v1::ListPodSandboxMetricsResponse { pod_metrics: self.metrics().await? })
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        let metrics = self.metrics().await?;
        answer(pieces(metrics, |pod_sandbox_metrics| v1::StreamPodSandboxMetricsResponse { pod_sandbox_metrics }))
    }
}
