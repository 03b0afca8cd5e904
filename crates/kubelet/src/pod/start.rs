//! Starting what a pod needs: its sandbox, and one container with all that it is made of.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cri::v1;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::Api;
use reconcile::events::EventType;
use tokio_util::sync::CancellationToken;

use super::memory::Waiting;
use super::plan::RETRY_SECONDS;
use super::security::UserRange;
use super::spec::{self, Kind};
use super::{Shared, container, container_logs, env, files, hooks, resize, sandbox, security};
use crate::images::NotThere;
use crate::volumes::{Mounted, Volume};

/// A container to start.
pub struct Task {
    pub shared: Arc<Shared>,
    pub pod: Arc<Pod>,
    pub name: String,
    pub attempt: u32,
    pub sandbox: String,
    pub sandbox_attempt: u32,
    pub pod_ips: Vec<String>,
    pub mounted: Arc<Mounted>,
    pub granted: ResourceRequirements,
    /// The container an ephemeral one looks at, if it runs.
    pub target: Option<String>,
    /// The pod is to end, so that what is not yet made need not be made.
    pub ending: CancellationToken,
    /// How long the pod's images took, in nanoseconds, to which this container's are added.
    pub pulling: Arc<AtomicU64>,
}

/// Why a container does not run.
#[derive(Debug)]
pub struct NotStarted {
    pub waiting: Waiting,
    /// Nothing when the runtime shows it as ended: then the back-off for crashes counts.
    pub retry_at: Option<Timestamp>,
}

pub async fn run(task: Task) -> Result<String, NotStarted> {
    let Some((kind, wished)) = spec::container(&task.pod, &task.name) else {
        return Err(failed("CreateContainerError", "the container is not in the pod any more".to_owned(), None));
    };
    let shared = task.shared.clone();
    let pod = task.pod.clone();
    let field_path = kind.field_path(&task.name);
    let tell = |kind: EventType, reason: &str, message: String| {
        shared.tell(&pod, Some(field_path.clone()), kind, reason, message);
    };
    let result = start(&task, kind, &wished, &tell).await;
    if let Some(error) = result.as_ref().err().filter(|_| !task.ending.is_cancelled()) {
        let image = matches!(
            error.waiting.reason.as_str(),
            "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" | "ImageInspectError"
        );
        let text = if image { error.waiting.reason.clone() } else { error.waiting.message.clone().unwrap_or_default() };
        if error.waiting.reason != "PostStartHookError" {
            tell(EventType::Warning, "Failed", format!("Error: {text}"));
        }
    }
    result
}

type Tell<'a> = &'a (dyn Fn(EventType, &str, String) + Send + Sync);

async fn start(task: &Task, kind: Kind, wished: &Container, tell: Tell<'_>) -> Result<String, NotStarted> {
    let shared = &task.shared;
    let kubelet = &shared.kubelet;
    let retry = Some(kubelet.now() + SignedDuration::from_secs(RETRY_SECONDS));
    let (config, sandbox_config) = tokio::select! {
        prepared = prepare(task, wished, retry, tell) => prepared?,
        () = task.ending.cancelled() => return Err(given_up()),
    };
    let log = std::path::Path::new(&sandbox_config.log_directory).join(&config.log_path);
    let linux = config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    let cpus = linux.map(|linux| linux.cpuset_cpus.clone()).filter(|cpus| !cpus.is_empty());
    let id = kubelet
        .runtime
        .create_container(&task.sandbox, config, sandbox_config)
        .await
        .map_err(|error| failed("CreateContainerError", error.message, retry))?;
    tell(EventType::Normal, "Created", "Container created".to_owned());
    shared.managers.starting(&task.pod, wished);
    if task.ending.is_cancelled() {
        return Err(given_up());
    }
    if let Err(error) = kubelet.runtime.start_container(&id).await {
        return Err(failed("RunContainerError", error.message, None));
    }
    tell(EventType::Normal, "Started", "Container started".to_owned());
    shared.managers.started(&id, cpus);
    container_logs::link(&kubelet.config.log_dir, &spec::log_owner(&task.pod, &task.name, &id), &log);
    tokio::select! {
        done = post_start(task, kind, wished, &id, tell) => done?,
        // The pod's end takes care of the container.
        () = task.ending.cancelled() => {}
    }
    Ok(id)
}

/// Everything that a container is made of; it may take long, and may be given up at any moment.
async fn prepare(
    task: &Task,
    wished: &Container,
    retry: Option<Timestamp>,
    tell: Tell<'_>,
) -> Result<(v1::ContainerConfig, v1::PodSandboxConfig), NotStarted> {
    let shared = &task.shared;
    let kubelet = &shared.kubelet;
    let pod = &*task.pod;
    let unconfigured = |error: &dyn std::fmt::Display| failed("CreateContainerConfigError", error.to_string(), retry);
    let users = user_range(shared, pod).map_err(|error| unconfigured(&error))?;
    let (sandbox_config, _) =
        sandbox::config(&kubelet.config, pod, task.sandbox_attempt, users, shared.cgroups.name(pod))
            .map_err(|error| unconfigured(&error))?;
    let image = wished.image.as_deref().unwrap_or_default();
    let policy = wished.image_pull_policy.as_deref();
    let image = ensure_image(task, image, policy, &sandbox_config, tell).await?;
    pull_volumes(task, &sandbox_config, tell).await?;
    security::verify_non_root(pod, wished, &image).map_err(|error| unconfigured(&error))?;

    let addresses = env::Addresses { pod_ips: task.pod_ips.clone(), host_ips: shared.host_ips() };
    let given = shared.device_plugins.container(pod, wished).await.map_err(|error| unconfigured(&error))?;
    let environment = env::environment(kubelet, pod, wished, &addresses, &task.mounted)
        .await
        .map_err(|error| unconfigured(&error))?;
    for warning in &environment.warnings {
        shared.tell(pod, None, EventType::Warning, warning.reason, warning.message.clone());
    }
    let mut cdi_devices = given.cdi_devices;
    cdi_devices.extend(shared.claims.cdi_of(pod, wished).map_err(|error| unconfigured(&error))?);
    // What the pod says itself comes after what its devices bring, and wins.
    let is_said = |name: &str| environment.variables.iter().any(|(said, _)| said == name);
    let mut variables: Vec<(String, String)> =
        given.environment.into_iter().filter(|(name, _)| !is_said(name)).collect();
    variables.extend(environment.variables);
    let volumes = shared
        .volumes
        .container_mounts(pod, wished, &task.mounted, &variables)
        .await
        .map_err(|error| unconfigured(&error))?;
    let mut mounts = given.mounts;
    mounts.extend(volumes);
    let mut devices = given.devices;
    devices.extend(shared.volumes.container_devices(wished, &task.mounted).map_err(|error| unconfigured(&error))?);
    own_files(task, wished, &mut mounts).map_err(|error| unconfigured(&error))?;

    let config = container::config(container::Parts {
        config: &kubelet.config,
        pod,
        container: wished,
        attempt: task.attempt,
        image: &image,
        environment: variables,
        mounts,
        devices,
        cdi_devices,
        annotations: given.annotations,
        target: task.target.clone(),
        users,
        resources: resources(task, wished),
    });
    Ok((config, sandbox_config))
}

/// What is granted to the container, on processors and memory nodes that are its own or its share.
fn resources(task: &Task, wished: &Container) -> v1::LinuxContainerResources {
    let (shared, uid) = (&task.shared, spec::uid(&task.pod));
    let mut linux = resize::linux(&task.pod, wished, &task.granted, &shared.node);
    linux.cpuset_cpus = shared.managers.cpus_of(uid, &wished.name).unwrap_or_default();
    linux.cpuset_mems = shared.managers.memory_nodes_of(uid, &wished.name).unwrap_or_default();
    if !shared.managers.exclusive_cpus(uid, &wished.name).is_empty() {
        linux.cpu_quota = -1;
    }
    linux
}

/// The reason when nothing failed, and the pod ends.
pub const GIVEN_UP: &str = "ContainerCreating";

/// The pod ends before the container has come to run.
fn given_up() -> NotStarted {
    NotStarted { waiting: Waiting { reason: GIVEN_UP.to_owned(), message: None }, retry_at: None }
}

/// The hook runs beside the container's process; when it fails, the container is ended.
async fn post_start(task: &Task, kind: Kind, wished: &Container, id: &str, tell: Tell<'_>) -> Result<(), NotStarted> {
    let _ = kind;
    let Some(hook) = wished.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) else {
        return Ok(());
    };
    let runtime = &*task.shared.kubelet.runtime;
    let pod_ip = task.pod_ips.first().map(String::as_str).unwrap_or_default();
    let Err(error) = hooks::run(runtime, id, wished, pod_ip, hook).await else { return Ok(()) };
    tell(EventType::Warning, "FailedPostStartHook", "PostStartHook failed".to_owned());
    tell(EventType::Normal, "Killing", "FailedPostStartHook".to_owned());
    if let Err(stop) = runtime.stop_container(id, spec::termination_grace_seconds(&task.pod)).await {
        tracing::warn!(container = task.name, error = %stop, "cannot stop container whose postStart hook failed");
    }
    Err(failed("PostStartHookError", error.to_string(), None))
}

/// Images that are mounted as volumes are there before the container is.
async fn pull_volumes(task: &Task, sandbox: &v1::PodSandboxConfig, tell: Tell<'_>) -> Result<(), NotStarted> {
    for (name, volume) in task.mounted.iter() {
        let Volume::Image { reference } = volume else { continue };
        let volumes = spec::wishes(&task.pod).volumes.iter().flatten();
        let source = volumes.filter(|volume| volume.name == *name).find_map(|volume| volume.image.as_ref());
        let policy = source.and_then(|source| source.pull_policy.as_deref());
        ensure_image(task, reference, policy, sandbox, tell).await?;
    }
    Ok(())
}

/// A pod's containers are started one after the other, so the times add up.
async fn ensure_image(
    task: &Task,
    image: &str,
    policy: Option<&str>,
    sandbox: &v1::PodSandboxConfig,
    tell: Tell<'_>,
) -> Result<v1::Image, NotStarted> {
    let began_at = tokio::time::Instant::now();
    let found = task.shared.images.ensure(&task.pod, image, policy, Some(sandbox.clone()), tell).await;
    let took = u64::try_from(began_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
    task.pulling.fetch_add(took, Ordering::Relaxed);
    found.map_err(not_there)
}

/// /etc/hosts and the termination log, unless the container mounts something of its own there.
fn own_files(task: &Task, wished: &Container, mounts: &mut Vec<v1::Mount>) -> std::io::Result<()> {
    let config = &task.shared.kubelet.config;
    let taken = |mounts: &[v1::Mount], path: &str| mounts.iter().any(|mount| mount.container_path == path);
    if !taken(mounts, "/etc/hosts") && !taken(mounts, "/etc") {
        let name = files::host_name(&task.pod, &config.cluster_domain).map_err(std::io::Error::other)?;
        mounts.push(files::write_hosts(config, &task.pod, &task.pod_ips, &name)?);
    }
    if !taken(mounts, container::message_path(wished)) {
        mounts.push(container::termination_log(&config.root_dir, &task.pod, wished, task.attempt)?);
    }
    if !linux::selinux::is_enabled() {
        mounts.iter_mut().for_each(|mount| mount.selinux_relabel = false);
    }
    Ok(())
}

/// The reason when it is the sandbox itself that could not be made.
pub const NO_SANDBOX: &str = "FailedCreatePodSandBox";

/// Why a pod has no sandbox, as an event.
pub struct NoSandbox {
    pub reason: &'static str,
    pub message: String,
}

/// Makes the pod's sandbox, after what must be there before it.
pub async fn sandbox(shared: &Shared, pod: &Pod, attempt: u32) -> Result<String, NoSandbox> {
    let prepared = shared.claims.prepare(pod).await;
    prepared.map_err(|error| NoSandbox {
        reason: "FailedPrepareDynamicResources",
        message: format!("Failed to prepare dynamic resources: prepare dynamic resources: {error}"),
    })?;
    let made = make_sandbox(shared, pod, attempt).await;
    made.map_err(|error| NoSandbox { reason: NO_SANDBOX, message: format!("Failed to create pod sandbox: {error}") })
}

/// Why a sandbox could not be made; a part of the message of FailedCreatePodSandBox.
#[derive(Debug, thiserror::Error)]
enum SandboxError {
    #[error(transparent)]
    Users(#[from] std::io::Error),
    #[error(transparent)]
    Config(#[from] sandbox::ConfigError),
    #[error("cgroup: {0}")]
    Cgroup(#[from] linux::cgroup::Error),
    #[error("create log folder {}: {source}", .folder.display())]
    Logs { folder: PathBuf, source: std::io::Error },
    #[error("failed to get RuntimeClass \"{0}\": RuntimeClass not found")]
    NoClass(String),
    #[error("failed to get RuntimeClass \"{name}\": {}", crate::objects::in_words(.source))]
    Class { name: String, source: kube::Error },
    /// As a client of gRPC tells it, which users and tools know.
    #[error("rpc error: code = {:?} desc = {}", .0.code, .0.message)]
    Runtime(#[from] cri::Error),
}

async fn make_sandbox(shared: &Shared, pod: &Pod, attempt: u32) -> Result<String, SandboxError> {
    let kubelet = &shared.kubelet;
    let users = user_range(shared, pod)?;
    let (config, warnings) = sandbox::config(&kubelet.config, pod, attempt, users, shared.cgroups.name(pod))?;
    for warning in warnings {
        shared.tell(pod, None, EventType::Warning, warning.reason, warning.message);
    }
    shared.cgroups.create_or_update(pod, shared.cpu_quota(pod))?;
    let folder = PathBuf::from(&config.log_directory);
    std::fs::create_dir_all(&folder).map_err(|source| SandboxError::Logs { folder, source })?;
    let handler = runtime_handler(kubelet, pod).await?;
    Ok(kubelet.runtime.run_pod_sandbox(config, &handler).await?)
}

async fn runtime_handler(kubelet: &crate::Kubelet, pod: &Pod) -> Result<String, SandboxError> {
    let Some(name) = spec::wishes(pod).runtime_class_name.clone().filter(|name| !name.is_empty()) else {
        return Ok(String::new());
    };
    let api: Api<RuntimeClass> = Api::all(kubelet.client.clone());
    match api.get_opt(&name).await {
        Ok(Some(class)) => Ok(class.handler),
        Ok(None) => Err(SandboxError::NoClass(name)),
        Err(source) => Err(SandboxError::Class { name, source }),
    }
}

fn user_range(shared: &Shared, pod: &Pod) -> std::io::Result<Option<UserRange>> {
    match spec::wishes(pod).host_users {
        Some(false) => shared.users.of(spec::uid(pod)).map(Some),
        _ => Ok(None),
    }
}

fn failed(reason: &str, message: String, retry_at: Option<Timestamp>) -> NotStarted {
    NotStarted { waiting: Waiting { reason: reason.to_owned(), message: Some(message) }, retry_at }
}

fn not_there(error: NotThere) -> NotStarted {
    NotStarted { waiting: error.waiting, retry_at: Some(error.retry_at) }
}
