//! One decision: filter the nodes, score those that pass, choose. Data in, data out.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::Rng;

use crate::failure::Failure;
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
    pub fn check_with_nominated(&mut self, pod: &PodInfo, node: &NodeInfo) -> Result<(), (&'static str, Refusal)> {
        let counts = |other: &&Arc<PodInfo>| other.uid != pod.uid && other.priority >= pod.priority;
        let promised = || node.nominated.iter().filter(counts);
        if promised().next().is_some() {
            let mut fuller = node.clone();
            promised().for_each(|other| fuller.add(other.clone()));
            promised().for_each(|other| self.add_pod(other, &fuller));
            let outcome = self.check(&fuller);
            promised().for_each(|other| self.remove_pod(other, &fuller));
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
    let only = questions.only.take();
    // Answers whether it is worth asking another.
    let mut ask = |node: &'a NodeInfo, feasible: &mut Vec<&'a NodeInfo>, failure: &mut Failure| {
        let Err((plugin, refusal)) = questions.check_with_nominated(pod, node) else {
            feasible.push(node);
            return true;
        };
        let goes_on = !refusal.is_error;
        if !goes_on {
            failure.error = Some(format!("running {plugin:?} filter plugin: {}", refusal.reasons.join(", ")));
        }
        failure.plugins.insert(plugin);
        failure.refused.add(node.index, refusal);
        goes_on
    };
    // A pod that was promised a node after preemption is tried there first.
    let nominated = nominated_node(view, pod);
    if let Some(node) = nominated {
        let goes_on = ask(node, &mut feasible, &mut failure);
        if !feasible.is_empty() || !goes_on {
            return (feasible, failure);
        }
    }
    if let Some(only) = &only {
        let asked = nominated.map(|node| node.index);
        let mut others = only.iter().filter(|index| asked != Some(**index));
        let goes_on = others.all(|index| ask(snapshot.node(*index), &mut feasible, &mut failure));
        if feasible.is_empty() && goes_on {
            let told = |index: &&NodeIndex| only.contains(index) || asked == Some(**index);
            let left_out = snapshot.order().iter().filter(|index| !told(index));
            let refusal = Refusal::final_("node(s) didn't satisfy plugin(s) [NodeAffinity]");
            left_out.for_each(|index| failure.refused.add(*index, refusal.clone()));
            failure.plugins.insert("NodeAffinity");
        }
        return (feasible, failure);
    }
    // It is asked again in its turn.
    failure.refused.clear();
    let order = snapshot.order();
    let enough = feasible_nodes_wanted(order.len(), profile.percentage_of_nodes_to_score as usize);
    let mut looked_at = 0;
    for offset in 0..order.len() {
        let node = snapshot.node(order[(*start + offset) % order.len()]);
        let goes_on = ask(node, &mut feasible, &mut failure);
        looked_at += 1;
        if feasible.len() >= enough || !goes_on {
            break;
        }
    }
    *start = if order.is_empty() { 0 } else { (*start + looked_at) % order.len() };
    (feasible, failure)
}

/// The node that the pod was promised: what the scheduler knows, which may not be written yet, before what the pod says.
pub(crate) fn nominated_node<'a>(view: View<'a>, pod: &PodInfo) -> Option<&'a NodeInfo> {
    let said = || pod.pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
    view.snapshot.nomination(&pod.uid).or_else(said).and_then(|name| view.snapshot.by_name(name))
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
