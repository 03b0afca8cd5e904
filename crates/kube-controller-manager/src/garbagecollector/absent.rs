//! Owners that are known to be gone, so that the thousandth dependent of one does not ask the server again.

use std::collections::{HashSet, VecDeque};

use super::graph::Identity;

/// As upstream.
const ENTRIES_MAX: usize = 500;

#[derive(Default)]
pub(super) struct Absent {
    known: HashSet<Identity>,
    order: VecDeque<Identity>,
}

impl Absent {
    pub fn add(&mut self, identity: Identity) {
        if !self.known.insert(identity.clone()) {
            return;
        }
        self.order.push_back(identity);
        if self.order.len() > ENTRIES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub fn has(&self, identity: &Identity) -> bool {
        self.known.contains(identity)
    }
}
