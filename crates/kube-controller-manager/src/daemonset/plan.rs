//! What a DaemonSet needs next: pods where they are missing, none where they should not be, the update of old ones, and its
//! history and status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use component_helpers::labels::compiled;
use component_helpers::pods;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Event, Plan, Write};

use super::nodes::{self, Fit, node_of, pod_for};
use super::{rolling, status};
use crate::common::history::{self, Present, REVISION_HASH, Subject};
use crate::common::owners::claim;

/// So many pods are made or ended in one go; the rest follows when these are seen.
pub(super) const BURST_MAX: usize = 250;

/// What is known of the world.
pub(super) struct View<'a> {
    pub now: Timestamp,
    pub nodes: &'a [Arc<Node>],
    /// The pods that name the set, and those that no controller manages.
    pub pods: &'a [Arc<Pod>],
    /// The revisions that name the set, and those that no controller manages.
    pub revisions: &'a [Arc<ControllerRevision>],
    pub revision_named: &'a dyn Fn(&str) -> Option<Arc<ControllerRevision>>,
    /// Whether the failed pod of a node may be replaced now; otherwise how long to wait.
    pub replace_failed: &'a dyn Fn(&str) -> Option<Duration>,
}

/// The set, and how it stands on every node.
pub(super) struct Daemons<'a> {
    pub set: &'a DaemonSet,
    pub spec: &'a DaemonSetSpec,
    pub now: Timestamp,
    pub hash: String,
    pub fits: BTreeMap<&'a str, Fit>,
    /// The pods by the node they are on or meant for, the oldest first; nodes that should have one and have none are there too.
    pub pods: BTreeMap<&'a str, Vec<&'a Arc<Pod>>>,
}

pub(super) fn plan(set: &DaemonSet, view: &View) -> Plan {
    let Some(spec) = &set.spec else { return Plan::nothing() };
    let Some(selector) = compiled(Some(&spec.selector)) else { return Plan::nothing() };
    if selector.matches_everything() {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        return Plan { events: vec![Event::warning(set, "SelectingAll", message)], ..Plan::default() };
    }
    if set.metadata.deletion_timestamp.is_some() {
        return Plan::nothing();
    }
    let revisions = claim(set, &selector, view.revisions);
    let mut plan = Plan { writes: revisions.writes, ..Plan::default() };
    let subject = Subject {
        owner: set,
        template: &spec.template,
        collisions: set.status.as_ref().and_then(|status| status.collision_count),
        hash_label: REVISION_HASH,
    };
    let present = history::present(&subject, &revisions.objects, view.revision_named);
    let Some(revision) = present.revision().cloned() else {
        plan.writes.extend(status::collided(set));
        return plan;
    };
    match present {
        Present::Missing { write, .. } => {
            // The pods carry its hash, so it must be there for sure before them.
            plan.writes.push(write);
            plan.come_back(Duration::from_secs(1));
            return plan;
        }
        Present::Found { write, .. } => plan.writes.extend(write),
        Present::Collision => {}
    }
    let labels = revision.metadata.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get(REVISION_HASH)).cloned().unwrap_or_default();
    let claimed = claim(set, &selector, view.pods);
    plan.writes.extend(claimed.writes);
    let daemons = Daemons::of(set, spec, view, hash, &claimed.objects);
    let managed = manage(&daemons, view, &mut plan);
    if !managed && spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete") {
        let step = rolling::step(&daemons);
        plan.writes.extend(writes(&daemons, step.create, step.delete));
    }
    let newest = revision.metadata.name.clone();
    let in_use = |one: &ControllerRevision| {
        let hash = one.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_HASH));
        let carries =
            |pod: &Arc<Pod>| pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_HASH)) == hash;
        one.metadata.name == newest || hash.is_some() && claimed.objects.iter().any(carries)
    };
    plan.writes.extend(history::truncate(&revisions.objects, &in_use, spec.revision_history_limit));
    status::finish(&mut plan, &daemons);
    plan
}

impl<'a> Daemons<'a> {
    fn of(
        set: &'a DaemonSet,
        spec: &'a DaemonSetSpec,
        view: &View<'a>,
        hash: String,
        claimed: &'a [Arc<Pod>],
    ) -> Daemons<'a> {
        let name = |node: &'a Arc<Node>| node.metadata.name.as_deref().unwrap_or_default();
        let fits: BTreeMap<&str, Fit> = view.nodes.iter().map(|node| (name(node), nodes::fit(set, node))).collect();
        let mut pods: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in claimed {
            // A pod that was taken in and is meant for no node in particular is none of ours until the scheduler has placed it.
            if let Some(node) = node_of(pod) {
                pods.entry(node).or_default().push(pod);
            }
        }
        for (node, fit) in &fits {
            if fit.should_run {
                pods.entry(node).or_default();
            }
        }
        pods.values_mut().for_each(|pods| pods.sort_by_key(|pod| rank(pod)));
        Daemons { set, spec, now: view.now, hash, fits, pods }
    }

    pub fn fit(&self, node: &str) -> Fit {
        self.fits.get(node).copied().unwrap_or(Fit { should_run: false, may_stay: false })
    }

    pub(crate) fn is_updated(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        let says = |label: &str, value: &str| labels.and_then(|labels| labels.get(label)).is_some_and(|it| it == value);
        says(REVISION_HASH, &self.hash)
            || nodes::generation(self.set).is_some_and(|generation| says(nodes::GENERATION_LABEL, generation))
    }

    pub fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }
}

/// Placed ones first, then the oldest.
fn rank(pod: &Pod) -> (bool, Option<Timestamp>, Option<String>) {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (pods::node(pod).is_none(), created, pod.metadata.name.clone())
}

/// One pod on every node that should have one; answers whether there was anything to do.
fn manage(daemons: &Daemons, view: &View, plan: &mut Plan) -> bool {
    let (mut create, mut delete): (Vec<&str>, Vec<&Arc<Pod>>) = (Vec::new(), Vec::new());
    for (node, pods) in &daemons.pods {
        let fit = daemons.fit(node);
        let staying = pods.iter().copied().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        if !daemons.fits.contains_key(node) {
            // The node is gone. What ran there is collected with it; what waits for it would wait for ever.
            delete.extend(staying.filter(|pod| pods::node(pod).is_none()));
        } else if !fit.may_stay {
            delete.extend(staying);
        } else if pods.is_empty() {
            create.push(node);
        } else {
            let mut running = Vec::new();
            for pod in staying {
                match pods::phase(pod) {
                    "Failed" | "Succeeded" => {
                        if replaces(daemons, view, plan, node, pod) {
                            delete.push(pod);
                        }
                    }
                    _ => running.push(pod),
                }
            }
            if rolling::surge_max(daemons) == 0 {
                delete.extend(running.into_iter().skip(1));
            } else if running.is_empty() && fit.should_run && pods.iter().all(|pod| !pods::has_ended(pod)) {
                create.push(node);
            } else {
                delete.extend(rolling::superfluous(daemons, &running));
            }
        }
    }
    let any = !create.is_empty() || !delete.is_empty();
    plan.writes.extend(writes(daemons, create, delete));
    any
}

/// Whether an ended pod goes now; what failed goes later and later.
fn replaces(daemons: &Daemons, view: &View, plan: &mut Plan, node: &str, pod: &Pod) -> bool {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if pods::phase(pod) == "Succeeded" {
        let message = format!("Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it");
        plan.events.push(Event::normal(daemons.set, "SucceededDaemonPod", message));
        return true;
    }
    if let Some(wait) = (view.replace_failed)(node) {
        plan.come_back(wait);
        return false;
    }
    let message = format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
    plan.events.push(Event::warning(daemons.set, "FailedDaemonPod", message));
    true
}

fn writes(daemons: &Daemons, create: Vec<&str>, delete: Vec<&Arc<Pod>>) -> Vec<Write> {
    let set = daemons.set;
    let deletes = delete.into_iter().take(BURST_MAX).map(|pod| {
        Write::delete(&**pod, DeleteOptions::default())
            .tells(set, "SuccessfulDelete", "Deleted pod: {name}")
            .tells_failure("FailedDelete", "Error deleting: {error}")
    });
    let pods = create.into_iter().take(BURST_MAX).filter_map(|node| pod_for(set, &daemons.hash, node));
    let creates = pods.map(|pod| {
        Write::create(&pod)
            .accept(&["NamespaceTerminating"])
            .tells(set, "SuccessfulCreate", "Created pod: {name}")
            .tells_failure("FailedCreate", "Error creating: {error}")
    });
    deletes.chain(creates).collect()
}
