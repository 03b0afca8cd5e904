//! Verified tokens, remembered for a few seconds: a busy client shows the same token with every request.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};

use super::User;

/// As upstream: a deleted account keeps its access for no longer than this.
const LIFETIME: SignedDuration = SignedDuration::from_secs(10);
const ENTRIES_MAX: usize = 4096;

/// Keyed by a hash, so that the process does not collect other people's secrets.
type Key = [u8; 32];

#[derive(Default)]
pub struct TokenCache {
    entries: Mutex<HashMap<Key, Entry>>,
}

struct Entry {
    user: User,
    audiences: Vec<String>,
    until: Timestamp,
}

impl TokenCache {
    pub fn get(&self, token: &str, wanted: &[String], now: Timestamp) -> Option<(User, Vec<String>)> {
        let entries = self.entries.lock();
        let entry = entries.get(&key(token, wanted))?;
        (now < entry.until).then(|| (entry.user.clone(), entry.audiences.clone()))
    }

    /// `end` is when the token itself ends, in seconds since 1970.
    pub fn put(
        &self,
        token: &str,
        wanted: &[String],
        user: &User,
        audiences: &[String],
        end: Option<i64>,
        now: Timestamp,
    ) {
        let end = end.and_then(|end| Timestamp::from_second(end).ok()).unwrap_or(Timestamp::MAX);
        let entry = Entry { user: user.clone(), audiences: audiences.to_vec(), until: end.min(now + LIFETIME) };
        let mut entries = self.entries.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, entry| now < entry.until);
        }
        // Full of living entries: this many clients at once gain little from a cache, and the bound holds.
        if entries.len() < ENTRIES_MAX {
            entries.insert(key(token, wanted), entry);
        }
    }
}

fn key(token: &str, wanted: &[String]) -> Key {
    let mut context = Context::new(&SHA256);
    for text in wanted.iter().map(String::as_str).chain([token]) {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text.as_bytes());
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::user;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn entries_end_with_the_token_or_after_ten_seconds() {
        let cache = TokenCache::default();
        let wanted = ["api".to_string()];
        cache.put("long", &wanted, &user("a", &[]), &wanted, Some(2000), at(1000));
        cache.put("short", &wanted, &user("b", &[]), &wanted, Some(1003), at(1000));
        let check = |token: &str, second: i64, expected: Option<&str>| {
            let found = cache.get(token, &wanted, at(second)).map(|(user, _)| user.name);
            assert_eq!(found.as_deref(), expected, "{token} at {second}");
        };
        check("long", 1009, Some("a"));
        check("long", 1010, None);
        check("short", 1002, Some("b"));
        check("short", 1003, None);
        check("other", 1001, None);
        assert_eq!(cache.get("long", &["vault".to_string()], at(1001)), None, "for another audience");
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = TokenCache::default();
        for second in [1000, 2000] {
            for index in 0..ENTRIES_MAX + 10 {
                cache.put(&format!("{second}-{index}"), &[], &User::default(), &[], None, at(second));
            }
            assert_eq!(cache.entries.lock().len(), ENTRIES_MAX);
        }
        assert!(cache.get("2000-0", &[], at(2001)).is_some());
    }
}
