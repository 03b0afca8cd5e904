//! Answers that are remembered for a while, and never more than so many: the oldest go first.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Two generations: what is put goes into the young one, and when that is full it becomes the old one, whose entries are
/// forgotten. What is asked for moves to the young one, so that what is in use stays.
pub struct Bounded<K, V> {
    generations: Mutex<[HashMap<K, (V, Instant)>; 2]>,
    half: usize,
}

impl<K: Hash + Eq, V: Clone> Bounded<K, V> {
    pub fn new(entries_max: usize) -> Bounded<K, V> {
        Bounded { generations: Mutex::new([HashMap::new(), HashMap::new()]), half: (entries_max / 2).max(1) }
    }

    pub fn get(&self, key: &K) -> Option<V> {
        let mut generations = self.generations.lock();
        let [young, old] = &mut *generations;
        let now = Instant::now();
        if let Some((value, until)) = young.get(key) {
            return (now < *until).then(|| value.clone());
        }
        let (key, (value, until)) = old.remove_entry(key)?;
        if now >= until {
            return None;
        }
        let found = value.clone();
        self.insert(&mut generations, key, value, until);
        Some(found)
    }

    /// Nothing is kept for no time.
    pub fn put(&self, key: K, value: V, lifetime: Duration) {
        if lifetime.is_zero() {
            return;
        }
        // Further away than the process lives means for ever.
        let Some(until) = Instant::now().checked_add(lifetime) else { return };
        self.insert(&mut self.generations.lock(), key, value, until);
    }

    fn insert(&self, [young, old]: &mut [HashMap<K, (V, Instant)>; 2], key: K, value: V, until: Instant) {
        if young.len() >= self.half {
            *old = std::mem::take(young);
        }
        young.insert(key, (value, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_bounded_and_end() {
        let cache = Bounded::new(10);
        for number in 0..100 {
            cache.put(number, number, Duration::from_secs(60));
            // What is used stays.
            assert_eq!(cache.get(&0), Some(0), "{number}");
        }
        let kept: usize = cache.generations.lock().iter().map(HashMap::len).sum();
        assert!(kept <= 10, "{kept}");
        assert_eq!(cache.get(&99), Some(99));
        assert_eq!(cache.get(&50), None);
        cache.put(7, 7, Duration::ZERO);
        assert_eq!(cache.get(&7), None);
        cache.put(8, 8, Duration::from_nanos(1));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(cache.get(&8), None);
    }
}
