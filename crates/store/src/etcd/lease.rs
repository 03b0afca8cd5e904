//! Leases for keys that end by themselves. Keys with the same time to live share one lease for a while, as
//! upstream does: ten thousand Events are not ten thousand leases.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::READ_PATIENCE;
use super::cluster::{Cluster, Member};
use super::failure::Failure;

/// For how long at most a lease takes new keys; the first of them live longer by that.
const SHARE_SECONDS_MAX: u64 = 60;
/// What part of its time to live a key may live longer, in percent.
const SHARE_PERCENT: u64 = 5;
/// How many keys share a lease: all of them end at once, in one step of etcd.
const SHARED_KEYS_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Leases {
    /// The lease that takes new keys, by time to live in seconds.
    open: Mutex<HashMap<u64, Lease>>,
}

struct Lease {
    id: i64,
    /// Until then it outlives a key that joins now.
    joinable_until: Instant,
    keys: usize,
}

impl Leases {
    /// A lease that keeps a key for at least that time.
    pub async fn get(&self, cluster: &Cluster, ttl: Duration) -> Result<i64, Failure> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        // Held while a lease is granted, so that those who wait share it.
        let mut open = self.open.lock().await;
        let now = Instant::now();
        if let Some(lease) = open.get_mut(&seconds)
            && now <= lease.joinable_until
            && lease.keys < SHARED_KEYS_MAX
        {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let share = (seconds * SHARE_PERCENT / 100).min(SHARE_SECONDS_MAX);
        let lasts = i64::try_from((seconds + share).max(1)).unwrap_or(i64::MAX);
        let grant = |mut member: Member| async move { member.client.lease_grant(lasts).await };
        // A lease granted twice ends by itself, so the grant is tried again like a read. The time until its
        // end begins before it is asked for.
        let id = cluster.read(READ_PATIENCE, grant).await?;
        open.retain(|_, lease| now <= lease.joinable_until);
        let joinable_until = now + Duration::from_secs(share);
        open.insert(seconds, Lease { id, joinable_until, keys: 1 });
        Ok(id)
    }

    /// A lease turned out to be gone; all are asked for anew.
    pub(crate) async fn forget_all(&self) {
        self.open.lock().await.clear();
    }
}
