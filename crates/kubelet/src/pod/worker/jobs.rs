//! The slow work of a pod's worker, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use component_base::tasks;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ResourceRequirements;
use reconcile::events::EventType;

use super::Worker;
use crate::pod::memory::ResizeState;
use crate::pod::observed::State;
use crate::pod::plan::{self, Because, Kill, Progress, RETRY_SECONDS};
use crate::pod::spec::{self, Kind};
use crate::pod::start::NotStarted;
use crate::pod::{container_logs, kill, resize, start};
use crate::volumes::{Mounted, VolumeError};

const MOUNT_RETRY_MAX: SignedDuration = SignedDuration::from_secs(122);

/// What a job ended with.
pub(super) enum Done {
    Sandbox(Result<String, start::NoSandbox>),
    SandboxStopped(cri::Result<()>),
    Started {
        name: String,
        hash: String,
        result: Result<String, NotStarted>,
    },
    Killed {
        id: String,
        result: cri::Result<()>,
    },
    Mounted(Result<Mounted, VolumeError>),
    Resized {
        id: String,
        granted: ResourceRequirements,
        /// Of the pod as a whole.
        of_pod: ResourceRequirements,
        result: cri::Result<()>,
    },
    Removed(cri::Result<()>),
    /// A step of taking the pod away.
    Finished(super::finish::Step, Result<(), super::finish::FinishError>),
}

impl Worker {
    pub(super) fn begin_sandbox(&mut self, attempt: u32) {
        if attempt > 0 {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            self.shared.tell(&self.wish.pod, None, EventType::Normal, "SandboxChanged", message.to_owned());
        }
        self.shared.counters.pods.sandbox_begun();
        self.memory.sandbox_busy = true;
        let (shared, pod) = (self.shared.clone(), self.wish.pod.clone());
        self.jobs.spawn(tasks::boxed(async move { Done::Sandbox(start::sandbox(&shared, &pod, attempt).await) }));
    }

    pub(super) fn begin_sandbox_stop(&mut self, id: String) {
        if std::mem::replace(&mut self.memory.sandbox_busy, true) {
            return;
        }
        let runtime = self.shared.kubelet.runtime.clone();
        self.jobs.spawn(tasks::boxed(async move { Done::SandboxStopped(runtime.stop_pod_sandbox(&id).await) }));
    }

    pub(super) fn begin_start(&mut self, name: String, kind: Kind, attempt: u32, now: Timestamp) {
        let pod = self.wish.pod.clone();
        let sandbox = self.observed.current_sandbox(spec::host_network(&pod)).cloned();
        let (Some(sandbox), Some((_, wished))) = (sandbox, spec::container(&pod, &name)) else { return };
        let last = self.observed.latest(&name).filter(|last| last.state == State::Exited);
        if let Some(last) = last.filter(|_| kind != Kind::Ephemeral) {
            self.memory.backoffs.next(&plan::backoff_key(&wished), last.finished_at, now);
        }
        // A container that the API knows and the runtime has forgotten goes on being counted.
        let shown = self.status.container_statuses.iter().chain(&self.status.init_container_statuses).flatten();
        let mut shown = shown.filter(|shown| shown.name == name && shown.container_id.is_some());
        let attempt = match shown.next() {
            Some(shown) if self.observed.latest(&name).is_none() => shown.restart_count.max(0) as u32 + 1,
            _ => attempt,
        };
        self.memory.starting = Some(name.clone());
        let target = spec::target_of(&pod, &name).and_then(|target| self.observed.latest(target));
        let target = target.filter(|target| target.state == State::Running).map(|target| target.id.clone());
        let task = start::Task {
            shared: self.shared.clone(),
            pod_ips: self.pod_ips(),
            granted: resize::granted(&self.memory, &wished),
            mounted: self.mounted.clone(),
            sandbox: sandbox.id,
            sandbox_attempt: sandbox.attempt,
            name: name.clone(),
            attempt,
            pod,
            target,
            ending: self.ending.clone(),
            pulling: self.timing.pulling(),
        };
        self.shared.counters.pods.container_begun(kind);
        let hash = spec::hash(&wished);
        self.jobs.spawn(tasks::boxed(async move { Done::Started { name, hash, result: start::run(task).await } }));
    }

    pub(super) fn begin_kill(&mut self, kill: Kill) {
        self.memory.killing.insert(kill.id.clone());
        if kill.because == Because::Changed && self.progress == Progress::Active {
            self.memory.replacing.insert(kill.name.clone(), None);
        }
        let id = kill.id.clone();
        let task = kill::Task {
            shared: self.shared.clone(),
            pod: self.wish.pod.clone(),
            pod_ip: self.pod_ips().into_iter().next().unwrap_or_default(),
            running: self.running.subscribe(),
            pod_ends_at: self.ends_at.subscribe(),
            told: !self.told_kills.insert(kill.id.clone()),
            kill,
        };
        self.jobs.spawn(tasks::boxed(async move { Done::Killed { id, result: kill::run(task).await } }));
    }

    pub(super) fn begin_resize(&mut self, id: String, name: String) {
        let pod = self.wish.pod.clone();
        let Some((_, wished)) = spec::container(&pod, &name) else { return };
        let granted = resize::granted(&self.memory, &wished);
        let linux = resize::linux(&pod, &wished, &granted, &self.shared.node);
        // Counted as told at once, so that it is not begun twice; taken back if it fails.
        let before = self.memory.actuated.insert(id.clone(), granted.clone()).unwrap_or_default();
        let of_pod = self.memory.pod_allocated.clone();
        let pod_before = self.memory.pod_actuated.insert(id.clone(), of_pod.clone()).unwrap_or_default();
        let shrinks = resize::Shrinks {
            container: resize::shrinks_memory(&before, &granted),
            pod: resize::shrinks_memory(&pod_before, &of_pod),
        };
        let shared = self.shared.clone();
        self.jobs.spawn(tasks::boxed(async move {
            let result = resize::apply(&shared, &pod, &name, &id, linux, shrinks).await;
            let (granted, of_pod) = if result.is_ok() { (granted, of_pod) } else { (before, pod_before) };
            Done::Resized { id, granted, of_pod, result }
        }));
    }

    /// Its log goes with it.
    pub(super) fn begin_removal(&mut self, id: String) {
        let runtime = self.shared.kubelet.runtime.clone();
        let seen = self.observed.containers.iter().find(|container| container.id == id);
        let log = seen.map(|seen| (spec::log_owner(&self.wish.pod, &seen.name, &id), seen.log_path.clone()));
        let log_dir = self.shared.kubelet.config.log_dir.clone();
        self.jobs.spawn(tasks::boxed(async move {
            let removed = runtime.remove_container(&id).await;
            if let (Ok(()), Some((owner, path))) = (&removed, log)
                && let Err(error) = container_logs::remove(&log_dir, &owner, path.as_ref())
            {
                tracing::warn!(container = id, %error, "cannot remove log of removed container");
            }
            Done::Removed(removed)
        }));
    }

    pub(super) fn begin_sandbox_removal(&mut self, id: String) {
        let runtime = self.shared.kubelet.runtime.clone();
        self.jobs.spawn(tasks::boxed(async move { Done::Removed(runtime.remove_pod_sandbox(&id).await) }));
    }

    /// Mounts what is missing, and brings contents up to date when they may have changed.
    pub(super) fn see_to_volumes(&mut self, now: Timestamp, wake_at: &mut Option<Timestamp>) {
        if self.progress != Progress::Active || self.mounting {
            return;
        }
        let mut wake = |at: Timestamp| *wake_at = Some(wake_at.map_or(at, |earlier| earlier.min(at)));
        if let Some(at) = self.memory.volumes_retry_at.filter(|at| *at > now) {
            wake(at);
            return;
        }
        let refresh = self.shared.volumes.next_refresh(&self.wish.pod, self.mounted_at);
        let due = refresh.is_some_and(|at| at <= now);
        let failed = self.memory.volumes_retry_at.is_some();
        if self.memory.volumes_ready && !self.mount_again && !due && !failed {
            if let Some(at) = refresh {
                wake(at);
            }
            return;
        }
        self.mount_again = false;
        self.mounting = true;
        let (volumes, pod, ending) = (self.shared.volumes.clone(), self.wish.pod.clone(), self.ending.clone());
        self.jobs.spawn(tasks::boxed(async move { Done::Mounted(volumes.mount(&pod, &ending).await) }));
    }

    pub(super) fn take_done(&mut self, done: Done) {
        let retry_at = self.shared.kubelet.now() + SignedDuration::from_secs(RETRY_SECONDS);
        match done {
            Done::Sandbox(result) => self.take_sandbox(result, retry_at),
            Done::SandboxStopped(result) => {
                self.memory.sandbox_busy = false;
                if let Err(error) = result {
                    let message = format!("error killing pod: {error}");
                    self.shared.tell(&self.wish.pod, None, EventType::Warning, "FailedKillPod", message);
                    self.pause();
                }
            }
            Done::Started { name, hash, result } => {
                self.memory.starting = None;
                self.memory.replacing.remove(&name);
                self.memory.hashes.insert(name.clone(), hash);
                self.memory.retry_at.remove(&name);
                match result {
                    Ok(_) => drop(self.memory.waiting.remove(&name)),
                    Err(error) => {
                        self.note_not_started(&name, &error.waiting.reason);
                        self.memory.waiting.insert(name.clone(), error.waiting);
                        if let Some(at) = error.retry_at {
                            self.memory.retry_at.insert(name, at);
                        }
                    }
                }
            }
            Done::Killed { id, result } => {
                if let Err(error) = result {
                    tracing::warn!(container = id, %error, "cannot stop container; retrying");
                    self.pause();
                }
                self.memory.killing.remove(&id);
            }
            Done::Mounted(Ok(mounted)) => {
                self.mounting = false;
                self.mounted = Arc::new(mounted);
                self.mounted_at = self.shared.kubelet.now();
                self.memory.volumes_ready = true;
                self.memory.volumes_retry_at = None;
                self.mount_failures = 0;
            }
            Done::Mounted(Err(error)) => {
                self.mounting = false;
                let wait = SignedDuration::from_millis(500) * 2_i32.pow(self.mount_failures.min(8));
                self.mount_failures += 1;
                self.memory.volumes_retry_at = Some(self.shared.kubelet.now() + wait.min(MOUNT_RETRY_MAX));
                if !matches!(error, VolumeError::GivenUp) {
                    self.shared.tell(&self.wish.pod, None, EventType::Warning, error.reason(), error.to_string());
                }
            }
            Done::Resized { id, granted, of_pod, result } => {
                self.memory.pod_actuated.insert(id.clone(), of_pod);
                self.memory.actuated.insert(id, granted);
                if let Err(error) = result {
                    let state = ResizeState::InProgress { error: Some(error.message) };
                    self.memory.resize = Some(state);
                    self.pause();
                }
            }
            Done::Removed(Ok(())) => {}
            Done::Removed(Err(error)) => tracing::debug!(%error, "cannot remove exited container; retrying"),
            Done::Finished(step, result) => {
                // A pod that stays for this would give no reason. Upstream only logs it.
                if let Err(super::finish::FinishError::Volumes(error)) = &result {
                    self.shared.tell(&self.wish.pod, None, EventType::Warning, "FailedUnmount", error.to_string());
                }
                self.finish.take(step, result);
            }
        }
    }

    fn take_sandbox(&mut self, result: Result<String, start::NoSandbox>, retry_at: Timestamp) {
        self.memory.sandbox_busy = false;
        self.memory.sandbox_retry_at = None;
        let Err(start::NoSandbox { reason, message }) = result else { return };
        self.memory.sandbox_retry_at = Some(retry_at);
        // One that is not needed any more is no failure.
        if self.progress == Progress::Active && reason == start::NO_SANDBOX {
            self.shared.counters.pods.sandbox_failed();
        }
        self.shared.tell(&self.wish.pod, None, EventType::Warning, reason, message);
    }

    /// A job that panicked leaves its mark in memory; everything is looked at anew.
    pub(super) fn take_panic(&mut self, error: tokio::task::JoinError) {
        tracing::error!(pod = spec::full_name(&self.wish.pod), %error, "pod worker job panicked");
        if self.jobs.is_empty() {
            self.memory.starting = None;
            self.memory.sandbox_busy = false;
            self.memory.killing.clear();
            self.mounting = false;
            self.pause();
        }
    }

    /// What failed without a waiting time of its own is tried again after a moment.
    fn pause(&mut self) {
        let bell = self.bell.clone();
        tasks::spawn(async move {
            tokio::time::sleep(super::RUNTIME_RETRY).await;
            bell.look.store(true, Ordering::Release);
            bell.ring.notify_one();
        });
    }
}
