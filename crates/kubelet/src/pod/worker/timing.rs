//! What a worker tells the kubelet's metrics of how long its pod takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use tokio::time::Instant;

use super::Worker;
use crate::pod::metrics::Work;
use crate::pod::observed::{Container, State};
use crate::pod::spec::{self, Kind};
use crate::pod::start;

pub(super) struct Timing {
    /// When the kubelet saw the pod for the first time.
    seen_at: Instant,
    /// What is being done next.
    next: Work,
    /// How long its images took, in nanoseconds.
    pulling: Arc<AtomicU64>,
}

impl Timing {
    pub fn new(seen_at: Instant) -> Timing {
        Timing { seen_at, next: Work::Create, pulling: Arc::default() }
    }

    pub fn wish_changed(&mut self) {
        self.next = Work::Update;
    }

    pub fn pulling(&self) -> Arc<AtomicU64> {
        self.pulling.clone()
    }
}

impl Worker {
    pub(super) fn note_worker(&self) {
        if !self.wish.gone {
            self.shared.counters.pods.worker_started(self.timing.seen_at.elapsed());
        }
    }

    pub(super) fn note_work(&mut self, began_at: Instant) {
        let next = std::mem::replace(&mut self.timing.next, Work::Sync);
        let work = if self.finish.is_done() { Work::Terminated } else { next };
        self.shared.counters.pods.worked(work, began_at.elapsed());
    }

    /// The pod begins to run by the status that is about to be told.
    pub(super) fn note_running(&self, status: &PodStatus) {
        let was_pending = matches!(self.status.phase.as_deref(), None | Some("" | "Pending"));
        if was_pending && status.phase.as_deref() == Some("Running") {
            self.shared.counters.pods.runs(self.timing.seen_at.elapsed());
        }
    }

    /// The API may show the pod as started.
    pub(super) fn note_startup(&mut self) {
        let mut apart = Duration::from_nanos(self.timing.pulling.load(Ordering::Relaxed));
        // One that never came to run has no time of its own.
        let ran = |seen: &&Container| seen.state == State::Exited && seen.started_at > Timestamp::UNIX_EPOCH;
        for seen in self.observed.containers.iter().filter(ran) {
            if spec::container(&self.wish.pod, &seen.name).is_some_and(|(kind, _)| kind == Kind::Init) {
                apart += Duration::try_from(seen.finished_at.duration_since(seen.started_at)).unwrap_or_default();
            }
        }
        if let Some(started) = self.startup.observe(&self.wish.pod, self.shared.kubelet.now(), apart) {
            self.shared.counters.pods.started(started);
        }
    }

    pub(super) fn note_not_started(&self, name: &str, reason: &str) {
        if let Some((kind, _)) = spec::container(&self.wish.pod, name).filter(|_| reason != start::GIVEN_UP) {
            self.shared.counters.pods.container_failed(kind, reason);
        }
    }
}
