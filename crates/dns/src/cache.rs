//! Answers of other resolvers, kept for as long as they say and no longer than half a minute, in a bounded space.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::wire::{Code, Name, Relayed};

/// As CoreDNS keeps them with kubeadm's settings.
const TTL_MAX: u32 = 30;
const TTL_MIN: u32 = 5;
const SHARDS: usize = 16;
/// All generations of all shards together.
const ENTRIES_MAX: usize = 10_000;
const BYTES_MAX: usize = 16 << 20;
/// A larger answer is not kept.
const PACKET_BYTES_MAX: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    pub name: Name,
    pub kind: u16,
    pub dnssec_ok: bool,
    pub checking_disabled: bool,
}

pub struct Kept {
    pub relayed: Relayed,
    until: Instant,
}

impl Kept {
    /// How many seconds it may live on; the one that has begun counts.
    pub(crate) fn seconds_left(&self, now: Instant) -> u32 {
        self.until.saturating_duration_since(now).as_secs_f64().ceil() as u32
    }

    pub(crate) fn is_denial(&self) -> bool {
        self.relayed.answers == 0
    }
}

pub struct Cache {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

/// When the young have filled their half, they become the old ones, and those who were old and never asked for again go.
#[derive(Default)]
struct Shard {
    young: HashMap<Question, Arc<Kept>>,
    old: HashMap<Question, Arc<Kept>>,
    young_bytes: usize,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Cache {
    pub fn get(&self, question: &Question, now: Instant) -> Option<Arc<Kept>> {
        let mut shard = self.shard(question).lock();
        if let Some(kept) = shard.young.get(question) {
            let fresh = kept.until > now;
            let kept = kept.clone();
            if !fresh {
                shard.young.remove(question);
            }
            return fresh.then_some(kept);
        }
        let kept = shard.old.remove(question).filter(|kept| kept.until > now)?;
        shard.put(question.clone(), kept.clone());
        Some(kept)
    }

    /// Keeps an answer if it is one that may be kept; answers it as it is handed on, in either case.
    pub fn put(&self, question: Question, relayed: Relayed, now: Instant) -> Arc<Kept> {
        let seconds = seconds(&relayed);
        let until = now + Duration::from_secs(u64::from(seconds.unwrap_or(TTL_MIN)));
        let keep = seconds.is_some() && !relayed.truncated && relayed.packet.len() <= PACKET_BYTES_MAX;
        let kept = Arc::new(Kept { relayed, until });
        if keep {
            self.shard(&question).lock().put(question, kept.clone());
        }
        kept
    }

    pub fn clear(&self) {
        self.shards.iter().for_each(|shard| *shard.lock() = Shard::default());
    }

    /// How many answers and how many denials are kept.
    pub fn counts(&self) -> (usize, usize) {
        let (mut answers, mut denials) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            for kept in shard.young.values().chain(shard.old.values()) {
                if kept.is_denial() { denials += 1 } else { answers += 1 }
            }
        }
        (answers, denials)
    }

    fn shard(&self, question: &Question) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(question) as usize % SHARDS]
    }
}

impl Shard {
    fn put(&mut self, question: Question, kept: Arc<Kept>) {
        let size = kept.relayed.packet.len() + 2 * kept.relayed.ttls.len() + question.name.bytes().len() + 200;
        self.young_bytes += size;
        self.old.remove(&question);
        self.young.insert(question, kept);
        if self.young.len() >= ENTRIES_MAX / SHARDS / 2 || self.young_bytes >= BYTES_MAX / SHARDS / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

/// How long an answer is kept; nothing for one that must not be. A denial says for how long only through its SOA record.
fn seconds(relayed: &Relayed) -> Option<u32> {
    let good = relayed.code == Code::NoError as u8 || relayed.code == Code::NxDomain as u8;
    relayed.ttl.filter(|_| good).map(|ttl| ttl.clamp(TTL_MIN, TTL_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize) -> Question {
        let name = Name::parse(&format!("n{number}.example")).expect("a name");
        Question { name, kind: 1, dnssec_ok: false, checking_disabled: false }
    }

    fn relayed(code: u8, ttl: Option<u32>, answers: u16, size: usize) -> Relayed {
        let packet = vec![0; size].into();
        Relayed { packet, code, truncated: false, question_end: 12, ttls: Box::default(), ttl, answers }
    }

    #[test]
    fn answers_live_as_long_as_they_say_within_bounds() {
        let (cache, now) = (Cache::default(), Instant::now());
        let check = |number, ttl, lives: u64| {
            cache.put(question(number), relayed(0, Some(ttl), 1, 100), now);
            let at = |seconds| cache.get(&question(number), now + Duration::from_millis(seconds));
            assert!(at(lives * 1000 - 1).is_some(), "{ttl}");
            assert!(at(lives * 1000).is_none(), "{ttl}");
        };
        check(1, 20, 20);
        check(2, 3600, 30);
        check(3, 0, 5);
    }

    #[test]
    fn only_what_may_be_kept_is_kept() {
        let (cache, now) = (Cache::default(), Instant::now());
        let kept = |number, relayed: Relayed| {
            cache.put(question(number), relayed, now);
            cache.get(&question(number), now).is_some()
        };
        assert!(kept(1, relayed(3, Some(10), 0, 100)), "a denial with an SOA record");
        assert!(!kept(2, relayed(3, None, 0, 100)), "a denial that says nothing");
        assert!(!kept(3, relayed(2, Some(10), 1, 100)), "a failure");
        assert!(!kept(4, Relayed { truncated: true, ..relayed(0, Some(10), 1, 100) }), "half an answer");
        assert!(!kept(5, relayed(0, Some(10), 1, PACKET_BYTES_MAX + 1)), "a huge answer");
    }

    #[test]
    fn it_stays_small_and_keeps_what_is_asked_for() {
        let (cache, now) = (Cache::default(), Instant::now());
        cache.put(question(0), relayed(0, Some(30), 1, 100), now);
        for number in 1..50_000 {
            cache.put(question(number), relayed(0, Some(30), 1, 100), now);
            if number % 100 == 0 {
                assert!(cache.get(&question(0), now).is_some(), "after {number}");
            }
        }
        let (answers, denials) = cache.counts();
        assert!(answers <= ENTRIES_MAX && answers > ENTRIES_MAX / 4, "{answers}");
        assert_eq!(denials, 0);
        for number in 0..50_000 {
            cache.put(question(number), relayed(0, Some(30), 1, PACKET_BYTES_MAX), now);
        }
        assert!(cache.counts().0 * PACKET_BYTES_MAX <= BYTES_MAX + SHARDS * PACKET_BYTES_MAX * 2);
    }
}
