//! Cleans up after deleted pods: containers, volumes and ResourceClaims.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use cri::v1;
use k8s_openapi::api::core::v1::Pod;

use super::super::worker::{self, Wish};
use super::super::{Shared, labels, spec};
use super::Workers;

/// Volumes of pods that are gone are tried again after this, and ever more rarely.
const ORPHANS_RETRY: Duration = Duration::from_secs(1);
const ORPHANS_RETRY_MAX: Duration = Duration::from_secs(120);

impl Workers {
    /// Ends and removes what the runtime has of pods that exist no more. Only once the API has said which pods exist.
    pub(super) async fn end_orphans(&mut self) {
        super::super::container_logs::remove_dead_links(&self.shared.kubelet.config.log_dir);
        let sandboxes = match self.shared.kubelet.runtime.list_pod_sandboxes(None).await {
            Ok(sandboxes) => sandboxes,
            Err(error) => {
                tracing::warn!(%error, "cannot list sandboxes left by earlier pods");
                return;
            }
        };
        let containers = self.shared.kubelet.runtime.list_containers(None).await.unwrap_or_default();
        for sandbox in &sandboxes {
            let Some(uid) = sandbox.labels.get(labels::POD_UID) else { continue };
            if self.is_here(uid) {
                continue;
            }
            let pod = Arc::new(orphan(sandbox, &containers));
            tracing::info!(pod = spec::full_name(&pod), "removing sandbox of deleted pod");
            let (shared, over) = (self.shared.clone(), self.over.clone());
            let wish = Wish { pod, mirror: None, gone: true };
            let worker = worker::start(shared, wish, None, over, tokio::time::Instant::now());
            self.by_uid.insert(uid.clone(), worker);
        }
        let left: Vec<String> = self.shared.volumes.uids().into_iter().filter(|uid| !self.is_here(uid)).collect();
        let claimed: Vec<String> = self.shared.claims.uids().into_iter().filter(|uid| !self.is_here(uid)).collect();
        let left = Orphans { volumes: left, claims: claimed };
        if !left.is_empty() {
            // A task of its own: drivers may take their time, or come only later.
            tasks::spawn(take_down_orphans(self.shared.clone(), left));
        }
    }
}

/// Uids of pods that are gone, of which something is left.
struct Orphans {
    volumes: Vec<String>,
    claims: Vec<String>,
}

impl Orphans {
    fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.claims.is_empty()
    }
}

/// Volumes and claimed devices of pods that are gone, until none is left.
async fn take_down_orphans(shared: Arc<Shared>, mut orphans: Orphans) {
    let mut wait = ORPHANS_RETRY;
    loop {
        let mut left = Orphans { volumes: Vec::new(), claims: Vec::new() };
        for uid in orphans.claims {
            if let Err(error) = shared.claims.unprepare(&uid).await {
                tracing::warn!(pod_uid = uid, %error, "cannot unprepare ResourceClaims of deleted pod; retrying");
                left.claims.push(uid);
            }
        }
        for uid in orphans.volumes {
            if let Err(error) = shared.volumes.unmount(&uid).await {
                tracing::warn!(pod_uid = uid, %error, "cannot unmount volumes of deleted pod; retrying");
                left.volumes.push(uid);
            }
        }
        orphans = left;
        if orphans.is_empty() {
            return;
        }
        tokio::select! {
            () = shared.kubelet.shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(ORPHANS_RETRY_MAX),
        }
    }
}

/// As much of a pod as the runtime's labels tell.
fn orphan(sandbox: &v1::PodSandbox, containers: &[v1::Container]) -> Pod {
    let mark = |key: &str| sandbox.labels.get(key).cloned();
    let mut pod = Pod::default();
    pod.metadata.name = mark(labels::POD_NAME);
    pod.metadata.namespace = mark(labels::POD_NAMESPACE);
    pod.metadata.uid = mark(labels::POD_UID);
    let own: Vec<&v1::Container> =
        containers.iter().filter(|container| container.pod_sandbox_id == sandbox.id).collect();
    let grace = own
        .iter()
        .find_map(|container| container.annotations.get(labels::POD_TERMINATION_GRACE_PERIOD)?.parse::<i64>().ok());
    let mut spec =
        k8s_openapi::api::core::v1::PodSpec { termination_grace_period_seconds: grace, ..Default::default() };
    let mut names: HashSet<&str> = HashSet::new();
    for container in own {
        let Some(name) = container.labels.get(labels::CONTAINER_NAME).filter(|name| names.insert(name)) else {
            continue;
        };
        let pre_stop = container.annotations.get(labels::PRE_STOP_HANDLER);
        let pre_stop = pre_stop.and_then(|text| serde_json::from_str(text).ok());
        let ports = container.annotations.get(labels::CONTAINER_PORTS);
        spec.containers.push(k8s_openapi::api::core::v1::Container {
            name: name.clone(),
            lifecycle: pre_stop
                .map(|hook| k8s_openapi::api::core::v1::Lifecycle { pre_stop: Some(hook), ..Default::default() }),
            ports: ports.and_then(|text| serde_json::from_str(text).ok()),
            ..Default::default()
        });
    }
    pod.spec = Some(spec);
    pod
}
