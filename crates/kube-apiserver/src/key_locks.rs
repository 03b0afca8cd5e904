//! One writer at a time per key within this server. Writers of one object queue here instead of racing to the store
//! and losing; between servers the expected revision decides.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

const STRIPES: usize = 1024;

pub struct KeyLocks {
    stripes: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Default for KeyLocks {
    fn default() -> KeyLocks {
        KeyLocks { stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(), hasher: RandomState::new() }
    }
}

impl KeyLocks {
    pub async fn lock(&self, key: &str) -> MutexGuard<'_, ()> {
        self.stripes[self.hasher.hash_one(key) as usize % STRIPES].lock().await
    }
}
