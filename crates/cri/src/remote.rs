//! Any CRI v1 endpoint over gRPC, behind the same trait: containerd, CRI-O, or our own runtime in another process.

mod events;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::{Attached, Code, Error, ExecSync, Forwarded, Result, Runtime, Session, Streaming, v1};

/// What a runtime has for most calls, as with upstream's kubelet (`--runtime-request-timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// A sandbox may wait for its image and its network.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(240);
/// A node's list of containers and images may be long.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

#[derive(Clone)]
pub struct Remote {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl Remote {
    /// An endpoint is `unix:///path/to/socket` or the path alone. Fails when nobody there speaks CRI v1. A connection that
    /// breaks later is made again with the next call.
    pub async fn connect(endpoint: &str) -> Result<Remote> {
        let path = socket_path(endpoint)?;
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is of no interest to the connector, but a channel needs one.
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(connector)
            .await
            .map_err(|error| Error::new(Code::Unavailable, format!("connect to {endpoint}: {}", chain(&error))))?;
        let remote = Remote {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX),
        };
        let validated = remote.version().await;
        validated.map_err(|error| {
            Error::new(error.code, format!("validate CRI v1 runtime API for endpoint {endpoint:?}: {error}"))
        })?;
        Ok(remote)
    }

    /// The bare clients, for calls that a kubelet has no use for.
    pub fn clients(&self) -> (RuntimeServiceClient<Channel>, ImageServiceClient<Channel>) {
        (self.runtime(), self.images())
    }

    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        self.runtime.clone()
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        self.images.clone()
    }
}

fn socket_path(endpoint: &str) -> Result<PathBuf> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if !path.starts_with('/') {
        return Err(Error::new(Code::InvalidArgument, format!("endpoint {endpoint:?} is not a unix socket")));
    }
    Ok(PathBuf::from(path))
}

/// An error with all that caused it: what a transport says at first is never the reason.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Error {
        let code = match status.code() {
            tonic::Code::NotFound => Code::NotFound,
            tonic::Code::AlreadyExists => Code::AlreadyExists,
            tonic::Code::InvalidArgument => Code::InvalidArgument,
            tonic::Code::DeadlineExceeded => Code::DeadlineExceeded,
            tonic::Code::Unavailable => Code::Unavailable,
            tonic::Code::Unimplemented => Code::Unimplemented,
            tonic::Code::ResourceExhausted => Code::ResourceExhausted,
            _ => Code::Unknown,
        };
        Error::new(code, status.message())
    }
}

type Answer<T> = std::result::Result<tonic::Response<T>, tonic::Status>;

async fn within<T>(timeout: Duration, call: impl Future<Output = Answer<T>>) -> Result<T> {
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => {
            let text = format!("the runtime did not answer within {} seconds", timeout.as_secs());
            Err(Error::new(Code::DeadlineExceeded, text))
        }
    }
}

async fn call<T>(call: impl Future<Output = Answer<T>>) -> Result<T> {
    within(REQUEST_TIMEOUT, call).await
}

/// What is gone need not be ended.
fn gone_is_fine<T>(result: Result<T>) -> Result<()> {
    match result {
        Err(error) if error.code == Code::NotFound => Ok(()),
        other => other.map(drop),
    }
}

fn present<T>(field: Option<T>, what: &str) -> Result<T> {
    field.ok_or_else(|| Error::unknown(format!("response of the container runtime has no {what}")))
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn image_spec(image: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() })
}

#[async_trait]
impl Runtime for Remote {
    async fn version(&self) -> Result<v1::VersionResponse> {
        // The number is that of the kubelet's API, which never changed.
        call(self.runtime().version(v1::VersionRequest { version: "0.1.0".to_owned() })).await
    }

    async fn status(&self) -> Result<v1::RuntimeStatus> {
        let answer = call(self.runtime().status(v1::StatusRequest::default())).await?;
        present(answer.status, "status")
    }

    async fn status_response(&self) -> Result<v1::StatusResponse> {
        call(self.runtime().status(v1::StatusRequest::default())).await
    }

    async fn run_pod_sandbox(&self, config: v1::PodSandboxConfig, runtime_handler: &str) -> Result<String> {
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: runtime_handler.to_owned() };
        Ok(within(SANDBOX_TIMEOUT, self.runtime().run_pod_sandbox(request)).await?.pod_sandbox_id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone_is_fine(call(self.runtime().stop_pod_sandbox(request)).await)
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone_is_fine(call(self.runtime().remove_pod_sandbox(request)).await)
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        present(call(self.runtime().pod_sandbox_status(request)).await?.status, "status")
    }

    async fn list_pod_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> Result<Vec<v1::PodSandbox>> {
        Ok(call(self.runtime().list_pod_sandbox(v1::ListPodSandboxRequest { filter })).await?.items)
    }

    async fn update_pod_sandbox_resources(&self, request: v1::UpdatePodSandboxResourcesRequest) -> Result<()> {
        call(self.runtime().update_pod_sandbox_resources(request)).await.map(drop)
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(call(self.runtime().create_container(request)).await?.container_id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        call(self.runtime().start_container(request)).await.map(drop)
    }

    async fn stop_container(&self, id: &str, timeout_seconds: i64) -> Result<()> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: timeout_seconds };
        let timeout = REQUEST_TIMEOUT + seconds(timeout_seconds);
        gone_is_fine(within(timeout, self.runtime().stop_container(request)).await)
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        gone_is_fine(call(self.runtime().remove_container(request)).await)
    }

    async fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Result<Vec<v1::Container>> {
        Ok(call(self.runtime().list_containers(v1::ListContainersRequest { filter })).await?.containers)
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        present(call(self.runtime().container_status(request)).await?.status, "status")
    }

    async fn update_container_resources(&self, id: &str, linux: v1::LinuxContainerResources) -> Result<()> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(linux),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        call(self.runtime().update_container_resources(request)).await.map(drop)
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
        call(self.runtime().reopen_container_log(request)).await.map(drop)
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout_seconds: i64) -> Result<ExecSync> {
        let request =
            v1::ExecSyncRequest { container_id: id.to_owned(), cmd: command.to_vec(), timeout: timeout_seconds };
        let mut client = self.runtime();
        let answer = match timeout_seconds {
            // The command may run as long as it likes.
            ..=0 => client.exec_sync(request).await?.into_inner(),
            // The runtime ends the command itself; only a runtime that does not is cut off here.
            timeout => within(REQUEST_TIMEOUT + seconds(timeout), client.exec_sync(request)).await?,
        };
        Ok(ExecSync { stdout: answer.stdout, stderr: answer.stderr, exit_code: answer.exit_code })
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<Streaming<Session>> {
        Ok(Streaming::Url(call(self.runtime().exec(request)).await?.url))
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<Streaming<Attached>> {
        Ok(Streaming::Url(call(self.runtime().attach(request)).await?.url))
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Streaming<Forwarded>> {
        let request = v1::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port: vec![port.into()] };
        Ok(Streaming::Url(call(self.runtime().port_forward(request)).await?.url))
    }

    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>> {
        Ok(call(self.runtime().list_container_stats(v1::ListContainerStatsRequest::default())).await?.stats)
    }

    async fn list_pod_sandbox_stats(&self) -> Result<Vec<v1::PodSandboxStats>> {
        Ok(call(self.runtime().list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default())).await?.stats)
    }

    async fn events(&self) -> Result<BoxStream<'static, v1::ContainerEventResponse>> {
        events::events(self.clone()).await
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>> {
        Ok(call(self.images().list_images(v1::ListImagesRequest::default())).await?.images)
    }

    async fn image_status(&self, image: &str) -> Result<Option<v1::Image>> {
        let request = v1::ImageStatusRequest { image: image_spec(image), verbose: false };
        match call(self.images().image_status(request)).await {
            Ok(answer) => Ok(answer.image),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String> {
        // As long as it takes: a runtime gives up by itself when nothing moves.
        let request = v1::PullImageRequest { image: image_spec(image), auth, sandbox_config };
        Ok(self.images().pull_image(request).await?.into_inner().image_ref)
    }

    async fn remove_image(&self, image: &str) -> Result<()> {
        let request = v1::RemoveImageRequest { image: image_spec(image) };
        gone_is_fine(call(self.images().remove_image(request)).await)
    }

    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse> {
        call(self.images().image_fs_info(v1::ImageFsInfoRequest {})).await
    }

    async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()> {
        let network_config = Some(v1::NetworkConfig { pod_cidr: pod_cidr.to_owned() });
        let runtime_config = Some(v1::RuntimeConfig { network_config });
        call(self.runtime().update_runtime_config(v1::UpdateRuntimeConfigRequest { runtime_config })).await.map(drop)
    }
}
