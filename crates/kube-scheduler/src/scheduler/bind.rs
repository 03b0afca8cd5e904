//! What is written for a decision, beside the loop: volumes and devices first, then the binding; or why there is none.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use component_base::tasks;
use futures::StreamExt;
use reconcile::Key;
use reconcile::events::{EventType, Recorder, reference};
use tokio::sync::mpsc;

use super::{Message, Scheduler};
use crate::failure::Failure;
use crate::framework::{Reservation, View};
use crate::metrics::Attempt;
use crate::plugins::dynamic_resources::CleanUp;
use crate::plugins::dynamic_resources::bind::{BindError, Binder, has_conditions};
use crate::plugins::{dynamic_resources, volume_binding};
use crate::pod_info::PodInfo;
use crate::writes::{delete, disruption_status, patch_status, said, write_binding};

/// So many victims of one pod are told to end at the same time.
const VICTIMS_AT_ONCE: usize = 16;

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

    /// Devices that hold a pod to places that do not take it are given back, if nobody else uses them; it may get others. Answers with a
    /// part of the pod's message.
    pub(super) fn clean_up_claims(&self, pod: &Arc<PodInfo>, failure: &Failure) -> &'static str {
        let view = View { snapshot: &self.snapshot, objects: &self.objects, now: self.config.clock.now() };
        let Some(profile) = self.profile(pod.scheduler_name()).filter(|_| failure.all.is_none()) else {
            return CleanUp::NoClaims.message();
        };
        let refused = failure.refused.iter().map(|(index, refusal)| (self.snapshot.node(index), refusal));
        let clean_up = dynamic_resources::clean_up(view, pod, refused, profile.device_bind_timeout);
        let message = clean_up.message();
        let client = self.client.clone();
        match clean_up {
            CleanUp::NoClaims | CleanUp::Nothing => {}
            CleanUp::Free(claim) => {
                tasks::spawn(async move {
                    if let Err(error) = dynamic_resources::bind::free(&client, &claim).await {
                        // It has changed, which lets the pod be tried again too.
                        tracing::debug!(claim = claim.metadata.name, %error, "cannot deallocate ResourceClaim");
                    }
                });
            }
            CleanUp::Delete(claim) => {
                tasks::spawn(async move {
                    let key = Key::of(&claim.metadata);
                    if let Err(error) = dynamic_resources::bind::delete(&client, &key).await {
                        tracing::warn!(claim = %key, %error, "cannot delete ResourceClaim for extended resources");
                    }
                });
            }
        }
        message
    }

    /// Ends the victims; the pod waits for their end.
    pub(super) fn make_room(&self, pod: &Arc<PodInfo>, node: &str, victims: Vec<Arc<PodInfo>>) {
        let (client, events, messages) = (self.client.clone(), self.events.clone(), self.messages.clone());
        let (pod, clock) = (pod.clone(), self.config.clock.clone());
        let message = format!("Preempted by pod {} on node {node}", pod.uid);
        tasks::spawn(async move {
            let end = async |victim: Arc<PodInfo>| {
                let status = disruption_status(pod.scheduler_name(), clock.now());
                let marked = patch_status(&client, &victim, &status).await;
                let ended = match marked {
                    Ok(()) => delete(&client, &victim).await,
                    // It has ended by itself.
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    Err(error) => Err(error),
                };
                match &ended {
                    Ok(()) => events.event(&reference(&*victim.pod), EventType::Normal, "Preempted", message.as_str()),
                    Err(error) => tracing::warn!(pod = %victim.key, %error, "cannot preempt pod"),
                }
                ended.is_err()
            };
            let ending = futures::stream::iter(victims).map(end).buffer_unordered(VICTIMS_AT_ONCE);
            let failed = ending.fold(false, async |failed, one| failed | one).await;
            // Where the loop has ended, nobody waits.
            let _ = messages.send(Message::RoomMade { uid: pod.uid.clone(), failed });
        });
    }

    /// Beside the loop: volumes first, then the binding.
    pub(super) fn bind(
        &self,
        pod: Arc<PodInfo>,
        node: String,
        attempt: Attempt,
        reservation: Option<Reservation>,
        timeouts: Timeouts,
    ) {
        let (client, events, messages) = (self.client.clone(), self.events.clone(), self.messages.clone());
        let (bindings, clock) = (self.bindings.clone(), self.config.clock.clone());
        let objects = reservation.as_ref().map(|_| self.objects.clone());
        tasks::spawn(async move {
            // Where the loop has ended, so has the assumption, and nobody reads the message; so below.
            let binder = objects.as_ref().map(|objects| Binder {
                client: &client,
                objects,
                pod: &pod,
                clock: &clock,
                created: OnceLock::new(),
            });
            if let (Some(reservation), Some(binder)) = (&reservation, &binder) {
                let preparation = Preparation { binder, events: &events, messages: &messages, timeouts };
                if let Err(why) = preparation.prepare(reservation, &node, &attempt.profile).await {
                    binder.unreserve(reservation).await;
                    let reservation = Some(reservation.clone());
                    let pod = pod.clone();
                    let _ = messages.send(Message::NotBound { pod, why, attempt, reservation });
                    return;
                }
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
                    if let (Some(reservation), Some(binder)) = (&reservation, &binder) {
                        binder.unreserve(reservation).await;
                    }
                    let pod = pod.clone();
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

/// How long a pod that has a node waits.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    pub volumes: Duration,
    pub devices: Duration,
}

/// Everything that must be so before the pod may be bound.
struct Preparation<'a> {
    binder: &'a Binder<'a>,
    events: &'a Recorder,
    messages: &'a mpsc::UnboundedSender<Message>,
    timeouts: Timeouts,
}

impl Preparation<'_> {
    async fn prepare(&self, reservation: &Reservation, node: &str, profile: &str) -> Result<(), NotBound> {
        let Binder { client, objects, pod, .. } = self.binder;
        volume_binding::bind::bind(client, objects, reservation, self.timeouts.volumes).await?;
        if reservation.devices.is_empty() {
            return Ok(());
        }
        let bound = self.binder.bind(reservation, self.timeouts.volumes).await;
        let not_created = matches!(bound, Err(BindError::Create { .. }));
        if not_created || self.binder.created.get().is_some() {
            // Nobody counts any more where the loop has ended; so below.
            let _ = self.messages.send(Message::ClaimCreated(!not_created));
        }
        bound?;
        if !has_conditions(reservation) {
            return Ok(());
        }
        let message = format!("waiting for binding conditions for device on node {node}");
        self.events.event(&reference(&*pod.pod), EventType::Normal, "BindingConditionsPending", message);
        let (outcome, waited) = self.binder.until_ready(reservation, self.timeouts.devices).await;
        let _ = self.messages.send(Message::Waited { profile: profile.to_owned(), waited });
        outcome.map_err(|why| NotBound::Devices(why.into()))
    }
}
