//! A runtime that only remembers.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use cri::{Attached, Code, Error, ExecSync, Forwarded, Result, Runtime, Session, Streaming, v1};
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use tokio::sync::broadcast;

pub struct Fake {
    /// Has no events, as old runtimes.
    silent: bool,
    /// Says nothing about its events for a while, as servers that send headers only with the first message.
    slow: bool,
    /// What cannot be seen in lists.
    pub heard: Mutex<Vec<String>>,
    sandboxes: Mutex<BTreeMap<String, v1::PodSandboxStatus>>,
    /// With the sandbox of each.
    containers: Mutex<BTreeMap<String, (String, v1::ContainerStatus)>>,
    images: Mutex<Vec<v1::Image>>,
    events: broadcast::Sender<v1::ContainerEventResponse>,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake {
            silent: false,
            slow: false,
            heard: Mutex::default(),
            sandboxes: Mutex::default(),
            containers: Mutex::default(),
            images: Mutex::default(),
            events: broadcast::channel(100).0,
        }
    }
}

impl Fake {
    pub fn silent() -> Fake {
        Fake { silent: true, ..Fake::default() }
    }

    pub fn slow() -> Fake {
        Fake { slow: true, ..Fake::default() }
    }

    fn hear(&self, text: String) -> Result<()> {
        self.heard.lock().unwrap().push(text);
        Ok(())
    }

    fn change(&self, id: &str, state: v1::ContainerState, event: v1::ContainerEventType) -> Result<()> {
        let mut containers = self.containers.lock().unwrap();
        let found = containers.get_mut(id).ok_or_else(|| Error::not_found(format!("no container {id:?}")))?;
        found.1.state = state as i32;
        let containers_statuses = vec![found.1.clone()];
        self.tell(id, event, containers_statuses);
        Ok(())
    }

    fn tell(&self, id: &str, event: v1::ContainerEventType, containers_statuses: Vec<v1::ContainerStatus>) {
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: event as i32,
            containers_statuses,
            ..Default::default()
        };
        // Nobody may be listening.
        let _ = self.events.send(event);
    }
}

#[async_trait]
impl Runtime for Fake {
    async fn version(&self) -> Result<v1::VersionResponse> {
        Ok(v1::VersionResponse { runtime_name: "fake".to_owned(), ..Default::default() })
    }

    async fn status(&self) -> Result<v1::RuntimeStatus> {
        let ready = v1::RuntimeCondition { r#type: "RuntimeReady".to_owned(), status: true, ..Default::default() };
        Ok(v1::RuntimeStatus { conditions: vec![ready] })
    }

    async fn run_pod_sandbox(&self, config: v1::PodSandboxConfig, _: &str) -> Result<String> {
        let mut sandboxes = self.sandboxes.lock().unwrap();
        let id = format!("sandbox{}", sandboxes.len());
        let status = v1::PodSandboxStatus { id: id.clone(), metadata: config.metadata, ..Default::default() };
        sandboxes.insert(id.clone(), status);
        Ok(id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        if let Some(sandbox) = self.sandboxes.lock().unwrap().get_mut(id) {
            sandbox.state = v1::PodSandboxState::SandboxNotready as i32;
        }
        Ok(())
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        self.sandboxes.lock().unwrap().remove(id);
        Ok(())
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus> {
        let found = self.sandboxes.lock().unwrap().get(id).cloned();
        found.ok_or_else(|| Error::not_found(format!("no sandbox {id:?}")))
    }

    async fn list_pod_sandboxes(&self, _: Option<v1::PodSandboxFilter>) -> Result<Vec<v1::PodSandbox>> {
        let sandboxes = self.sandboxes.lock().unwrap();
        let item = |status: &v1::PodSandboxStatus| v1::PodSandbox {
            id: status.id.clone(),
            state: status.state,
            metadata: status.metadata.clone(),
            ..Default::default()
        };
        Ok(sandboxes.values().map(item).collect())
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        _: v1::PodSandboxConfig,
    ) -> Result<String> {
        let id = format!("container{}", self.containers.lock().unwrap().len());
        let status = v1::ContainerStatus { id: id.clone(), image: config.image, ..Default::default() };
        self.containers.lock().unwrap().insert(id.clone(), (sandbox.to_owned(), status));
        self.change(&id, v1::ContainerState::ContainerCreated, v1::ContainerEventType::ContainerCreatedEvent)?;
        Ok(id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        self.change(id, v1::ContainerState::ContainerRunning, v1::ContainerEventType::ContainerStartedEvent)
    }

    async fn stop_container(&self, id: &str, timeout_seconds: i64) -> Result<()> {
        self.change(id, v1::ContainerState::ContainerExited, v1::ContainerEventType::ContainerStoppedEvent)?;
        if timeout_seconds > 0 { self.hear(format!("stop {timeout_seconds}")) } else { Ok(()) }
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let removed = self.containers.lock().unwrap().remove(id);
        removed.ok_or_else(|| Error::not_found(format!("no container {id:?}")))?;
        self.tell(id, v1::ContainerEventType::ContainerDeletedEvent, Vec::new());
        Ok(())
    }

    async fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Result<Vec<v1::Container>> {
        let wanted = filter.unwrap_or_default().pod_sandbox_id;
        let containers = self.containers.lock().unwrap();
        let chosen = containers.values().filter(|(sandbox, _)| wanted.is_empty() || *sandbox == wanted);
        let item = |(sandbox, status): &(String, v1::ContainerStatus)| v1::Container {
            id: status.id.clone(),
            pod_sandbox_id: sandbox.clone(),
            state: status.state,
            ..Default::default()
        };
        Ok(chosen.map(item).collect())
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus> {
        let found = self.containers.lock().unwrap().get(id).map(|(_, status)| status.clone());
        found.ok_or_else(|| Error::not_found(format!("no container {id:?}")))
    }

    async fn update_container_resources(&self, _: &str, linux: v1::LinuxContainerResources) -> Result<()> {
        self.hear(format!("update {}", linux.cpu_shares))
    }

    async fn reopen_container_log(&self, _: &str) -> Result<()> {
        self.hear("reopen".to_owned())
    }

    async fn exec_sync(&self, _: &str, command: &[String], _: i64) -> Result<ExecSync> {
        if command[0] == "fail" {
            let code = match command[1].as_str() {
                "deadline" => Code::DeadlineExceeded,
                "exhausted" => Code::ResourceExhausted,
                "exists" => Code::AlreadyExists,
                "invalid" => Code::InvalidArgument,
                "unavailable" => Code::Unavailable,
                "unimplemented" => Code::Unimplemented,
                _ => Code::Unknown,
            };
            return Err(Error::new(code, command[1].clone()));
        }
        Ok(ExecSync { stdout: command.join(" ").into_bytes(), stderr: b"err".to_vec(), exit_code: 3 })
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<Streaming<Session>> {
        Ok(Streaming::Url(format!("http://fake/{}", request.container_id)))
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<Streaming<Attached>> {
        Ok(Streaming::Url(format!("http://fake/{}", request.container_id)))
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Streaming<Forwarded>> {
        Ok(Streaming::Url(format!("http://fake/{sandbox}/{port}")))
    }

    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>> {
        let ids: Vec<String> = self.containers.lock().unwrap().keys().cloned().collect();
        let stats = |id| v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes { id, ..Default::default() }),
            ..Default::default()
        };
        Ok(ids.into_iter().map(stats).collect())
    }

    async fn list_pod_sandbox_stats(&self) -> Result<Vec<v1::PodSandboxStats>> {
        let ids: Vec<String> = self.sandboxes.lock().unwrap().keys().cloned().collect();
        let stats = |id| v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes { id, ..Default::default() }),
            ..Default::default()
        };
        Ok(ids.into_iter().map(stats).collect())
    }

    async fn events(&self) -> Result<BoxStream<'static, v1::ContainerEventResponse>> {
        if self.silent {
            return Err(Error::new(Code::Unimplemented, "no events here"));
        }
        let events = self.events.subscribe();
        if self.slow {
            tokio::time::sleep(std::time::Duration::from_millis(600)).await;
        }
        Ok(unfold(events, |mut events| async { events.recv().await.ok().map(|event| (event, events)) }).boxed())
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>> {
        Ok(self.images.lock().unwrap().clone())
    }

    async fn image_status(&self, image: &str) -> Result<Option<v1::Image>> {
        let images = self.images.lock().unwrap();
        Ok(images.iter().find(|found| found.repo_tags.iter().any(|tag| tag == image)).cloned())
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<v1::AuthConfig>,
        _: Option<v1::PodSandboxConfig>,
    ) -> Result<String> {
        let id = format!("id of {image} for {}", auth.unwrap_or_default().username);
        let pulled = v1::Image { id: id.clone(), repo_tags: vec![image.to_owned()], ..Default::default() };
        self.images.lock().unwrap().push(pulled);
        Ok(id)
    }

    async fn remove_image(&self, image: &str) -> Result<()> {
        let mut images = self.images.lock().unwrap();
        let before = images.len();
        images.retain(|found| !found.repo_tags.iter().any(|tag| tag == image));
        if images.len() == before { Err(Error::not_found("no such image")) } else { Ok(()) }
    }

    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse> {
        Ok(v1::ImageFsInfoResponse { image_filesystems: vec![v1::FilesystemUsage::default()], ..Default::default() })
    }

    async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()> {
        self.hear(format!("cidr {pod_cidr}"))
    }
}
