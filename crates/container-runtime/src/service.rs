//! The runtime as the kubelet drives it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use component_base::tasks;
use cri::streams::Streaming;
use cri::{Attached, ExecSync, Forwarded, Runtime, Session, v1};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast::error::RecvError;

use crate::container;
use crate::container::State;
use crate::create;
use crate::exec;
use crate::image::{Credentials, Image};
use crate::reserve;
use crate::runtime::{Caller, ContainerRuntime, Inner};
use crate::sandbox::{self, Sandbox};
use crate::shim::now;
use crate::shim::protocol::Call;
use crate::stats;

/// What is begun is finished, also when whoever asked has given up waiting: half a pod would be nobody's.
async fn to_the_end<T, F>(work: F) -> cri::Result<T>
where
    T: Send + 'static,
    F: Future<Output = cri::Result<T>> + Send + 'static,
{
    tasks::spawn(work).await.map_err(|error| cri::Error::unknown(format!("the runtime failed: {error}")))?
}

fn fits(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

impl ContainerRuntime {
    fn sees(&self, sandbox: &Sandbox) -> bool {
        self.caller == Caller::Socket || !sandbox.is_foreign()
    }
}

fn condition(kind: &str, trouble: Option<(&str, String)>) -> v1::RuntimeCondition {
    let (reason, message) = trouble.unwrap_or_default();
    v1::RuntimeCondition { r#type: kind.to_string(), status: reason.is_empty(), reason: reason.to_string(), message }
}

#[async_trait]
impl Runtime for ContainerRuntime {
    async fn version(&self) -> cri::Result<v1::VersionResponse> {
        Ok(v1::VersionResponse {
            version: "0.1.0".to_string(),
            runtime_name: "knarr".to_string(),
            runtime_version: env!("CARGO_PKG_VERSION").to_string(),
            runtime_api_version: "v1".to_string(),
        })
    }

    async fn status(&self) -> cri::Result<v1::RuntimeStatus> {
        let network = self.inner.config.network.not_ready().await;
        let trouble =
            network.map(|reason| ("NetworkPluginNotReady", format!("Network plugin returns error: {reason}")));
        Ok(v1::RuntimeStatus { conditions: vec![condition("RuntimeReady", None), condition("NetworkReady", trouble)] })
    }

    async fn status_response(&self) -> cri::Result<v1::StatusResponse> {
        Ok(v1::StatusResponse {
            status: Some(self.status().await?),
            runtime_handlers: self.inner.handlers.clone(),
            features: Some(v1::RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
            }),
            ..v1::StatusResponse::default()
        })
    }

    async fn run_pod_sandbox(&self, config: v1::PodSandboxConfig, runtime_handler: &str) -> cri::Result<String> {
        let (inner, handler) = (self.inner.clone(), runtime_handler.to_string());
        let foreign = self.caller == Caller::Socket;
        if foreign {
            reserve::sandbox(&inner, &config)?;
        }
        to_the_end(async move { sandbox::run(&inner, config, &handler, foreign).await }).await
    }

    async fn update_pod_sandbox_resources(&self, request: v1::UpdatePodSandboxResourcesRequest) -> cri::Result<()> {
        let sandbox = self.inner.sandbox(&request.pod_sandbox_id)?;
        let record = {
            let mut record = sandbox.record.lock();
            let linux = record.config.linux.get_or_insert_default();
            linux.overhead = request.overhead.or(linux.overhead.take());
            linux.resources = request.resources.or(linux.resources.take());
            record.clone()
        };
        sandbox.folder.write_sandbox(&record).map_err(|error| {
            cri::Error::unknown(format!("failed to update resources of sandbox {:?}: {error}", sandbox.id))
        })
    }

    async fn stop_pod_sandbox(&self, id: &str) -> cri::Result<()> {
        let (inner, id) = (self.inner.clone(), id.to_string());
        to_the_end(async move { sandbox::stop(&inner, &id).await }).await
    }

    async fn remove_pod_sandbox(&self, id: &str) -> cri::Result<()> {
        let (inner, id) = (self.inner.clone(), id.to_string());
        to_the_end(async move { sandbox::remove(&inner, &id).await }).await
    }

    async fn pod_sandbox_status(&self, id: &str) -> cri::Result<v1::PodSandboxStatus> {
        Ok(self.inner.sandbox(id)?.status())
    }

    async fn list_pod_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> cri::Result<Vec<v1::PodSandbox>> {
        let filter = filter.unwrap_or_default();
        let sandboxes: Vec<_> = self.inner.table.lock().sandboxes.values().cloned().collect();
        let all = sandboxes.iter().filter(|sandbox| self.sees(sandbox)).map(|sandbox| sandbox.summary());
        Ok(all
            .filter(|sandbox| filter.id.is_empty() || sandbox.id == filter.id)
            .filter(|sandbox| filter.state.as_ref().is_none_or(|state| state.state == sandbox.state))
            .filter(|sandbox| fits(&filter.label_selector, &sandbox.labels))
            .collect())
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> cri::Result<String> {
        let (inner, sandbox) = (self.inner.clone(), self.inner.sandbox(sandbox)?);
        if self.caller == Caller::Socket {
            reserve::container(&inner, &sandbox, &config)?;
        }
        to_the_end(async move { create::create(&inner, &sandbox, config, sandbox_config).await }).await
    }

    async fn start_container(&self, id: &str) -> cri::Result<()> {
        let (inner, container) = (self.inner.clone(), self.inner.container(id)?);
        to_the_end(async move { container::start(&inner, &container).await }).await
    }

    async fn stop_container(&self, id: &str, timeout_seconds: i64) -> cri::Result<()> {
        match self.inner.find_container(id) {
            Some(container) => container::stop(&self.inner, &container, timeout_seconds).await,
            None => Ok(()),
        }
    }

    async fn remove_container(&self, id: &str) -> cri::Result<()> {
        let Some(container) = self.inner.find_container(id) else { return Ok(()) };
        let inner = self.inner.clone();
        to_the_end(async move { container::remove(&inner, &container).await }).await
    }

    async fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> cri::Result<Vec<v1::Container>> {
        let filter = filter.unwrap_or_default();
        let containers: Vec<_> = self.inner.table.lock().containers.values().cloned().collect();
        let seen = containers.iter().filter(|container| self.sees(&container.sandbox));
        let all = seen.map(|container| container.summary());
        Ok(all
            .filter(|container| filter.id.is_empty() || container.id == filter.id)
            .filter(|container| filter.pod_sandbox_id.is_empty() || container.pod_sandbox_id == filter.pod_sandbox_id)
            .filter(|container| filter.state.as_ref().is_none_or(|state| state.state == container.state))
            .filter(|container| fits(&filter.label_selector, &container.labels))
            .collect())
    }

    async fn container_status(&self, id: &str) -> cri::Result<v1::ContainerStatus> {
        Ok(self.inner.container(id)?.status())
    }

    fn pid(&self, id: &str) -> Option<i32> {
        if let Some(container) = self.inner.find_container(id) {
            return match *container.state.borrow() {
                State::Running { pid, .. } => Some(pid),
                _ => None,
            };
        }
        let sandbox = self.inner.find_sandbox(id)?;
        let shim = sandbox.shim.lock();
        shim.as_ref().map(|shim| shim.ready.pid)
    }

    async fn update_container_resources(&self, id: &str, linux: v1::LinuxContainerResources) -> cri::Result<()> {
        let container = self.inner.container(id)?;
        let failed = |error: &dyn std::fmt::Display| {
            cri::Error::unknown(format!("failed to update resources of container {id:?}: {error}"))
        };
        let record = {
            let mut record = container.record.lock();
            let said = record.config.linux.get_or_insert_default().resources.get_or_insert_default();
            *said = stats::updated(said, &linux);
            record.clone()
        };
        if container.is_running() {
            let group = self.inner.cgroups.group(&record.cgroup).map_err(|error| failed(&error))?;
            group.apply(&stats::limits(&linux)).map_err(|error| failed(&error))?;
        }
        container.sandbox.folder.write_container(&record).map_err(|error| failed(&error))
    }

    async fn reopen_container_log(&self, id: &str) -> cri::Result<()> {
        let container = self.inner.container(id)?;
        if !container.is_running() {
            return Err(cri::Error::unknown("container is not running"));
        }
        let client = container.sandbox.shim()?.client;
        let reopened = client.call(Call::ReopenLog { container: id.to_string() }, &[]).await;
        reopened.map(|_| ()).map_err(|error| cri::Error::new(error.code(), error.to_string()))
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout_seconds: i64) -> cri::Result<ExecSync> {
        exec::exec_sync(&*self.inner.container(id)?, command, timeout_seconds).await
    }

    async fn exec(&self, request: v1::ExecRequest) -> cri::Result<Streaming<Session>> {
        let container = self.inner.container(&request.container_id)?;
        Ok(Streaming::Local(exec::exec(&container, &request).await?))
    }

    async fn attach(&self, request: v1::AttachRequest) -> cri::Result<Streaming<Attached>> {
        let container = self.inner.container(&request.container_id)?;
        Ok(Streaming::Local(exec::attach(&container, &request).await?))
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> cri::Result<Streaming<Forwarded>> {
        Ok(Streaming::Local(exec::port_forward(&self.inner, sandbox, port).await?))
    }

    async fn list_container_stats(&self) -> cri::Result<Vec<v1::ContainerStats>> {
        let containers: Vec<_> = self.inner.table.lock().containers.values().cloned().collect();
        let mut all = Vec::new();
        for container in containers.iter().filter(|one| one.is_running() && self.sees(&one.sandbox)) {
            all.extend(stats::container(&self.inner, container).await);
        }
        forget_samples(&self.inner);
        Ok(all)
    }

    async fn list_pod_sandbox_stats(&self) -> cri::Result<Vec<v1::PodSandboxStats>> {
        let sandboxes: Vec<_> = self.inner.table.lock().sandboxes.values().cloned().collect();
        let mut all = Vec::new();
        for sandbox in sandboxes.iter().filter(|sandbox| sandbox.is_ready() && self.sees(sandbox)) {
            all.extend(stats::sandbox(&self.inner, sandbox).await);
        }
        forget_samples(&self.inner);
        Ok(all)
    }

    async fn events(&self) -> cri::Result<BoxStream<'static, v1::ContainerEventResponse>> {
        let (receiver, caller) = (self.inner.events.subscribe(), self.caller);
        let stream = futures::stream::unfold(receiver, move |mut receiver| async move {
            loop {
                match receiver.recv().await {
                    Ok(told) if told.foreign && caller == Caller::Kubelet => {}
                    Ok(told) => return Some((told.event, receiver)),
                    // Whoever has missed something asks for all again.
                    Err(RecvError::Lagged(_) | RecvError::Closed) => return None,
                }
            }
        });
        Ok(stream.boxed())
    }

    async fn list_images(&self) -> cri::Result<Vec<v1::Image>> {
        let mut images: Vec<v1::Image> = self.inner.images.list().iter().map(shown).collect();
        if self.caller == Caller::Kubelet {
            // The kubelet does not see who uses these, and must not take them away.
            let containers: Vec<_> = self.inner.table.lock().containers.values().cloned().collect();
            let foreign = containers.iter().filter(|container| container.sandbox.is_foreign());
            let used: HashSet<String> = foreign.map(|container| container.record.lock().image_id.clone()).collect();
            images.iter_mut().for_each(|image| image.pinned |= used.contains(&image.id));
        }
        Ok(images)
    }

    async fn image_status(&self, image: &str) -> cri::Result<Option<v1::Image>> {
        Ok(self.inner.images.get(image).as_ref().map(shown))
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<v1::AuthConfig>,
        _sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> cri::Result<String> {
        self.inner.images.pull(image, auth.map(credentials).transpose()?.flatten()).await
    }

    async fn remove_image(&self, image: &str) -> cri::Result<()> {
        self.inner.images.remove(image).await
    }

    async fn image_fs_info(&self) -> cri::Result<v1::ImageFsInfoResponse> {
        let usage = self.inner.images.usage().await?;
        let mountpoint = self.inner.config.root_dir.display().to_string();
        let filesystem = v1::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(v1::FilesystemIdentifier { mountpoint }),
            used_bytes: Some(v1::UInt64Value { value: usage.bytes }),
            inodes_used: Some(v1::UInt64Value { value: usage.inodes }),
        };
        Ok(v1::ImageFsInfoResponse {
            image_filesystems: vec![filesystem.clone()],
            container_filesystems: vec![filesystem],
        })
    }

    async fn update_pod_cidr(&self, pod_cidr: &str) -> cri::Result<()> {
        self.inner.config.network.set_pod_cidr(pod_cidr).await
    }
}

fn forget_samples(inner: &Inner) {
    let table = inner.table.lock();
    inner.samples.keep_only(|id| table.containers.contains_key(id) || table.sandboxes.contains_key(id));
}

fn shown(image: &Arc<Image>) -> v1::Image {
    // The user as a number or as a name, whichever the image says.
    let user = image.config.user.split(':').next().unwrap_or_default();
    let uid = user.parse().ok().map(|value| v1::Int64Value { value });
    v1::Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags.clone(),
        repo_digests: image.repo_digests.clone(),
        size: image.size,
        username: if uid.is_none() { user.to_string() } else { String::new() },
        uid,
        spec: Some(v1::ImageSpec { image: image.id.clone(), ..v1::ImageSpec::default() }),
        pinned: image.pinned,
    }
}

/// From the words of the CRI; `auth` is user and password in one, as docker writes them.
fn credentials(auth: v1::AuthConfig) -> cri::Result<Option<Credentials>> {
    let invalid = || cri::Error::new(cri::Code::InvalidArgument, "invalid auth configuration");
    let (mut username, mut password) = (auth.username, auth.password);
    if username.is_empty() && !auth.auth.is_empty() {
        use base64::Engine;
        let decoded = base64::engine::general_purpose::STANDARD.decode(auth.auth.trim()).map_err(|_| invalid())?;
        let text = String::from_utf8(decoded).map_err(|_| invalid())?;
        let (user, word) = text.split_once(':').ok_or_else(invalid)?;
        username = user.to_string();
        password = word.trim_end_matches('\0').to_string();
    }
    let registry_token = auth.registry_token;
    let empty = username.is_empty() && password.is_empty() && registry_token.is_empty();
    Ok((!empty).then_some(Credentials { username, password, registry_token }))
}
