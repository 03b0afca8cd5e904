//! Which pods there are: from the API, from files, and what the runtime still has of earlier ones. Keeps one worker for each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use cri::v1;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use reconcile::Cache;
use reconcile::events::EventType;
use tokio::sync::{Notify, mpsc, watch};

use super::admission::{self, NodeView};
use super::memory::Failed;
use super::worker::{self, Handle, Wish};
use super::{Shared, labels, spec};
use crate::device_plugins::AllocateError;
use crate::eviction;
use crate::node::Health;
use crate::pods::{EvictionCondition, Order};

const EVENTS_RETRY: Duration = Duration::from_secs(1);
const CHANGES_MAX: usize = 256;
/// Volumes of pods that are gone are tried again after this, and ever more rarely.
const ORPHANS_RETRY: Duration = Duration::from_secs(1);
const ORPHANS_RETRY_MAX: Duration = Duration::from_secs(120);

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
        admitting: HashMap::new(),
        admitted: admitted_tx,
    };
    let over = workers.over.clone();
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
            Err(error) => tracing::warn!(%error, "runtime gives no events"),
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
    /// Pods whose devices are being allocated: neither taken nor refused yet.
    admitting: HashMap<String, Wish>,
    admitted: mpsc::Sender<(String, Result<(), AllocateError>)>,
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
        if self.name_is_taken(&wish.pod) {
            self.waiting.insert(uid, wish);
            return;
        }
        let refused = self.judge(&wish.pod).await;
        if refused.is_none() && !is_known(&wish.pod) && self.shared.device_plugins.concern(&wish.pod) {
            self.begin_admission(uid, wish);
            return;
        }
        self.start(uid, wish, refused);
    }

    fn start(&mut self, uid: String, wish: Wish, refused: Option<Failed>) {
        let worker = worker::start(self.shared.clone(), wish, refused, self.over.clone());
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
            let outcome = shared.device_plugins.allocate(&pod, active.as_ref()).await;
            // Nobody waits for it once the kubelet ends.
            let _ = admitted.send((uid, outcome)).await;
        });
    }

    fn is_admitted(&mut self, uid: &str, outcome: Result<(), AllocateError>) {
        let Some(wish) = self.admitting.remove(uid) else { return };
        let refused = outcome.err().map(|error| {
            self.shared.device_plugins.forget(uid);
            let message = format!("Allocate failed due to {error}, which is unexpected");
            self.refused(&wish.pod, admission::Refusal { reason: "UnexpectedAdmissionError".into(), message })
        });
        self.start(uid.to_owned(), wish, refused);
    }

    /// Pods that may hold devices.
    fn active(&self) -> HashSet<String> {
        let workers = self.by_uid.iter().filter(|(_, worker)| !worker.is_finished());
        let taken = workers.filter(|(_, worker)| counts(&self.shared, &worker.wish().pod)).map(|(uid, _)| uid);
        taken.chain(self.admitting.keys()).cloned().collect()
    }

    /// The classes' control groups weigh what their pods request together.
    fn weigh(&self) {
        let wishes: Vec<Wish> = self.by_uid.values().map(Handle::wish).filter(|wish| !wish.gone).collect();
        let pods = wishes.iter().map(|wish| &*wish.pod).filter(|pod| counts(&self.shared, pod));
        if let Err(error) = self.shared.cgroups.ensure(self.shared.allocatable, pods) {
            tracing::warn!(%error, "control groups of the classes are not set");
        }
    }

    /// A pod that was taken once is not judged again.
    async fn judge(&self, pod: &Pod) -> Option<Failed> {
        if is_known(pod) {
            return None;
        }
        let workers = self.by_uid.values().filter(|worker| !worker.is_finished());
        let states: Vec<_> = workers.map(Handle::wish).chain(self.admitting.values().cloned()).collect();
        let others: Vec<&Pod> =
            states.iter().map(|wish| &*wish.pod).filter(|other| counts(&self.shared, other)).collect();
        let under_pressure = eviction::refuses(&self.health.pressures(), pod);
        let mut refusal = match under_pressure.filter(|_| !spec::is_static(pod)) {
            Some((reason, message)) => admission::Refusal { reason, message },
            None => self.admit(pod, &others).await.err()?,
        };
        if refusal.reason.starts_with("OutOf") && eviction::rank::is_critical(pod) {
            refusal = self.make_room(pod, &others).await.err()?;
        }
        Some(self.refused(pod, refusal))
    }

    fn refused(&self, pod: &Pod, refusal: admission::Refusal) -> Failed {
        self.shared.tell(pod, None, EventType::Warning, &refusal.reason, refusal.message.clone());
        Failed {
            reason: refusal.reason,
            message: format!("Pod was rejected: {}", refusal.message),
            condition: None,
            grace_seconds: None,
            refused: true,
        }
    }

    async fn admit(&self, pod: &Pod, others: &[&Pod]) -> Result<(), admission::Refusal> {
        let objects = &self.shared.kubelet.objects;
        let name = &self.shared.kubelet.config.node_name;
        let node = objects.node(name).await.ok();
        let refused = match admission::admit(&self.view(node.as_deref()), pod, others) {
            Err(refusal) if refusal.reason == "NodeAffinity" && node.is_some() => refusal,
            other => return other,
        };
        // The scheduler may have seen labels that have not come here yet.
        match objects.fresh_node(name).await {
            Ok(node) => admission::admit(&self.view(Some(&node)), pod, others),
            Err(_) => Err(refused),
        }
    }

    /// Others go for a critical pod. It is taken at once, and shares the node with them until they have ended.
    async fn make_room(&self, pod: &Pod, others: &[&Pod]) -> Result<(), admission::Refusal> {
        let node = self.shared.kubelet.objects.node(&self.shared.kubelet.config.node_name).await.ok();
        let view = self.view(node.as_deref());
        let Some(victims) = admission::preemption::victims(&view, pod, others) else {
            let missing = admission::preemption::missing(&view, pod, others);
            let message = format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: {missing}"
            );
            return Err(admission::Refusal { reason: "UnexpectedAdmissionError".into(), message });
        };
        let is_victim = |other: &Pod| victims.iter().any(|victim| spec::uid(victim) == spec::uid(other));
        let left: Vec<&Pod> = others.iter().filter(|other| !is_victim(other)).copied().collect();
        // Nobody goes for a pod that the node does not take for another reason as well.
        admission::admit(&view, pod, &left)?;
        for victim in victims {
            let message = "Preempted in order to admit critical pod".to_owned();
            self.shared.tell(victim, None, EventType::Warning, "Preempting", message.clone());
            let condition = EvictionCondition {
                reason: "TerminationByKubelet".into(),
                message: "Pod was preempted by Kubelet to accommodate a critical pod.".into(),
            };
            let order = Order::Evict {
                reason: "Preempting".into(),
                message,
                condition: Some(condition),
                grace_period_seconds: None,
            };
            if !self.shared.pods.order(spec::uid(victim), order).await {
                tracing::warn!(pod = spec::full_name(victim), "a pod that was to make room has ended by itself");
            }
        }
        Ok(())
    }

    /// Without the node's object only what needs no object is checked: a static pod must run when the API is away.
    fn view(&self, node: Option<&Node>) -> NodeView {
        let mut view = NodeView::new(node, &self.shared);
        if node.is_none() {
            view.labels = self.shared.kubelet.config.node_labels.clone().into_iter().collect();
        }
        if !view.allocatable.is_empty() {
            self.shared.pods.set_allocatable(view.allocatable.clone());
        }
        view
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

    /// Ends and removes what the runtime has of pods that exist no more. Only once the API has said which pods exist.
    async fn end_orphans(&mut self) {
        super::container_logs::remove_dead_links(&self.shared.kubelet.config.log_dir);
        let sandboxes = match self.shared.kubelet.runtime.list_pod_sandboxes(None).await {
            Ok(sandboxes) => sandboxes,
            Err(error) => {
                tracing::warn!(%error, "what is left of earlier pods is not known");
                return;
            }
        };
        let containers = self.shared.kubelet.runtime.list_containers(None).await.unwrap_or_default();
        for sandbox in &sandboxes {
            let Some(uid) = sandbox.labels.get(labels::POD_UID) else { continue };
            if self.is_here(uid) {
                continue;
            }
            let pod = Arc::new(orphan(sandbox, &containers));
            tracing::info!(pod = spec::full_name(&pod), "ending what is left of a pod that is gone");
            let worker =
                worker::start(self.shared.clone(), Wish { pod, mirror: None, gone: true }, None, self.over.clone());
            self.by_uid.insert(uid.clone(), worker);
        }
        let left: Vec<String> = self.shared.volumes.uids().into_iter().filter(|uid| !self.is_here(uid)).collect();
        let claimed: Vec<String> = self.shared.claims.uids().into_iter().filter(|uid| !self.is_here(uid)).collect();
        let left = Orphans { volumes: left, claims: claimed };
        if !left.is_empty() {
            // A task of its own: drivers may take their time, or come only later.
            tasks::spawn(take_down_orphans(self.shared.clone(), left));
        }
    }
}

/// Uids of pods that are gone, of which something is left.
struct Orphans {
    volumes: Vec<String>,
    claims: Vec<String>,
}

impl Orphans {
    fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.claims.is_empty()
    }
}

/// Volumes and claimed devices of pods that are gone, until none is left.
async fn take_down_orphans(shared: Arc<Shared>, mut orphans: Orphans) {
    let mut wait = ORPHANS_RETRY;
    loop {
        let mut left = Orphans { volumes: Vec::new(), claims: Vec::new() };
        for uid in orphans.claims {
            if let Err(error) = shared.claims.unprepare(&uid).await {
                tracing::warn!(uid, %error, "cannot unprepare claimed devices of a pod that is gone");
                left.claims.push(uid);
            }
        }
        for uid in orphans.volumes {
            if let Err(error) = shared.volumes.unmount(&uid).await {
                tracing::warn!(uid, %error, "cannot take down volumes of a pod that is gone");
                left.volumes.push(uid);
            }
        }
        orphans = left;
        if orphans.is_empty() {
            return;
        }
        tokio::select! {
            () = shared.kubelet.shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(ORPHANS_RETRY_MAX),
        }
    }
}

/// Whether the pod was taken before, or is not to be taken any more.
fn is_known(pod: &Pod) -> bool {
    let was_taken = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
    was_taken || pod.metadata.deletion_timestamp.is_some()
}

/// Whether a pod takes room on the node.
fn counts(shared: &Shared, pod: &Pod) -> bool {
    let Some(state) = shared.pods.by_uid(spec::uid(pod)) else { return true };
    !state.finished && !matches!(state.status.phase.as_deref(), Some("Failed" | "Succeeded"))
}

/// As much of a pod as the runtime's labels tell.
fn orphan(sandbox: &v1::PodSandbox, containers: &[v1::Container]) -> Pod {
    let mark = |key: &str| sandbox.labels.get(key).cloned();
    let mut pod = Pod::default();
    pod.metadata.name = mark(labels::POD_NAME);
    pod.metadata.namespace = mark(labels::POD_NAMESPACE);
    pod.metadata.uid = mark(labels::POD_UID);
    let own: Vec<&v1::Container> =
        containers.iter().filter(|container| container.pod_sandbox_id == sandbox.id).collect();
    let grace = own
        .iter()
        .find_map(|container| container.annotations.get(labels::POD_TERMINATION_GRACE_PERIOD)?.parse::<i64>().ok());
    let mut spec =
        k8s_openapi::api::core::v1::PodSpec { termination_grace_period_seconds: grace, ..Default::default() };
    let mut names: HashSet<&str> = HashSet::new();
    for container in own {
        let Some(name) = container.labels.get(labels::CONTAINER_NAME).filter(|name| names.insert(name)) else {
            continue;
        };
        let pre_stop = container.annotations.get(labels::PRE_STOP_HANDLER);
        let pre_stop = pre_stop.and_then(|text| serde_json::from_str(text).ok());
        let ports = container.annotations.get(labels::CONTAINER_PORTS);
        spec.containers.push(k8s_openapi::api::core::v1::Container {
            name: name.clone(),
            lifecycle: pre_stop
                .map(|hook| k8s_openapi::api::core::v1::Lifecycle { pre_stop: Some(hook), ..Default::default() }),
            ports: ports.and_then(|text| serde_json::from_str(text).ok()),
            ..Default::default()
        });
    }
    pod.spec = Some(spec);
    pod
}
