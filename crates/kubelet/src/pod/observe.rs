//! Looking at a pod in the runtime. What cannot change any more is asked once.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use cri::{Runtime, v1};
use jiff::Timestamp;

use super::labels;
use super::observed::{Container, Observed, Sandbox, State};

/// The longest termination message, and the most that is taken from a log instead.
const MESSAGE_MAX: u64 = 4096;
const LOG_MESSAGE_MAX: u64 = 2048;
const LOG_LINES_MAX: usize = 80;

/// Looks at one pod; remembers ended containers.
pub struct Observer {
    runtime: Arc<dyn Runtime>,
    uid: String,
    ended: HashMap<String, Container>,
    addresses: HashMap<String, Vec<String>>,
}

impl Observer {
    pub fn new(runtime: Arc<dyn Runtime>, uid: &str) -> Observer {
        Observer { runtime, uid: uid.to_owned(), ended: HashMap::new(), addresses: HashMap::new() }
    }

    pub async fn look(&mut self) -> cri::Result<Observed> {
        let selector: HashMap<String, String> = [(labels::POD_UID.to_owned(), self.uid.clone())].into();
        let filter = v1::PodSandboxFilter { label_selector: selector.clone(), ..Default::default() };
        let mut sandboxes = Vec::new();
        for listed in self.runtime.list_pod_sandboxes(Some(filter)).await? {
            sandboxes.extend(self.sandbox(listed).await?);
        }
        sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.attempt)));
        let filter = v1::ContainerFilter { label_selector: selector, ..Default::default() };
        let listed = self.runtime.list_containers(Some(filter)).await?;
        self.ended.retain(|id, _| listed.iter().any(|listed| listed.id == *id));
        let mut containers = Vec::new();
        for listed in listed {
            containers.extend(self.container(listed).await?);
        }
        containers.sort_by_key(|container| std::cmp::Reverse((container.created_at, container.attempt)));
        Ok(Observed { sandboxes, containers })
    }

    async fn sandbox(&mut self, listed: v1::PodSandbox) -> cri::Result<Option<Sandbox>> {
        let ready = listed.state == v1::PodSandboxState::SandboxReady as i32;
        let mut ips = self.addresses.get(&listed.id).cloned().unwrap_or_default();
        if ready && ips.is_empty() {
            let status = match self.runtime.pod_sandbox_status(&listed.id).await {
                Ok(status) => status,
                Err(error) if error.code == cri::Code::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            if let Some(network) = status.network.filter(|network| !network.ip.is_empty()) {
                ips = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|ip| ip.ip)).collect();
                self.addresses.insert(listed.id.clone(), ips.clone());
            }
        }
        Ok(Some(Sandbox {
            id: listed.id,
            attempt: listed.metadata.map_or(0, |metadata| metadata.attempt),
            ready,
            ips,
            created_at: time(listed.created_at),
        }))
    }

    async fn container(&mut self, listed: v1::Container) -> cri::Result<Option<Container>> {
        if let Some(known) = self.ended.get(&listed.id) {
            return Ok(Some(known.clone()));
        }
        let status = match self.runtime.container_status(&listed.id).await {
            Ok(status) => status,
            Err(error) if error.code == cri::Code::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let container = read(&listed.pod_sandbox_id, status);
        if container.state == State::Exited {
            self.ended.insert(container.id.clone(), container.clone());
        }
        Ok(Some(container))
    }
}

fn read(sandbox: &str, status: v1::ContainerStatus) -> Container {
    let note = |key: &str| status.annotations.get(key).cloned().unwrap_or_default();
    let metadata = status.metadata.clone().unwrap_or_default();
    let state = match v1::ContainerState::try_from(status.state) {
        Ok(v1::ContainerState::ContainerCreated) => State::Created,
        Ok(v1::ContainerState::ContainerRunning) => State::Running,
        Ok(v1::ContainerState::ContainerExited) => State::Exited,
        Ok(v1::ContainerState::ContainerUnknown) | Err(_) => State::Unknown,
    };
    let mut message = status.message.clone();
    if state == State::Exited {
        let left = termination_message(
            &status,
            &note(labels::TERMINATION_MESSAGE_PATH),
            &note(labels::TERMINATION_MESSAGE_POLICY),
        );
        if !left.is_empty() {
            message = if message.is_empty() { left } else { format!("{message}: {left}") };
        }
    }
    let image = status.image.clone().unwrap_or_default();
    let shown = if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image };
    Container {
        name: status.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or(metadata.name),
        sandbox: sandbox.to_owned(),
        attempt: note(labels::RESTART_COUNT).parse().unwrap_or(metadata.attempt),
        state,
        created_at: time(status.created_at),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
        exit_code: status.exit_code,
        reason: status.reason,
        message,
        image: shown,
        // What the API calls the id is the runtime's reference: with the digest of the manifest where it was pulled.
        image_id: if status.image_ref.is_empty() { status.image_id } else { status.image_ref },
        hash: status.annotations.get(labels::CONTAINER_HASH).cloned().unwrap_or_default(),
        log_path: status.log_path,
        resources: status.resources.and_then(|resources| resources.linux),
        user: status.user.and_then(|user| user.linux),
        id: status.id,
    }
}

/// What the container left in its file, or the end of its log where the pod wishes that for failures.
fn termination_message(status: &v1::ContainerStatus, path: &str, policy: &str) -> String {
    let file = status.mounts.iter().find(|mount| mount.container_path == path);
    let text = file.map(|mount| start_of(Path::new(&mount.host_path))).unwrap_or_default();
    if text.is_empty() && policy == "FallbackToLogsOnError" && status.exit_code != 0 {
        return end_of_log(Path::new(&status.log_path));
    }
    text
}

fn start_of(file: &Path) -> String {
    // A container may have put a pipe or a device there.
    let Ok(file) = linux::file::open_regular(file) else { return String::new() };
    let mut bytes = Vec::new();
    // A file that cannot be read leaves no message, as one that was never written.
    if file.take(MESSAGE_MAX).read_to_end(&mut bytes).is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn end_of_log(file: &Path) -> String {
    let Ok(mut file) = linux::file::open_regular(file) else { return String::new() };
    let Ok(length) = file.seek(SeekFrom::End(0)) else { return String::new() };
    // Every line carries a time and a stream's name, so more is read than is kept.
    let from = length.saturating_sub(LOG_MESSAGE_MAX * 8);
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(from)).is_err() || file.read_to_end(&mut bytes).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    if from > 0 && !lines.is_empty() {
        lines.remove(0);
    }
    let skip = lines.len().saturating_sub(LOG_LINES_MAX);
    let mut out = String::new();
    for line in &lines[skip..] {
        // `<time> <stream> <F or P> <content>`; a partial line goes on in the next.
        let mut parts = line.splitn(4, ' ');
        let (_, _, tag, content) = (parts.next(), parts.next(), parts.next(), parts.next().unwrap_or_default());
        out.push_str(if tag == Some("P") { content.trim_end_matches('\n') } else { content });
    }
    let mut cut = out.len().saturating_sub(LOG_MESSAGE_MAX as usize);
    while !out.is_char_boundary(cut) {
        cut += 1;
    }
    out.split_off(cut)
}

fn time(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanoseconds.max(0))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_without_its_frame() {
        let file = std::env::temp_dir().join(format!("knarr-observe-{}.log", std::process::id()));
        std::fs::write(&file, "2026-11-15T08:00:00Z stdout P half \n2026-11-15T08:00:00Z stdout F line\n2026-11-15T08:00:01Z stderr F two\n")
            .expect("written");
        assert_eq!(end_of_log(&file), "half line\ntwo\n");
        std::fs::remove_file(&file).expect("removed");
    }
}
