//! What this server has reserved and not yet written, and what it knows of each quota. A recount adds what is on its
//! way to what is there; nobody else can know it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use store::Revision;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::pod_resources::Amounts;
use super::reserve::{Outcome, Wanted};

/// How long another server's reservation may be on its way. A status that others wrote more recently is not lowered.
const SETTLE: Duration = Duration::from_secs(5);
/// How many namespaces are remembered before those at rest are forgotten.
const NAMESPACES_MAX: usize = 1024;

#[derive(Default)]
pub struct Ledger {
    namespaces: Mutex<HashMap<String, Arc<Namespace>>>,
}

/// One namespace: its queue, who is on the way, and its quotas.
#[derive(Default)]
pub struct Namespace {
    /// Held by the one who reserves for all that wait.
    pub turn: tokio::sync::Mutex<()>,
    queue: Mutex<Vec<(Wanted, oneshot::Sender<Outcome>)>>,
    pending: Mutex<HashMap<u64, Charge>>,
    next: AtomicU64,
    quotas: Mutex<HashMap<String, Known>>,
    /// How many reservations have ended, one way or the other.
    ended: AtomicU64,
}

/// One reservation on its way to become an object.
struct Charge {
    wanted: Wanted,
    /// By the uid of the quota.
    amounts: HashMap<String, Amounts>,
}

/// What is known of a quota, by its uid.
#[derive(Clone)]
struct Known {
    used: Value,
    /// Whether the status is as we wrote it.
    ours: bool,
    /// When somebody else's status was last seen; none where the quota was untouched when we met it.
    others: Option<Instant>,
    /// The newest of its writes that we made, which the cache may not have seen.
    written: Option<(Revision, Arc<Value>)>,
    /// The newest change that the last recount saw, and how many reservations had ended.
    recounted: (Revision, u64),
}

/// A reservation; it is on its way for as long as this lives.
pub struct Pending {
    pub namespace: Arc<Namespace>,
    id: u64,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.namespace.pending.lock().remove(&self.id);
        self.namespace.ended.fetch_add(1, Ordering::AcqRel);
    }
}

impl Pending {
    /// What was charged to each quota, by its uid.
    pub(crate) fn charges(&self) -> HashMap<String, Amounts> {
        self.namespace.pending.lock().get(&self.id).map(|charge| charge.amounts.clone()).unwrap_or_default()
    }
}

impl Ledger {
    pub fn namespace(&self, name: &str) -> Arc<Namespace> {
        let mut namespaces = self.namespaces.lock();
        if namespaces.len() >= NAMESPACES_MAX && !namespaces.contains_key(name) {
            namespaces.retain(|_, namespace| Arc::strong_count(namespace) > 1);
        }
        namespaces.entry(name.into()).or_default().clone()
    }
}

impl Namespace {
    pub(crate) fn enqueue(&self, wanted: Wanted) -> oneshot::Receiver<Outcome> {
        let (answer, receiver) = oneshot::channel();
        self.queue.lock().push((wanted, answer));
        receiver
    }

    pub(crate) fn take_queue(&self) -> Vec<(Wanted, oneshot::Sender<Outcome>)> {
        std::mem::take(&mut *self.queue.lock())
    }

    /// Enters a reservation before it is made, so that no recount misses it.
    pub fn enter(self: &Arc<Namespace>, wanted: Wanted) -> Pending {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.pending.lock().insert(id, Charge { wanted, amounts: HashMap::new() });
        Pending { namespace: self.clone(), id }
    }

    pub fn charge(&self, pending: &Pending, quota: &str, amounts: Amounts) {
        if let Some(charge) = self.pending.lock().get_mut(&pending.id) {
            charge.amounts.insert(quota.into(), amounts);
        }
    }

    /// What is on its way and charged to that quota.
    pub(crate) fn on_the_way(&self, quota: &str) -> Vec<(Wanted, Amounts)> {
        let pending = self.pending.lock();
        pending
            .values()
            .filter_map(|charge| Some((charge.wanted.clone(), charge.amounts.get(quota)?.clone())))
            .collect()
    }

    /// Takes note of a quota's status as it is read.
    pub fn observe(&self, quota: &str, used: &Value) {
        let mut quotas = self.quotas.lock();
        match quotas.get_mut(quota) {
            Some(known) if known.used == *used => {}
            Some(known) => (known.used, known.ours, known.others) = (used.clone(), false, Some(Instant::now())),
            None => {
                let others = Some(Instant::now());
                let known =
                    Known { used: used.clone(), ours: false, others, written: None, recounted: (Revision(0), 0) };
                quotas.insert(quota.into(), known);
            }
        }
    }

    /// Whether usage may be lowered to what a recount finds: no other server can have a reservation on its way, since
    /// one would show in the status.
    pub(crate) fn may_lower(&self, quota: &str, used: &Amounts) -> bool {
        let mut quotas = self.quotas.lock();
        let Some(known) = quotas.get_mut(quota) else { return false };
        if used.values().all(|amount| amount.is_zero()) {
            known.others = None;
        }
        known.others.is_none_or(|seen| seen.elapsed() >= SETTLE)
    }

    /// Whether the status is as we last wrote it.
    pub fn is_ours(&self, quota: &str) -> bool {
        self.quotas.lock().get(quota).is_some_and(|known| known.ours)
    }

    pub fn wrote(&self, quota: &str, used: &Value, revision: Revision, object: Arc<Value>) {
        let mut quotas = self.quotas.lock();
        if let Some(known) = quotas.get_mut(quota) {
            (known.used, known.ours, known.written) = (used.clone(), true, Some((revision, object)));
        }
    }

    /// Our own write of a quota, where it is newer than what the cache shows.
    pub fn newer(&self, quota: &str, than: Revision) -> Option<(Revision, Arc<Value>)> {
        let mut quotas = self.quotas.lock();
        let known = quotas.get_mut(quota)?;
        match &known.written {
            Some((revision, _)) if *revision > than => known.written.clone(),
            _ => {
                known.written = None;
                None
            }
        }
    }

    /// How many reservations have ended so far.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether a recount could find anything new, given when its objects last changed.
    pub(crate) fn worth_recounting(&self, quota: &str, changed: Revision, ended: u64) -> bool {
        self.quotas.lock().get(quota).is_none_or(|known| known.recounted.0 < changed || known.recounted.1 != ended)
    }

    pub(crate) fn recounted(&self, quota: &str, changed: Revision, ended: u64) {
        if let Some(known) = self.quotas.lock().get_mut(quota) {
            known.recounted = (changed, ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::pod_resources::amounts;
    use super::*;

    /// Reads the quota with that status, and says whether a recount may lower it.
    fn check(namespace: &Namespace, used: Value, may_lower: bool) {
        namespace.observe("q", &used);
        assert_eq!(namespace.may_lower("q", &amounts(&used)), may_lower, "{used}");
    }

    #[tokio::test(start_paused = true)]
    async fn usage_that_others_wrote_settles_first() {
        let namespace = Namespace::default();
        check(&namespace, json!({"pods": "0"}), true);
        namespace.wrote("q", &json!({"pods": "1"}), Revision(5), Arc::default());
        check(&namespace, json!({"pods": "1"}), true);
        // Another server reserves, then we do: its pod may still be on the way.
        check(&namespace, json!({"pods": "2"}), false);
        namespace.wrote("q", &json!({"pods": "3"}), Revision(7), Arc::default());
        check(&namespace, json!({"pods": "3"}), false);
        tokio::time::advance(SETTLE).await;
        check(&namespace, json!({"pods": "3"}), true);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quota_met_in_use_settles_first() {
        let namespace = Namespace::default();
        check(&namespace, json!({"pods": "4"}), false);
        tokio::time::advance(SETTLE).await;
        check(&namespace, json!({"pods": "4"}), true);
    }

    #[test]
    fn what_is_on_the_way_ends_with_its_holder() {
        let namespace = Arc::new(Namespace::default());
        let pending = namespace.enter(Wanted::default());
        namespace.charge(&pending, "q", amounts(&json!({"pods": "1"})));
        assert_eq!(namespace.on_the_way("q").len(), 1);
        assert_eq!(namespace.on_the_way("other").len(), 0);
        drop(pending);
        assert_eq!((namespace.on_the_way("q").len(), namespace.ended()), (0, 1));
    }
}
