//! The container a pod asks the runtime for.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::security::{self, UserRange};
use super::{env, labels, spec};
use crate::Config;

/// Everything that was found out for the container before it is made.
pub struct Parts<'a> {
    pub config: &'a Config,
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub attempt: u32,
    pub image: &'a v1::Image,
    pub environment: Vec<(String, String)>,
    /// Volumes, hosts file and termination log.
    pub mounts: Vec<v1::Mount>,
    /// Of plugins and claims, and volumes that are raw devices.
    pub devices: Vec<v1::Device>,
    pub cdi_devices: Vec<String>,
    /// What device plugins want runtimes to know.
    pub annotations: std::collections::BTreeMap<String, String>,
    /// The container whose processes an ephemeral one sees.
    pub target: Option<String>,
    pub users: Option<UserRange>,
    pub resources: v1::LinuxContainerResources,
}

pub fn config(parts: Parts) -> v1::ContainerConfig {
    let Parts { config, pod, container, attempt, image, environment, .. } = parts;
    let words = |list: &Option<Vec<String>>| env::expand_all(list.as_deref().unwrap_or_default(), &environment);
    let command = words(&container.command);
    let args = words(&container.args);
    let security = security::container_context(
        pod,
        container,
        image,
        parts.target.as_deref(),
        parts.users,
        &config.root_dir.join("seccomp"),
    );
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt }),
        image: Some(v1::ImageSpec {
            image: image.id.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: environment.into_iter().map(|(key, value)| v1::KeyValue { key, value }).collect(),
        mounts: parts.mounts,
        devices: parts.devices,
        cdi_devices: parts.cdi_devices.into_iter().map(|name| v1::CdiDevice { name }).collect(),
        labels: marks(pod, container),
        annotations: parts.annotations.into_iter().chain(notes(pod, container, attempt)).collect(),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(v1::LinuxContainerConfig { resources: Some(parts.resources), security_context: Some(security) }),
        stop_signal: stop_signal(container) as i32,
        ..Default::default()
    }
}

fn marks(pod: &Pod, container: &Container) -> HashMap<String, String> {
    [
        (labels::POD_NAME, spec::name(pod)),
        (labels::POD_NAMESPACE, spec::namespace(pod)),
        (labels::POD_UID, spec::uid(pod)),
        (labels::CONTAINER_NAME, container.name.as_str()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

fn notes(pod: &Pod, container: &Container, attempt: u32) -> HashMap<String, String> {
    let mut notes: HashMap<String, String> = HashMap::new();
    let mut note = |key: &str, value: String| drop(notes.insert(key.to_owned(), value));
    note(labels::CONTAINER_HASH, spec::hash(container));
    note(labels::RESTART_COUNT, attempt.to_string());
    note(labels::TERMINATION_MESSAGE_PATH, message_path(container).to_owned());
    let policy = container.termination_message_policy.as_deref().unwrap_or("File");
    note(labels::TERMINATION_MESSAGE_POLICY, policy.to_owned());
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        note(labels::POD_DELETION_GRACE_PERIOD, seconds.to_string());
    }
    note(labels::POD_TERMINATION_GRACE_PERIOD, spec::termination_grace_seconds(pod).to_string());
    let lifecycle = container.lifecycle.as_ref();
    if let Some(hook) = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
        note(labels::PRE_STOP_HANDLER, serde_json::to_string(hook).unwrap_or_default());
    }
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty()) {
        note(labels::CONTAINER_PORTS, serde_json::to_string(ports).unwrap_or_default());
    }
    notes
}

/// The signal that stops the container instead of the image's.
fn stop_signal(container: &Container) -> v1::Signal {
    let name = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    // The interface writes `SIGRTMIN+3` and `SIGRTMAX-3` as words.
    let word = name.map(|name| name.replace('+', "PLUS").replace('-', "MINUS"));
    word.and_then(|word| v1::Signal::from_str_name(&word)).unwrap_or(v1::Signal::RuntimeDefault)
}

pub(crate) fn message_path(container: &Container) -> &str {
    container.termination_message_path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/dev/termination-log")
}

/// An empty file of its own for each try, which the container finds at its termination message path.
pub(crate) fn termination_log(
    root: &Path,
    pod: &Pod,
    container: &Container,
    attempt: u32,
) -> std::io::Result<v1::Mount> {
    let folder = message_folder(root, spec::uid(pod)).join(&container.name);
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{attempt:08x}"));
    // Any user may be the container's.
    linux::file::write(&file, "", 0o666)?;
    Ok(v1::Mount {
        container_path: message_path(container).to_owned(),
        host_path: file.to_string_lossy().into_owned(),
        selinux_relabel: true,
        ..Default::default()
    })
}

pub(crate) fn message_folder(root: &Path, uid: &str) -> PathBuf {
    root.join("pods").join(uid).join("containers")
}
