//! Who waits until a cache has seen something. A change wakes only those who wait for it: very many writes may be under way at
//! the same time, and each would else look at every change of its kind.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use tokio::sync::oneshot::{Receiver, Sender, channel};

use crate::key::Key;

#[derive(Default)]
pub(super) struct Waiting {
    revisions: Mutex<BTreeMap<u64, Vec<Sender<()>>>>,
    keys: Mutex<HashMap<Key, Vec<Sender<()>>>>,
}

impl Waiting {
    /// Answers when that revision, or a later one, is told of. Who waits looks at what is there after it has asked.
    pub(crate) fn for_revision(&self, revision: u64) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.revisions.lock().entry(revision).or_default().push(sender);
        receiver
    }

    /// Answers at the next change of one object.
    pub(crate) fn for_change(&self, key: &Key) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.keys.lock().entry(key.clone()).or_default().push(sender);
        receiver
    }

    pub fn reached(&self, revision: u64) {
        let mut revisions = self.revisions.lock();
        while let Some(first) = revisions.first_entry().filter(|first| *first.key() <= revision) {
            wake(first.remove());
        }
    }

    pub fn changed(&self, key: &Key) {
        let mut keys = self.keys.lock();
        if keys.is_empty() {
            return;
        }
        keys.remove(key).into_iter().for_each(wake);
    }

    /// Nobody waits for that object any more.
    pub fn forget(&self, key: &Key) {
        let mut keys = self.keys.lock();
        if let Some(waiting) = keys.get_mut(key) {
            waiting.retain(|sender| !sender.is_closed());
            if waiting.is_empty() {
                keys.remove(key);
            }
        }
    }
}

fn wake(waiting: Vec<Sender<()>>) {
    for sender in waiting {
        // Who waits no longer need not be woken.
        let _ = sender.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_wakes_only_who_waits_for_it() {
        let waiting = Waiting::default();
        let mut revisions: Vec<Receiver<()>> = (1..=100).map(|revision| waiting.for_revision(revision)).collect();
        let woken = |all: &mut Vec<Receiver<()>>| {
            all.iter_mut().filter_map(|one| one.try_recv().ok()).collect::<Vec<()>>().len()
        };
        waiting.reached(3);
        assert_eq!(woken(&mut revisions), 3);
        waiting.reached(4);
        assert_eq!(woken(&mut revisions), 1);
        let mut keys: Vec<Receiver<()>> =
            (0..100).map(|number| waiting.for_change(&Key::new("a", number.to_string()))).collect();
        waiting.changed(&Key::new("a", "7"));
        waiting.changed(&Key::new("b", "8"));
        assert_eq!(woken(&mut keys), 1);
        drop((revisions, keys));
        waiting.forget(&Key::new("a", "8"));
        assert_eq!(waiting.keys.lock().len(), 98);
    }
}
