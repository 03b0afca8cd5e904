//! Pod sources: the API, static pod manifests, and sandboxes left in the runtime. Keeps one worker for each pod.

mod admit;
mod orphans;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use reconcile::Cache;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use self::admit::{counts, has_ended, is_known};
use super::admission;
use super::memory::Failed;
use super::worker::{self, Handle, Wish};
use super::{Shared, spec};
use crate::managers::Refused;
use crate::node::Health;

const EVENTS_RETRY: Duration = Duration::from_secs(1);
const CHANGES_MAX: usize = 256;

/// Looks after the node's pods until told to stop. Containers go on running after it.
/// `in_api` holds the pods that the API has bound to this node.
/// `health` knows whether the node is under pressure and takes no more pods.
pub async fn run(
    shared: Arc<Shared>,
    health: Arc<Health>,
    in_api: Arc<Cache<Pod>>,
    mut static_pods: watch::Receiver<Vec<Arc<Pod>>>,
) {
    let shutdown = shared.kubelet.shutdown.clone();
    // Only the newest state counts, so that one place is enough.
    let (tx, mut changes) = mpsc::channel(1);
    let following = tasks::spawn(follow(in_api, tx));
    let (woken_tx, mut woken) = mpsc::channel(CHANGES_MAX);
    let listening = tasks::spawn(listen(shared.clone(), woken_tx));
    let mut objects = shared.kubelet.objects.changes();

    let (admitted_tx, mut admitted) = mpsc::channel(CHANGES_MAX);
    let mut workers = Workers {
        shared,
        health,
        by_uid: HashMap::new(),
        of_api: HashMap::new(),
        api_seen: false,
        over: Arc::new(Notify::new()),
        waiting: HashMap::new(),
        seen_at: HashMap::new(),
        admitting: HashMap::new(),
        admitted: admitted_tx,
    };
    let (over, pods_here) = (workers.over.clone(), workers.shared.pods.clone());
    let pods = static_pods.borrow_and_update().clone();
    workers.static_pods(&pods).await;
    let mut files = true;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            change = changes.recv() => match change {
                Some(pods) => workers.all(pods).await,
                None => break,
            },
            changed = static_pods.changed(), if files => match changed {
                Ok(()) => {
                    let pods = static_pods.borrow_and_update().clone();
                    workers.static_pods(&pods).await;
                }
                // Nobody reads files any more; what they said stays.
                Err(_) => files = false,
            },
            () = over.notified() => workers.one_is_over().await,
            () = pods_here.one_ended() => workers.release(),
            uids = pods_here.with_changed_devices() => uids.iter().for_each(|uid| workers.tell(uid, Handle::nudge)),
            Some((uid, outcome)) = admitted.recv() => workers.is_admitted(&uid, outcome),
            uid = woken.recv() => match uid {
                Some(Woken::Pod(uid)) => workers.tell(&uid, Handle::look),
                Some(Woken::All) => workers.by_uid.values().for_each(Handle::look),
                None => break,
            },
            uid = objects.recv() => match uid {
                Ok(uid) => workers.tell(&uid, Handle::refresh),
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {
                    workers.by_uid.values().for_each(Handle::refresh);
                }
                Err(tokio::sync::broadcast::error::RecvError::Closed) => break,
            },
        }
    }
    following.abort();
    listening.abort();
    for worker in workers.by_uid.values() {
        worker.abort();
    }
}

/// Hands over what the cache holds whenever it has changed.
async fn follow(pods: Arc<Cache<Pod>>, changes: mpsc::Sender<Vec<Arc<Pod>>>) {
    let mut changed = pods.changes();
    pods.synced().await;
    loop {
        changed.mark_unchanged();
        if changes.send(pods.list()).await.is_err() || changed.changed().await.is_err() {
            return;
        }
    }
}

enum Woken {
    Pod(String),
    /// Events may have been missed.
    All,
}

/// Hears of the runtime and says whose pod it is about.
async fn listen(shared: Arc<Shared>, woken: mpsc::Sender<Woken>) {
    loop {
        match shared.kubelet.runtime.events().await {
            Ok(mut events) => {
                if woken.send(Woken::All).await.is_err() {
                    return;
                }
                while let Some(event) = events.next().await {
                    let status = event.pod_sandbox_status;
                    let uid = status.and_then(|status| status.metadata).map(|metadata| metadata.uid);
                    // A runtime that does not say which pod it is about makes all look.
                    let about = uid.filter(|uid| !uid.is_empty()).map_or(Woken::All, Woken::Pod);
                    if woken.send(about).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "cannot subscribe to container runtime events"),
        }
        tokio::time::sleep(EVENTS_RETRY).await;
    }
}

struct Workers {
    shared: Arc<Shared>,
    health: Arc<Health>,
    by_uid: HashMap<String, Handle>,
    /// The pods of the API by namespace and name, mirrors of static ones among them.
    of_api: HashMap<(String, String), Arc<Pod>>,
    api_seen: bool,
    /// Rung when a worker has nothing left to do.
    over: Arc<Notify>,
    /// Static pods that wait until an earlier one of the same name has ended, by uid.
    waiting: HashMap<String, Wish>,
    /// When pods that have no worker yet were seen for the first time: those that wait or are being admitted.
    seen_at: HashMap<String, Instant>,
    /// Pods whose devices are being allocated: neither taken nor refused yet.
    admitting: HashMap<String, Wish>,
    admitted: mpsc::Sender<(String, Result<(), Refused>)>,
}

impl Workers {
    async fn all(&mut self, pods: Vec<Arc<Pod>>) {
        let uids: HashSet<String> = pods.iter().map(|pod| spec::uid(pod).to_owned()).collect();
        let missing: Vec<Arc<Pod>> =
            self.of_api.values().filter(|pod| !uids.contains(spec::uid(pod))).cloned().collect();
        for pod in missing {
            self.gone(pod).await;
        }
        // The oldest are taken in first, so that after a restart those that ran keep their places.
        let mut pods = pods;
        pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
        for pod in pods {
            self.set(pod).await;
        }
        if !std::mem::replace(&mut self.api_seen, true) {
            self.end_orphans().await;
        }
    }

    async fn set(&mut self, pod: Arc<Pod>) {
        let key = (spec::namespace(&pod).to_owned(), spec::name(&pod).to_owned());
        let before = self.of_api.insert(key, pod.clone());
        let same = |before: &Arc<Pod>| {
            spec::uid(before) == spec::uid(&pod) && before.metadata.resource_version == pod.metadata.resource_version
        };
        if before.as_ref().is_some_and(same) {
            return;
        }
        // Another pod of the same name: the earlier one's end was missed.
        if let Some(before) = before.filter(|before| spec::uid(before) != spec::uid(&pod)) {
            self.end(spec::uid(&before), &before);
        }
        if spec::is_mirror(&pod) {
            self.mirror(&pod, Some(pod.clone()));
            return;
        }
        self.wish(Wish { pod, mirror: None, gone: false }).await;
    }

    async fn gone(&mut self, pod: Arc<Pod>) {
        let key = (spec::namespace(&pod).to_owned(), spec::name(&pod).to_owned());
        if self.of_api.get(&key).is_some_and(|known| spec::uid(known) == spec::uid(&pod)) {
            self.of_api.remove(&key);
        }
        if spec::is_mirror(&pod) {
            self.mirror(&pod, None);
            return;
        }
        self.end(spec::uid(&pod), &pod);
        self.weigh();
    }

    /// Tells the static pod of that name about its object in the API.
    fn mirror(&mut self, of: &Pod, mirror: Option<Arc<Pod>>) {
        for worker in self.by_uid.values() {
            let wish = worker.wish();
            let same = spec::name(&wish.pod) == spec::name(of) && spec::namespace(&wish.pod) == spec::namespace(of);
            if same && spec::is_static(&wish.pod) && !wish.gone {
                worker.set(Wish { mirror: mirror.clone(), ..wish });
            }
        }
        // The new version of a static pod has its mirror before the old version has ended.
        for wish in self.waiting.values_mut().chain(self.admitting.values_mut()) {
            if spec::name(&wish.pod) == spec::name(of) && spec::namespace(&wish.pod) == spec::namespace(of) {
                wish.mirror = mirror.clone();
            }
        }
    }

    async fn static_pods(&mut self, pods: &[Arc<Pod>]) {
        let uids: HashSet<&str> = pods.iter().map(|pod| spec::uid(pod)).collect();
        let admitting = self.admitting.values().cloned();
        let missing: Vec<Arc<Pod>> = self
            .by_uid
            .values()
            .map(|worker| worker.wish())
            .chain(admitting)
            .filter(|wish| spec::is_static(&wish.pod) && !wish.gone && !uids.contains(spec::uid(&wish.pod)))
            .map(|wish| wish.pod)
            .collect();
        for pod in missing {
            self.end(spec::uid(&pod), &pod);
        }
        self.waiting.retain(|uid, _| uids.contains(uid.as_str()));
        self.seen_at.retain(|uid, _| self.waiting.contains_key(uid) || self.admitting.contains_key(uid));
        for pod in pods {
            let key = (spec::namespace(pod).to_owned(), spec::name(pod).to_owned());
            let mirror = self.of_api.get(&key).filter(|mirror| spec::is_mirror(mirror)).cloned();
            self.wish(Wish { pod: pod.clone(), mirror, gone: false }).await;
        }
    }

    fn end(&mut self, uid: &str, last: &Arc<Pod>) {
        let wish = Wish { pod: last.clone(), mirror: None, gone: true };
        if let Some(worker) = self.by_uid.get(uid) {
            worker.set(wish);
        } else if let Some(admitting) = self.admitting.get_mut(uid) {
            *admitting = wish;
        }
    }

    async fn wish(&mut self, wish: Wish) {
        self.by_uid.retain(|_, worker| !worker.is_finished());
        let uid = spec::uid(&wish.pod).to_owned();
        if let Some(worker) = self.by_uid.get(&uid) {
            worker.set(wish);
            return;
        }
        if let Some(admitting) = self.admitting.get_mut(&uid) {
            *admitting = wish;
            return;
        }
        self.seen_at.entry(uid.clone()).or_insert_with(Instant::now);
        if self.name_is_taken(&wish.pod) {
            self.waiting.insert(uid, wish);
            return;
        }
        let refused = self.judge(&wish.pod).await;
        if refused.is_none() && !is_known(&wish.pod) && self.shared.device_plugins.concern(&wish.pod) {
            self.begin_admission(uid, wish);
            return;
        }
        let refused = refused.or_else(|| self.place(&wish.pod));
        self.start(uid, wish, refused);
    }

    fn start(&mut self, uid: String, wish: Wish, refused: Option<Failed>) {
        let seen_at = self.seen_at.remove(&uid).unwrap_or_else(Instant::now);
        let worker = worker::start(self.shared.clone(), wish, refused, self.over.clone(), seen_at);
        self.by_uid.insert(uid, worker);
        self.weigh();
    }

    /// Device plugins are asked beside everything else: one that does not answer keeps no other pod waiting.
    fn begin_admission(&mut self, uid: String, wish: Wish) {
        let pod = wish.pod.clone();
        self.admitting.insert(uid.clone(), wish);
        let active = self.api_seen.then(|| self.active());
        let (shared, admitted) = (self.shared.clone(), self.admitted.clone());
        tasks::spawn(async move {
            let outcome = shared.managers.admit_with_devices(&pod, &shared.device_plugins, active.as_ref()).await;
            // Nobody waits for it once the kubelet ends.
            let _ = admitted.send((uid, outcome)).await;
        });
    }

    fn is_admitted(&mut self, uid: &str, outcome: Result<(), Refused>) {
        let Some(wish) = self.admitting.remove(uid) else { return };
        let refused = outcome.err().map(|error| {
            self.shared.device_plugins.forget(uid);
            self.unplaced(&wish.pod, &error)
        });
        self.start(uid.to_owned(), wish, refused);
    }

    /// Gives a pod without devices of plugins its processors and memory. One that runs already, from before this kubelet, is not ended when
    /// there is nothing for it: it shares the pool.
    fn place(&self, pod: &Pod) -> Option<Failed> {
        if pod.metadata.deletion_timestamp.is_some() || !counts(&self.shared, pod) || has_ended(pod) {
            return None;
        }
        let active = self.api_seen.then(|| self.active());
        let error = self.shared.managers.admit(pod, active.as_ref()).err()?;
        if is_known(pod) {
            tracing::warn!(pod = spec::full_name(pod), %error, "cannot give running pod processors and memory of its own");
            return None;
        }
        Some(self.unplaced(pod, &error))
    }

    fn unplaced(&self, pod: &Pod, error: &Refused) -> Failed {
        self.refused(pod, admission::Refusal { reason: error.reason().into(), message: error.to_string() })
    }

    /// What pods had that have ended is free, though their objects may stay.
    fn release(&self) {
        if self.api_seen {
            self.shared.managers.retain(&self.active());
        }
    }

    /// Pods that may hold devices, processors and memory.
    fn active(&self) -> HashSet<String> {
        let workers = self.by_uid.iter().filter(|(_, worker)| !worker.is_finished());
        let taken = workers.filter(|(_, worker)| counts(&self.shared, &worker.wish().pod)).map(|(uid, _)| uid);
        taken.chain(self.admitting.keys()).cloned().collect()
    }

    /// The classes' cgroups weigh what their pods request together.
    fn weigh(&self) {
        let wishes: Vec<Wish> = self.by_uid.values().map(Handle::wish).filter(|wish| !wish.gone).collect();
        let pods = wishes.iter().map(|wish| &*wish.pod).filter(|pod| counts(&self.shared, pod));
        if let Err(error) = self.shared.cgroups.ensure(self.shared.allocatable, pods) {
            tracing::warn!(%error, "cannot update QoS cgroups");
        }
    }

    fn tell(&self, uid: &str, word: fn(&Handle)) {
        if let Some(worker) = self.by_uid.get(uid) {
            word(worker);
        }
    }

    /// There is room on the node, and names are free again.
    async fn one_is_over(&mut self) {
        self.by_uid.retain(|_, worker| !worker.is_finished());
        self.by_uid.values().for_each(Handle::nudge);
        self.weigh();
        self.release();
        for (_, wish) in std::mem::take(&mut self.waiting) {
            self.wish(wish).await;
        }
    }

    /// Whether a static pod of that name is still ending: two of them must never run at once.
    fn name_is_taken(&self, pod: &Pod) -> bool {
        let uid = spec::uid(pod);
        spec::is_static(pod)
            && self.by_uid.values().any(|worker| {
                let other = worker.wish().pod;
                let same = spec::name(&other) == spec::name(pod) && spec::namespace(&other) == spec::namespace(pod);
                same && spec::uid(&other) != uid && !worker.is_finished()
            })
    }

    fn is_here(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid) || self.admitting.contains_key(uid)
    }
}
