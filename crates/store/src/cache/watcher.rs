//! One reader of a resource's changes. A watcher of the whole resource is a position in the shared history. A
//! watcher of a namespace or of one object has a queue of its own, which only changes in its scope ever touch.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Change, Resource};
use crate::Revision;

/// How many changes may wait for a scoped watcher before it is cut, besides those it started with.
pub const SCOPED_QUEUE_MAX: usize = 10_000;
/// And how many bytes they may hold.
const SCOPED_QUEUE_BYTES_MAX: usize = 32 << 20;

/// What a watcher wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// With a `/` at its end: the keys below (a namespace). Without: exactly this key (one object). None: all.
    pub key_prefix: Option<String>,
}

pub struct Watcher {
    pub(super) resource: Arc<Resource>,
    pub(super) source: Source,
    /// Nothing up to here was asked for.
    pub(super) after: Revision,
    /// The revision of the last change that was handed out.
    pub(super) delivered: Revision,
    pub(super) ended: bool,
}

pub(super) enum Source {
    All { position: u64 },
    Scoped(Arc<Queue>),
}

/// What a look at the source found.
pub(super) enum Look {
    Found,
    Nothing,
    End,
}

/// What comes next, without taking it.
pub(super) enum Pending {
    Change(Revision),
    Nothing,
    End,
}

impl Watcher {
    /// The next change; none when the watcher fell too far behind and was cut, or the resource went away.
    /// May be dropped while it waits without losing a change.
    pub async fn next(&mut self) -> Option<Arc<Change>> {
        let mut one = Vec::with_capacity(1);
        self.next_batch(1, &mut one).await;
        one.pop()
    }

    /// Waits for a change, then takes all that are ready, up to `max`. False where `next` would be none.
    pub async fn next_batch(&mut self, max: usize, into: &mut Vec<Arc<Change>>) -> bool {
        let resource = self.resource.clone();
        loop {
            if self.ended {
                return false;
            }
            let queue = match &self.source {
                Source::All { .. } => None,
                Source::Scoped(queue) => Some(queue.clone()),
            };
            let notify = queue.as_ref().map_or(resource.changed(), |queue| &queue.notify);
            // Enlisted before looking: a change between the look and the wait wakes us.
            let notified = notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            match self.look(max.max(1), into) {
                Look::Found => return true,
                Look::End => self.ended = true,
                Look::Nothing => notified.await,
            }
        }
    }

    /// The revision up to which this watcher has been shown everything it asked for, for bookmarks. It moves
    /// with the whole store, not only with the changes in scope.
    pub fn revision(&self) -> Revision {
        // Read first: what is published is already in the sources looked at below.
        let published = self.resource.published();
        let pending = if self.ended { Pending::End } else { self.pending() };
        let shown = match pending {
            Pending::Change(next) => before(next),
            Pending::Nothing => published.max(self.delivered),
            // Of several changes with one revision perhaps not all were shown.
            Pending::End => before(self.delivered),
        };
        shown.max(self.after)
    }

    fn look(&mut self, max: usize, into: &mut Vec<Arc<Change>>) -> Look {
        let before = into.len();
        let look = match &mut self.source {
            Source::All { position } => self.resource.read(position, self.after, max, into),
            Source::Scoped(queue) => queue.take(max, into),
        };
        if let Some(last) = into[before..].last() {
            self.delivered = self.delivered.max(last.revision);
        }
        look
    }

    fn pending(&self) -> Pending {
        match &self.source {
            Source::All { position } => self.resource.pending(*position, self.after),
            Source::Scoped(queue) => queue.pending(),
        }
    }
}

fn before(revision: Revision) -> Revision {
    Revision(revision.0.saturating_sub(1))
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Source::Scoped(queue) = &self.source {
            self.resource.forget(queue);
        }
    }
}

/// Changes in scope that one watcher has yet to take.
pub(super) struct Queue {
    scope: Box<str>,
    after: Revision,
    state: Mutex<QueueState>,
    notify: Notify,
}

struct QueueState {
    changes: VecDeque<Arc<Change>>,
    length_max: usize,
    bytes: usize,
    bytes_max: usize,
    /// No more will come.
    closed: bool,
}

impl Queue {
    pub fn new(scope: &str, after: Revision, changes: VecDeque<Arc<Change>>) -> Queue {
        let length_max = changes.len() + SCOPED_QUEUE_MAX;
        let bytes = changes.iter().map(|change| change.bytes()).sum();
        let bytes_max = bytes + SCOPED_QUEUE_BYTES_MAX;
        let state = Mutex::new(QueueState { changes, length_max, bytes, bytes_max, closed: false });
        Queue { scope: scope.into(), after, state, notify: Notify::new() }
    }

    /// Takes a change in, and says whether the watcher must be woken: it may wait while there is nothing to take.
    fn push(&self, change: &Arc<Change>) -> bool {
        if change.revision <= self.after {
            return false;
        }
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        state.bytes += change.bytes();
        if state.changes.len() >= state.length_max || state.bytes > state.bytes_max {
            // Its changes go too: with a hole in them they are worth nothing, and they take memory.
            state.changes = VecDeque::new();
            state.bytes = 0;
            state.closed = true;
            return true;
        }
        state.changes.push_back(change.clone());
        state.changes.len() == 1
    }

    /// What waits may still be read, unless it is cut.
    pub fn close(&self, cut: bool) {
        let mut state = self.state.lock();
        state.closed = true;
        if cut {
            state.bytes = 0;
            state.changes.clear();
        }
        drop(state);
        self.notify.notify_one();
    }

    fn take(&self, max: usize, into: &mut Vec<Arc<Change>>) -> Look {
        let mut state = self.state.lock();
        if state.changes.is_empty() {
            return if state.closed { Look::End } else { Look::Nothing };
        }
        let count = max.min(state.changes.len());
        state.bytes -= state.changes.range(..count).map(|change| change.bytes()).sum::<usize>();
        into.extend(state.changes.drain(..count));
        Look::Found
    }

    fn pending(&self) -> Pending {
        let state = self.state.lock();
        match state.changes.front() {
            Some(change) => Pending::Change(change.revision),
            None if state.closed => Pending::End,
            None => Pending::Nothing,
        }
    }
}

/// The scoped watchers of a resource by their scope, so that a change finds its watchers without asking others.
#[derive(Default)]
pub(super) struct Scopes {
    queues: HashMap<Box<str>, Vec<Arc<Queue>>>,
    /// Those whose watchers are still to be woken.
    woken: Vec<Arc<Queue>>,
}

impl Scopes {
    pub fn add(&mut self, queue: Arc<Queue>) {
        self.queues.entry(queue.scope.clone()).or_default().push(queue);
    }

    pub fn remove(&mut self, queue: &Arc<Queue>) {
        if let Some(queues) = self.queues.get_mut(&queue.scope) {
            queues.retain(|other| !Arc::ptr_eq(other, queue));
            if queues.is_empty() {
                self.queues.remove(&queue.scope);
            }
        }
    }

    /// Hands a change to its watchers, who sleep on until `wake`: what was written at once they take at once.
    pub fn push(&mut self, change: &Arc<Change>) {
        if self.queues.is_empty() {
            return;
        }
        let key = &*change.item.key;
        let folders = key.match_indices('/').map(|(at, _)| &key[..=at]).filter(|folder| folder.len() < key.len());
        for scope in folders.chain([key]) {
            for queue in self.queues.get(scope).into_iter().flatten() {
                if queue.push(change) {
                    self.woken.push(queue.clone());
                }
            }
        }
    }

    pub fn wake(&mut self) {
        for queue in self.woken.drain(..) {
            queue.notify.notify_one();
        }
    }

    pub fn close(&mut self, cut: bool) {
        for queue in self.queues.drain().flat_map(|(_, queues)| queues) {
            queue.close(cut);
        }
    }
}

/// Whether a key is in a scope.
pub(super) fn in_scope(scope: &str, key: &str) -> bool {
    if scope.ends_with('/') { key.starts_with(scope) } else { key == scope }
}
