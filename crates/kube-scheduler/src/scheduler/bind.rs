//! What is written for a decision, beside the loop: volumes and devices first, then the binding; or why there is none.

use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use reconcile::events::{EventType, reference};

use super::{Message, Scheduler};
use crate::framework::Reservation;
use crate::metrics::Attempt;
use crate::objects::Objects;
use crate::plugins::{dynamic_resources, volume_binding};
use crate::pod_info::PodInfo;
use crate::writes::{delete, disruption_status, patch_status, said, write_binding};

impl Scheduler {
    pub(super) fn write_status(&self, pod: &Arc<PodInfo>, status: Option<serde_json::Value>) {
        if let Some(status) = status {
            let (client, pod) = (self.client.clone(), pod.clone());
            tasks::spawn(async move {
                if let Err(error) = patch_status(&client, &pod, &status).await {
                    tracing::debug!(pod = %pod.key, %error, "cannot write PodScheduled condition of pod");
                }
            });
        }
    }

    /// Ends the victims; the pod waits for their end.
    pub(super) fn make_room(&self, pod: &Arc<PodInfo>, node: &str, victims: Vec<Arc<PodInfo>>) {
        for victim in victims {
            let (client, events, pod, node) = (self.client.clone(), self.events.clone(), pod.clone(), node.to_owned());
            let clock = self.config.clock.clone();
            tasks::spawn(async move {
                let status = disruption_status(pod.scheduler_name(), clock.now());
                let marked = patch_status(&client, &victim, &status).await;
                let ended = match marked {
                    Ok(()) => delete(&client, &victim).await,
                    Err(error) => Err(error),
                };
                match ended {
                    Ok(()) => {
                        let message = format!("Preempted by pod {} on node {node}", pod.uid);
                        events.event(&reference(&*victim.pod), EventType::Normal, "Preempted", message);
                    }
                    Err(error) => tracing::warn!(pod = %victim.key, %error, "cannot preempt pod"),
                }
            });
        }
    }

    /// Beside the loop: volumes first, then the binding.
    pub(super) fn bind(
        &self,
        pod: Arc<PodInfo>,
        node: String,
        attempt: Attempt,
        reservation: Option<Reservation>,
        timeout: Duration,
    ) {
        let (client, events, messages) = (self.client.clone(), self.events.clone(), self.messages.clone());
        let bindings = self.bindings.clone();
        let objects = reservation.as_ref().map(|_| self.objects.clone());
        tasks::spawn(async move {
            // Where the loop has ended, so has the assumption, and nobody reads the message; so below.
            if let (Some(reservation), Some(objects)) = (&reservation, &objects)
                && let Err(why) = prepare(&client, objects, reservation, timeout).await
            {
                dynamic_resources::bind::unreserve(&client, &pod, &reservation.devices).await;
                let _ = messages.send(Message::NotBound { pod, why, attempt, reservation: Some(reservation.clone()) });
                return;
            }
            let _permit = bindings.acquire_owned().await;
            match write_binding(&client, &pod, &node).await {
                Ok(()) => {
                    let message = format!("Successfully assigned {} to {node}", pod.key);
                    events.event(&reference(&*pod.pod), EventType::Normal, "Scheduled", message);
                    let _ = messages.send(Message::Bound { attempt, reservation });
                }
                Err(error) => {
                    let why = NotBound::Binding(error);
                    let devices = reservation.as_ref().map(|one| one.devices.as_slice()).unwrap_or_default();
                    dynamic_resources::bind::unreserve(&client, &pod, devices).await;
                    let _ = messages.send(Message::NotBound { pod, why, attempt, reservation });
                }
            }
        });
    }
}

/// Why a pod is not bound; users read it in the message of the pod.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotBound {
    #[error("running PreBind plugin \"VolumeBinding\": binding volumes: {0}")]
    Volumes(#[from] volume_binding::bind::BindError),
    #[error("running PreBind plugin \"DynamicResources\": {0}")]
    Devices(#[from] dynamic_resources::bind::BindError),
    #[error("running Bind plugin \"DefaultBinder\": {}", said(.0))]
    Binding(#[source] kube::Error),
}

/// Everything that must be so before the pod may be bound.
async fn prepare(
    client: &kube::Client,
    objects: &Objects,
    reservation: &Reservation,
    timeout: Duration,
) -> Result<(), NotBound> {
    volume_binding::bind::bind(client, objects, reservation, timeout).await?;
    if !reservation.devices.is_empty() {
        dynamic_resources::bind::bind(client, objects, reservation, timeout).await?;
    }
    Ok(())
}
