//! One decision: filter the nodes, score those that pass, choose. Data in, data out.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;

use crate::framework::{Filter, Filtering, Refusal, Scoring, View};
use crate::pod_info::PodInfo;
use crate::profile::Profile;
use crate::snapshot::{NodeIndex, NodeInfo};

/// Clusters up to this size are always looked at whole.
const NODES_ALWAYS_LOOKED_AT: usize = 100;
/// The least share of a large cluster that is looked at, in percent.
const PERCENTAGE_MIN: usize = 5;

#[derive(Debug)]
pub enum Decision {
    Node(NodeIndex),
    Unschedulable(Failure),
    /// A plugin could not say whether a node takes the pod: another attempt may.
    Error(String),
}

/// Why no node takes the pod.
#[derive(Debug, Default)]
pub struct Failure {
    /// Nodes that were refused, and why.
    pub nodes: BTreeMap<NodeIndex, Refusal>,
    /// Said once for the whole cluster instead.
    pub all: Option<Refusal>,
    /// Which plugins refused: only what may change their minds is worth another try.
    pub plugins: BTreeSet<&'static str>,
    pub nodes_total: usize,
    /// What ended the attempt before all nodes were asked.
    pub error: Option<String>,
}

impl Failure {
    /// `0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint(s).`
    pub fn message(&self) -> String {
        if self.nodes_total == 0 {
            return "no nodes available to schedule pods".into();
        }
        let head = format!("0/{} nodes are available", self.nodes_total);
        if let Some(all) = &self.all {
            return format!("{head}: {}.", all.reasons.join(", "));
        }
        let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in self.nodes.values().flat_map(|refusal| &refusal.reasons) {
            *counted.entry(reason).or_default() += 1;
        }
        // Sorted as text, the count included, as upstream does.
        let mut reasons: Vec<String> = counted.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        if reasons.is_empty() { format!("{head}.") } else { format!("{head}: {}.", reasons.join(", ")) }
    }
}

/// The questions of all plugins about one pod.
pub struct Questions<'a> {
    pub filters: Vec<(&'static str, Box<dyn Filter + 'a>)>,
    /// The only nodes that can pass, if some plugin knows.
    pub only: Option<BTreeSet<NodeIndex>>,
}

impl<'a> Questions<'a> {
    /// Fails when a plugin refuses the pod whatever the node.
    pub fn new(profile: &'a Profile, view: View<'a>, pod: &'a PodInfo) -> Result<Questions<'a>, Failure> {
        let mut questions = Questions { filters: Vec::new(), only: None };
        for plugin in &profile.filters {
            match plugin.filter(view, pod) {
                Filtering::Skip => {}
                Filtering::Refused(refusal) => {
                    let nodes_total = view.snapshot.len();
                    let plugins = [plugin.name()].into();
                    return Err(Failure { all: Some(refusal), plugins, nodes_total, ..Failure::default() });
                }
                Filtering::Ask(filter) => {
                    if let Some(nodes) = filter.only() {
                        let nodes: BTreeSet<NodeIndex> = nodes.into_iter().collect();
                        questions.only = Some(match questions.only.take() {
                            Some(before) => before.intersection(&nodes).copied().collect(),
                            None => nodes,
                        });
                    }
                    questions.filters.push((plugin.name(), filter));
                }
            }
        }
        Ok(questions)
    }

    pub fn check(&self, node: &NodeInfo) -> Result<(), (&'static str, Refusal)> {
        for (plugin, filter) in &self.filters {
            filter.check(node).map_err(|refusal| (*plugin, refusal))?;
        }
        Ok(())
    }

    /// With the pods in mind that were promised the node and are at least as important: it must take the pod whether
    /// they come or not.
    pub fn check_with_nominated(
        &mut self,
        view: View,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<(), (&'static str, Refusal)> {
        let promised = view.snapshot.nominated.on(&node.name).iter();
        let promised: Vec<_> =
            promised.filter(|other| other.uid != pod.uid && other.priority >= pod.priority).cloned().collect();
        if !promised.is_empty() {
            let mut fuller = node.clone();
            promised.iter().for_each(|other| fuller.add(other.clone()));
            promised.iter().for_each(|other| self.add_pod(other, &fuller));
            let outcome = self.check(&fuller);
            promised.iter().for_each(|other| self.remove_pod(other, &fuller));
            outcome?;
        }
        self.check(node)
    }

    pub fn add_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.filters.iter_mut().for_each(|(_, filter)| filter.add_pod(pod, node));
    }

    pub fn remove_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.filters.iter_mut().for_each(|(_, filter)| filter.remove_pod(pod, node));
    }
}

/// Chooses a node. `start` is where looking begins, so that the nodes of a large cluster get their turn; it is moved on.
pub fn decide(profile: &Profile, view: View, pod: &PodInfo, start: &mut usize, random: &mut impl Rng) -> Decision {
    if view.snapshot.is_empty() {
        // No plugin refused: it is tried again after its back-off, whatever the first node is like.
        return Decision::Unschedulable(Failure::default());
    }
    let mut questions = match Questions::new(profile, view, pod) {
        Ok(questions) => questions,
        Err(failure) => return Decision::Unschedulable(failure),
    };
    let (feasible, mut failure) = filter(profile, view, pod, &mut questions, start);
    if let Some(error) = failure.error.take() {
        return Decision::Error(error);
    }
    match feasible[..] {
        [] => Decision::Unschedulable(failure),
        [only] => Decision::Node(only.index),
        _ => Decision::Node(best(&feasible, &scores(profile, view, pod, &feasible), random)),
    }
}

fn filter<'a>(
    profile: &Profile,
    view: View<'a>,
    pod: &PodInfo,
    questions: &mut Questions,
    start: &mut usize,
) -> (Vec<&'a NodeInfo>, Failure) {
    let snapshot = view.snapshot;
    let mut failure = Failure { nodes_total: snapshot.len(), ..Failure::default() };
    let mut feasible = Vec::new();
    let none_promised = snapshot.nominated.is_empty();
    let only = questions.only.take();
    let mut check = |node: &NodeInfo| {
        if none_promised { questions.check(node) } else { questions.check_with_nominated(view, pod, node) }
    };
    // Answers whether it is worth asking another.
    let mut ask = |node: &'a NodeInfo, feasible: &mut Vec<&'a NodeInfo>| match check(node) {
        Ok(()) => {
            feasible.push(node);
            true
        }
        Err((plugin, refusal)) => {
            let goes_on = !refusal.is_error;
            if !goes_on {
                failure.error = Some(format!("running {plugin:?} filter plugin: {}", refusal.reasons.join(", ")));
            }
            failure.plugins.insert(plugin);
            failure.nodes.insert(node.index, refusal);
            goes_on
        }
    };
    // A pod that was promised a node after preemption is tried there first.
    let nominated = pod.pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
    if let Some(node) = nominated.and_then(|name| snapshot.by_name(name)) {
        let goes_on = ask(node, &mut feasible);
        if !feasible.is_empty() || !goes_on {
            return (feasible, failure);
        }
    }
    if let Some(only) = &only {
        let goes_on = only.iter().all(|index| ask(snapshot.node(*index), &mut feasible));
        if feasible.is_empty() && goes_on {
            let told: Vec<NodeIndex> = failure.nodes.keys().copied().collect();
            let left_out = snapshot.order().iter().filter(|index| !told.contains(index));
            let refusal = Refusal::final_("node(s) didn't satisfy plugin(s) [NodeAffinity]");
            left_out.for_each(|index| _ = failure.nodes.insert(*index, refusal.clone()));
            failure.plugins.insert("NodeAffinity");
        }
        return (feasible, failure);
    }
    let order = snapshot.order();
    let enough = feasible_nodes_wanted(order.len(), profile.percentage_of_nodes_to_score as usize);
    let mut looked_at = 0;
    for offset in 0..order.len() {
        let goes_on = ask(snapshot.node(order[(*start + offset) % order.len()]), &mut feasible);
        looked_at += 1;
        if feasible.len() >= enough || !goes_on {
            break;
        }
    }
    *start = if order.is_empty() { 0 } else { (*start + looked_at) % order.len() };
    (feasible, failure)
}

/// How many nodes that pass are enough: all of a small cluster, a shrinking share of a large one.
pub(crate) fn feasible_nodes_wanted(nodes: usize, percentage: usize) -> usize {
    if nodes <= NODES_ALWAYS_LOOKED_AT || percentage >= 100 {
        return nodes;
    }
    let percentage = match percentage {
        0 => 50_usize.saturating_sub(nodes / 125).max(PERCENTAGE_MIN),
        given => given,
    };
    (nodes * percentage / 100).max(NODES_ALWAYS_LOOKED_AT)
}

/// The weighted sum of all plugins' scores for each node.
fn scores<'a>(profile: &'a Profile, view: View<'a>, pod: &'a PodInfo, feasible: &[&'a NodeInfo]) -> Vec<i64> {
    let mut totals = vec![0; feasible.len()];
    let mut scores = vec![0; feasible.len()];
    for (plugin, weight) in &profile.scores {
        let Scoring::Ask(scoring) = plugin.score(view, pod, feasible) else { continue };
        scores.iter_mut().zip(feasible).for_each(|(score, node)| *score = scoring.score(node));
        scoring.normalize(feasible, &mut scores);
        totals.iter_mut().zip(&scores).for_each(|(total, score)| *total += score * weight);
    }
    totals
}

/// The highest score; of several the choice is by chance.
fn best(feasible: &[&NodeInfo], scores: &[i64], random: &mut impl Rng) -> NodeIndex {
    let highest = scores.iter().copied().max().unwrap_or(0);
    let mut chosen = feasible[0].index;
    let ties = feasible.iter().zip(scores).filter(|(_, score)| **score == highest);
    for (before, (node, _)) in ties.enumerate() {
        if random.random_range(0..=before) == 0 {
            chosen = node.index;
        }
    }
    chosen
}

#[cfg(test)]
mod tests;
