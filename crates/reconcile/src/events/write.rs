//! Brings events to the API, one after the other, and tries again while it is away.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::correlate::{Correlator, Decision, EventKey};
use component_base::Clock;

/// As upstream: twelve tries, ten seconds apart, so about two minutes of an API that is away are bridged.
const TRIES_MAX: u32 = 12;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// A request without an answer counts as failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Events that are written per second once so many were written at once. Upstream's components write 20 to 50 per second, and 30 to 100
/// at once: while thousands of pods are placed or started, the API server's time is for them and not for what is told of them.
const PER_SECOND_MAX: f64 = 200.0;
const AT_ONCE_MAX: f64 = 500.0;

pub(super) async fn run(client: Client, clock: Clock, mut events: mpsc::Receiver<Event>) {
    let mut correlator = Correlator::default();
    let mut pace = Pace { left: AT_ONCE_MAX, counted: Instant::now() };
    while let Some(event) = events.recv().await {
        let (key, decision) = correlator.decide(event, clock.now());
        if !matches!(decision, Decision::Drop) {
            pace.take().await;
        }
        write(&client, &mut correlator, &key, decision).await;
    }
}

/// How many events may be written now.
struct Pace {
    left: f64,
    counted: Instant,
}

impl Pace {
    /// Waits until one more may be written.
    async fn take(&mut self) {
        self.refill();
        if self.left < 1.0 {
            tokio::time::sleep(Duration::from_secs_f64((1.0 - self.left) / PER_SECOND_MAX)).await;
            self.refill();
        }
        self.left -= 1.0;
    }

    fn refill(&mut self) {
        let now = Instant::now();
        self.left = (self.left + now.duration_since(self.counted).as_secs_f64() * PER_SECOND_MAX).min(AT_ONCE_MAX);
        self.counted = now;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_written_at_once_and_the_rest_at_an_even_pace() {
        let began = Instant::now();
        let mut pace = Pace { left: AT_ONCE_MAX, counted: began };
        for _ in 0..AT_ONCE_MAX as usize {
            pace.take().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..PER_SECOND_MAX as usize {
            pace.take().await;
        }
        // The clock of tests counts whole milliseconds, and a wait is rounded up to one.
        let took = began.elapsed().as_secs_f64();
        assert!((0.9..1.5).contains(&took), "{took}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        for _ in 0..AT_ONCE_MAX as usize {
            pace.take().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "a quiet minute allows for a burst again");
    }
}
