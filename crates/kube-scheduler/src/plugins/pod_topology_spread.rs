//! PodTopologySpread: pods of a kind are spread evenly over zones, nodes or whatever the constraint names.

mod hints;

use std::cell::Cell;
use std::sync::Arc;

use component_helpers::labels::{compiled, of_map, selects};
use component_helpers::node_affinity::Required;
use component_helpers::taints::first_untolerated;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use machinery::selector::LabelSelector;
use reconcile::Key;

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, SCORE_MAX, Score, Scoring, View};
use crate::objects::Objects;
use crate::pod_info::{Labels, PodInfo};
use crate::snapshot::{Domains, NodeIndex, NodeInfo, Snapshot};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

pub struct PodTopologySpread {
    /// For pods that say nothing themselves: topology key, largest skew, whether it forbids.
    pub defaults: Vec<(String, i64, bool)>,
    /// With upstream's own defaults a node without the zone label still counts.
    pub system_defaults: bool,
}

impl Default for PodTopologySpread {
    fn default() -> PodTopologySpread {
        PodTopologySpread {
            defaults: vec![(HOSTNAME.into(), 3, false), (ZONE.into(), 5, false)],
            system_defaults: true,
        }
    }
}

/// A constraint, ready to be asked.
#[derive(Clone, Debug)]
struct Constraint {
    key: String,
    skew_max: i64,
    domains_min: i64,
    /// None for a constraint without one, which speaks of no pod but still asks for the label of the node.
    selector: Option<LabelSelector>,
    honors_affinity: bool,
    honors_taints: bool,
}

impl Constraint {
    fn new(constraint: &TopologySpreadConstraint, pod: &PodInfo) -> Constraint {
        let mut selector = constraint.label_selector.clone();
        if let Some(selector) = &mut selector {
            for key in constraint.match_label_keys.iter().flatten() {
                if let Some(value) = pod.labels().and_then(|labels| labels.get(key)) {
                    selector.match_labels.get_or_insert_default().insert(key.clone(), value.clone());
                }
            }
        }
        Constraint {
            key: constraint.topology_key.clone(),
            skew_max: constraint.max_skew.into(),
            domains_min: constraint.min_domains.unwrap_or(1).into(),
            selector: compiled(selector.as_ref()),
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    /// Whether the selector takes pods with these labels.
    fn selects(&self, labels: Option<&Labels>) -> bool {
        self.selector.as_ref().is_some_and(|selector| selects(selector, labels))
    }

    /// How many of the pods that are spread, and are not about to end, are on each node. A selector of everything counts nobody.
    fn staying(&self, snapshot: &Snapshot, namespace: &str) -> Vec<u32> {
        match &self.selector {
            Some(selector) if !selector.matches_everything() => snapshot.staying(namespace, selector),
            _ => snapshot.staying_nowhere(),
        }
    }

    /// Whether the pods of that node count.
    fn counts(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        if self.honors_affinity && !Required::of(&pod.pod).allows(&node.name, &node.labels) {
            return false;
        }
        let tolerations = pod.spec().tolerations.as_deref().unwrap_or_default();
        !self.honors_taints || first_untolerated(&node.taints, tolerations, &["NoSchedule", "NoExecute"]).is_none()
    }

    /// Whether the pods of every node count, whatever the node is like.
    fn counts_everywhere(&self, pod: &PodInfo) -> bool {
        !self.honors_taints && (!self.honors_affinity || Required::of(&pod.pod).is_empty())
    }

    fn matches(&self, pod: &PodInfo, namespace: &str) -> bool {
        pod.key.namespace == namespace && pod.pod.metadata.deletion_timestamp.is_none() && self.selects(pod.labels())
    }
}

impl PodTopologySpread {
    fn constraints(&self, view: View, pod: &PodInfo, forbidding: bool) -> Vec<Constraint> {
        if let Some(own) = pod.spec().topology_spread_constraints.as_deref().filter(|own| !own.is_empty()) {
            let kind = if forbidding { "DoNotSchedule" } else { "ScheduleAnyway" };
            let own = own.iter().filter(|constraint| constraint.when_unsatisfiable == kind);
            return own.map(|constraint| Constraint::new(constraint, pod)).collect();
        }
        let mut defaults = self.defaults.iter().filter(|(_, _, forbids)| *forbids == forbidding).peekable();
        if defaults.peek().is_none() {
            return Vec::new();
        }
        let selector = default_selector(view, pod).filter(|selector| !selector.matches_everything());
        let Some(selector) = selector else { return Vec::new() };
        let constraint = |(key, skew_max, _): &(String, i64, bool)| Constraint {
            key: key.clone(),
            skew_max: *skew_max,
            domains_min: 1,
            selector: Some(selector.clone()),
            honors_affinity: true,
            honors_taints: false,
        };
        defaults.map(constraint).collect()
    }
}

/// What makes pods one kind when they do not say so: the selectors of the Services and of the controller they belong to.
fn default_selector(view: View, pod: &PodInfo) -> Option<LabelSelector> {
    let namespace = &pod.key.namespace;
    let mut wanted: Option<LabelSelector> = None;
    let mut and = |selector: LabelSelector| {
        wanted = Some(match wanted.take() {
            Some(before) => before.and(selector),
            None => selector,
        });
    };
    let has = |(key, value): (&String, &String)| pod.labels().and_then(|labels| labels.get(key)) == Some(value);
    for service in view.objects.services.in_namespace(namespace) {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        if selector.is_some_and(|selector| selector.iter().all(has)) {
            of_map(selector).into_iter().for_each(&mut and);
        }
    }
    let owner = component_helpers::pods::controller_of(&pod.pod.metadata);
    let selector = owner.and_then(|owner| {
        let key = Key::new(namespace.clone(), owner.name.clone());
        match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = view.objects.replica_sets.get(&key)?;
                compiled(Some(&set.spec.as_ref()?.selector))
            }
            "StatefulSet" => {
                let set = view.objects.stateful_sets.get(&key)?;
                compiled(Some(&set.spec.as_ref()?.selector))
            }
            "ReplicationController" => {
                let controller = view.objects.replication_controllers.get(&key)?;
                of_map(controller.spec.as_ref()?.selector.as_ref())
            }
            _ => None,
        }
    });
    selector.into_iter().for_each(and);
    wanted
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let constraints = self.constraints(view, pod, true);
        if constraints.is_empty() {
            return Filtering::Skip;
        }
        let places: Vec<Arc<Domains>> =
            constraints.iter().map(|constraint| view.snapshot.domains(&constraint.key)).collect();
        let constraints = constraints.into_iter().zip(&places);
        let constraints =
            constraints.map(|(constraint, domains)| Places::counted(constraint, domains, &places, view.snapshot, pod));
        Filtering::Ask(Box::new(Spread { pod, constraints: constraints.collect() }))
    }

    fn score<'a>(&'a self, view: View<'a>, pod: &'a PodInfo, feasible: &[&'a NodeInfo]) -> Scoring<'a> {
        let constraints = self.constraints(view, pod, false);
        if constraints.is_empty() {
            return Scoring::Skip;
        }
        let own = pod.spec().topology_spread_constraints.as_ref().is_some_and(|own| !own.is_empty());
        let needs_all = !self.system_defaults || own;
        let domains: Vec<Arc<Domains>> =
            constraints.iter().map(|constraint| view.snapshot.domains(&constraint.key)).collect();
        let mut even = Even { constraints: Vec::new(), domains, needs_all };
        for (constraint, domains) in constraints.into_iter().zip(&even.domains) {
            let judged = even.judged(constraint, domains, view.snapshot, pod, feasible);
            even.constraints.push(judged);
        }
        Scoring::Ask(Box::new(even))
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        hints::may_help(pod, change)
    }
}

/// The fewer the places, the less each counts.
fn weight(places: usize) -> f64 {
    ((places + 2) as f64).ln()
}

struct Spread<'a> {
    pod: &'a PodInfo,
    constraints: Vec<Places>,
}

/// A constraint that forbids, and how many matching pods are where.
struct Places {
    constraint: Constraint,
    domains: Arc<Domains>,
    /// Matching pods by number of the place; none where no node's pods count.
    counts: Vec<Option<i64>>,
    /// The least of them, worked out when it is first needed.
    least: Cell<Option<i64>>,
    /// 1 if the pod itself is one of those that are spread.
    itself: i64,
}

impl Places {
    /// Only nodes count that have the labels of all constraints.
    fn counted(
        constraint: Constraint,
        domains: &Arc<Domains>,
        all: &[Arc<Domains>],
        snapshot: &Snapshot,
        pod: &PodInfo,
    ) -> Places {
        let staying = constraint.staying(snapshot, &pod.key.namespace);
        let mut counts = vec![None; domains.values.len()];
        if constraint.counts_everywhere(pod) && all.iter().all(|domains| domains.everywhere) {
            counts.fill(Some(0));
            for (node, count) in on_nodes(&staying) {
                if let Some(place) = domains.of(node) {
                    *counts[place].get_or_insert(0) += count;
                }
            }
        } else {
            for node in snapshot.nodes() {
                let Some(place) = domains.of(node.index) else { continue };
                if all.iter().all(|domains| domains.of(node.index).is_some()) && constraint.counts(pod, node) {
                    *counts[place].get_or_insert(0) += i64::from(staying[node.index.0 as usize]);
                }
            }
        }
        let itself = i64::from(constraint.selects(pod.labels()));
        Places { constraint, domains: domains.clone(), counts, least: Cell::new(None), itself }
    }

    fn least(&self) -> i64 {
        if let Some(least) = self.least.get() {
            return least;
        }
        let places = self.counts.iter().flatten();
        // With fewer places than asked for, an imagined empty one counts as the least.
        let least = if (places.clone().count() as i64) < self.constraint.domains_min {
            0
        } else {
            places.copied().min().unwrap_or(0)
        };
        self.least.set(Some(least));
        least
    }
}

/// The nodes that have any of the counted pods, by a list of all nodes' counts.
fn on_nodes(counts: &[u32]) -> impl Iterator<Item = (NodeIndex, i64)> {
    let some = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    some.map(|(node, count)| (NodeIndex(node as u32), i64::from(*count)))
}

impl Spread<'_> {
    fn change(&mut self, other: &PodInfo, node: &NodeInfo, amount: i64) {
        for places in &mut self.constraints {
            let constraint = &places.constraint;
            let concerned = constraint.counts(self.pod, node) && constraint.matches(other, &self.pod.key.namespace);
            let count = places.domains.of(node.index).and_then(|place| places.counts[place].as_mut());
            if let Some(count) = count.filter(|_| concerned) {
                *count += amount;
                places.least.set(None);
            }
        }
    }
}

impl Filter for Spread<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        for places in &self.constraints {
            let Some(place) = places.domains.of(node.index) else {
                return Err(Refusal::final_(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let there = places.counts[place].unwrap_or(0);
            if there + places.itself - places.least() > places.constraint.skew_max {
                return Err(Refusal::resolvable("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }

    fn add_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.change(pod, node, 1);
    }

    fn remove_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.change(pod, node, -1);
    }
}

struct Even {
    constraints: Vec<Judged>,
    /// The places of each constraint.
    domains: Vec<Arc<Domains>>,
    needs_all: bool,
}

/// A constraint that only prefers, and how many matching pods are where.
struct Judged {
    skew_max: i64,
    weight: f64,
    counts: Counts,
}

enum Counts {
    /// By index of the node: each is a place of its own.
    Nodes(Vec<u32>),
    /// By number of the place; none where no node can be chosen.
    Places(Vec<Option<i64>>),
}

impl Even {
    fn is_ignored(&self, node: &NodeInfo) -> bool {
        self.needs_all && self.domains.iter().any(|domains| domains.of(node.index).is_none())
    }

    fn judged(
        &self,
        constraint: Constraint,
        domains: &Domains,
        snapshot: &Snapshot,
        pod: &PodInfo,
        feasible: &[&NodeInfo],
    ) -> Judged {
        let staying = constraint.staying(snapshot, &pod.key.namespace);
        let feasible = feasible.iter().filter(|node| !self.is_ignored(node));
        let skew_max = constraint.skew_max;
        if constraint.key == HOSTNAME {
            return Judged { skew_max, weight: weight(feasible.count()), counts: Counts::Nodes(staying) };
        }
        let mut counts = vec![None; domains.values.len()];
        // Nodes without the label, where they may be chosen all the same, are one place more.
        let nowhere = usize::from(feasible.clone().any(|node| domains.of(node.index).is_none()));
        feasible.filter_map(|node| domains.of(node.index)).for_each(|place| counts[place] = Some(0));
        let weight = weight(counts.iter().flatten().count() + nowhere);
        let mut add = |node: NodeIndex, amount: i64| {
            if let Some(count) = domains.of(node).and_then(|place| counts[place].as_mut()) {
                *count += amount;
            }
        };
        // Pods on nodes that cannot be chosen count in their zone too.
        let all_count = !self.needs_all || self.domains.iter().all(|domains| domains.everywhere);
        if all_count && constraint.counts_everywhere(pod) {
            on_nodes(&staying).for_each(|(node, count)| add(node, count));
        } else {
            let counting = snapshot.nodes().filter(|node| !self.is_ignored(node) && constraint.counts(pod, node));
            counting.for_each(|node| add(node.index, i64::from(staying[node.index.0 as usize])));
        }
        Judged { skew_max, weight, counts: Counts::Places(counts) }
    }
}

impl Score for Even {
    fn score(&self, node: &NodeInfo) -> i64 {
        if self.is_ignored(node) {
            return 0;
        }
        let mut score = 0.0;
        for (judged, domains) in self.constraints.iter().zip(&self.domains) {
            let Some(place) = domains.of(node.index) else { continue };
            let count = match &judged.counts {
                Counts::Nodes(counts) => i64::from(counts[node.index.0 as usize]),
                Counts::Places(counts) => counts[place].unwrap_or(0),
            };
            score += count as f64 * judged.weight + (judged.skew_max - 1) as f64;
        }
        score.round() as i64
    }

    fn normalize(&self, nodes: &[&NodeInfo], scores: &mut [i64]) {
        let counted =
            || nodes.iter().zip(scores.iter()).filter(|(node, _)| !self.is_ignored(node)).map(|(_, score)| *score);
        let (least, most) = (counted().min().unwrap_or(0), counted().max().unwrap_or(0));
        for (node, score) in nodes.iter().zip(scores) {
            *score = match (self.is_ignored(node), most) {
                (true, _) => 0,
                (false, 0) => SCORE_MAX,
                (false, most) => SCORE_MAX * (most + least - *score) / most,
            };
        }
    }
}
