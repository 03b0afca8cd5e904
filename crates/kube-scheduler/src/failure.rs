//! Why no node takes a pod: what nodes refused it for, kept once for all nodes that say the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::framework::Refusal;
use crate::snapshot::NodeIndex;

#[cfg(test)]
mod tests;

/// So many refusals, the newest first, are compared with a new one: texts that differ on every node must not make this slow.
const COMPARED_MAX: usize = 8;

/// Why no node takes the pod.
#[derive(Debug, Default)]
pub struct Failure {
    pub refused: Refused,
    /// Said once for the whole cluster instead.
    pub all: Option<Refusal>,
    /// Which plugins refused: only what may change their minds is worth another try.
    pub plugins: BTreeSet<&'static str>,
    pub nodes_total: usize,
    /// What ended the attempt before all nodes were asked.
    pub error: Option<String>,
}

/// Nodes that were refused, and why.
#[derive(Debug, Default)]
pub struct Refused {
    /// What was said, and by how many nodes.
    said: Vec<(Refusal, usize)>,
    /// The nodes, with the number of what they said.
    nodes: Vec<(NodeIndex, u32)>,
}

impl Refused {
    /// A node is told once.
    pub fn add(&mut self, node: NodeIndex, refusal: Refusal) {
        let known = self.said.iter().rev().take(COMPARED_MAX).position(|(said, _)| *said == refusal);
        let number = match known {
            Some(from_the_end) => self.said.len() - 1 - from_the_end,
            None => {
                self.said.push((refusal, 0));
                self.said.len() - 1
            }
        };
        self.said[number].1 += 1;
        self.nodes.push((node, number as u32));
    }

    pub(crate) fn clear(&mut self) {
        self.said.clear();
        self.nodes.clear();
    }

    pub fn of(&self, node: NodeIndex) -> Option<&Refusal> {
        self.iter().find(|(index, _)| *index == node).map(|(_, refusal)| refusal)
    }

    /// In the order in which the nodes were asked.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIndex, &Refusal)> {
        self.nodes.iter().map(|(node, number)| (*node, &self.said[*number as usize].0))
    }
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
        for (refusal, nodes) in &self.refused.said {
            refusal.reasons.iter().for_each(|reason| *counted.entry(reason).or_default() += nodes);
        }
        // Sorted as text, the count included, as upstream does.
        let mut reasons: Vec<String> = counted.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        if reasons.is_empty() { format!("{head}.") } else { format!("{head}: {}.", reasons.join(", ")) }
    }
}
