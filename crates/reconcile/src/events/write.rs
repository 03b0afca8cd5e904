//! Brings events to the API, one after the other, and tries again while it is away.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

use super::correlate::{Correlator, Decision, EventKey};
use component_base::Clock;

/// As upstream: twelve tries, ten seconds apart, so about two minutes of an API that is away are bridged.
const TRIES_MAX: u32 = 12;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// A request without an answer counts as failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

pub(super) async fn run(client: Client, clock: Clock, mut events: mpsc::Receiver<Event>) {
    let mut correlator = Correlator::default();
    while let Some(event) = events.recv().await {
        let (key, decision) = correlator.decide(event, clock.now());
        write(&client, &mut correlator, &key, decision).await;
    }
}

async fn write(client: &Client, correlator: &mut Correlator, key: &EventKey, decision: Decision) {
    let (event, mut counted) = match decision {
        Decision::Create(event) => (event, false),
        Decision::Count(event) => (event, true),
        Decision::Drop => return,
    };
    for attempt in 0..TRIES_MAX {
        if attempt > 0 {
            // The first wait is drawn, so that the nodes of a cluster do not all come back in one moment.
            let part = if attempt == 1 { rand::random::<f64>() } else { 1.0 };
            tokio::time::sleep(TRY_AGAIN_AFTER.mul_f64(part)).await;
        }
        match tokio::time::timeout(ANSWER_WITHIN, send(client, &event, &mut counted)).await {
            Ok(Ok(stored)) => return correlator.stored(key, &stored),
            Ok(Err(error)) if is_final(&error) => {
                return tracing::info!(%error, event = event.metadata.name, "API server rejected event");
            }
            Ok(Err(error)) => tracing::warn!(%error, attempt, "cannot write event; retrying"),
            Err(_) => tracing::warn!(attempt, "timed out writing event; retrying"),
        }
    }
    tracing::error!(event = event.metadata.name, reason = event.reason, "dropping event after {TRIES_MAX} attempts");
}

async fn send(client: &Client, event: &Event, counted: &mut bool) -> Result<Event, kube::Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    if *counted {
        let patch = json!({ "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message });
        let name = event.metadata.name.as_deref().unwrap_or("");
        match events.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
            // Events are forgotten after an hour; the count goes on in a new one.
            Err(error) if crate::is_not_found(&error) => *counted = false,
            answer => return answer,
        }
    }
    let mut event = event.clone();
    event.metadata.resource_version = None;
    events.create(&PostParams::default(), &event).await
}

/// Whether the server has answered, and will answer the same again.
fn is_final(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code != 429 && status.code < 500,
        kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => true,
        _ => false,
    }
}
