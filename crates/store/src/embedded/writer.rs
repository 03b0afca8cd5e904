//! The writer thread: takes what waits, decides it, makes it durable with one sync, and then shows it.
//!
//! It also deletes keys whose time is over, trims the history, and tells the housekeeper when a checkpoint is due.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::batch::Batch;
use super::housekeeping::Housekeeper;
use super::log::{Log, LogError};
use super::queue::{Request, Work};
use super::{Config, Shared, checkpoint, files};
use crate::{Revision, StoreError};

/// Old history is looked for this often, rather than at every single change that grows old.
const TRIM_INTERVAL_MS: u64 = 60_000;
/// How soon an expiry that the disk refused is tried again.
const RETRY_MS: u64 = 1_000;
/// Keys deleted in one batch because their time is over.
const EXPIRE_MAX: usize = 1024;
/// A buffer that one huge batch has grown is given back.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

pub(super) fn start(config: Config, shared: Arc<Shared>, log: Log, lock: File) -> io::Result<JoinHandle<()>> {
    let housekeeper = Housekeeper::start(config.dir.clone(), shared.clone())?;
    std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
        // Held until the very end, whatever happens in between.
        let _lock = lock;
        let _abandon = AbandonAtEnd(shared.clone());
        let expiries = expiries(&shared);
        let trimmed_ms = config.clock.now_ms();
        Writer { config, shared, log, housekeeper, expiries, retry_ms: 0, trimmed_ms, buffer: Vec::new() }.run();
    })
}

struct Writer {
    config: Config,
    shared: Arc<Shared>,
    log: Log,
    housekeeper: Housekeeper,
    /// When which key is to be deleted.
    expiries: BTreeSet<(u64, Arc<str>)>,
    /// No expiry is tried before.
    retry_ms: u64,
    trimmed_ms: u64,
    buffer: Vec<u8>,
}

impl Writer {
    fn run(mut self) {
        self.trim_history();
        self.tend_files();
        loop {
            let sleep_max = self.wake_ms().and_then(|at_ms| self.config.clock.until(at_ms));
            let requests = match self.shared.queue.take(sleep_max) {
                Work::Batch(requests) => requests,
                Work::Close => break,
            };
            self.write(requests);
            self.forget_past();
            if self.config.clock.now_ms() >= self.trimmed_ms.saturating_add(TRIM_INTERVAL_MS) {
                self.trim_history();
            }
            self.tend_files();
        }
        self.housekeeper.finish();
    }

    /// When there is something to do that nobody asks for.
    fn wake_ms(&self) -> Option<u64> {
        let expiry = self.expiries.first().map(|(at_ms, _)| (*at_ms).max(self.retry_ms));
        let age_ms = self.config.history_age.as_millis() as u64;
        let trim = self.shared.state.read().history_starts_ms().map(|starts_ms| {
            (starts_ms.saturating_add(age_ms + 1)).max(self.trimmed_ms.saturating_add(TRIM_INTERVAL_MS))
        });
        [expiry, trim].into_iter().flatten().min()
    }

    fn write(&mut self, requests: Vec<Request>) {
        let now_ms = self.config.clock.now_ms();
        let batch = self.decide(now_ms, requests);
        if batch.commits.is_empty() {
            return batch.done();
        }
        match self.make_durable(&batch) {
            Ok(()) => self.show(batch),
            Err(error) => {
                tracing::error!(%error, writes = batch.commits.len(), "cannot write to the store");
                self.retry_ms = now_ms.saturating_add(RETRY_MS);
                let text = error.to_string();
                batch.failed(|| match error {
                    LogError::Refused { .. } => StoreError::ReadOnly(text.clone()),
                    LogError::Unknown { .. } => StoreError::Unavailable(text.clone()),
                });
            }
        }
    }

    fn decide(&self, now_ms: u64, requests: Vec<Request>) -> Batch {
        let state = self.shared.state.read();
        let mut batch = Batch::default();
        // First, so that a write in this batch sees the key gone.
        if now_ms >= self.retry_ms {
            let over = self.expiries.iter().take_while(|(at_ms, _)| *at_ms <= now_ms).take(EXPIRE_MAX);
            for (_, key) in over {
                batch.expire(&state, now_ms, key.clone());
            }
        }
        for request in requests {
            batch.decide(&state, now_ms, request);
        }
        batch
    }

    fn make_durable(&mut self, batch: &Batch) -> Result<(), LogError> {
        if !self.log.trusted() {
            self.start_over()?;
        }
        let place = self.log.prepare(batch.bytes(), batch.commits[0].revision)?;
        batch.encode(place, &mut self.buffer);
        let committed = self.log.commit(&self.buffer);
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        if let Err(LogError::Unknown { step, file, source }) = committed {
            // Once the new segment stands, what the old one may hold of this batch does not count any more.
            return Err(match self.start_over() {
                Ok(()) => LogError::Refused { step, file, source },
                Err(_) => LogError::Unknown { step, file, source },
            });
        }
        committed
    }

    /// After a failed sync: writes the whole state anew, and goes on behind it.
    fn start_over(&mut self) -> Result<(), LogError> {
        let state = self.shared.state.read().clone();
        let path = files::checkpoint_path(&self.config.dir, state.revision);
        checkpoint::write(&path, &state, &self.shared.closing).map_err(|source| LogError::Refused {
            step: "write checkpoint",
            file: path.display().to_string(),
            source,
        })?;
        self.log.start_over(state.revision)
    }

    /// Puts a checkpoint in the place of the whole log, for those who want old values off the disk.
    fn forget_past(&mut self) {
        let asked = self.shared.queue.take_forgetting();
        if asked.is_empty() {
            return;
        }
        let failed = |error: &LogError| StoreError::Other(format!("cannot replace the log: {error}"));
        let outcome = self.start_over();
        if outcome.is_ok() {
            let mut state = self.shared.state.write();
            let revision = state.revision;
            // The newest revision is never in the future.
            if let Err(error) = state.compact(revision) {
                tracing::error!(%error, "cannot compact the store");
            }
            let obsolete = self.log.take_obsolete(state.compacted);
            drop(state);
            // Here and not by the housekeeper: who asked wants to hear that they are gone.
            super::housekeeping::remove(&obsolete);
        }
        for answer in asked {
            // Who asked may have gone.
            let _ = answer.send(outcome.as_ref().map(|_| ()).map_err(failed));
        }
    }

    fn show(&mut self, mut batch: Batch) {
        let commits = std::mem::take(&mut batch.commits);
        let revision = commits.last().map_or(Revision::default(), |last| last.revision);
        let mut state = self.shared.state.write();
        for commit in commits {
            if let Some(old) = state.live.get(&commit.key)
                && old.expires_ms > 0
            {
                self.expiries.remove(&(old.expires_ms, commit.key.clone()));
            }
            if let Some(new) = &commit.new
                && new.expires_ms > 0
            {
                self.expiries.insert((new.expires_ms, commit.key.clone()));
            }
            state.apply(commit);
        }
        state.trim_history(0, self.config.history_bytes);
        drop(state);
        self.shared.queue.publish(revision);
        batch.done();
    }

    fn trim_history(&mut self) {
        self.trimmed_ms = self.config.clock.now_ms();
        let before_ms = self.trimmed_ms.saturating_sub(self.config.history_age.as_millis() as u64);
        self.shared.state.write().trim_history(before_ms, self.config.history_bytes);
    }

    /// Starts a checkpoint where the log has grown well past the live state, and removes what one has replaced.
    fn tend_files(&mut self) {
        if let Some(revision) = self.housekeeper.take_finished() {
            self.log.checkpointed(revision);
        }
        let state = self.shared.state.read();
        let limit = self.config.checkpoint_bytes_min.max(2 * state.live_bytes);
        if self.log.bytes_since_checkpoint > limit && !self.housekeeper.busy() {
            self.log.bytes_since_checkpoint = 0;
            self.housekeeper.checkpoint(state.clone());
        }
        let obsolete = self.log.take_obsolete(state.compacted);
        drop(state);
        if !obsolete.is_empty() {
            self.housekeeper.remove(obsolete);
        }
    }
}

fn expiries(shared: &Shared) -> BTreeSet<(u64, Arc<str>)> {
    let live = shared.state.read().live.clone();
    let timed = live.iter().filter(|(_, stored)| stored.expires_ms > 0);
    timed.map(|(key, stored)| (stored.expires_ms, key.clone())).collect()
}

/// If the thread ends by a panic, writers must hear of it rather than wait forever.
struct AbandonAtEnd(Arc<Shared>);

impl Drop for AbandonAtEnd {
    fn drop(&mut self) {
        self.0.queue.abandon();
    }
}
