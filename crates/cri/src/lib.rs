//! The seam between the kubelet and whatever runs containers: the Container Runtime Interface, v1.
//!
//! The messages are upstream's own (`proto/`, from which `generated/` is made), so that a container runtime of ours and any CRI endpoint take the same
//! words. Two seams stand here: [`Runtime`], which the kubelet drives, and [`Network`], which a runtime asks for a pod's
//! addresses.

pub mod streams;
pub mod network;
pub mod remote;
pub mod serve;

/// The messages, clients and servers of the interface.
#[allow(clippy::all)]
pub mod v1 {
    include!("generated/runtime.v1.rs");
}

pub use network::{Addresses, Network, SandboxNetwork};
pub use remote::Remote;
pub use streams::{Attached, Forwarded, Session, Streaming};

use async_trait::async_trait;
use futures::stream::BoxStream;

/// Why a runtime did not do as told. The code decides what the kubelet does next, the text is shown to users.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: Code,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    NotFound,
    AlreadyExists,
    InvalidArgument,
    /// Took longer than it may.
    DeadlineExceeded,
    /// The runtime cannot be reached now.
    Unavailable,
    Unimplemented,
    ResourceExhausted,
    Unknown,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into() }
    }

    pub fn unknown(message: impl Into<String>) -> Error {
        Error::new(Code::Unknown, message)
    }

    pub fn not_found(message: impl Into<String>) -> Error {
        Error::new(Code::NotFound, message)
    }
}

pub type Result<T> = std::result::Result<T, Error>;

/// How a command in a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecSync {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}

/// Something that pulls images and runs pods: our own runtime, or a CRI endpoint.
///
/// Every call may be repeated: what is done already is not an error. Stopping or removing what does not exist succeeds.
#[async_trait]
pub trait Runtime: Send + Sync {
    async fn version(&self) -> Result<v1::VersionResponse>;
    async fn status(&self) -> Result<v1::RuntimeStatus>;
    /// The status with what the runtime's handlers can do; runtimes that have nothing to say there leave this as it is.
    async fn status_response(&self) -> Result<v1::StatusResponse> {
        Ok(v1::StatusResponse { status: Some(self.status().await?), ..v1::StatusResponse::default() })
    }

    async fn run_pod_sandbox(&self, config: v1::PodSandboxConfig, runtime_handler: &str) -> Result<String>;
    /// Ends all its containers, and gives its addresses back.
    async fn stop_pod_sandbox(&self, id: &str) -> Result<()>;
    async fn remove_pod_sandbox(&self, id: &str) -> Result<()>;
    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus>;
    async fn list_pod_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> Result<Vec<v1::PodSandbox>>;
    /// What the pod as a whole may use from now on. The cgroup of the pod is its caller's; a runtime keeps what it was told.
    async fn update_pod_sandbox_resources(&self, _: v1::UpdatePodSandboxResourcesRequest) -> Result<()> {
        Err(Error::new(Code::Unimplemented, "this runtime does not keep resources of sandboxes"))
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String>;
    async fn start_container(&self, id: &str) -> Result<()>;
    /// Its stop signal, and after so many seconds SIGKILL. Answers when it has ended.
    async fn stop_container(&self, id: &str, timeout_seconds: i64) -> Result<()>;
    async fn remove_container(&self, id: &str) -> Result<()>;
    async fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Result<Vec<v1::Container>>;
    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus>;
    /// The first process of a running container or of a sandbox, as the host numbers it; nothing where the runtime does not say.
    fn pid(&self, _id: &str) -> Option<i32> {
        None
    }
    async fn update_container_resources(&self, id: &str, linux: v1::LinuxContainerResources) -> Result<()>;
    /// After the log file has been renamed.
    async fn reopen_container_log(&self, id: &str) -> Result<()>;

    /// Fails with `DeadlineExceeded` when the command runs longer; 0 for no limit.
    async fn exec_sync(&self, id: &str, command: &[String], timeout_seconds: i64) -> Result<ExecSync>;
    async fn exec(&self, request: v1::ExecRequest) -> Result<Streaming<Session>>;
    async fn attach(&self, request: v1::AttachRequest) -> Result<Streaming<Attached>>;
    /// A connection to one port inside the pod's network.
    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Streaming<Forwarded>>;

    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>>;
    async fn list_pod_sandbox_stats(&self) -> Result<Vec<v1::PodSandboxStats>>;

    /// Starts, ends and removals of containers and sandboxes from now on. The stream ends when the runtime goes away;
    /// the listener then asks for all again.
    async fn events(&self) -> Result<BoxStream<'static, v1::ContainerEventResponse>>;

    async fn list_images(&self) -> Result<Vec<v1::Image>>;
    /// Nothing when it is not there.
    async fn image_status(&self, image: &str) -> Result<Option<v1::Image>>;
    /// The id under which it can be used.
    async fn pull_image(
        &self,
        image: &str,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String>;
    async fn remove_image(&self, image: &str) -> Result<()>;
    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse>;
    /// Where the pods' addresses come from (the node's `podCIDR`), once it is known or when it changes.
    async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()>;
}
