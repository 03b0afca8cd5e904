//! Containers: starting, stopping and removing them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri::{Code, v1};
use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::CallError;
use crate::records::{ContainerRecord, Failure};
use crate::runtime::Inner;
use crate::sandbox::Sandbox;
use crate::shim::cgroups::Groups;
use crate::shim::now;
use crate::shim::protocol::{Answer, Call, Event, Exit, Start};

/// After SIGKILL a process may still hang in the kernel.
const KILL_PATIENCE: Duration = Duration::from_secs(30);

/// What starting it will need, in its folder, so that a new start of knarr can do it.
pub(crate) const START: &str = "start.json";

pub(crate) struct Container {
    pub id: String,
    pub sandbox: Arc<Sandbox>,
    pub record: Mutex<ContainerRecord>,
    pub state: watch::Sender<State>,
    /// What start needs, while it has not been started.
    pub start: Mutex<Option<Start>>,
    pub gate: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Created,
    Running { pid: i32, started_at: i64 },
    Exited(Outcome),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub code: i32,
    pub reason: String,
    pub message: String,
    pub started_at: i64,
    pub finished_at: i64,
}

impl From<&Exit> for Outcome {
    fn from(exit: &Exit) -> Outcome {
        let reason = match (exit.oom_killed, exit.code) {
            (true, _) => "OOMKilled",
            (false, 0) => "Completed",
            (false, _) => "Error",
        };
        Outcome {
            code: exit.code,
            reason: reason.to_string(),
            message: String::new(),
            started_at: exit.started_at,
            finished_at: exit.finished_at,
        }
    }
}

impl From<&Failure> for Outcome {
    fn from(failure: &Failure) -> Outcome {
        Outcome {
            code: failure.code,
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            // Upstream shows the beginning of time for what never started.
            started_at: 0,
            finished_at: failure.at,
        }
    }
}

impl Container {
    pub fn new(sandbox: Arc<Sandbox>, record: ContainerRecord, state: State) -> Container {
        Container {
            id: record.id.clone(),
            sandbox,
            record: Mutex::new(record),
            state: watch::Sender::new(state),
            start: Mutex::new(None),
            gate: tokio::sync::Mutex::new(()),
        }
    }

    pub fn is_running(&self) -> bool {
        matches!(*self.state.borrow(), State::Running { .. })
    }

    /// Ends only once: what came first is the truth.
    pub fn ended(&self, outcome: Outcome) -> bool {
        self.state.send_if_modified(|state| {
            if matches!(state, State::Exited(_)) {
                return false;
            }
            *state = State::Exited(outcome);
            true
        })
    }

    pub fn status(&self) -> v1::ContainerStatus {
        let record = self.record.lock().clone();
        let (state, outcome) = match &*self.state.borrow() {
            State::Created => (v1::ContainerState::ContainerCreated, Outcome::default()),
            State::Running { started_at, .. } => {
                (v1::ContainerState::ContainerRunning, Outcome { started_at: *started_at, ..Outcome::default() })
            }
            State::Exited(outcome) => (v1::ContainerState::ContainerExited, outcome.clone()),
        };
        let image = v1::ImageSpec { image: record.image, ..record.config.image.clone().unwrap_or_default() };
        v1::ContainerStatus {
            id: record.id,
            metadata: record.config.metadata,
            state: state as i32,
            created_at: record.created_at,
            started_at: outcome.started_at,
            finished_at: outcome.finished_at,
            exit_code: outcome.code,
            image: Some(image),
            image_ref: record.image_ref,
            image_id: record.image_id,
            reason: outcome.reason,
            message: outcome.message,
            labels: record.config.labels,
            annotations: record.config.annotations,
            mounts: record.config.mounts,
            log_path: record.log_path.map(|path| path.display().to_string()).unwrap_or_default(),
            resources: Some(v1::ContainerResources {
                linux: record.config.linux.and_then(|linux| linux.resources),
                windows: None,
            }),
            user: record.user.map(|user| v1::ContainerUser { linux: Some(user) }),
            stop_signal: crate::create::named_signal(record.stop_signal) as i32,
        }
    }

    pub fn summary(&self) -> v1::Container {
        let status = self.status();
        v1::Container {
            id: status.id,
            pod_sandbox_id: self.sandbox.id.clone(),
            metadata: status.metadata,
            image: status.image,
            image_ref: status.image_ref,
            image_id: status.image_id,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            annotations: status.annotations,
        }
    }
}

pub(crate) async fn start(inner: &Arc<Inner>, container: &Arc<Container>) -> cri::Result<()> {
    let _gate = container.gate.lock().await;
    if container.is_running() {
        return Ok(());
    }
    let Some(request) = container.start.lock().take() else {
        return Err(cri::Error::unknown(format!("container {:?} is not in CONTAINER_CREATED state", container.id)));
    };
    let record = {
        let mut record = container.record.lock();
        record.started = true;
        record.clone()
    };
    let failed = |error: &dyn std::fmt::Display| cri::Error::unknown(format!("failed to start container: {error}"));
    container.sandbox.folder.write_container(&record).map_err(|error| failed(&error))?;
    // In all trees, also those that libcontainer does not use: the container sees each from its own group down.
    let group = inner.cgroups.group(&record.cgroup).map_err(|error| failed(&error))?;
    group.create().map_err(|error| failed(&error))?;
    let shim = container.sandbox.shim()?;
    match shim.client.call(Call::Start(request), &[]).await {
        Ok((Answer::Started { pid, started_at }, _)) => {
            // It may have ended already; that is told by an event that came after this answer.
            container.state.send_if_modified(|state| {
                let new = matches!(state, State::Created);
                if new {
                    *state = State::Running { pid, started_at };
                }
                new
            });
            inner.send_event(&container.sandbox, &container.id, v1::ContainerEventType::ContainerStartedEvent);
            Ok(())
        }
        Ok((other, _)) => Err(failed(&format!("unexpected answer {other:?}"))),
        Err(CallError::Refused(reason)) => {
            let message = format!(
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: \
                 unable to start container process: {reason}: unknown"
            );
            let failure = Failure { code: 128, reason: "StartError".to_string(), message: message.clone(), at: now() };
            container.ended(Outcome::from(&failure));
            let record = {
                let mut record = container.record.lock();
                record.failure = Some(failure);
                record.clone()
            };
            if let Err(error) = container.sandbox.folder.write_container(&record) {
                tracing::warn!(container = container.id, %error, "cannot write container record");
            }
            let _ = group.remove();
            inner.send_event(&container.sandbox, &container.id, v1::ContainerEventType::ContainerStoppedEvent);
            Err(cri::Error::unknown(message))
        }
        Err(error) => Err(cri::Error::new(error.code(), format!("failed to start container: {error}"))),
    }
}

pub(crate) async fn stop(inner: &Arc<Inner>, container: &Arc<Container>, timeout_seconds: i64) -> cri::Result<()> {
    if !container.is_running() {
        return Ok(());
    }
    let Ok(shim) = container.sandbox.shim() else { return Ok(()) };
    let signal = |signal: i32, all: bool| {
        let call = Call::Signal { container: container.id.clone(), signal, all };
        let client = shim.client.clone();
        async move { client.call(call, &[]).await }
    };
    let mut state = container.state.subscribe();
    let ended = |state: &State| matches!(state, State::Exited(_));
    if timeout_seconds > 0 {
        let stop_signal = container.record.lock().stop_signal;
        let grace = Duration::from_secs(timeout_seconds.unsigned_abs());
        let asked = async {
            // If it cannot be signalled it is gone, and its end will be told.
            let _ = signal(stop_signal, false).await;
            state.wait_for(ended).await.is_ok()
        };
        if tokio::time::timeout(grace, asked).await == Ok(true) {
            return Ok(());
        }
    }
    if let Err(CallError::Silent(_)) = signal(Signal::SIGKILL as i32, true).await {
        // Its end is then told like that of any pod whose shim has died.
        crate::sandbox::end_silent(inner, &container.sandbox, &shim).await;
    }
    match tokio::time::timeout(KILL_PATIENCE, state.wait_for(ended)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(cri::Error::new(
            Code::DeadlineExceeded,
            format!("failed to kill container {:?}: it does not end", container.id),
        )),
    }
}

pub(crate) async fn remove(inner: &Arc<Inner>, container: &Arc<Container>) -> cri::Result<()> {
    stop(inner, container, 0).await?;
    let _gate = container.gate.lock().await;
    let failed =
        |error: io::Error| cri::Error::unknown(format!("failed to remove container {:?}: {error}", container.id));
    let record = container.record.lock().clone();
    if let Ok(shim) = container.sandbox.shim() {
        // A shim that is gone has forgotten.
        let _ = shim.client.call(Call::Forget { container: container.id.clone() }, &[]).await;
    }
    end_group(record.cgroup).await;
    match std::fs::remove_dir_all(container.sandbox.state_folder.join(&container.id)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    for snapshot in &record.snapshots {
        inner.images.release(snapshot).await?;
    }
    container.sandbox.folder.remove_container(&container.id).map_err(failed)?;
    if inner.table.lock().containers.remove(&container.id).is_some() {
        inner.send_event(&container.sandbox, &container.id, v1::ContainerEventType::ContainerDeletedEvent);
    }
    Ok(())
}

/// Ends whatever is left in a group and takes it away.
pub(crate) async fn end_group(cgroup: PathBuf) {
    let ended = tokio::task::spawn_blocking(move || -> io::Result<()> {
        let groups = Groups::named(&cgroup)?;
        if groups.is_empty() {
            return Ok(());
        }
        for _ in 0..100 {
            groups.kill_all();
            if groups.remove() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    });
    if let Ok(Err(error)) = ended.await {
        tracing::warn!(%error, "cannot remove cgroup");
    }
}

/// The connection to a shim has ended. If the shim still lives, it is connected again. Else nobody can wait for the
/// containers of its pod any more: they are ended, and reported so.
pub(crate) fn shim_died(inner: Arc<Inner>, sandbox: Arc<Sandbox>) -> BoxFuture<'static, ()> {
    // Named, because connecting again may end here again.
    Box::pin(async move { connect_again(&inner, &sandbox).await })
}

async fn connect_again(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) {
    if let Ok(live) = crate::sandbox::adopt(inner, sandbox, None).await {
        for (container, exit) in live.iter().filter_map(|live| Some((&live.container, live.exit.as_ref()?))) {
            // What ended meanwhile was told to nobody.
            inner.handle_shim_event(sandbox, Event::Exited { container: container.clone(), exit: exit.clone() });
        }
        return;
    }
    tracing::warn!(sandbox = sandbox.id, "shim exited unexpectedly; marking containers of the sandbox as exited");
    *sandbox.shim.lock() = None;
    for container in inner.containers_of(&sandbox.id) {
        mark_exited(inner, &container, 137).await;
    }
    inner.send_event(sandbox, &sandbox.id, v1::ContainerEventType::ContainerStoppedEvent);
}

/// A container that ran and whose end nobody saw, unless it was written down.
pub(crate) async fn mark_exited(inner: &Arc<Inner>, container: &Arc<Container>, code: i32) {
    let (cgroup, started) = {
        let record = container.record.lock();
        (record.cgroup.clone(), record.started)
    };
    if !started || matches!(*container.state.borrow(), State::Exited(_)) {
        return;
    }
    end_group(cgroup).await;
    let started_at = match *container.state.borrow() {
        State::Running { started_at, .. } => started_at,
        _ => container.record.lock().created_at,
    };
    let outcome = match container.sandbox.folder.exit(&container.id) {
        Some(exit) => Outcome::from(&exit),
        None => Outcome {
            code,
            reason: "Unknown".to_string(),
            message: "the process that watched the container has ended".to_string(),
            started_at,
            finished_at: now(),
        },
    };
    if container.ended(outcome) {
        inner.send_event(&container.sandbox, &container.id, v1::ContainerEventType::ContainerStoppedEvent);
    }
}
