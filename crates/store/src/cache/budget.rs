//! How much memory the recent changes of all resources hold together, whoever still holds them. A burst of writes to
//! several resources at once must not take the limit of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all kept changes may hold together before histories give up their oldest ones.
pub(crate) const CHANGES_BYTES_MAX: usize = 128 << 20;
/// What the history of one resource keeps in any case, so that a burst of others does not cut its watchers.
pub(super) const RESOURCE_BYTES_MIN: usize = 2 << 20;

#[derive(Debug, Default)]
pub(super) struct Budget {
    held: AtomicUsize,
}

impl Budget {
    pub fn charge(self: &Arc<Budget>, bytes: usize) -> Charge {
        let charge = Charge { budget: self.clone(), bytes: AtomicUsize::new(0) };
        charge.add(bytes);
        charge
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.held() > CHANGES_BYTES_MAX
    }
}

/// The memory of one change; given back with it.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Charge {
    /// Also for what is made of the change later.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// For what was made of it and is let go before it.
    pub fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back() {
        let budget = Arc::new(Budget::default());
        let (first, second) = (budget.charge(CHANGES_BYTES_MAX), budget.charge(0));
        assert!(!budget.is_exceeded());
        second.add(3);
        assert!(budget.is_exceeded());
        second.give_back(2);
        drop(first);
        assert_eq!(budget.held(), 1);
        drop(second);
        assert_eq!(budget.held(), 0);
    }
}
