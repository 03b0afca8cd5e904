//! Changes of a running pod's resources: whether the node can give them, and when all of them have been taken over.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Pod, PodStatus, ResourceRequirements};
use reconcile::events::EventType;

use super::Worker;
use crate::pod::memory::ResizeState;
use crate::pod::{admission, resize, spec};

impl Worker {
    pub(super) fn consider_resize(&mut self) {
        let wanted = resize::wanted(&self.memory, &self.wish.pod);
        let of_pod = resize::wanted_of_pod(&self.memory, &self.wish.pod);
        if wanted.is_empty() && of_pod.is_empty() {
            if matches!(self.memory.resize, Some(ResizeState::Pending { .. })) {
                self.memory.resize = None;
            }
            return;
        }
        let before = self.memory.resize.clone();
        let changed: Vec<&str> = ["cpu", "memory"]
            .into_iter()
            .filter(|resource| {
                let of_container = |container| resize::changes(&self.memory, container, resource);
                of_pod.contains(resource) || wanted.iter().any(of_container)
            })
            .collect();
        match admission::resize(&self.shared, &self.wish.pod, &changed) {
            Ok(()) => {
                for container in wanted {
                    self.memory.allocated.insert(container.name, container.resources.unwrap_or_default());
                }
                self.memory.pod_allocated = spec::wishes(&self.wish.pod).resources.clone().unwrap_or_default();
                self.memory.resize = Some(ResizeState::InProgress { error: None });
            }
            Err(pending) => self.memory.resize = Some(pending),
        }
        if before != self.memory.resize
            && let Some(ResizeState::Pending { reason, message }) = &self.memory.resize
        {
            let reason = format!("Resize{reason}");
            self.shared.tell(&self.wish.pod, None, EventType::Warning, &reason, message.clone());
        }
    }

    pub(super) fn finish_resize(&mut self) {
        let in_progress = matches!(self.memory.resize, Some(ResizeState::InProgress { .. }));
        if !in_progress {
            return;
        }
        let memory = &self.memory;
        let open = self.observed.running().any(|container| {
            spec::container(&self.wish.pod, &container.name)
                .is_some_and(|(_, wished)| resize::differs(memory, &wished, &container.id))
        });
        if !open && self.memory.killing.is_empty() && self.memory.starting.is_none() {
            self.memory.resize = None;
        }
    }
}

/// The same for the pod as a whole: of what the API shows, that which the pod itself says.
pub(super) fn pod_allocated(pod: &Pod, status: &PodStatus) -> ResourceRequirements {
    let mut own = spec::wishes(pod).resources.clone().unwrap_or_default();
    let shown = status.resources.clone().unwrap_or_default();
    for (own, shown) in [(&mut own.requests, shown.requests), (&mut own.limits, shown.limits)] {
        for (name, amount) in own.iter_mut().flatten() {
            if let Some(shown) = shown.as_ref().and_then(|shown| shown.get(name)) {
                *amount = shown.clone();
            }
        }
    }
    own
}

/// What the node had granted before this kubelet started, as far as the API shows it.
pub(super) fn allocated(pod: &Pod, status: &PodStatus) -> HashMap<String, ResourceRequirements> {
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let shown = all.filter_map(|container| {
        container.allocated_resources.as_ref()?;
        let resources = container.resources.clone()?;
        Some((container.name.clone(), resources))
    });
    let mut allocated: HashMap<_, _> = shown.collect();
    for container in spec::init_containers(pod).chain(spec::regular_containers(pod)) {
        let wish = || container.resources.clone().unwrap_or_default();
        allocated.entry(container.name.clone()).or_insert_with(wish);
    }
    allocated
}
