//! A runtime of a few maps. What containers do is scripted by their names; what is asked of it is written down.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{Attached, Error, ExecSync, Forwarded, Result, Runtime, Session, Streaming, v1};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::broadcast;

/// What a container does when it is started.
#[derive(Clone, Debug)]
pub enum Script {
    /// Ends by itself.
    Exit(i32),
    /// Does not listen to its signal.
    Stubborn,
    FailsToStart(&'static str),
    /// Takes that long to start.
    StartsAfter(Duration),
}

#[derive(Clone)]
pub struct FakeRuntime {
    state: Arc<Mutex<State>>,
    events: broadcast::Sender<v1::ContainerEventResponse>,
}

#[derive(Default)]
struct State {
    number: u64,
    sandboxes: BTreeMap<String, v1::PodSandbox>,
    containers: BTreeMap<String, (v1::Container, v1::ContainerStatus)>,
    images: HashMap<String, v1::Image>,
    scripts: HashMap<String, Script>,
    execs: HashMap<String, (i32, String)>,
    calls: Vec<String>,
}

impl FakeRuntime {
    pub fn new() -> FakeRuntime {
        FakeRuntime { state: Arc::default(), events: broadcast::channel(256).0 }
    }

    pub fn script(&self, container: &str, script: Script) {
        self.state.lock().scripts.insert(container.to_owned(), script);
    }

    pub fn image(&self, name: &str) {
        let image = v1::Image { id: format!("sha256:{name}"), size: 7, ..Default::default() };
        self.state.lock().images.insert(name.to_owned(), image);
    }

    /// What a command in any container answers.
    pub(crate) fn exec_answers(&self, command: &str, code: i32, output: &str) {
        self.state.lock().execs.insert(command.to_owned(), (code, output.to_owned()));
    }

    pub fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    /// Ids of containers that run, with their names.
    pub fn running(&self) -> Vec<(String, String)> {
        let state = self.state.lock();
        let running = state.containers.values().filter(|(_, status)| status.state == 1);
        running.map(|(container, _)| (name(container), container.id.clone())).collect()
    }

    pub fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.containers.is_empty() && state.sandboxes.is_empty()
    }

    pub fn end(&self, id: &str, code: i32) {
        let mut state = self.state.lock();
        let Some((container, status)) = state.containers.get_mut(id) else { return };
        if status.state != 1 {
            return;
        }
        status.state = v1::ContainerState::ContainerExited as i32;
        container.state = status.state;
        status.exit_code = code;
        status.finished_at = now();
        let sandbox = container.pod_sandbox_id.clone();
        self.say(&state, &sandbox, id, v1::ContainerEventType::ContainerStoppedEvent);
    }

    /// The sandbox's process dies with all containers.
    pub(crate) fn lose_sandbox(&self) {
        let ids: Vec<String> = self.running().into_iter().map(|(_, id)| id).collect();
        let mut state = self.state.lock();
        for sandbox in state.sandboxes.values_mut() {
            sandbox.state = v1::PodSandboxState::SandboxNotready as i32;
        }
        drop(state);
        ids.iter().for_each(|id| self.end(id, 137));
    }

    fn call(&self, text: String) {
        self.state.lock().calls.push(text);
    }

    fn say(&self, state: &State, sandbox: &str, container: &str, kind: v1::ContainerEventType) {
        let metadata = state.sandboxes.get(sandbox).and_then(|sandbox| sandbox.metadata.clone());
        let event = v1::ContainerEventResponse {
            container_id: container.to_owned(),
            container_event_type: kind as i32,
            pod_sandbox_status: Some(v1::PodSandboxStatus { metadata, ..Default::default() }),
            ..Default::default()
        };
        // Nobody needs to listen.
        let _ = self.events.send(event);
    }
}

fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).expect("before the year 2262")
}

fn name(container: &v1::Container) -> String {
    container.metadata.clone().unwrap_or_default().name
}

fn fits(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[async_trait]
impl Runtime for FakeRuntime {
    async fn version(&self) -> Result<v1::VersionResponse> {
        Ok(v1::VersionResponse { runtime_name: "fake".to_owned(), ..Default::default() })
    }

    async fn status(&self) -> Result<v1::RuntimeStatus> {
        Ok(v1::RuntimeStatus::default())
    }

    async fn run_pod_sandbox(&self, config: v1::PodSandboxConfig, _handler: &str) -> Result<String> {
        let mut state = self.state.lock();
        state.number += 1;
        let id = format!("sandbox{}", state.number);
        let sandbox = v1::PodSandbox {
            id: id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
            created_at: now(),
            ..Default::default()
        };
        state.sandboxes.insert(id.clone(), sandbox);
        state.calls.push("run sandbox".to_owned());
        Ok(id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        self.call("stop sandbox".to_owned());
        let ids: Vec<String> = self.running().into_iter().map(|(_, id)| id).collect();
        for container in ids {
            let inside = self.state.lock().containers[&container].0.pod_sandbox_id == id;
            if inside {
                self.end(&container, 137);
            }
        }
        if let Some(sandbox) = self.state.lock().sandboxes.get_mut(id) {
            sandbox.state = v1::PodSandboxState::SandboxNotready as i32;
        }
        Ok(())
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        self.state.lock().sandboxes.remove(id);
        Ok(())
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus> {
        let state = self.state.lock();
        let sandbox = state.sandboxes.get(id).ok_or_else(|| Error::not_found(id))?;
        Ok(v1::PodSandboxStatus {
            id: id.to_owned(),
            state: sandbox.state,
            network: Some(v1::PodSandboxNetworkStatus { ip: "127.0.0.1".to_owned(), ..Default::default() }),
            ..Default::default()
        })
    }

    async fn list_pod_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> Result<Vec<v1::PodSandbox>> {
        let selector = filter.unwrap_or_default().label_selector;
        let state = self.state.lock();
        Ok(state.sandboxes.values().filter(|sandbox| fits(&selector, &sandbox.labels)).cloned().collect())
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String> {
        let mut state = self.state.lock();
        state.number += 1;
        let id = format!("container{}", state.number);
        let metadata = config.metadata.unwrap_or_default();
        state.calls.push(format!("create {}#{}", metadata.name, metadata.attempt));
        let log_path = format!("{}/{}", sandbox_config.log_directory, config.log_path);
        let container = v1::Container {
            id: id.clone(),
            pod_sandbox_id: sandbox.to_owned(),
            metadata: Some(metadata.clone()),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            created_at: now(),
            ..Default::default()
        };
        let status = v1::ContainerStatus {
            id: id.clone(),
            metadata: Some(metadata),
            image: config.image,
            image_ref: "sha256:ref".to_owned(),
            created_at: now(),
            labels: config.labels,
            annotations: config.annotations,
            mounts: config.mounts,
            log_path,
            ..Default::default()
        };
        state.containers.insert(id.clone(), (container, status));
        Ok(id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let script = {
            let mut state = self.state.lock();
            let name = name(&state.containers[id].0);
            state.calls.push(format!("start {name}"));
            state.scripts.get(&name).cloned()
        };
        if let Some(Script::StartsAfter(time)) = script {
            tokio::time::sleep(time).await;
        }
        let mut state = self.state.lock();
        let (container, status) = state.containers.get_mut(id).ok_or_else(|| Error::not_found(id))?;
        if let Some(Script::FailsToStart(text)) = script {
            status.state = v1::ContainerState::ContainerExited as i32;
            container.state = status.state;
            status.exit_code = 128;
            status.finished_at = now();
            status.reason = "StartError".to_owned();
            status.message = text.to_owned();
            return Err(Error::unknown(text));
        }
        status.state = v1::ContainerState::ContainerRunning as i32;
        container.state = status.state;
        status.started_at = now();
        let sandbox = container.pod_sandbox_id.clone();
        self.say(&state, &sandbox, id, v1::ContainerEventType::ContainerStartedEvent);
        drop(state);
        if let Some(Script::Exit(code)) = script {
            let (runtime, id) = (self.clone(), id.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                runtime.end(&id, code);
            });
        }
        Ok(())
    }

    async fn stop_container(&self, id: &str, timeout_seconds: i64) -> Result<()> {
        let script = {
            let mut state = self.state.lock();
            let Some((container, _)) = state.containers.get(id) else { return Ok(()) };
            let name = name(container);
            state.calls.push(format!("stop {name} {timeout_seconds}"));
            state.scripts.get(&name).cloned()
        };
        match script {
            Some(Script::Stubborn) => {
                tokio::time::sleep(Duration::from_secs(timeout_seconds.max(0) as u64)).await;
                self.end(id, 137);
            }
            _ => self.end(id, 143),
        }
        Ok(())
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        self.state.lock().containers.remove(id);
        Ok(())
    }

    async fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Result<Vec<v1::Container>> {
        let selector = filter.unwrap_or_default().label_selector;
        let state = self.state.lock();
        let all = state.containers.values().map(|(container, _)| container);
        Ok(all.filter(|container| fits(&selector, &container.labels)).cloned().collect())
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus> {
        let state = self.state.lock();
        state.containers.get(id).map(|(_, status)| status.clone()).ok_or_else(|| Error::not_found(id))
    }

    async fn update_container_resources(&self, id: &str, linux: v1::LinuxContainerResources) -> Result<()> {
        self.call(format!("update {id} {}", linux.memory_limit_in_bytes));
        Ok(())
    }

    async fn reopen_container_log(&self, _id: &str) -> Result<()> {
        Ok(())
    }

    async fn exec_sync(&self, _id: &str, command: &[String], _timeout_seconds: i64) -> Result<ExecSync> {
        let command = command.join(" ");
        self.call(format!("exec {command}"));
        let (exit_code, output) = self.state.lock().execs.get(&command).cloned().unwrap_or_default();
        Ok(ExecSync { stdout: output.into_bytes(), stderr: Vec::new(), exit_code })
    }

    async fn exec(&self, _request: v1::ExecRequest) -> Result<Streaming<Session>> {
        Err(Error::unknown("the fake has no streams"))
    }

    async fn attach(&self, _request: v1::AttachRequest) -> Result<Streaming<Attached>> {
        Err(Error::unknown("the fake has no streams"))
    }

    async fn port_forward(&self, _sandbox: &str, _port: u16) -> Result<Streaming<Forwarded>> {
        Err(Error::unknown("the fake has no streams"))
    }

    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>> {
        Ok(Vec::new())
    }

    async fn list_pod_sandbox_stats(&self) -> Result<Vec<v1::PodSandboxStats>> {
        Ok(Vec::new())
    }

    async fn events(&self) -> Result<BoxStream<'static, v1::ContainerEventResponse>> {
        let receiver = self.events.subscribe();
        let stream = futures::stream::unfold(receiver, |mut receiver| {
            async move { receiver.recv().await.ok().map(|event| (event, receiver)) }.boxed()
        });
        Ok(stream.boxed())
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>> {
        Ok(self.state.lock().images.values().cloned().collect())
    }

    async fn image_status(&self, image: &str) -> Result<Option<v1::Image>> {
        let state = self.state.lock();
        Ok(state.images.get(image).or_else(|| state.images.values().find(|known| known.id == image)).cloned())
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<v1::AuthConfig>,
        _sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<String> {
        self.call(format!("pull {image} as {}", auth.unwrap_or_default().username));
        if image.starts_with("hangs.invalid/") {
            return std::future::pending().await;
        }
        if image.starts_with("nowhere.invalid/") {
            return Err(Error::unknown("no such host"));
        }
        self.image(image);
        Ok(format!("sha256:{image}"))
    }

    async fn remove_image(&self, image: &str) -> Result<()> {
        self.state.lock().images.remove(image);
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse> {
        Ok(v1::ImageFsInfoResponse::default())
    }

    async fn update_pod_cidr(&self, _pod_cidr: &str) -> Result<()> {
        Ok(())
    }
}
