//! After the last container has ended: volumes go, the object goes when it is to be deleted, and then everything else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use component_base::tasks;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};

use super::Worker;
use super::jobs::Done;
use crate::claims::PrepareError;
use crate::pod::container_logs::{self, Owner};
use crate::pod::{Shared, container, spec};
use crate::volumes::VolumeError;

/// How long until a step that failed is tried again, at first, and at most: volumes as upstream, since a driver that is away for
/// long is told nothing new by questions of every second.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);
const UNMOUNT_RETRY_MAX: Duration = Duration::from_secs(122);

/// In this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Devices that the pod has claimed.
    Claims,
    Volumes,
    Object,
    Runtime,
}

impl Step {
    /// How long to wait after having failed this many times before.
    fn wait(self, failures: u32) -> Duration {
        let max = if self == Step::Volumes { UNMOUNT_RETRY_MAX } else { RETRY_MAX };
        (RETRY_FIRST * 2_u32.pow(failures.min(8))).min(max)
    }
}

/// The step that keeps a pod from being taken away.
#[derive(Debug, thiserror::Error)]
pub(super) enum FinishError {
    #[error("unprepare dynamic resources: {0}")]
    Claims(#[from] PrepareError),
    #[error(transparent)]
    Volumes(#[from] VolumeError),
    #[error(transparent)]
    Object(#[from] kube::Error),
    #[error("remove container {id}: {}", .source.message)]
    Container { id: String, source: cri::Error },
    #[error("remove sandbox {id}: {}", .source.message)]
    Sandbox { id: String, source: cri::Error },
    #[error("remove cgroup: {0}")]
    Cgroup(#[from] linux::cgroup::Error),
    #[error("remove {}: {source}", .path.display())]
    Remove { path: PathBuf, source: std::io::Error },
}

#[derive(Default)]
pub(super) struct Finish {
    claims: bool,
    volumes: bool,
    object: bool,
    runtime: bool,
    busy: bool,
    /// How often the step that is next has failed.
    failures: u32,
}

impl Finish {
    pub fn is_done(&self) -> bool {
        self.runtime
    }

    pub fn take(&mut self, step: Step, result: Result<(), FinishError>) {
        self.busy = false;
        if let Err(error) = result {
            self.failures += 1;
            tracing::warn!(?step, %error, "cannot clean up pod; retrying");
            return;
        }
        self.failures = 0;
        match step {
            Step::Claims => self.claims = true,
            Step::Volumes => self.volumes = true,
            Step::Object => self.object = true,
            Step::Runtime => self.runtime = true,
        }
    }
}

impl Worker {
    pub(super) fn finish_up(&mut self) {
        if self.finish.busy || !self.jobs.is_empty() {
            return;
        }
        let uid = spec::uid(&self.wish.pod).to_owned();
        let shared = self.shared.clone();
        let pod = self.wish.pod.clone();
        if !self.finish.claims {
            self.step_of(Step::Claims, async move { Ok(shared.claims.unprepare(&uid).await?) });
        } else if !self.finish.volumes {
            self.step_of(Step::Volumes, async move { Ok(shared.volumes.unmount(&uid).await?) });
        } else if self.wish.gone {
            let containers = self.observed.containers.iter();
            let ids: Vec<Owner> =
                containers.map(|container| spec::log_owner(&pod, &container.name, &container.id)).collect();
            let sandboxes: Vec<String> = self.observed.sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect();
            self.step_of(Step::Runtime, async move { remove_all(&shared, &pod, ids, sandboxes).await });
        } else if pod.metadata.deletion_timestamp.is_some() && !self.finish.object && !spec::is_static(&pod) {
            // The end of every container is in the API before the object goes.
            if *self.written.borrow_and_update() < self.wanted.borrow().number {
                return;
            }
            self.step_of(Step::Object, async move { delete(&shared, &pod).await });
        }
    }

    fn step_of(&mut self, step: Step, work: impl Future<Output = Result<(), FinishError>> + Send + 'static) {
        self.finish.busy = true;
        let wait = step.wait(self.finish.failures);
        self.jobs.spawn(tasks::boxed(async move {
            let result = work.await;
            if result.is_err() {
                tokio::time::sleep(wait).await;
            }
            Done::Finished(step, result)
        }));
    }
}

/// Ends the object's life, if it is still the same pod.
async fn delete(shared: &Shared, pod: &Pod) -> Result<(), FinishError> {
    let api: Api<Pod> = Api::namespaced(shared.kubelet.client.clone(), spec::namespace(pod));
    let same = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let parameters = DeleteParams { grace_period_seconds: Some(0), preconditions: Some(same), ..Default::default() };
    match api.delete(spec::name(pod), &parameters).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Containers, sandboxes, logs, ids and folders of a pod that is gone.
async fn remove_all(
    shared: &Shared,
    pod: &Pod,
    containers: Vec<Owner>,
    sandboxes: Vec<String>,
) -> Result<(), FinishError> {
    let runtime = &shared.kubelet.runtime;
    let log_dir = &shared.kubelet.config.log_dir;
    for container in containers {
        let gone = runtime.remove_container(&container.id).await;
        gone.map_err(|source| FinishError::Container { id: container.id.clone(), source })?;
        let removed = std::fs::remove_file(container_logs::link_path(log_dir, &container));
        if let Err(error) = removed.or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }) {
            tracing::warn!(container = container.id, %error, "cannot remove link to container log");
        }
    }
    for id in sandboxes {
        runtime.remove_pod_sandbox(&id).await.map_err(|source| FinishError::Sandbox { id, source })?;
    }
    let uid = spec::uid(pod);
    // By its name, wherever it stands: of a pod that only the runtime knew, the class is not known.
    shared.cgroups.remove_unknown(|other| other != uid)?;
    let config = &shared.kubelet.config;
    remove(&config.log_dir.join(spec::log_folder(pod)))?;
    shared.users.release(uid);
    remove(&container::message_folder(&config.root_dir, uid))?;
    let hosts = crate::pod::files::hosts_path(config, uid);
    if let Err(source) = std::fs::remove_file(&hosts)
        && source.kind() != std::io::ErrorKind::NotFound
    {
        return Err(FinishError::Remove { path: hosts, source });
    }
    // Only when empty: what volumes still need stays.
    if let Some(folder) = hosts.parent()
        && let Err(error) = std::fs::remove_dir(folder)
    {
        tracing::debug!(%error, folder = %folder.display(), "cannot remove pod folder");
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<(), FinishError> {
    match std::fs::remove_dir_all(folder) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(FinishError::Remove { path: folder.to_path_buf(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_waits_longer_each_time() {
        let waits = |step: Step| [0, 1, 4, 5, 8, 90].map(|failures| step.wait(failures).as_millis());
        assert_eq!(waits(Step::Volumes), [500, 1_000, 8_000, 16_000, 122_000, 122_000]);
        assert_eq!(waits(Step::Claims), [500, 1_000, 8_000, 10_000, 10_000, 10_000]);
        let mut finish = Finish::default();
        finish.take(Step::Volumes, Err(FinishError::Volumes(VolumeError::GivenUp)));
        finish.take(Step::Volumes, Err(FinishError::Volumes(VolumeError::GivenUp)));
        assert_eq!((finish.failures, finish.volumes), (2, false));
        finish.take(Step::Volumes, Ok(()));
        assert_eq!((finish.failures, finish.volumes), (0, true));
    }
}
