//! The loop: takes in what changed, decides for one pod after the other, and has the bindings written beside it.

mod bind;
mod changes;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use reconcile::events::{EventType, Recorder, reference};
use reconcile::{Cluster, Key, Kind, Shutdown};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::Config;
use crate::cycle::{self, Decision};
use crate::failure::Failure;
use crate::framework::{Change, Reservation, View};
use crate::metrics::{self, Attempt, Metrics};
use crate::objects::Objects;
use crate::plugins::dynamic_resources;
use crate::pod_info::PodInfo;
use crate::preempt::{self, Outcome};
use crate::profile::Profile;
use crate::queue::{Popped, Queue};
use crate::snapshot::Snapshot;
use crate::writes::unscheduled_status;
use bind::Timeouts;
use changes::{happened, matters, own_change_matters, pod_matters};

/// So many changes are taken in before the next decision, so that a flood of them does not stop scheduling.
const CHANGES_PER_DECISION_MAX: usize = 1000;

/// How old the numbers may be that others see while there is much to do.
const METRICS_EVERY: Duration = Duration::from_secs(1);

enum Message {
    Pod(Option<Arc<Pod>>, Option<Arc<Pod>>),
    Node(Option<Arc<Node>>, Option<Arc<Node>>),
    Namespace(Option<Arc<Namespace>>, Option<Arc<Namespace>>),
    /// The kind, what happened to it as upstream calls it, and which one.
    Object(&'static str, &'static str, Key),
    /// A claim was created for the extended resources of a pod, or could not be.
    ClaimCreated(bool),
    /// A pod has waited for its devices.
    Waited {
        profile: String,
        waited: dynamic_resources::bind::Waited,
    },
    /// All victims of a pod were told to end, or not all could be.
    RoomMade {
        uid: String,
        failed: bool,
    },
    /// A pod has its binding, and what was written for it is no longer an assumption.
    Bound {
        attempt: Attempt,
        reservation: Option<Reservation>,
    },
    /// A binding was refused, or could not be written; or what had to be there before it is not.
    NotBound {
        pod: Arc<PodInfo>,
        why: bind::NotBound,
        attempt: Attempt,
        reservation: Option<Reservation>,
    },
}

struct Scheduler {
    config: Config,
    snapshot: Snapshot,
    queue: Queue,
    objects: Objects,
    client: kube::Client,
    events: Recorder,
    messages: mpsc::UnboundedSender<Message>,
    bindings: Arc<Semaphore>,
    /// Where looking at nodes begins next.
    start: usize,
    random: SmallRng,
    metrics: Metrics,
}

pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) {
    let caches = cluster.caches();
    let objects = Objects::start(caches);
    // Without a bound, because it is filled inside the caches' updates: they cannot wait, and a change that is dropped would leave the
    // snapshot wrong. A message is two pointers to objects that the caches hold, and each object is changed once per round trip.
    let (messages, mut inbox) = mpsc::unbounded_channel();
    let sender = messages.clone();
    // The listener runs inside the cache's update, so it only passes on.
    let (pods, nodes, namespaces) = (caches.start::<Pod>(""), caches.start::<Node>(""), caches.start::<Namespace>(""));
    let synced = async { tokio::join!(objects.synced(), namespaces.synced(), nodes.synced(), pods.synced()) };
    tokio::select! {
        () = shutdown.cancelled() => return,
        _ = synced => {}
    }
    namespaces.listen_while(tell(&sender, Message::Namespace));
    nodes.listen_while(tell(&sender, Message::Node));
    pods.listen_while(tell(&sender, Message::Pod));
    listen_to_objects(&objects, &sender);
    let mut scheduler = Scheduler {
        bindings: Arc::new(Semaphore::new(config.bindings_max)),
        snapshot: Snapshot::default(),
        queue: Queue::new(config.queue),
        events: Recorder::with_clock(cluster.client().clone(), "default-scheduler", "", config.clock.clone()),
        config,
        objects,
        client: cluster.client().clone(),
        messages,
        start: 0,
        random: SmallRng::from_os_rng(),
        metrics: Metrics::default(),
    };
    let mut shown = Instant::now();
    loop {
        for _ in 0..CHANGES_PER_DECISION_MAX {
            let Ok(message) = inbox.try_recv() else { break };
            scheduler.take_in(message);
        }
        if shutdown.is_cancelled() {
            return;
        }
        if shown.elapsed() >= METRICS_EVERY {
            shown = Instant::now();
            scheduler.show_metrics();
        }
        if let Some(popped) = scheduler.queue.pop(Instant::now()) {
            scheduler.schedule(popped);
            // Others of this thread, the bindings among them, get their turn.
            tokio::task::yield_now().await;
            continue;
        }
        scheduler.show_metrics();
        let wake = scheduler.queue.next_wake();
        let sleep = async move {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep => {}
            message = inbox.recv() => {
                if let Some(message) = message {
                    scheduler.take_in(message);
                }
            }
        }
    }
}

fn tell<K: Kind>(
    sender: &mpsc::UnboundedSender<Message>,
    message: fn(Option<Arc<K>>, Option<Arc<K>>) -> Message,
) -> impl Fn(Option<&Arc<K>>, Option<&Arc<K>>) -> bool + Send + Sync + 'static {
    let sender = sender.clone();
    // A receiver that is gone has stopped scheduling.
    move |old, new| sender.send(message(old.cloned(), new.cloned())).is_ok()
}

fn listen_to_objects(objects: &Objects, sender: &mpsc::UnboundedSender<Message>) {
    fn listen<K: Kind>(cache: &reconcile::Cache<K>, sender: &mpsc::UnboundedSender<Message>) {
        let sender = sender.clone();
        cache.listen_while(move |old, new| {
            let Some(object) = new.or(old) else { return true };
            let kind = <K as k8s_openapi::Resource>::KIND;
            let message =
                Message::Object(kind, happened(kind, old.is_some(), new.is_some()), Key::of(object.metadata()));
            sender.send(message).is_ok()
        });
    }
    listen(&objects.claims, sender);
    listen(&objects.volumes, sender);
    listen(&objects.classes, sender);
    listen(&objects.csi_nodes, sender);
    listen(&objects.csi_drivers, sender);
    listen(&objects.capacities, sender);
    listen(&objects.attachments, sender);
    listen(&objects.services, sender);
    listen(&objects.device_claims, sender);
    listen(&objects.device_classes, sender);
    listen(&objects.slices, sender);
}

impl Scheduler {
    fn take_in(&mut self, message: Message) {
        match message {
            Message::Node(old, new) => {
                match (&old, &new) {
                    (_, Some(node)) => self.snapshot.set_node(node.clone()),
                    (Some(node), None) => self.snapshot.remove_node(node.metadata.name.as_deref().unwrap_or_default()),
                    (None, None) => {}
                }
                // Heartbeats of many nodes must not be looked at by every pod that waits.
                let same = matches!((&old, &new), (Some(old), Some(new)) if !matters(old, new));
                if !same {
                    let event = happened("Node", old.is_some(), new.is_some());
                    self.changed(event, &Change::Node { old, new });
                }
            }
            Message::Pod(old, new) => self.take_in_pod(old, new),
            Message::Namespace(old, new) => {
                let object = new.as_ref().or(old.as_ref());
                let Some(name) = object.and_then(|namespace| namespace.metadata.name.clone()) else { return };
                match new {
                    Some(namespace) => {
                        let labels = namespace.metadata.labels.clone().unwrap_or_default();
                        self.snapshot.namespaces.insert(name.clone(), labels);
                    }
                    None => _ = self.snapshot.namespaces.remove(&name),
                }
                self.changed("NamespaceUpdate", &Change::Object { kind: "Namespace", key: Key::cluster(name) });
            }
            Message::Object(kind, event, key) => self.changed(event, &Change::Object { kind, key }),
            Message::ClaimCreated(created) => self.metrics.claim_created(created),
            Message::Waited { profile, waited } => self.metrics.waited_for_devices(&profile, &waited),
            Message::RoomMade { uid, failed } => self.queue.room_made(&uid, failed, Instant::now()),
            Message::Bound { attempt, reservation } => {
                self.metrics.ended(&attempt, metrics::Outcome::Scheduled, Instant::now());
                reservation.iter().for_each(|reservation| self.objects.forget(reservation));
            }
            Message::NotBound { pod, why, attempt, reservation } => {
                self.metrics.ended(&attempt, metrics::Outcome::Error, Instant::now());
                reservation.iter().for_each(|reservation| self.objects.forget(reservation));
                // Gone, or placed by somebody else: then the watch tells, and nothing is to be tried again.
                let Some(current) = self.queue.get(&pod.uid).cloned() else { return };
                self.snapshot.remove_pod(&pod.uid);
                self.attempt_failed(&current, &why.to_string());
                // The room it was to take is free for others.
                self.changed("AssignedPodDelete", &Change::PlacedPod { old: Some(pod.pod.clone()), new: None });
            }
        }
    }

    /// Nobody refused the pod, but something went wrong: it is tried again after its back-off.
    fn attempt_failed(&mut self, pod: &Arc<PodInfo>, why: &str) {
        tracing::debug!(pod = %pod.key, why, "cannot schedule pod");
        self.events.event(&reference(&*pod.pod), EventType::Warning, "FailedScheduling", why);
        let now = self.config.clock.now();
        self.write_status(pod, unscheduled_status(pod, "SchedulerError", why, None, now));
        self.queue.back_off(&pod.uid, Instant::now());
    }

    fn take_in_pod(&mut self, old: Option<Arc<Pod>>, new: Option<Arc<Pod>>) {
        let Some(uid) = new.as_ref().or(old.as_ref()).and_then(|pod| pod.metadata.uid.clone()) else { return };
        // One name can be taken over by another pod between two looks.
        if let Some(gone) = old.as_ref().and_then(|pod| pod.metadata.uid.as_ref()).filter(|gone| **gone != uid) {
            self.forget(gone);
        }
        let Some(pod) = new.as_ref() else {
            return self.take_out(&uid, old);
        };
        if is_finished(pod) {
            return self.take_out(&uid, old);
        }
        match node_of(pod) {
            Some(node) => {
                let node = node.to_owned();
                self.snapshot.add_pod(Arc::new(PodInfo::new(pod.clone())), &node);
                self.queue.remove(&uid);
                self.snapshot.withdraw(&uid);
                let before = old.filter(|old| node_of(old).is_some());
                // Most updates only tell how a pod is doing, which helps nobody who waits.
                if before.as_ref().is_none_or(|old| pod_matters(old, pod)) {
                    let event = happened("AssignedPod", before.is_some(), true);
                    self.changed(event, &Change::PlacedPod { old: before, new });
                }
            }
            None => {
                let info = Arc::new(PodInfo::new(pod.clone()));
                let Some(profile) = self.profile(info.scheduler_name()) else { return };
                if pod.metadata.deletion_timestamp.is_some() {
                    return self.forget(&uid);
                }
                let gated = profile.filters.iter().any(|plugin| !plugin.admits(&info));
                // What the scheduler itself says of a pod is no reason to try it again.
                let change = old.filter(|old| own_change_matters(old, pod));
                let change = change.map(|old| Change::OwnUpdate { old, new: pod.clone() });
                let (plugins, objects) = (profile.filters.clone(), &self.objects);
                if let Some(node) = pod.status.as_ref().and_then(|status| status.nominated_node_name.clone()) {
                    self.snapshot.nominate(info.clone(), &node);
                }
                self.queue.put(info.clone(), gated, Instant::now(), |plugin| {
                    let refused = plugins.iter().find(|each| each.name() == plugin);
                    refused
                        .is_some_and(|each| change.as_ref().is_some_and(|change| each.may_help(&info, change, objects)))
                });
            }
        }
    }

    /// A pod that is gone or has ended takes no room any more.
    fn take_out(&mut self, uid: &str, old: Option<Arc<Pod>>) {
        let placed = self.snapshot.has_pod(uid);
        self.forget(uid);
        if placed {
            self.changed("AssignedPodDelete", &Change::PlacedPod { old, new: None });
        }
    }

    fn forget(&mut self, uid: &str) {
        self.snapshot.remove_pod(uid);
        self.snapshot.withdraw(uid);
        self.queue.remove(uid);
    }

    /// Pods that waited for something like this are tried again.
    fn changed(&mut self, event: &'static str, change: &Change) {
        if !self.queue.any_waiting() {
            return;
        }
        let (profiles, objects) = (&self.config.profiles, &self.objects);
        let concerned = |name: &str| {
            profiles.iter().filter_map(|profile| profile.plugin(name)).any(|plugin| plugin.is_concerned(change))
        };
        self.queue.changed(Instant::now(), event, concerned, |pod, plugin| {
            let profile = profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler_name());
            profile
                .and_then(|profile| profile.plugin(plugin))
                .is_none_or(|plugin| plugin.may_help(pod, change, objects))
        });
    }

    fn show_metrics(&mut self) {
        // Nobody may be looking, and then nothing need be counted.
        if self.config.metrics.receiver_count() == 0 {
            return;
        }
        self.metrics.pending = self.queue.counts();
        self.metrics.unschedulable = self.queue.refused();
        self.metrics.incoming.clone_from(self.queue.incoming());
        self.metrics.cache = [self.snapshot.len(), self.snapshot.pods(), self.queue.in_flight()];
        self.config.metrics.send_replace(self.metrics.clone());
    }

    fn profile(&self, name: &str) -> Option<&Profile> {
        self.config.profiles.iter().find(|profile| profile.scheduler_name == name)
    }

    fn schedule(&mut self, Popped { pod, attempts, first }: Popped) {
        let began = Instant::now();
        self.snapshot.freeze();
        let Some(profile) = self.config.profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler_name())
        else {
            return;
        };
        let view = View { snapshot: &self.snapshot, objects: &self.objects, now: self.config.clock.now() };
        let attempt = Attempt { profile: profile.scheduler_name.clone(), began, first, number: attempts };
        let decision = cycle::decide(profile, view, &pod, &mut self.start, &mut self.random);
        self.metrics.decided(began.elapsed());
        match decision {
            Decision::Node(index) => {
                let chosen = self.snapshot.node(index);
                let reservation = profile.filters.iter().filter_map(|plugin| plugin.reserve(view, &pod, chosen));
                let reservation = reservation.reduce(Reservation::and);
                let timeouts = Timeouts { volumes: profile.volume_bind_timeout, devices: profile.device_bind_timeout };
                let node = chosen.name.clone();
                reservation.iter().for_each(|reservation| self.objects.assume(reservation));
                self.snapshot.withdraw(&pod.uid);
                self.snapshot.add_pod(pod.clone(), &node);
                self.bind(pod, node, attempt, reservation, timeouts);
            }
            Decision::Error(why) => {
                self.metrics.ended(&attempt, metrics::Outcome::Error, Instant::now());
                self.attempt_failed(&pod, &why);
            }
            Decision::Unschedulable(failure) => {
                let outcome = if profile.preempts && !self.snapshot.is_empty() {
                    preempt::preempt(profile, view, &pod, &failure, &mut self.random)
                } else {
                    Outcome::Disabled
                };
                match &outcome {
                    Outcome::Victims { victims, .. } => self.metrics.preempted(Some(victims.len())),
                    Outcome::Nothing(_) | Outcome::NotNow(_) => self.metrics.preempted(None),
                    Outcome::Disabled => {}
                }
                self.metrics.ended(&attempt, metrics::Outcome::Unschedulable, Instant::now());
                self.not_scheduled(&pod, failure, outcome);
            }
        }
    }

    /// Says why, makes room if that helps, and lets the pod wait.
    fn not_scheduled(&mut self, pod: &Arc<PodInfo>, failure: Failure, outcome: Outcome) {
        let mut message = failure.message();
        let claims = self.clean_up_claims(pod, &failure);
        let before = pod.pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
        let nominated = match outcome {
            Outcome::Victims { node, victims } => {
                let node = self.snapshot.node(node).name.clone();
                self.snapshot.nominate(pod.clone(), &node);
                self.queue.make_room(&pod.uid);
                self.make_room(pod, &node, victims);
                Some(node)
            }
            Outcome::Nothing(why) => {
                message.push_str(&format!(" {claims}, preemption: {why}"));
                // The node it was promised is of no use to it; others may have the room.
                self.snapshot.withdraw(&pod.uid);
                None
            }
            Outcome::NotNow(why) => {
                message.push_str(&format!(" {claims}, preemption: {why}"));
                before.clone()
            }
            Outcome::Disabled => before.clone(),
        };
        self.events.event(&reference(&*pod.pod), EventType::Warning, "FailedScheduling", message.as_str());
        self.queue.failed(&pod.uid, failure.plugins, Instant::now());
        let changed = (nominated != before).then(|| nominated.as_deref().unwrap_or_default());
        let now = self.config.clock.now();
        self.write_status(pod, unscheduled_status(pod, "Unschedulable", &message, changed, now));
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty())
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
