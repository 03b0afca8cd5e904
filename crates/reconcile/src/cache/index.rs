//! Ways to find objects without looking at all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Key;

pub(super) type Groups<K> = BTreeMap<String, BTreeMap<Key, Arc<K>>>;

/// A way to find objects without looking at all of them.
pub struct Index<K> {
    /// No two indexes of a kind have the same name.
    pub name: &'static str,
    /// What an object is found by.
    pub of: fn(&K) -> Vec<String>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Index<K> {
        *self
    }
}

impl<K> Copy for Index<K> {}

/// Moves one object from the groups it was in to those that it is in now.
pub(super) fn regroup<K>(groups: &mut Groups<K>, key: &Key, before: &[String], now: &[String], object: &Arc<K>) {
    for name in before.iter().filter(|name| !now.contains(name)) {
        if let Some(group) = groups.get_mut(name) {
            group.remove(key);
            if group.is_empty() {
                groups.remove(name);
            }
        }
    }
    for name in now {
        if !groups.contains_key(name) {
            groups.insert(name.clone(), BTreeMap::new());
        }
        if let Some(group) = groups.get_mut(name) {
            group.insert(key.clone(), object.clone());
        }
    }
}
