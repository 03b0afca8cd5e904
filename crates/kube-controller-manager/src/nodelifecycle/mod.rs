//! Nodes that are not well: tainted at once so that no new pods come, and after a while so that their pods leave.
//!
//! `health.rs` says whether a node still reports, `taints.rs` what its conditions call for, `zones.rs` how many nodes may
//! lose their pods at a time. Whoever evicts for the taints is another controller.

mod health;
mod pods;
mod settings;
mod taints;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use component_helpers::pods::{is_ready, node as node_of};
use futures::FutureExt;
use futures::future::join;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use parking_lot::Mutex;
use reconcile::events::EventType;
use reconcile::{Cache, Error, Event, Key, Next, Plan, Queue, Rule, Shutdown, Work, Write, perform};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::common::pods::BY_NODE;
use crate::{Context, Controller};
use health::Health;
pub use settings::NodeLifecycle;
use zones::{Outcome, Zones, zone_of};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "node-lifecycle-controller",
    account: "node-controller",
    source: "node-controller",
    rules: RULES,
    work: Work::Own(|cx, shutdown| run(cx, shutdown).boxed()),
};

/// Several controllers work on nodes under this one account.
pub(crate) static RULES: &[Rule] = &[
    Rule { groups: &[""], resources: &["nodes"], verbs: &["get", "list", "watch", "update", "patch", "delete"] },
    Rule { groups: &[""], resources: &["nodes/status", "pods/status"], verbs: &["update", "patch"] },
    Rule { groups: &[""], resources: &["pods"], verbs: &["get", "list", "watch", "delete"] },
    Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
];

const LEASES: &str = "metadata.namespace=kube-node-lease";
/// How often the zones are asked to let one through while any waits, as upstream.
const EVICT_EVERY: Duration = Duration::from_millis(100);
/// No period is shorter: a timer without one would never rest.
const PERIOD_MIN: Duration = Duration::from_millis(10);
const WORKERS_MAX: usize = 8;

/// Something to look at as soon as it changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Job {
    Node(Key),
    Pod(Key),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::Node(key) => write!(f, "node {key}"),
            Job::Pod(key) => write!(f, "pod {key}"),
        }
    }
}

struct Lifecycle {
    cx: Arc<Context>,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
    leases: Arc<Cache<Lease>>,
    queue: Queue<Job>,
    known: Mutex<BTreeMap<String, Known>>,
    zones: Mutex<Zones>,
}

/// A node as it was last looked at.
struct Known {
    about: ObjectReference,
    zone: String,
    health: Health,
}

async fn run(cx: Arc<Context>, shutdown: Shutdown) -> Result<(), Error> {
    let lifecycle = Arc::new(Lifecycle {
        nodes: cx.follow(""),
        pods: cx.follow(""),
        leases: cx.follow(LEASES),
        queue: cx.queue("node-lifecycle-controller"),
        known: Mutex::default(),
        zones: Mutex::new(Zones::new(cx.settings.node_lifecycle.clone())),
        cx,
    });
    lifecycle.listen();
    let synced = async {
        lifecycle.nodes.synced().await;
        lifecycle.pods.synced().await;
        lifecycle.leases.synced().await;
    };
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        () = synced => {}
    }
    let changes = reconcile::work(CONTROLLER.name, &lifecycle.queue, WORKERS_MAX, &shutdown, |job| {
        let lifecycle = lifecycle.clone();
        async move { lifecycle.attend(job).await }
    });
    join(changes, lifecycle.monitor(&shutdown)).await;
    Ok(())
}

impl Lifecycle {
    fn listen(self: &Arc<Self>) {
        // A controller that has ended listens no more.
        let this = Arc::downgrade(self);
        self.nodes.listen(move |_, new| {
            let (Some(this), Some(node)) = (this.upgrade(), new) else { return };
            this.queue.add(Job::Node(Key::of(&node.metadata)));
        });
        let this = Arc::downgrade(self);
        self.pods.listen(move |_, new| {
            let (Some(this), Some(pod)) = (this.upgrade(), new) else { return };
            if is_ready(pod) && node_of(pod).is_some_and(|node| this.is_unwell(node)) {
                this.queue.add(Job::Pod(Key::of(&pod.metadata)));
            }
        });
    }

    fn is_unwell(&self, node: &str) -> bool {
        let known = self.known.lock();
        known.get(node).and_then(|known| known.health.ready.as_deref()).is_some_and(|ready| ready != "True")
    }

    async fn attend(&self, job: Job) -> Next {
        let plan = match &job {
            Job::Node(key) => {
                let Some(node) = self.nodes.get(key) else { return Next::Done };
                let mut plan = Plan::nothing();
                // One at a time: the taints are written against the version that was seen, which labels would change.
                plan.writes.extend(taints::no_schedule(&node, self.cx.now()).or_else(|| taints::labels(&node)));
                plan
            }
            Job::Pod(key) => {
                let Some(pod) = self.pods.get(key) else { return Next::Done };
                if !node_of(&pod).is_some_and(|node| self.is_unwell(node)) {
                    return Next::Done;
                }
                pods::not_ready(&pod, self.cx.now())
            }
        };
        match perform(&self.cx, plan).await {
            Ok(_) => Next::Done,
            Err(error) => Next::Retry(error.to_string()),
        }
    }

    async fn monitor(&self, shutdown: &Shutdown) {
        let (mut monitor, mut evict) =
            (interval(self.cx.settings.node_lifecycle.monitor_period.max(PERIOD_MIN)), interval(EVICT_EVERY));
        monitor.set_missed_tick_behavior(MissedTickBehavior::Delay);
        evict.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = monitor.tick() => self.look_at_all().await,
                // Marked by a look at all, which comes around here again.
                _ = evict.tick(), if self.zones.lock().is_waiting() => self.evict().await,
            }
        }
    }

    async fn look_at_all(&self) {
        let nodes = self.nodes.list();
        self.forget_gone(&nodes);
        for node in &nodes {
            if let Err(error) = self.look_at(node).await {
                tracing::debug!(node = node.metadata.name, %error, "cannot update health of node; retrying");
            }
        }
        self.judge_zones(&nodes).await;
    }

    fn forget_gone(&self, nodes: &[Arc<Node>]) {
        let mut known = self.known.lock();
        let there: HashSet<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        let gone: Vec<String> = known.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
        for name in gone {
            let Some(Known { about, zone, .. }) = known.remove(&name) else { continue };
            self.zones.lock().unmark(&zone, &name);
            let message = format!("Node {name} event: Removing Node {name} from Controller");
            self.cx.events.event(&about, EventType::Normal, "RemovingNode", message);
        }
    }

    async fn look_at(&self, node: &Arc<Node>) -> Result<(), Error> {
        let (name, now) = (node.metadata.name.clone().unwrap_or_default(), self.cx.now());
        let lease = self.leases.get(&Key::new("kube-node-lease", &name));
        let (look, first) = {
            let known = self.known.lock();
            let before = known.get(&name).map(|known| &known.health);
            let settings = &self.cx.settings.node_lifecycle;
            let look = health::look(settings, node, lease.as_deref(), before, self.cx.steady(), now);
            (look, before.is_none())
        };
        self.remember(node, &name, look.health.clone());
        if let Some(conditions) = &look.silent {
            let metadata = json!({"resourceVersion": node.metadata.resource_version});
            let patch = json!({"metadata": metadata, "status": {"conditions": conditions}});
            let write = Write::merge_patch_sub::<Node>(&Key::of(&node.metadata), "status", patch);
            perform(&self.cx, Plan::one(write)).await?;
            if look.observed == "True" {
                let message = format!("Node {name} status is now: NodeNotReady");
                let event = Event::normal(node.as_ref(), "NodeNotReady", message);
                self.cx.events.event(&event.about, event.kind, event.reason, event.message);
            }
        }
        // One that is found unwell may have been left so by a process that did not come to its pods any more.
        if look.silent.is_some() || (first && self.is_unwell(&name)) {
            let theirs = self.pods.found_by(BY_NODE, &name);
            theirs.iter().for_each(|pod| self.queue.add(Job::Pod(Key::of(&pod.metadata))));
        }
        // What a node without any Ready condition deserves is not known yet.
        if look.health.ready.is_some() {
            self.mark(node, &name, &look.observed).await?;
        }
        Ok(())
    }

    fn remember(&self, node: &Node, name: &str, health: Health) {
        let about = reconcile::events::reference(node);
        let zone = zone_of(node);
        let before =
            self.known.lock().insert(name.to_owned(), Known { about: about.clone(), zone: zone.clone(), health });
        match before {
            None => {
                let message = format!("Node {name} event: Registered Node {name} in Controller");
                self.cx.events.event(&about, EventType::Normal, "RegisteredNode", message);
            }
            Some(before) if before.zone != zone => self.zones.lock().unmark(&before.zone, name),
            Some(_) => {}
        }
    }

    /// Puts a node in line to lose its pods, or takes it out again.
    async fn mark(&self, node: &Node, name: &str, observed: &str) -> Result<(), Error> {
        let zone = zone_of(node);
        let Some((taint, opposite)) = taints::eviction_taints(observed) else {
            self.zones.lock().unmark(&zone, name);
            return self
                .write(taints::swap(node, "NoExecute", &[], &[taints::NOT_READY, taints::UNREACHABLE], self.cx.now()))
                .await;
        };
        let existing = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let tainted = existing.into_iter().any(|taint| taint.key == opposite && taint.effect == "NoExecute");
        if tainted {
            // Its pods are leaving already; only the reason has changed.
            return self.write(taints::swap(node, "NoExecute", &[taint], &[opposite], self.cx.now())).await;
        }
        self.zones.lock().mark(&zone, name);
        Ok(())
    }

    async fn judge_zones(&self, nodes: &[Arc<Node>]) {
        let states: Vec<(String, bool)> = {
            let known = self.known.lock();
            known.values().map(|known| (known.zone.clone(), known.health.ready.as_deref() == Some("True"))).collect()
        };
        let outcome = self.zones.lock().judge(&states);
        match outcome {
            Outcome::AsBefore => {}
            Outcome::AllStopped => {
                tracing::info!("no node is ready; suspending evictions");
                for node in nodes {
                    let name = node.metadata.name.clone().unwrap_or_default();
                    if let Err(error) = self.mark(node, &name, "True").await {
                        tracing::warn!(node = name, %error, "cannot remove taints of node; retrying");
                        self.zones.lock().unsettle();
                    }
                }
            }
            Outcome::Resumed => {
                tracing::info!("some nodes are ready again; resuming evictions with a new grace period");
                let steady = self.cx.steady();
                self.known.lock().values_mut().for_each(|known| known.health.forgive(steady));
            }
        }
    }

    /// Taints the nodes whose turn it is.
    async fn evict(&self) {
        let due = self.zones.lock().due(self.cx.steady());
        for name in due {
            let Some(node) = self.nodes.get(&Key::cluster(&name)) else { continue };
            let ready = health::condition(&node, "Ready").map_or("Unknown", |ready| ready.status.as_str());
            let Some((taint, opposite)) = taints::eviction_taints(ready) else { continue };
            let write = taints::swap(&node, "NoExecute", &[taint], &[opposite], self.cx.now());
            if let Err(error) = self.write(write).await {
                tracing::debug!(node = name, %error, "cannot add NoExecute taint to node; retrying");
                self.zones.lock().again(&zone_of(&node), &name);
            }
        }
    }

    async fn write(&self, write: Option<Write>) -> Result<(), Error> {
        let plan = Plan { writes: write.into_iter().collect(), ..Plan::nothing() };
        perform(&self.cx, plan).await.map(|_| ())
    }
}
