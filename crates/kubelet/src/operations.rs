//! Counts what is asked of the container runtime, for all callers in one place: `kubelet_runtime_operations_*`.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use component_base::metrics::{DEFAULT_SECONDS, Histogram, Metric, Page, exponential};
use cri::{Attached, ExecSync, Forwarded, Result, Runtime, Session, Streaming, v1};
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::stats::own::Counters;

static SECONDS: [f64; 14] = exponential(0.005, 2.5);

/// By the operation's name, of which there are as many as there are calls of the CRI.
#[derive(Default)]
pub struct Operations {
    calls: Mutex<BTreeMap<&'static str, Calls>>,
    /// Sandboxes, by the handler of their RuntimeClass.
    sandboxes: Mutex<BTreeMap<String, Calls>>,
}

struct Calls {
    errors: u64,
    seconds: Histogram,
}

impl Operations {
    pub(crate) fn write(&self, page: &mut Page) {
        let calls = self.calls.lock();
        for (operation, calls) in calls.iter() {
            page.family(&OPERATIONS).sample(&[("operation_type", operation)], calls.seconds.count());
        }
        for (operation, calls) in calls.iter() {
            page.family(&OPERATION_SECONDS).histogram(&[("operation_type", operation)], &calls.seconds);
        }
        for (operation, calls) in calls.iter().filter(|(_, calls)| calls.errors > 0) {
            page.family(&OPERATION_ERRORS).sample(&[("operation_type", operation)], calls.errors);
        }
        let sandboxes = self.sandboxes.lock();
        for (handler, calls) in sandboxes.iter() {
            page.family(&SANDBOX_SECONDS).histogram(&[("runtime_handler", handler)], &calls.seconds);
        }
        for (handler, calls) in sandboxes.iter().filter(|(_, calls)| calls.errors > 0) {
            page.family(&SANDBOX_ERRORS).sample(&[("runtime_handler", handler)], calls.errors);
        }
    }
}

/// The same runtime; what is asked of it is counted.
pub struct CountedRuntime {
    pub inner: Arc<dyn Runtime>,
    pub counters: Arc<Counters>,
}

/// A call that is under way. One that is given up counts as failed.
struct Call<'a> {
    operations: &'a Operations,
    operation: &'static str,
    /// Of a sandbox that is being made.
    handler: Option<&'a str>,
    began_at: Instant,
    succeeded: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let (took, errors) = (self.began_at.elapsed(), u64::from(!self.succeeded));
        let mut all = self.operations.calls.lock();
        let calls = all.entry(self.operation).or_insert_with(|| Calls::new(&SECONDS));
        calls.seconds.observe_time(took);
        calls.errors += errors;
        if let Some(handler) = self.handler {
            let mut all = self.operations.sandboxes.lock();
            let calls = all.entry(handler.to_owned()).or_insert_with(|| Calls::new(DEFAULT_SECONDS));
            calls.seconds.observe_time(took);
            calls.errors += errors;
        }
    }
}

impl Calls {
    fn new(bounds: component_base::metrics::Bounds) -> Calls {
        Calls { errors: 0, seconds: Histogram::new(bounds) }
    }
}

impl CountedRuntime {
    fn call<'a>(&'a self, operation: &'static str, handler: Option<&'a str>) -> Call<'a> {
        let operations = &self.counters.operations;
        Call { operations, operation, handler, began_at: Instant::now(), succeeded: false }
    }

    async fn count<T>(&self, operation: &'static str, asked: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let mut call = self.call(operation, None);
        let answer = asked.await;
        call.succeeded = answer.is_ok();
        answer
    }
}

#[async_trait]
impl Runtime for CountedRuntime {
    async fn version(&self) -> Result<v1::VersionResponse> {
        self.count("version", self.inner.version()).await
    }

    async fn status(&self) -> Result<v1::RuntimeStatus> {
        self.count("status", self.inner.status()).await
    }

    async fn status_response(&self) -> Result<v1::StatusResponse> {
        self.count("status", self.inner.status_response()).await
    }

    async fn run_pod_sandbox(&self, config: v1::PodSandboxConfig, runtime_handler: &str) -> Result<String> {
        let mut call = self.call("run_podsandbox", Some(runtime_handler));
        let answer = self.inner.run_pod_sandbox(config, runtime_handler).await;
        call.succeeded = answer.is_ok();
        answer
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        self.count("stop_podsandbox", self.inner.stop_pod_sandbox(id)).await
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        self.count("remove_podsandbox", self.inner.remove_pod_sandbox(id)).await
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus> {
        self.count("podsandbox_status", self.inner.pod_sandbox_status(id)).await
    }

    async fn list_pod_sandboxes(&self, filter: Option<v1::PodSandboxFilter>) -> Result<Vec<v1::PodSandbox>> {
        self.count("list_podsandbox", self.inner.list_pod_sandboxes(filter)).await
    }

    async fn update_pod_sandbox_resources(&self, request: v1::UpdatePodSandboxResourcesRequest) -> Result<()> {
        self.count("update_podsandbox_resources", self.inner.update_pod_sandbox_resources(request)).await
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String> {
        self.count("create_container", self.inner.create_container(sandbox, config, sandbox_config)).await
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        self.count("start_container", self.inner.start_container(id)).await
    }

    async fn stop_container(&self, id: &str, timeout_seconds: i64) -> Result<()> {
        self.count("stop_container", self.inner.stop_container(id, timeout_seconds)).await
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        self.count("remove_container", self.inner.remove_container(id)).await
    }

    async fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Result<Vec<v1::Container>> {
        self.count("list_containers", self.inner.list_containers(filter)).await
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus> {
        self.count("container_status", self.inner.container_status(id)).await
    }

    fn pid(&self, id: &str) -> Option<i32> {
        self.inner.pid(id)
    }

    async fn update_container_resources(&self, id: &str, linux: v1::LinuxContainerResources) -> Result<()> {
        self.count("update_container", self.inner.update_container_resources(id, linux)).await
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        self.count("reopen_container_log", self.inner.reopen_container_log(id)).await
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout_seconds: i64) -> Result<ExecSync> {
        let mut call = self.call("exec_sync", None);
        let answer = self.inner.exec_sync(id, command, timeout_seconds).await;
        // A command that failed counts as an error, as upstream.
        call.succeeded = answer.as_ref().is_ok_and(|done| done.exit_code == 0);
        answer
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<Streaming<Session>> {
        self.count("exec", self.inner.exec(request)).await
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<Streaming<Attached>> {
        self.count("attach", self.inner.attach(request)).await
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Streaming<Forwarded>> {
        self.count("port_forward", self.inner.port_forward(sandbox, port)).await
    }

    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>> {
        self.count("list_container_stats", self.inner.list_container_stats()).await
    }

    async fn list_pod_sandbox_stats(&self) -> Result<Vec<v1::PodSandboxStats>> {
        self.count("list_podsandbox_stats", self.inner.list_pod_sandbox_stats()).await
    }

    async fn events(&self) -> Result<BoxStream<'static, v1::ContainerEventResponse>> {
        self.count("get_container_events", self.inner.events()).await
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>> {
        self.count("list_images", self.inner.list_images()).await
    }

    async fn image_status(&self, image: &str) -> Result<Option<v1::Image>> {
        self.count("image_status", self.inner.image_status(image)).await
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String> {
        self.count("pull_image", self.inner.pull_image(image, auth, sandbox_config)).await
    }

    async fn remove_image(&self, image: &str) -> Result<()> {
        self.count("remove_image", self.inner.remove_image(image)).await
    }

    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse> {
        self.count("image_fs_info", self.inner.image_fs_info()).await
    }

    async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()> {
        self.count("update_runtime_config", self.inner.update_pod_cidr(pod_cidr)).await
    }
}

const OPERATIONS: Metric = Metric::counter(
    "kubelet_runtime_operations_total",
    "[ALPHA] Calls to the container runtime that have ended, by operation type.",
);
const OPERATION_SECONDS: Metric = Metric::histogram(
    "kubelet_runtime_operations_duration_seconds",
    "[ALPHA] How long calls to the container runtime take in seconds, by operation type.",
);
const OPERATION_ERRORS: Metric = Metric::counter(
    "kubelet_runtime_operations_errors_total",
    "[ALPHA] Calls to the container runtime that have failed, by operation type.",
);
const SANDBOX_SECONDS: Metric = Metric::histogram(
    "kubelet_run_podsandbox_duration_seconds",
    "[ALPHA] How long making a sandbox takes in seconds, by handler of the RuntimeClass.",
);
const SANDBOX_ERRORS: Metric = Metric::counter(
    "kubelet_run_podsandbox_errors_total",
    "[ALPHA] Sandboxes that could not be made, by handler of the RuntimeClass.",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::fake_runtime::FakeRuntime;

    #[tokio::test(start_paused = true)]
    async fn calls_and_failures_are_counted_by_operation() {
        let (fake, counters) = (FakeRuntime::new(), Arc::<Counters>::default());
        fake.exec_answers("no", 1, "");
        let runtime = CountedRuntime { inner: Arc::new(fake), counters: counters.clone() };
        runtime.list_images().await.unwrap();
        runtime.list_images().await.unwrap();
        runtime.exec_sync("id", &["no".to_owned()], 1).await.unwrap();
        runtime.run_pod_sandbox(v1::PodSandboxConfig::default(), "kata").await.unwrap();
        // Somebody who waits no longer.
        drop(runtime.call("pull_image", None));
        let mut page = Page::default();
        counters.operations.write(&mut page);
        let text = page.text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("_bucket{")).collect();
        let expected = include_str!("testdata/operations.txt").lines().collect::<Vec<_>>();
        assert_eq!(lines, expected, "{text}");
        let bucket =
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"list_images\",le=\"0.005\"} 2";
        assert!(text.lines().any(|line| line == bucket), "{text}");
        assert_eq!(text.matches("operation_type=\"list_images\",le=").count(), SECONDS.len() + 1, "{text}");
    }
}
