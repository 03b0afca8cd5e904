//! PodTopologySpread: pods of a kind are spread evenly over zones, nodes or whatever the constraint names.

use std::collections::HashMap;

use component_helpers::labels::{compiled, of_map, selects};
use component_helpers::node_affinity::Required;
use component_helpers::taints::first_untolerated;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use machinery::selector::LabelSelector;
use reconcile::Key;

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, SCORE_MAX, Score, Scoring, View};
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

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
    selector: LabelSelector,
    honors_affinity: bool,
    honors_taints: bool,
}

impl Constraint {
    fn new(constraint: &TopologySpreadConstraint, pod: &PodInfo) -> Option<Constraint> {
        let mut selector = constraint.label_selector.clone()?;
        for key in constraint.match_label_keys.iter().flatten() {
            if let Some(value) = pod.labels().and_then(|labels| labels.get(key)) {
                selector.match_labels.get_or_insert_default().insert(key.clone(), value.clone());
            }
        }
        Some(Constraint {
            key: constraint.topology_key.clone(),
            skew_max: constraint.max_skew.into(),
            domains_min: constraint.min_domains.unwrap_or(1).into(),
            selector: compiled(Some(&selector))?,
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        })
    }

    /// Whether the pods of that node count.
    fn counts(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        if self.honors_affinity && !Required::of(&pod.pod).allows(&node.name, &node.labels) {
            return false;
        }
        let tolerations = pod.spec().tolerations.as_deref().unwrap_or_default();
        !self.honors_taints || first_untolerated(&node.taints, tolerations, &["NoSchedule", "NoExecute"]).is_none()
    }

    fn matches(&self, pod: &PodInfo, namespace: &str) -> bool {
        pod.key.namespace == namespace
            && pod.pod.metadata.deletion_timestamp.is_none()
            && selects(&self.selector, pod.labels())
    }
}

impl PodTopologySpread {
    fn constraints(&self, view: View, pod: &PodInfo, forbidding: bool) -> Vec<Constraint> {
        if let Some(own) = pod.spec().topology_spread_constraints.as_deref().filter(|own| !own.is_empty()) {
            let kind = if forbidding { "DoNotSchedule" } else { "ScheduleAnyway" };
            let own = own.iter().filter(|constraint| constraint.when_unsatisfiable == kind);
            return own.filter_map(|constraint| Constraint::new(constraint, pod)).collect();
        }
        let defaults = self.defaults.iter().filter(|(_, _, forbids)| *forbids == forbidding);
        let Some(selector) = default_selector(view, pod) else { return Vec::new() };
        let constraint = |(key, skew_max, _): &(String, i64, bool)| Constraint {
            key: key.clone(),
            skew_max: *skew_max,
            domains_min: 1,
            selector: selector.clone(),
            honors_affinity: true,
            honors_taints: false,
        };
        defaults.map(constraint).collect()
    }
}

/// What makes pods one kind when they do not say so: the selectors of the Services and of the controller they belong to.
fn default_selector(view: View, pod: &PodInfo) -> Option<LabelSelector> {
    let namespace = &pod.key.namespace;
    let mut requirements: Vec<String> = Vec::new();
    for service in view.objects.services.in_namespace(namespace) {
        let Some(selector) = of_map(service.spec.as_ref().and_then(|spec| spec.selector.as_ref())) else { continue };
        if selects(&selector, pod.labels()) {
            requirements.push(selector.to_string());
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
    requirements.extend(selector.map(|selector| selector.to_string()));
    match requirements.is_empty() {
        true => None,
        false => LabelSelector::parse(&requirements.join(",")).ok(),
    }
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
        let mut spread = Spread { pod, counts: vec![HashMap::new(); constraints.len()], constraints };
        for node in view.snapshot.nodes() {
            if !spread.constraints.iter().all(|constraint| node.labels.contains_key(&constraint.key)) {
                continue;
            }
            for (constraint, counts) in spread.constraints.iter().zip(&mut spread.counts) {
                if constraint.counts(pod, node) {
                    let matching = node.pods.iter().filter(|other| constraint.matches(other, &pod.key.namespace));
                    let value = &node.labels[&constraint.key];
                    match counts.get_mut(value) {
                        Some(count) => *count += matching.count() as i64,
                        None => _ = counts.insert(value.clone(), matching.count() as i64),
                    }
                }
            }
        }
        Filtering::Ask(Box::new(spread))
    }

    fn score<'a>(&'a self, view: View<'a>, pod: &'a PodInfo, feasible: &[&'a NodeInfo]) -> Scoring<'a> {
        let constraints = self.constraints(view, pod, false);
        if constraints.is_empty() {
            return Scoring::Skip;
        }
        let needs_all = !self.system_defaults || pod.spec().topology_spread_constraints.is_some();
        let ignored = |node: &NodeInfo| {
            needs_all && !constraints.iter().all(|constraint| node.labels.contains_key(&constraint.key))
        };
        let mut counts: Vec<HashMap<String, i64>> = vec![HashMap::new(); constraints.len()];
        let mut weights = Vec::new();
        for (constraint, counts) in constraints.iter().zip(&mut counts) {
            if constraint.key == HOSTNAME {
                let nodes = feasible.iter().filter(|node| !ignored(node)).count();
                weights.push(weight(nodes));
                continue;
            }
            for node in feasible.iter().filter(|node| !ignored(node)) {
                if let Some(value) = node.labels.get(&constraint.key) {
                    counts.entry(value.clone()).or_insert(0);
                }
            }
            weights.push(weight(counts.len()));
            // Pods on nodes that cannot be chosen count in their zone too.
            for node in view.snapshot.nodes().filter(|node| !ignored(node) && constraint.counts(pod, node)) {
                let Some(count) = node.labels.get(&constraint.key).and_then(|value| counts.get_mut(value)) else {
                    continue;
                };
                *count += node.pods.iter().filter(|other| constraint.matches(other, &pod.key.namespace)).count() as i64;
            }
        }
        Scoring::Ask(Box::new(Even { pod, constraints, counts, weights, needs_all }))
    }

    fn may_help(&self, pod: &PodInfo, change: &Change) -> bool {
        match change {
            Change::Node { .. } | Change::OwnUpdate { .. } => true,
            Change::PlacedPod { old, new } => {
                let same = |pod: &Option<std::sync::Arc<k8s_openapi::api::core::v1::Pod>>, namespace: &str| {
                    pod.as_ref().is_some_and(|pod| pod.metadata.namespace.as_deref() == Some(namespace))
                };
                same(old, &pod.key.namespace) || same(new, &pod.key.namespace)
            }
            Change::Object { .. } => false,
        }
    }
}

/// The fewer the places, the less each counts.
fn weight(places: usize) -> f64 {
    ((places + 2) as f64).ln()
}

struct Spread<'a> {
    pod: &'a PodInfo,
    constraints: Vec<Constraint>,
    /// Matching pods by value of the constraint's key.
    counts: Vec<HashMap<String, i64>>,
}

impl Spread<'_> {
    fn change(&mut self, other: &PodInfo, node: &NodeInfo, amount: i64) {
        for (constraint, counts) in self.constraints.iter().zip(&mut self.counts) {
            let concerned = constraint.counts(self.pod, node) && constraint.matches(other, &self.pod.key.namespace);
            let count = node.labels.get(&constraint.key).and_then(|value| counts.get_mut(value));
            if let Some(count) = count.filter(|_| concerned) {
                *count += amount;
            }
        }
    }
}

impl Filter for Spread<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        for (constraint, counts) in self.constraints.iter().zip(&self.counts) {
            let Some(value) = node.labels.get(&constraint.key) else {
                return Err(Refusal::final_(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            // With fewer places than asked for, an imagined empty one counts as the least.
            let least = match (counts.len() as i64) < constraint.domains_min {
                true => 0,
                false => counts.values().copied().min().unwrap_or(0),
            };
            let itself = i64::from(selects(&constraint.selector, self.pod.labels()));
            let there = counts.get(value).copied().unwrap_or(0);
            if there + itself - least > constraint.skew_max {
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

struct Even<'a> {
    pod: &'a PodInfo,
    constraints: Vec<Constraint>,
    counts: Vec<HashMap<String, i64>>,
    weights: Vec<f64>,
    needs_all: bool,
}

impl Even<'_> {
    fn is_ignored(&self, node: &NodeInfo) -> bool {
        self.needs_all && !self.constraints.iter().all(|constraint| node.labels.contains_key(&constraint.key))
    }
}

impl Score for Even<'_> {
    fn score(&self, node: &NodeInfo) -> i64 {
        if self.is_ignored(node) {
            return 0;
        }
        let mut score = 0.0;
        for ((constraint, counts), weight) in self.constraints.iter().zip(&self.counts).zip(&self.weights) {
            let Some(value) = node.labels.get(&constraint.key) else { continue };
            let count = match constraint.key == HOSTNAME {
                true => {
                    node.pods.iter().filter(|other| constraint.matches(other, &self.pod.key.namespace)).count() as i64
                }
                false => counts.get(value).copied().unwrap_or(0),
            };
            score += count as f64 * weight + (constraint.skew_max - 1) as f64;
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
