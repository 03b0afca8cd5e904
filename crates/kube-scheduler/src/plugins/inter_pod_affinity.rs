//! InterPodAffinity: pods that want to be near, or away from, other pods.
//!
//! Once per pod the places are counted: for every (topology key, value) how many pods there match which term. A node is then
//! judged by looking up its own places.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::alike::Wishing;
use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, SCORE_MAX, Score, Scoring, View};
use crate::objects::Objects;
use crate::pod_info::{AffinityTerm, Labels, PodInfo};
use crate::snapshot::{Domains, NodeIndex, NodeInfo, Snapshot};

pub struct InterPodAffinity {
    /// What a required term of a pod that is there already adds to the score of its place.
    pub hard_pod_affinity_weight: i64,
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinity {
    fn default() -> InterPodAffinity {
        InterPodAffinity { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

/// What was counted in each place, by topology key: the places of the key, and the count of each by its number.
#[derive(Default)]
struct Places(Vec<(String, Arc<Domains>, Vec<i64>)>);

impl Places {
    /// So much more in the place of each of these nodes. The key is looked up once for all of them.
    fn add(&mut self, snapshot: &Snapshot, key: &str, nodes: impl Iterator<Item = (NodeIndex, i64)>) {
        let known = self.0.iter().position(|(known, _, _)| known == key);
        let number = known.unwrap_or_else(|| {
            let domains = snapshot.domains(key);
            let counts = vec![0; domains.values.len()];
            self.0.push((key.to_owned(), domains, counts));
            self.0.len() - 1
        });
        let (_, domains, counts) = &mut self.0[number];
        let mut any = known.is_some();
        for (node, amount) in nodes {
            if let Some(place) = domains.of(node) {
                counts[place] += amount;
                any = true;
            }
        }
        // A key that none of the pods' nodes has stands for no place.
        if !any {
            self.0.pop();
        }
    }

    fn at(&self, node: &NodeInfo, key: &str) -> i64 {
        let known = self.0.iter().find(|(known, _, _)| known == key);
        known.and_then(|(_, domains, counts)| Some(counts[domains.of(node.index)?])).unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn everywhere_zero(&self) -> bool {
        self.0.iter().all(|(_, _, counts)| counts.iter().all(|count| *count == 0))
    }

    /// The counts of a node's places.
    fn of<'a>(&'a self, node: &'a NodeInfo) -> impl Iterator<Item = i64> + 'a {
        self.0.iter().filter_map(|(_, domains, counts)| Some(counts[domains.of(node.index)?]))
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let (wanted, unwanted, refused_by_others) = Default::default();
        let mut near = Near { view, pod, wanted, unwanted, refused_by_others };
        for wishing in view.snapshot.alike.wishing_of(pod.labels()) {
            near.count_refusals(&wishing.example, wishing.nodes());
        }
        near.count_own_wishes();
        if pod.affinity.is_empty() && pod.anti_affinity.is_empty() && near.refused_by_others.is_empty() {
            Filtering::Skip
        } else {
            Filtering::Ask(Box::new(near))
        }
    }

    fn score<'a>(&'a self, view: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        let prefers = !pod.preferred_affinity.is_empty() || !pod.preferred_anti_affinity.is_empty();
        if self.ignore_preferred_terms_of_existing_pods && !prefers {
            return Scoring::Skip;
        }
        let mut places = Places::default();
        if prefers {
            count_own_likes(view.snapshot, pod, &mut places);
        }
        for wishing in view.snapshot.alike.wishing_of(pod.labels()) {
            self.count_likes(view.snapshot, pod, wishing, &mut places);
        }
        if places.is_empty() { Scoring::Skip } else { Scoring::Ask(Box::new(Liked(places))) }
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            Change::OwnUpdate { .. } => change.relabels_itself(),
            Change::Node { old, new: Some(node) } => brings_place(pod, old.as_deref(), node),
            Change::PlacedPod { old, new } => {
                // Labels of namespaces are not known here, so terms that ask for them may speak of any pod.
                let terms = || pod.affinity.iter().chain(&pod.anti_affinity);
                terms().any(|term| term.namespace_selector.is_some())
                    || neighbours_help(pod, old.as_ref(), new.as_deref())
            }
            Change::Object { kind, .. } => *kind == "Namespace",
            Change::Node { new: None, .. } => false,
        }
    }
}

/// Whether a pod to be near has come, or one to be away from has gone, or one that wanted this one away.
fn neighbours_help(pod: &PodInfo, old: Option<&Arc<Pod>>, new: Option<&Pod>) -> bool {
    let all =
        |terms: &[AffinityTerm], other: &Pod| !terms.is_empty() && terms.iter().all(|term| term.matches(other, None));
    let any = |terms: &[AffinityTerm], other: &Pod| terms.iter().any(|term| term.matches(other, None));
    match (old, new) {
        (None, None) => false,
        (None, Some(new)) => all(&pod.affinity, new),
        (Some(old), None) => any(&pod.anti_affinity, old) || any(&PodInfo::new(old.clone()).anti_affinity, &pod.pod),
        (Some(old), Some(new)) => {
            !all(&pod.affinity, old) && all(&pod.affinity, new)
                || any(&pod.anti_affinity, old) && !any(&pod.anti_affinity, new)
        }
    }
}

/// Whether a node came with a place that one of the pod's terms speaks of, or went to another such place.
fn brings_place(pod: &PodInfo, old: Option<&Node>, new: &Node) -> bool {
    fn place<'a>(node: &'a Node, term: &AffinityTerm) -> Option<&'a String> {
        node.metadata.labels.as_ref().and_then(|labels| labels.get(&term.topology_key))
    }
    let Some(old) = old else {
        // Away from others a pod can be on a node without the place, too; and those others may be why it waits.
        return pod.affinity.is_empty()
            || !pod.anti_affinity.is_empty()
            || pod.affinity.iter().any(|term| place(new, term).is_some());
    };
    let moved = |term: &AffinityTerm| place(old, term) != place(new, term);
    if pod.affinity.is_empty() && pod.anti_affinity.is_empty() {
        return old.metadata.labels != new.metadata.labels;
    }
    pod.affinity.iter().any(|term| place(new, term).is_some() && moved(term))
        || pod.anti_affinity.iter().any(|term| place(old, term).is_some() && moved(term))
}

/// What the pod itself prefers of those that are there.
fn count_own_likes(snapshot: &Snapshot, pod: &PodInfo, places: &mut Places) {
    let near = pod.preferred_affinity.iter().map(|(weight, term)| (*weight, term));
    let away = pod.preferred_anti_affinity.iter().map(|(weight, term)| (-weight, term));
    for (weight, term) in near.chain(away) {
        for (namespace, labels, group) in snapshot.alike.spoken_of(term) {
            if !term.speaks_of(namespace, Some(labels), snapshot.namespace_labels(namespace)) {
                continue;
            }
            let nodes = group.nodes().map(|(node, count)| (node, weight * i64::from(count.pods)));
            places.add(snapshot, &term.topology_key, nodes);
        }
    }
}

impl InterPodAffinity {
    /// What those that are there think of the pod.
    fn count_likes(&self, snapshot: &Snapshot, pod: &PodInfo, wishing: &Wishing, places: &mut Places) {
        let labels = snapshot.namespace_labels(&pod.key.namespace);
        let other = &wishing.example;
        let mut terms: Vec<(i64, &AffinityTerm)> = Vec::new();
        if !self.ignore_preferred_terms_of_existing_pods {
            terms.extend(other.preferred_affinity.iter().map(|(weight, term)| (*weight, term)));
            terms.extend(other.preferred_anti_affinity.iter().map(|(weight, term)| (-weight, term)));
        }
        if self.hard_pod_affinity_weight > 0 {
            terms.extend(other.affinity.iter().map(|term| (self.hard_pod_affinity_weight, term)));
        }
        for (weight, term) in terms.into_iter().filter(|(_, term)| term.matches(&pod.pod, labels)) {
            let nodes = wishing.nodes().map(|(node, count)| (node, weight * count));
            places.add(snapshot, &term.topology_key, nodes);
        }
    }
}

struct Near<'a> {
    view: View<'a>,
    pod: &'a PodInfo,
    /// Places with pods that match all of our affinity terms.
    wanted: Places,
    /// Places with pods that match one of our anti-affinity terms.
    unwanted: Places,
    /// Places with pods that do not want us near.
    refused_by_others: Places,
}

impl Near<'_> {
    fn count_refusals(&mut self, other: &PodInfo, nodes: impl Iterator<Item = (NodeIndex, i64)> + Clone) {
        let snapshot = self.view.snapshot;
        let labels = snapshot.namespace_labels(&self.pod.key.namespace);
        for term in other.anti_affinity.iter().filter(|term| term.matches(&self.pod.pod, labels)) {
            self.refused_by_others.add(snapshot, &term.topology_key, nodes.clone());
        }
    }

    /// All pods that the pod's own terms speak of, wherever they are.
    fn count_own_wishes(&mut self) {
        let (pod, snapshot) = (self.pod, self.view.snapshot);
        // Who matches all of the terms matches the first.
        for (namespace, labels, group) in
            pod.affinity.first().into_iter().flat_map(|term| snapshot.alike.spoken_of(term))
        {
            let nodes = group.nodes().map(|(node, count)| (node, count.pods.into()));
            self.count_wanted(namespace, Some(labels), nodes);
        }
        for term in &pod.anti_affinity {
            for (namespace, labels, group) in snapshot.alike.spoken_of(term) {
                let nodes = group.nodes().map(|(node, count)| (node, count.pods.into()));
                self.count_unwanted(term, namespace, Some(labels), nodes);
            }
        }
    }

    /// Pods with these labels, so many on each of these nodes, if all terms of the pod's affinity speak of them.
    fn count_wanted(
        &mut self,
        namespace: &str,
        labels: Option<&Labels>,
        nodes: impl Iterator<Item = (NodeIndex, i64)> + Clone,
    ) {
        let snapshot = self.view.snapshot;
        let of_namespace = snapshot.namespace_labels(namespace);
        let near = &self.pod.affinity;
        if near.iter().all(|term| term.speaks_of(namespace, labels, of_namespace)) {
            for term in near {
                self.wanted.add(snapshot, &term.topology_key, nodes.clone());
            }
        }
    }

    /// The same for one term of its anti-affinity.
    fn count_unwanted(
        &mut self,
        term: &AffinityTerm,
        namespace: &str,
        labels: Option<&Labels>,
        nodes: impl Iterator<Item = (NodeIndex, i64)>,
    ) {
        let snapshot = self.view.snapshot;
        if term.speaks_of(namespace, labels, snapshot.namespace_labels(namespace)) {
            self.unwanted.add(snapshot, &term.topology_key, nodes);
        }
    }

    fn change(&mut self, other: &PodInfo, node: &NodeInfo, amount: i64) {
        let here = std::iter::once((node.index, amount));
        self.count_refusals(other, here.clone());
        let (pod, namespace) = (self.pod, &other.key.namespace);
        self.count_wanted(namespace, other.labels(), here.clone());
        for term in &pod.anti_affinity {
            self.count_unwanted(term, namespace, other.labels(), here.clone());
        }
    }

    fn finds_company(&self, node: &NodeInfo) -> bool {
        if self.pod.affinity.iter().any(|term| !node.labels.contains_key(&term.topology_key)) {
            return false;
        }
        if self.pod.affinity.iter().all(|term| self.wanted.at(node, &term.topology_key) > 0) {
            return true;
        }
        // The first pod of a group that wants to be together may go anywhere, if it is one of those it asks for.
        let nobody = self.wanted.everywhere_zero();
        let labels = self.view.snapshot.namespace_labels(&self.pod.key.namespace);
        nobody && matches_all(&self.pod.affinity, self.pod, labels)
    }
}

fn matches_all(terms: &[AffinityTerm], pod: &PodInfo, labels: Option<&Labels>) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(&pod.pod, labels))
}

impl Filter for Near<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        if !self.pod.affinity.is_empty() && !self.finds_company(node) {
            return Err(Refusal::final_("node(s) didn't match pod affinity rules"));
        }
        if self.pod.anti_affinity.iter().any(|term| self.unwanted.at(node, &term.topology_key) > 0) {
            return Err(Refusal::resolvable("node(s) didn't match pod anti-affinity rules"));
        }
        if self.refused_by_others.of(node).any(|count| count > 0) {
            return Err(Refusal::resolvable("node(s) didn't satisfy existing pods anti-affinity rules"));
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

struct Liked(Places);

impl Score for Liked {
    fn score(&self, node: &NodeInfo) -> i64 {
        self.0.of(node).sum()
    }

    fn normalize(&self, _: &[&NodeInfo], scores: &mut [i64]) {
        let (least, most) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
        let range = most - least;
        for score in scores {
            *score = if range == 0 { 0 } else { SCORE_MAX * (*score - least) / range };
        }
    }
}
