//! One reader of a resource's changes. A watcher of the whole resource is a position in the shared history. A
//! watcher of a namespace or of one object has a queue of its own, which only changes in its scope ever touch.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Change, Item, Resource};
use crate::Revision;

/// How many changes may wait for a scoped watcher before it is cut, besides those it started with.
pub(crate) const SCOPED_QUEUE_MAX: usize = 10_000;
/// And how many bytes they may hold.
const SCOPED_QUEUE_BYTES_MAX: usize = 32 << 20;

/// What a watcher wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// With a `/` at its end: the keys below (a namespace). Without: exactly this key (one object). None: all.
    pub key_prefix: Option<String>,
    /// Of those only objects whose field, by its place in their descriptions, has this value now or had it before the change: a
    /// kubelet's watch of its own pods is not touched by the pods of all others. Only together with a prefix.
    pub field: Option<(usize, Box<str>)>,
}

impl WatchScope {
    /// Whether a change may matter to who watches this.
    pub(super) fn includes(&self, change: &Change) -> bool {
        let prefix = self.key_prefix.as_deref().unwrap_or("");
        let field = self.field.as_ref();
        (prefix.is_empty() || in_scope(prefix, &change.item.key))
            && field.is_none_or(|(at, value)| values_of(change, *at).contains(&Some(value.as_ref())))
    }
}

/// A field's value after a change and, where it was another one, before it.
fn values_of(change: &Change, at: usize) -> [Option<&str>; 2] {
    let now = text_at(&change.item, at);
    let before = change.previous.as_ref().map(|item| text_at(item, at));
    [Some(now), before.filter(|before| *before != now)]
}

/// A field that is missing is empty.
fn text_at(item: &Item, at: usize) -> &str {
    item.description.fields.get(at).map_or("", |value| value.as_ref())
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
        // Under load there is mostly something: enlisting first would make all watchers wait for each other's enlisting.
        if !self.ended && matches!(self.look(max.max(1), into), Look::Found) {
            return true;
        }
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
    scope: WatchScope,
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
    pub fn new(scope: WatchScope, after: Revision, changes: VecDeque<Arc<Change>>) -> Queue {
        let length_max = changes.len() + SCOPED_QUEUE_MAX;
        let bytes = changes.iter().map(|change| change.bytes()).sum();
        let bytes_max = bytes + SCOPED_QUEUE_BYTES_MAX;
        let state = Mutex::new(QueueState { changes, length_max, bytes, bytes_max, closed: false });
        Queue { scope, after, state, notify: Notify::new() }
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
    by_prefix: HashMap<Box<str>, Scope>,
    /// Those whose watchers are still to be woken.
    woken: Vec<Arc<Queue>>,
}

/// The watchers of one prefix: of all below it, and of objects with a value in a field.
#[derive(Default)]
struct Scope {
    all: Vec<Arc<Queue>>,
    /// By the place of the field, then by its value. Kinds have few fields that can be selected by.
    by_field: Vec<(usize, ByValue)>,
}

type ByValue = HashMap<Box<str>, Vec<Arc<Queue>>>;

impl Scope {
    fn add(&mut self, queue: Arc<Queue>) {
        let Some((at, value)) = queue.scope.field.clone() else { return self.all.push(queue) };
        let found = self.by_field.iter().position(|(field, _)| *field == at);
        let index = found.unwrap_or_else(|| {
            self.by_field.push((at, HashMap::new()));
            self.by_field.len() - 1
        });
        self.by_field[index].1.entry(value).or_default().push(queue);
    }

    fn remove(&mut self, queue: &Arc<Queue>) {
        let others = |queues: &mut Vec<Arc<Queue>>| queues.retain(|other| !Arc::ptr_eq(other, queue));
        let Some((at, value)) = &queue.scope.field else { return others(&mut self.all) };
        for (_, by_value) in self.by_field.iter_mut().filter(|(field, _)| field == at) {
            if let Some(queues) = by_value.get_mut(value) {
                others(queues);
                if queues.is_empty() {
                    by_value.remove(value);
                }
            }
        }
        self.by_field.retain(|(_, by_value)| !by_value.is_empty());
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.by_field.is_empty()
    }

    /// Whoever may want to see that change.
    fn of<'s>(&'s self, change: &'s Change) -> impl Iterator<Item = &'s Arc<Queue>> {
        let selected = self.by_field.iter().flat_map(|(at, by_value)| {
            values_of(change, *at).into_iter().flatten().filter_map(|value| by_value.get(value)).flatten()
        });
        self.all.iter().chain(selected)
    }

    fn queues(self) -> impl Iterator<Item = Arc<Queue>> {
        let selected = self.by_field.into_iter().flat_map(|(_, by_value)| by_value.into_values().flatten());
        self.all.into_iter().chain(selected)
    }
}

impl Scopes {
    pub fn add(&mut self, queue: Arc<Queue>) {
        let prefix = queue.scope.key_prefix.as_deref().unwrap_or_default();
        self.by_prefix.entry(prefix.into()).or_default().add(queue);
    }

    pub fn remove(&mut self, queue: &Arc<Queue>) {
        let prefix = queue.scope.key_prefix.as_deref().unwrap_or_default();
        if let Some(scope) = self.by_prefix.get_mut(prefix) {
            scope.remove(queue);
            if scope.is_empty() {
                self.by_prefix.remove(prefix);
            }
        }
    }

    /// Hands a change to its watchers, who sleep on until `wake`: what was written at once they take at once.
    pub fn push(&mut self, change: &Arc<Change>) {
        if self.by_prefix.is_empty() {
            return;
        }
        let key = &*change.item.key;
        let folders = key.match_indices('/').map(|(at, _)| &key[..=at]).filter(|folder| folder.len() < key.len());
        for scope in folders.chain([key]).filter_map(|prefix| self.by_prefix.get(prefix)) {
            for queue in scope.of(change) {
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
        for queue in self.by_prefix.drain().flat_map(|(_, scope)| scope.queues()) {
            queue.close(cut);
        }
    }
}

/// Whether a key is in a scope.
fn in_scope(scope: &str, key: &str) -> bool {
    if scope.ends_with('/') { key.starts_with(scope) } else { key == scope }
}
