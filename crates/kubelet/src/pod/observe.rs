//! Looking at a pod in the runtime. What cannot change any more is asked once.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
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
/// How much of a log's end is read for that: runtimes cut lines at 16 KiB, and every line carries a time and a stream's name.
const LOG_END_MAX: u64 = 64 * 1024;
/// What a runtime says of a container that never ran and so cannot have written a log.
const CANNOT_RUN: &str = "ContainerCannotRun";

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
        Ok(Observed { sandboxes, containers, before: Vec::new() })
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
    let file = status.mounts.iter().find(|mount| mount.container_path == path && !path.is_empty());
    let text = match file.map(|mount| (&mount.host_path, end_of(Path::new(&mount.host_path), MESSAGE_MAX))) {
        Some((_, Ok((text, _)))) => text,
        Some((path, Err(error))) if error.kind() != ErrorKind::NotFound => {
            return format!("Error on reading termination log {path}: {error}");
        }
        Some((_, Err(_))) | None => String::new(),
    };
    let falls_back = policy == "FallbackToLogsOnError" && status.exit_code != 0 && status.reason != CANNOT_RUN;
    if text.is_empty() && falls_back {
        end_of_log(Path::new(&status.log_path))
            .unwrap_or_else(|error| format!("Error on reading termination message from logs: {error}"))
    } else {
        text
    }
}

/// The last bytes of a file, and whether they are less than all.
fn end_of(file: &Path, bytes_max: u64) -> io::Result<(String, bool)> {
    // A container may have put a pipe or a device there.
    let mut file = linux::file::open_regular(file)?;
    let from = file.seek(SeekFrom::End(0))?.saturating_sub(bytes_max);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    // What is written meanwhile must not make it longer.
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), from > 0))
}

fn end_of_log(file: &Path) -> io::Result<String> {
    let (text, is_cut) = end_of(file, LOG_END_MAX)?;
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    if is_cut && !lines.is_empty() {
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
    Ok(out.split_off(cut))
}

fn time(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanoseconds.max(0))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_without_its_frame() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("0.log");
        std::fs::write(&file, "2026-11-15T08:00:00Z stdout P half \n2026-11-15T08:00:00Z stdout F line\n2026-11-15T08:00:01Z stderr F two\n")
            .unwrap();
        assert_eq!(end_of_log(&file).unwrap(), "half line\ntwo\n");
        // As `echo -n DONE` leaves it.
        std::fs::write(&file, "2026-11-15T08:00:00Z stdout P DONE\n").unwrap();
        assert_eq!(end_of_log(&file).unwrap(), "DONE");
        let long = format!("2026-11-15T08:00:00Z stdout P {}\n", "x".repeat(16 * 1024));
        std::fs::write(&file, long.repeat(5)).unwrap();
        assert_eq!(end_of_log(&file).unwrap().len(), LOG_MESSAGE_MAX as usize);
        assert!(end_of_log(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_file_comes_before_the_log_and_of_a_long_one_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (message, log) = (folder.path().join("message"), folder.path().join("0.log"));
        std::fs::write(&log, "2026-11-15T08:00:00Z stdout P DONE\n").unwrap();
        let status = |exit_code: i32, reason: &str| v1::ContainerStatus {
            exit_code,
            reason: reason.into(),
            log_path: log.to_string_lossy().into_owned(),
            mounts: vec![v1::Mount {
                container_path: "/dev/termination-log".into(),
                host_path: message.to_string_lossy().into_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let said = |exit_code, reason: &str, policy: &str| {
            termination_message(&status(exit_code, reason), "/dev/termination-log", policy)
        };
        assert_eq!(said(1, "Error", "File"), "");
        assert_eq!(said(1, "Error", "FallbackToLogsOnError"), "DONE");
        assert_eq!(said(0, "Completed", "FallbackToLogsOnError"), "");
        assert_eq!(said(128, CANNOT_RUN, "FallbackToLogsOnError"), "");
        std::fs::write(&message, "").unwrap();
        assert_eq!(said(1, "Error", "FallbackToLogsOnError"), "DONE");
        std::fs::write(&message, "OK\n").unwrap();
        assert_eq!(said(1, "Error", "FallbackToLogsOnError"), "OK\n", "upstream leaves line breaks of files, too");
        std::fs::write(&message, "a".repeat(MESSAGE_MAX as usize) + "end").unwrap();
        let long = said(0, "Completed", "File");
        assert_eq!((long.len(), long.ends_with("aend")), (MESSAGE_MAX as usize, true));
        std::fs::remove_file(&message).unwrap();
        std::fs::create_dir(&message).unwrap();
        let text = said(1, "Error", "FallbackToLogsOnError");
        assert!(text.starts_with("Error on reading termination log "), "{text}");
    }
}
