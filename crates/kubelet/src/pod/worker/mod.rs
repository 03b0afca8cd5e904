//! One task per pod. It sleeps until something happens to its pod (the object changed, the runtime reports, a probe answers,
//! someone orders, a time has come), looks, plans, and does what the plan says. Slow work runs beside it as jobs.

mod handle;
mod jobs;
mod probing;
mod resizing;
mod telling;
mod timing;
mod finish;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use component_base::tasks;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use reconcile::events::EventType;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::memory::{Failed, Memory};
use super::observe::Observer;
use super::observed::Observed;
use super::plan::{self, Action, Plan, Progress};
use super::spec;
use super::startup::Startup;
use super::writer::{self, Wanted};
use super::{Shared, resize};
use crate::pods::Order;
use crate::volumes::Mounted;

pub use handle::{Handle, Wish};

use handle::Bell;
use jobs::Done;
use probing::Probing;
use resizing::allocated;
use telling::{failed_before, is_over};

const ORDERS_MAX: usize = 16;
/// How long to wait for a runtime that does not answer.
const RUNTIME_RETRY: Duration = Duration::from_secs(1);

/// Begins to look after a pod. `refused` is why the node does not take it; `over` hears when there is nothing left of it.
/// The pod was seen for the first time at `seen_at`.
pub fn start(shared: Arc<Shared>, wish: Wish, refused: Option<Failed>, over: Arc<Notify>, seen_at: Instant) -> Handle {
    let bell = Arc::new(Bell::default());
    let (tx, rx) = watch::channel(wish);
    let worker = Worker::new(shared, rx, bell.clone(), refused, timing::Timing::new(seen_at));
    let work = tasks::spawn(worker.run());
    let task = work.abort_handle();
    // Told from outside, so that the task counts as finished by then, however it ended.
    tasks::spawn(async move {
        if let Err(error) = work.await {
            tracing::debug!(%error, "pod worker ended early");
        }
        over.notify_one();
    });
    Handle { wish: tx, bell, task }
}

struct Worker {
    shared: Arc<Shared>,
    wishes: watch::Receiver<Wish>,
    wish: Wish,
    /// The node's, which are told as the pod's host and are those of a pod on the host's network.
    addresses: watch::Receiver<Vec<IpAddr>>,
    bell: Arc<Bell>,
    /// The runtime may show something new.
    look: bool,
    orders: (mpsc::Sender<Order>, mpsc::Receiver<Order>),
    memory: Memory,
    observer: Observer,
    observed: Observed,
    /// The status as last worked out.
    status: PodStatus,
    progress: Progress,
    jobs: JoinSet<Done>,
    probing: Probing,
    running: watch::Sender<HashSet<String>>,
    ends_at: watch::Sender<Option<Timestamp>>,
    wanted: watch::Sender<Wanted>,
    written: watch::Receiver<u64>,
    mounted: Arc<Mounted>,
    /// When the contents were last brought up to date.
    mounted_at: Timestamp,
    mounting: bool,
    mount_failures: u32,
    /// Contents of volumes may have changed.
    mount_again: bool,
    told_kills: HashSet<String>,
    /// The pod is to end: what is still being prepared for it need not be finished.
    ending: CancellationToken,
    finish: finish::Finish,
    startup: Startup,
    timing: timing::Timing,
}

impl Worker {
    fn new(
        shared: Arc<Shared>,
        mut wishes: watch::Receiver<Wish>,
        bell: Arc<Bell>,
        refused: Option<Failed>,
        timing: timing::Timing,
    ) -> Worker {
        let wish = wishes.borrow_and_update().clone();
        let shown = wish.mirror.as_ref().unwrap_or(&wish.pod);
        let status = shown.status.clone().unwrap_or_default();
        let memory = Memory {
            start_time: Some(status.start_time.as_ref().map_or_else(|| shared.kubelet.now(), |time| time.0)),
            allocated: allocated(&wish.pod, &status),
            pod_allocated: resizing::pod_allocated(&wish.pod, &status),
            failed: refused.or_else(|| failed_before(&status)),
            over: is_over(&status),
            ..Default::default()
        };
        let (wanted, to_write) = watch::channel(Wanted::default());
        let (report, written) = watch::channel(0);
        tasks::spawn(writer::run(shared.kubelet.client.clone(), to_write, report));
        Worker {
            observer: Observer::new(shared.kubelet.runtime.clone(), spec::uid(&wish.pod)),
            observed: Observed::default(),
            orders: mpsc::channel(ORDERS_MAX),
            probing: Probing::new(shared.counters.probes.of_pod(&wish.pod)),
            running: watch::channel(HashSet::new()).0,
            ends_at: watch::channel(None).0,
            mounted: Arc::default(),
            mounted_at: Timestamp::UNIX_EPOCH,
            mounting: false,
            mount_failures: 0,
            mount_again: false,
            told_kills: HashSet::new(),
            finish: finish::Finish::default(),
            startup: Startup::new(&wish.pod),
            timing,
            jobs: JoinSet::new(),
            progress: Progress::Active,
            addresses: shared.kubelet.config.addresses.changes(),
            shared,
            wishes,
            wish,
            bell,
            look: true,
            ending: CancellationToken::new(),
            memory,
            status,
            wanted,
            written,
        }
    }

    async fn run(mut self) {
        self.shared.kubelet.objects.register(&self.wish.pod);
        let uid = spec::uid(&self.wish.pod).to_owned();
        // Nothing is said about the pod before the runtime has been looked at.
        self.show();
        self.note_worker();
        while !self.shared.kubelet.shutdown.is_cancelled() {
            let began_at = Instant::now();
            match self.see().await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(pod = spec::full_name(&self.wish.pod), %error, "cannot get pod state from container runtime; retrying");
                    self.wait(Some(
                        self.shared.kubelet.now() + SignedDuration::try_from(RUNTIME_RETRY).unwrap_or_default(),
                    ))
                    .await;
                    continue;
                }
            }
            let wake_at = self.step();
            self.note_work(began_at);
            if self.finish.is_done() {
                break;
            }
            self.wait(wake_at).await;
        }
        self.shared.pods.remove(&uid);
        self.shared.kubelet.objects.forget(&uid);
        self.shared.images.forget(&uid);
    }

    /// Asks the runtime, if anything can be new there.
    async fn see(&mut self) -> cri::Result<()> {
        if self.bell.look.swap(false, Ordering::AcqRel) || self.look {
            // Taken back when it fails, so that it is tried again.
            self.look = true;
            let began_at = Instant::now();
            self.observed = self.observer.look().await?;
            self.shared.counters.pods.looked(began_at.elapsed());
            self.look = false;
        }
        Ok(())
    }

    /// One look, one plan.
    fn step(&mut self) -> Option<Timestamp> {
        let now = self.shared.kubelet.now();
        self.forget_what_is_gone();
        self.check_deadline(now);
        let pod = self.pod();
        self.memory.note_restart(self.observed.restart_asked_at(&pod), now);
        self.probing.follow(&self.shared, &pod, &self.observed, &mut self.memory, &self.status, self.progress);
        self.consider_resize();
        let input = plan::Input { pod: &pod, observed: &self.observed, memory: &self.memory, now };
        let mut plan = plan::plan(input);
        if plan.progress != Progress::Active && self.memory.ending_since.is_none() {
            // A deletion began when the API said so, not when it was seen.
            self.memory.ending_since = Some(now);
        }
        if plan.progress != Progress::Active {
            self.ending.cancel();
        }
        if plan.progress == Progress::Ending {
            let at = plan::ends_at(&pod, &self.memory, now);
            self.ends_at.send_if_modified(|ends_at| {
                let changed = *ends_at != Some(at);
                *ends_at = Some(at);
                changed
            });
        }
        self.progress = plan.progress;
        // Written before the plan's new reasons to wait are taken over, so that users see how a container ended before they
        // see that it waits.
        let untold_until = self.untold_until(now);
        // Whoever hears that a pod has ended may give its devices away: their drivers hear of it first.
        let is_held = self.progress == Progress::Ended && self.shared.claims.holds(spec::uid(&pod));
        if untold_until.is_none() && !is_held {
            self.publish();
        }
        if self.progress == Progress::Active && is_over(&self.status) {
            // What it did is told as done with, though the runtime knows nothing of it any more: it is not begun again.
            self.memory.over = true;
            return Some(now);
        }
        let told_anew = self.take_waiting(&mut plan);
        if told_anew && untold_until.is_none() {
            self.publish();
        }
        let mut wake_at = [plan.wake_at, untold_until].into_iter().flatten().min();
        self.see_to_volumes(now, &mut wake_at);
        for action in std::mem::take(&mut plan.actions) {
            self.begin(action, now);
        }
        if self.progress == Progress::Ended {
            self.finish_up();
        }
        wake_at
    }

    /// The pod as it counts: one whose object is gone is one that is to be ended.
    fn pod(&self) -> Arc<Pod> {
        if !self.wish.gone {
            return self.wish.pod.clone();
        }
        let mut pod = (*self.wish.pod).clone();
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.shared.kubelet.now());
        pod.metadata.deletion_timestamp.get_or_insert(now);
        if !spec::is_static(&pod) {
            // Deleted by force, or while nobody looked: another of its name may run already, so only a moment is left to it.
            // A static pod has lost its file, and ends in its own time.
            pod.metadata.deletion_grace_period_seconds = Some(0);
        }
        Arc::new(pod)
    }

    async fn wait(&mut self, wake_at: Option<Timestamp>) {
        let now = self.shared.kubelet.now();
        let sleep = async {
            match wake_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default()) {
                Some(left) => tokio::time::sleep(left + Duration::from_millis(1)).await,
                None => std::future::pending().await,
            }
        };
        let shutdown = self.shared.kubelet.shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => {}
            changed = self.wishes.changed() => match changed {
                Ok(()) => self.take_wish(),
                // Nobody wishes anything any more: the kubelet ends.
                Err(_) => std::future::pending().await,
            },
            () = self.bell.ring.notified() => {
                self.mount_again |= self.bell.refresh.swap(false, Ordering::AcqRel);
            }
            Ok(()) = self.addresses.changed() => {
                if spec::host_network(&self.wish.pod) {
                    self.probing.begin_anew();
                }
            }
            Some(order) = self.orders.1.recv() => self.take_order(order),
            Some(update) = self.probing.updates.1.recv() => self.take_probe(update),
            Some(done) = self.jobs.join_next() => {
                self.look = true;
                match done {
                    Ok(done) => self.take_done(done),
                    Err(error) => self.take_panic(error),
                }
            }
            changed = self.written.changed(), if self.progress == Progress::Ended => {
                // The writer lives as long as this worker.
                let _ = changed;
            }
            () = sleep => {}
        }
    }

    fn take_wish(&mut self) {
        let wish = self.wishes.borrow_and_update().clone();
        let (old, new) = (&self.wish.pod.metadata, &wish.pod.metadata);
        // Labels and annotations do not count as a new generation, and stand in volumes too.
        let renamed = old.labels != new.labels || old.annotations != new.annotations;
        let changed = old.generation != new.generation;
        self.wish = wish;
        self.timing.wish_changed();
        self.note_startup();
        self.mount_again |= renamed;
        if changed {
            self.mount_again = true;
            self.shared.kubelet.objects.register(&self.wish.pod);
        }
    }

    fn take_order(&mut self, order: Order) {
        let Order::Evict { reason, message, condition, grace_period_seconds } = order;
        if self.memory.failed.is_none() && self.progress != Progress::Ended {
            self.memory.failed =
                Some(Failed { reason, message, condition, grace_seconds: grace_period_seconds, refused: false });
        }
    }

    fn check_deadline(&mut self, now: Timestamp) {
        let over = plan::deadline_of(&self.wish.pod, &self.memory).is_some_and(|deadline| deadline <= now);
        if !over || self.memory.failed.is_some() || self.progress != Progress::Active {
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline".to_owned();
        let reason = "DeadlineExceeded".to_owned();
        self.shared.tell(&self.wish.pod, None, EventType::Normal, &reason, message.clone());
        self.memory.failed = Some(Failed { reason, message, condition: None, grace_seconds: None, refused: false });
    }

    /// Takes over why containers wait; tells of those that begin to wait after a crash.
    fn take_waiting(&mut self, plan: &mut Plan) -> bool {
        let mut changed = false;
        for (name, waiting) in std::mem::take(&mut plan.waiting) {
            if self.memory.waiting.get(&name) == Some(&waiting) {
                continue;
            }
            let pod = &self.wish.pod;
            let message = format!("Back-off restarting failed container {name} in pod {}", spec::full_name(pod));
            let field_path = spec::container(pod, &name).map(|(kind, _)| kind.field_path(&name));
            self.shared.tell(pod, field_path, EventType::Warning, "BackOff", message);
            self.memory.waiting.insert(name, waiting);
            changed = true;
        }
        changed
    }

    fn forget_what_is_gone(&mut self) {
        let ids: HashSet<&str> = self.observed.running().map(|container| container.id.as_str()).collect();
        self.memory.probes.retain(|id, _| ids.contains(id.as_str()));
        self.memory.actuated.retain(|id, _| ids.contains(id.as_str()));
        self.memory.pod_actuated.retain(|id, _| ids.contains(id.as_str()));
        for container in self.observed.running() {
            if self.memory.actuated.contains_key(&container.id) {
                continue;
            }
            if let Some((_, wished)) = spec::container(&self.wish.pod, &container.name) {
                let granted = resize::granted(&self.memory, &wished);
                self.memory.actuated.insert(container.id.clone(), granted);
                self.memory.pod_actuated.insert(container.id.clone(), self.memory.pod_allocated.clone());
            }
        }
        let names: HashSet<String> = self.observed.running().map(|container| container.name.clone()).collect();
        self.running.send_if_modified(|running| {
            let changed = *running != names;
            *running = names;
            changed
        });
    }

    fn pod_ips(&self) -> Vec<String> {
        if spec::host_network(&self.wish.pod) {
            return self.shared.host_ips();
        }
        self.observed.sandboxes.first().map(|sandbox| sandbox.ips.clone()).unwrap_or_default()
    }

    fn begin(&mut self, action: Action, now: Timestamp) {
        // Nothing is started before the volumes are there, and nothing else waits for them.
        let starts = matches!(action, Action::CreateSandbox { .. } | Action::Start { .. });
        if starts && !self.memory.volumes_ready {
            return;
        }
        match action {
            Action::CreateSandbox { attempt } => self.begin_sandbox(attempt),
            Action::StopSandbox { id } => self.begin_sandbox_stop(id),
            Action::Start { name, kind, attempt } => self.begin_start(name, kind, attempt, now),
            Action::Kill(kill) => self.begin_kill(kill),
            Action::Resize { id, name } => self.begin_resize(id, name),
            Action::RemoveContainer { id } => self.begin_removal(id),
            Action::RemoveSandbox { id } => self.begin_sandbox_removal(id),
        }
    }
}
