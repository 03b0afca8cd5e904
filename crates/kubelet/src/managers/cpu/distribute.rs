//! Spreads the processors of a container evenly over memory nodes, over as few of them as can hold it. Pure; the outcome is upstream's,
//! except on machines with more than four nodes, where upstream's loop overwrites the combination it has chosen.

use std::collections::BTreeMap;

use super::super::cpu_set::CpuSet;
use super::super::mask::combinations;
use super::super::topology::Topology;
use super::assign::{Sorting, TakeError, Taking, take_packed};

/// Free processors by memory node.
type Free = BTreeMap<usize, usize>;

/// In groups of `group` processors: one, or those of a core.
pub(crate) fn take_distributed(
    topology: &Topology,
    available: &CpuSet,
    count: usize,
    group: usize,
    sorting: Sorting,
) -> Result<CpuSet, TakeError> {
    let group = group.max(1);
    if !count.is_multiple_of(group) {
        return take_packed(topology, available, count, sorting, false);
    }
    let mut taking = Taking::new(topology, available, count, sorting);
    if count == 0 {
        return Ok(CpuSet::default());
    }
    if count > taking.left.len() {
        return Err(TakeError::NotEnough { requested: count, available: available.len() });
    }
    let nodes = taking.sorted_nodes();
    let free: Free = nodes.iter().map(|node| (*node, taking.left.in_node(*node).len())).collect();
    let (least, most) = nodes_needed(topology, nodes.len(), count, group);
    for size in least..=most {
        let Some(choice) = best(&nodes, &free, size, count, group) else { continue };
        return fill(topology, &mut taking, &choice, count, group, sorting);
    }
    take_packed(topology, available, count, sorting, false)
}

/// How many nodes are needed at the least and are of use at the most.
fn nodes_needed(topology: &Topology, available: usize, count: usize, group: usize) -> (usize, usize) {
    let nodes = topology.cpus.nodes().len().max(1);
    let groups = (topology.cpus.len().max(1) - 1) / group + 1;
    let groups_per_node = (groups - 1) / nodes + 1;
    let groups_needed = (count - 1) / group + 1;
    ((groups_needed - 1) / groups_per_node + 1, groups_needed.min(available))
}

struct Choice {
    nodes: Vec<usize>,
    /// The nodes that give what cannot be divided evenly.
    remainder: Vec<usize>,
}

fn share(count: usize, nodes: usize, group: usize) -> usize {
    count / nodes / group * group
}

/// The combination of nodes after which the machine is in the best balance.
fn best(nodes: &[usize], free: &Free, size: usize, count: usize, group: usize) -> Option<Choice> {
    let mut best: Option<(f64, Choice)> = None;
    for combination in combinations(nodes, size) {
        if best.as_ref().is_some_and(|(balance, _)| *balance == 0.0) {
            break;
        }
        let groups: usize = combination.iter().map(|node| free[node] / group).sum();
        let each = share(count, size, group);
        if groups * group < count || combination.iter().any(|node| free[node] < each) {
            continue;
        }
        let mut after = free.clone();
        combination.iter().for_each(|node| *after.entry(*node).or_default() -= each);
        let Some((balance, remainder)) = best_remainder(&combination, &after, count - each * size, group) else {
            continue;
        };
        if best.as_ref().is_none_or(|(least, _)| balance < *least) {
            best = Some((balance, Choice { nodes: combination, remainder }));
        }
    }
    best.map(|(_, choice)| choice)
}

fn best_remainder(nodes: &[usize], after: &Free, remainder: usize, group: usize) -> Option<(f64, Vec<usize>)> {
    if remainder == 0 {
        return Some((deviation(after), Vec::new()));
    }
    let able: Vec<usize> = nodes.iter().copied().filter(|node| after[node] >= group).collect();
    let mut best: Option<(f64, Vec<usize>)> = None;
    for size in (1..=able.len()).rev() {
        for subset in combinations(&able, size) {
            let whole: usize = subset.iter().map(|node| after[node] / group * group).sum();
            if whole < remainder {
                continue;
            }
            let mut after = after.clone();
            let mut left = remainder;
            while left > 0 {
                for node in &subset {
                    let there = after.entry(*node).or_default();
                    if left > 0 && *there >= group {
                        *there -= group;
                        left -= group;
                    }
                }
            }
            let balance = deviation(&after);
            if best.as_ref().is_none_or(|(least, _)| balance < *least) {
                best = Some((balance, subset));
            }
        }
    }
    best
}

fn fill(
    topology: &Topology,
    taking: &mut Taking,
    choice: &Choice,
    count: usize,
    group: usize,
    sorting: Sorting,
) -> Result<CpuSet, TakeError> {
    let each = share(count, choice.nodes.len(), group);
    for node in &choice.nodes {
        let cpus = take_packed(topology, &taking.left.in_node(*node), each, sorting, false)?;
        taking.take(&cpus);
    }
    let mut left = count - each * choice.nodes.len();
    while left > 0 {
        let before = left;
        for node in &choice.remainder {
            let there = taking.left.in_node(*node);
            if left > 0 && there.len() >= group {
                let cpus = take_packed(topology, &there, group, sorting, false)?;
                taking.take(&cpus);
                left -= group;
            }
        }
        if left == before {
            return Err(TakeError::Accounting(left));
        }
    }
    Ok(std::mem::take(&mut taking.taken))
}

/// The standard deviation, in thousandths as upstream rounds it.
fn deviation(free: &Free) -> f64 {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let count = free.len() as f64;
    let mean = round(free.values().sum::<usize>() as f64 / count);
    let squares: f64 = free.values().map(|free| (*free as f64 - mean).powi(2)).sum();
    round((squares / count).sqrt())
}
