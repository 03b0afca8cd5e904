//! Deciding one batch: which writes meet what they expect, and what they make of the state. No disk in here.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::log::Place;
use super::queue::Request;
use super::record::{HEADER_BYTES, Kind, Record};
use super::state::{Commit, State, Stored};
use crate::{Change, Entry, Expect, Revision, StoreError, Written};

type Answer = oneshot::Sender<Result<Written, StoreError>>;

/// Writes that are decided and not yet durable.
#[derive(Default)]
pub(super) struct Batch {
    pub commits: Vec<Commit>,
    /// Given when the batch is durable. A conflict is among them where it is with a write of the same batch.
    pub answers: Vec<(Answer, Written)>,
    /// What the keys of this batch will hold.
    pending: HashMap<Arc<str>, Option<Arc<Stored>>>,
}

impl Batch {
    /// Decides one write after all that were decided before it. Whoever does not depend on them is answered here.
    pub(super) fn decide(&mut self, state: &State, now_ms: u64, request: Request) {
        let Request { key, expect, before, change, answer } = request;
        let pending = self.pending.get(&key);
        if pending.is_none()
            && let Some(damage) = state.lost.get(&key)
        {
            // Only one who knows of the damage can expect this revision; that write repairs the key.
            if expect == Expect::At(damage.revision) {
                self.add_both(state, now_ms, key, damage.created, before, change, answer);
            } else {
                reply(answer, Err(damage.error()));
            }
            return;
        }
        let current = match pending {
            Some(current) => current.as_ref(),
            None => state.live.get(&key),
        };
        let met = match (expect, current) {
            (Expect::Absent, None) => !matches!(change, Change::Delete),
            (Expect::At(revision), Some(current)) => current.revision == revision,
            _ => false,
        };
        if met {
            let created = current.map(|current| current.created);
            let created = created.unwrap_or(Revision(0));
            self.add_both(state, now_ms, key, created, before, change, answer);
            return;
        }
        let conflict = Written::Conflict(current.map(|current| Entry {
            key: key.clone(),
            value: current.value.clone(),
            revision: current.revision,
            created: current.created,
        }));
        match pending {
            // It is told of a value that is not durable yet, so it has to wait until it is.
            Some(_) => self.answers.push((answer, conflict)),
            None => reply(answer, Ok(conflict)),
        }
    }

    /// Deletes a key whose time is over.
    pub(super) fn expire(&mut self, state: &State, now_ms: u64, key: Arc<str>) {
        self.add(state, now_ms, key, Revision(0), Change::Delete, None);
    }

    pub(super) fn bytes(&self) -> u64 {
        let size =
            |commit: &Commit| HEADER_BYTES + commit.key.len() + commit.new.as_ref().map_or(0, |new| new.value.len());
        self.commits.iter().map(|commit| size(commit) as u64).sum()
    }

    pub(super) fn encode(&self, place: Place, buffer: &mut Vec<u8>) {
        buffer.clear();
        for commit in &self.commits {
            let new = commit.new.as_deref();
            Record {
                kind: if new.is_some() { Kind::Put } else { Kind::Delete },
                key: &commit.key,
                value: new.map_or(&[], |new| &new.value),
                revision: commit.revision,
                created: new.map_or(Revision(0), |new| new.created),
                time_ms: commit.time_ms,
                expires_ms: new.map_or(0, |new| new.expires_ms),
                batch_start: place.offset,
                segment: place.segment,
            }
            .append_to(buffer);
        }
    }

    pub(super) fn done(self) {
        for (answer, written) in self.answers {
            reply(answer, Ok(written));
        }
    }

    pub(super) fn failed(self, error: impl Fn() -> StoreError) {
        for (answer, _) in self.answers {
            reply(answer, Err(error()));
        }
    }

    /// A change, and what is written before it.
    #[expect(clippy::too_many_arguments, reason = "the parts of a request, and what is known of its key")]
    fn add_both(
        &mut self,
        state: &State,
        now_ms: u64,
        key: Arc<str>,
        created: Revision,
        before: Option<Bytes>,
        change: Change,
        answer: Answer,
    ) {
        if let Some(value) = before {
            self.add(state, now_ms, key.clone(), created, Change::Put { value, ttl: None }, None);
        }
        self.add(state, now_ms, key, created, change, Some(answer));
    }

    /// `created` is 0 for a key that did not exist.
    fn add(
        &mut self,
        state: &State,
        now_ms: u64,
        key: Arc<str>,
        created: Revision,
        change: Change,
        answer: Option<Answer>,
    ) {
        let revision = Revision(state.revision.0 + self.commits.len() as u64 + 1);
        let new = match change {
            Change::Put { value, ttl } => {
                let created = if created.0 == 0 { revision } else { created };
                // A time to live of nothing still needs an expiry that is not 0.
                let expires_ms = ttl.map_or(0, |ttl| now_ms.saturating_add(ttl.as_millis() as u64).max(1));
                Some(Arc::new(Stored { value, revision, created, expires_ms }))
            }
            Change::Delete => None,
        };
        self.pending.insert(key.clone(), new.clone());
        self.commits.push(Commit { key, revision, time_ms: now_ms, new });
        if let Some(answer) = answer {
            self.answers.push((answer, Written::Done(revision)));
        }
    }
}

/// A writer that has gone away does not want its answer; the write stands all the same.
fn reply(answer: Answer, what: Result<Written, StoreError>) {
    let _ = answer.send(what);
}
