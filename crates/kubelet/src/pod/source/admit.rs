//! Admits new pods, and preempts others for a critical pod.

use k8s_openapi::api::core::v1::{Node, Pod};
use reconcile::events::EventType;

use super::super::admission::{self, NodeView};
use super::super::memory::Failed;
use super::super::worker::Handle;
use super::super::{Shared, spec};
use super::Workers;
use crate::eviction;
use crate::pods::{EvictionCondition, Order};

impl Workers {
    /// A pod that was taken once is not judged again.
    pub(super) async fn judge(&self, pod: &Pod) -> Option<Failed> {
        if is_known(pod) {
            return None;
        }
        let workers = self.by_uid.values().filter(|worker| !worker.is_finished());
        let states: Vec<_> = workers.map(Handle::wish).chain(self.admitting.values().cloned()).collect();
        let others: Vec<&Pod> =
            states.iter().map(|wish| &*wish.pod).filter(|other| counts(&self.shared, other)).collect();
        let under_pressure = eviction::refuses(&self.health.pressures(), pod);
        let mut refusal = match under_pressure.filter(|_| !spec::is_static(pod)) {
            Some((reason, message)) => admission::Refusal { reason, message },
            None => self.admit(pod, &others).await.err()?,
        };
        if refusal.reason.starts_with("OutOf") && eviction::rank::is_critical(pod) {
            refusal = self.make_room(pod, &others).await.err()?;
        }
        Some(self.refused(pod, refusal))
    }

    pub(super) fn refused(&self, pod: &Pod, refusal: admission::Refusal) -> Failed {
        self.shared.tell(pod, None, EventType::Warning, &refusal.reason, refusal.message.clone());
        Failed {
            reason: refusal.reason,
            message: format!("Pod was rejected: {}", refusal.message),
            condition: None,
            grace_seconds: None,
            refused: true,
        }
    }

    async fn admit(&self, pod: &Pod, others: &[&Pod]) -> Result<(), admission::Refusal> {
        let objects = &self.shared.kubelet.objects;
        let name = &self.shared.kubelet.config.node_name;
        let node = objects.node(name).await.ok();
        let refused = match admission::admit(&self.view(node.as_deref()), pod, others) {
            Err(refusal) if refusal.reason == "NodeAffinity" && node.is_some() => refusal,
            other => return other,
        };
        // The scheduler may have seen labels that have not come here yet.
        match objects.fresh_node(name).await {
            Ok(node) => admission::admit(&self.view(Some(&node)), pod, others),
            Err(_) => Err(refused),
        }
    }

    /// Others go for a critical pod. It is taken at once, and shares the node with them until they have ended.
    async fn make_room(&self, pod: &Pod, others: &[&Pod]) -> Result<(), admission::Refusal> {
        let node = self.shared.kubelet.objects.node(&self.shared.kubelet.config.node_name).await.ok();
        let view = self.view(node.as_deref());
        let Some(victims) = admission::preemption::victims(&view, pod, others) else {
            let missing = admission::preemption::missing(&view, pod, others);
            let message = format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: {missing}"
            );
            return Err(admission::Refusal { reason: "UnexpectedAdmissionError".into(), message });
        };
        let is_victim = |other: &Pod| victims.iter().any(|victim| spec::uid(victim) == spec::uid(other));
        let left: Vec<&Pod> = others.iter().filter(|other| !is_victim(other)).copied().collect();
        // Nobody goes for a pod that the node does not take for another reason as well.
        admission::admit(&view, pod, &left)?;
        for victim in victims {
            let message = "Preempted in order to admit critical pod".to_owned();
            self.shared.tell(victim, None, EventType::Warning, "Preempting", message.clone());
            let condition = EvictionCondition {
                reason: "TerminationByKubelet".into(),
                message: "Pod was preempted by Kubelet to accommodate a critical pod.".into(),
            };
            let order = Order::Evict {
                reason: "Preempting".into(),
                message,
                condition: Some(condition),
                grace_period_seconds: None,
            };
            if !self.shared.pods.order(spec::uid(victim), order).await {
                tracing::warn!(pod = spec::full_name(victim), "pod to preempt already ended");
            }
        }
        Ok(())
    }

    /// Without the node's object only what needs no object is checked: a static pod must run when the API is away.
    fn view(&self, node: Option<&Node>) -> NodeView {
        let mut view = NodeView::new(node, &self.shared);
        if node.is_none() {
            view.labels = self.shared.kubelet.config.node_labels.clone().into_iter().collect();
        }
        if !view.allocatable.is_empty() {
            self.shared.pods.set_allocatable(view.allocatable.clone());
        }
        view
    }
}

/// Whether the pod was taken before, or is not to be taken any more.
pub(super) fn is_known(pod: &Pod) -> bool {
    let was_taken = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
    was_taken || pod.metadata.deletion_timestamp.is_some()
}

/// Whether the API shows the pod as ended.
pub(super) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Whether a pod takes room on the node.
pub(super) fn counts(shared: &Shared, pod: &Pod) -> bool {
    shared.pods.by_uid(spec::uid(pod)).is_none_or(|state| !state.has_ended())
}
