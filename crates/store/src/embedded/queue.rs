//! The queue of writes for the writer thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::Config;
use crate::{Change, Expect, Revision, StoreError, Written};

pub(super) struct Request {
    pub key: Arc<str>,
    pub expect: Expect,
    /// A value that is written right before the change, under the revision before it.
    pub before: Option<Bytes>,
    pub change: Change,
    pub answer: oneshot::Sender<Result<Written, StoreError>>,
}

impl Request {
    fn bytes(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |value| self.key.len() + value.len());
        match &self.change {
            Change::Put { value, .. } => before + self.key.len() + value.len(),
            Change::Delete => before + self.key.len(),
        }
    }
}

pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    /// Bounds the queue; a permit is given back when its request is taken.
    room: Arc<Semaphore>,
    batch_writes_max: usize,
    batch_bytes_max: usize,
}

/// Who waits for the log to be replaced by a checkpoint.
pub(super) type Forgetting = oneshot::Sender<Result<(), StoreError>>;

struct Waiting {
    requests: VecDeque<(Request, OwnedSemaphorePermit)>,
    woken: bool,
    forgetting: Vec<Forgetting>,
    /// Tells watchers of new revisions. Gone when the store closes, and that ends them.
    published: Option<watch::Sender<Revision>>,
}

/// What the writer thread has to do next.
pub(super) enum Work {
    /// May be empty: then the time has come that was slept for, or the clock was moved.
    Batch(Vec<Request>),
    Close,
}

impl Queue {
    pub(super) fn new(config: &Config) -> Queue {
        let published = Some(watch::Sender::default());
        Queue {
            waiting: Mutex::new(Waiting { requests: VecDeque::new(), woken: false, forgetting: Vec::new(), published }),
            arrived: Condvar::new(),
            room: Arc::new(Semaphore::new(config.waiting_writes_max)),
            batch_writes_max: config.batch_writes_max,
            batch_bytes_max: config.batch_bytes_max,
        }
    }

    pub(super) async fn push(&self, request: Request) -> Result<(), StoreError> {
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        let permit = self.room.clone().acquire_owned().await.map_err(|_| closed())?;
        let mut waiting = self.waiting.lock();
        if waiting.published.is_none() {
            return Err(closed());
        }
        waiting.requests.push_back((request, permit));
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes all that waits, up to the size of a batch. Sleeps until something comes, at most that long.
    pub(super) fn take(&self, sleep_max: Option<Duration>) -> Work {
        let until = sleep_max.and_then(|sleep| Instant::now().checked_add(sleep));
        let mut waiting = self.waiting.lock();
        while waiting.requests.is_empty() && !waiting.woken {
            if waiting.published.is_none() {
                return Work::Close;
            }
            let timed_out = match until {
                Some(until) => self.arrived.wait_until(&mut waiting, until).timed_out(),
                None => {
                    self.arrived.wait(&mut waiting);
                    false
                }
            };
            if timed_out {
                break;
            }
        }
        waiting.woken = false;
        let mut batch = Vec::with_capacity(waiting.requests.len().min(self.batch_writes_max));
        let mut bytes = 0;
        while batch.len() < self.batch_writes_max
            && bytes < self.batch_bytes_max
            && let Some((request, _permit)) = waiting.requests.pop_front()
        {
            bytes += request.bytes();
            batch.push(request);
        }
        Work::Batch(batch)
    }

    pub(super) fn forget_past(&self, answer: Forgetting) -> Result<(), StoreError> {
        let mut waiting = self.waiting.lock();
        if waiting.published.is_none() {
            return Err(StoreError::Unavailable("the store is closed".to_owned()));
        }
        waiting.forgetting.push(answer);
        waiting.woken = true;
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    pub(super) fn take_forgetting(&self) -> Vec<Forgetting> {
        std::mem::take(&mut self.waiting.lock().forgetting)
    }

    pub(super) fn wake(&self) {
        self.waiting.lock().woken = true;
        self.arrived.notify_one();
    }

    pub(super) fn published(&self) -> watch::Receiver<Revision> {
        match &self.waiting.lock().published {
            Some(published) => published.subscribe(),
            // Its sender is dropped at once, so the watcher ends after it has caught up.
            None => watch::channel(Revision::default()).1,
        }
    }

    pub(super) fn publish(&self, revision: Revision) {
        if let Some(published) = &self.waiting.lock().published {
            published.send_replace(revision);
        }
    }

    /// No more requests come in. Those that wait are still taken.
    pub(super) fn close(&self) {
        self.room.close();
        self.waiting.lock().published = None;
        self.arrived.notify_one();
    }

    /// Drops what waits, which tells the writers that nobody will answer.
    pub(super) fn abandon(&self) {
        self.close();
        let mut waiting = self.waiting.lock();
        waiting.requests.clear();
        waiting.forgetting.clear();
    }
}
