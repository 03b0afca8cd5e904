//! InterPodAffinity: pods that want to be near, or away from, other pods.
//!
//! Once per pod the places are counted: for every (topology key, value) how many pods there match which term. A node is then
//! judged by looking up its own places.

use std::collections::HashMap;

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, SCORE_MAX, Score, Scoring, View};
use crate::pod_info::{AffinityTerm, PodInfo};
use crate::snapshot::NodeInfo;

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

/// A place: topology key, and the value that its nodes have.
type Places = HashMap<String, HashMap<String, i64>>;

fn add(places: &mut Places, node: &NodeInfo, key: &str, amount: i64) {
    let Some(value) = node.labels.get(key) else { return };
    if !places.contains_key(key) {
        places.insert(key.to_owned(), HashMap::new());
    }
    let Some(values) = places.get_mut(key) else { return };
    match values.get_mut(value) {
        Some(count) => *count += amount,
        None => _ = values.insert(value.clone(), amount),
    }
}

fn at(places: &Places, node: &NodeInfo, key: &str) -> i64 {
    let value = node.labels.get(key).and_then(|value| places.get(key)?.get(value));
    value.copied().unwrap_or(0)
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        let mut near =
            Near { view, pod, wanted: Places::new(), unwanted: Places::new(), refused_by_others: Places::new() };
        for index in &view.snapshot.with_anti_affinity {
            let node = view.snapshot.node(*index);
            node.pods_with_anti_affinity.iter().for_each(|other| near.count_refusals(other, node, 1));
        }
        if !pod.affinity.is_empty() || !pod.anti_affinity.is_empty() {
            for node in view.snapshot.nodes() {
                node.pods.iter().for_each(|other| near.count_wishes(other, node, 1));
            }
        }
        match pod.affinity.is_empty() && pod.anti_affinity.is_empty() && near.refused_by_others.is_empty() {
            true => Filtering::Skip,
            false => Filtering::Ask(Box::new(near)),
        }
    }

    fn score<'a>(&'a self, view: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        let prefers = !pod.preferred_affinity.is_empty() || !pod.preferred_anti_affinity.is_empty();
        if self.ignore_preferred_terms_of_existing_pods && !prefers {
            return Scoring::Skip;
        }
        let mut places = Places::new();
        let mut count = |other: &PodInfo, node: &NodeInfo| self.count_likes(view, pod, other, node, &mut places);
        if prefers {
            for node in view.snapshot.nodes() {
                node.pods.iter().for_each(|other| count(other, node));
            }
        } else {
            for node in view.snapshot.with_affinity.iter().map(|index| view.snapshot.node(*index)) {
                node.pods_with_affinity.iter().for_each(|other| count(other, node));
            }
        }
        match places.is_empty() {
            true => Scoring::Skip,
            false => Scoring::Ask(Box::new(Liked(places))),
        }
    }

    fn may_help(&self, pod: &PodInfo, change: &Change) -> bool {
        match change {
            Change::Node { new: Some(_), .. } | Change::OwnUpdate { .. } => true,
            // A pod to be near has come, or one to be away from has gone.
            Change::PlacedPod { old, new } => {
                let speaks_of = |terms: &[AffinityTerm], other: &k8s_openapi::api::core::v1::Pod| {
                    terms.iter().any(|term| term.matches(other, None))
                };
                let came = new.as_ref().is_some_and(|other| speaks_of(&pod.affinity, other));
                let went = old.as_ref().is_some_and(|other| {
                    speaks_of(&pod.anti_affinity, other)
                        || PodInfo::new(other.clone()).anti_affinity.iter().any(|term| term.matches(&pod.pod, None))
                });
                came || went
                    || pod.affinity.iter().chain(&pod.anti_affinity).any(|term| term.namespace_selector.is_some())
            }
            Change::Object { kind, .. } => *kind == "Namespace",
            Change::Node { new: None, .. } => false,
        }
    }
}

impl InterPodAffinity {
    fn count_likes(&self, view: View, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, places: &mut Places) {
        let labels_of = |pod: &PodInfo| view.snapshot.namespace_labels(&pod.key.namespace);
        let mut like = |terms: &[(i64, AffinityTerm)], about: &PodInfo, sign: i64| {
            for (weight, term) in terms.iter().filter(|(_, term)| term.matches(&about.pod, labels_of(about))) {
                add(places, node, &term.topology_key, sign * weight);
            }
        };
        like(&pod.preferred_affinity, other, 1);
        like(&pod.preferred_anti_affinity, other, -1);
        if !self.ignore_preferred_terms_of_existing_pods {
            like(&other.preferred_affinity, pod, 1);
            like(&other.preferred_anti_affinity, pod, -1);
        }
        if self.hard_pod_affinity_weight > 0 {
            for term in other.affinity.iter().filter(|term| term.matches(&pod.pod, labels_of(pod))) {
                add(places, node, &term.topology_key, self.hard_pod_affinity_weight);
            }
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
    fn count_refusals(&mut self, other: &PodInfo, node: &NodeInfo, amount: i64) {
        let labels = self.view.snapshot.namespace_labels(&self.pod.key.namespace);
        for term in other.anti_affinity.iter().filter(|term| term.matches(&self.pod.pod, labels)) {
            add(&mut self.refused_by_others, node, &term.topology_key, amount);
        }
    }

    fn count_wishes(&mut self, other: &PodInfo, node: &NodeInfo, amount: i64) {
        let labels = self.view.snapshot.namespace_labels(&other.key.namespace);
        if matches_all(&self.pod.affinity, other, labels) {
            for term in &self.pod.affinity {
                add(&mut self.wanted, node, &term.topology_key, amount);
            }
        }
        for term in self.pod.anti_affinity.iter().filter(|term| term.matches(&other.pod, labels)) {
            add(&mut self.unwanted, node, &term.topology_key, amount);
        }
    }

    fn finds_company(&self, node: &NodeInfo) -> bool {
        if self.pod.affinity.iter().any(|term| !node.labels.contains_key(&term.topology_key)) {
            return false;
        }
        if self.pod.affinity.iter().all(|term| at(&self.wanted, node, &term.topology_key) > 0) {
            return true;
        }
        // The first pod of a group that wants to be together may go anywhere, if it is one of those it asks for.
        let nobody = self.wanted.values().all(|values| values.values().all(|count| *count == 0));
        let labels = self.view.snapshot.namespace_labels(&self.pod.key.namespace);
        nobody && matches_all(&self.pod.affinity, self.pod, labels)
    }
}

fn matches_all(terms: &[AffinityTerm], pod: &PodInfo, labels: Option<&crate::pod_info::Labels>) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(&pod.pod, labels))
}

impl Filter for Near<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        if !self.pod.affinity.is_empty() && !self.finds_company(node) {
            return Err(Refusal::final_("node(s) didn't match pod affinity rules"));
        }
        if self.pod.anti_affinity.iter().any(|term| at(&self.unwanted, node, &term.topology_key) > 0) {
            return Err(Refusal::resolvable("node(s) didn't match pod anti-affinity rules"));
        }
        if self.refused_by_others.keys().any(|key| at(&self.refused_by_others, node, key) > 0) {
            return Err(Refusal::resolvable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    fn add_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.count_refusals(pod, node, 1);
        self.count_wishes(pod, node, 1);
    }

    fn remove_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.count_refusals(pod, node, -1);
        self.count_wishes(pod, node, -1);
    }
}

struct Liked(Places);

impl Score for Liked {
    fn score(&self, node: &NodeInfo) -> i64 {
        self.0.keys().map(|key| at(&self.0, node, key)).sum()
    }

    fn normalize(&self, _: &[&NodeInfo], scores: &mut [i64]) {
        let (least, most) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
        let range = most - least;
        for score in scores {
            *score = if range == 0 { 0 } else { SCORE_MAX * (*score - least) / range };
        }
    }
}
