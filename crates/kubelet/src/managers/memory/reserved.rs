//! `reservedMemory`: what each memory node keeps for the system. Together it must be what the node as a whole reserves.

use std::collections::{BTreeMap, BTreeSet};

use machinery::quantity::Quantity;

use super::super::topology::Topology;
use super::policy::Sizes;

/// One entry of `reservedMemory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub numa_node: usize,
    /// Quantities by resource.
    pub limits: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReservedError {
    #[error("the reserved memory configuration references a NUMA node {0} that does not exist on this machine")]
    NoSuchNode(usize),
    #[error("reservedMemory: {resource}: {text:?} is no quantity")]
    Quantity { resource: String, text: String },
    #[error(
        "the total amount {reserved:?} of type {resource:?} is not equal to the value {expected:?} determined by Node Allocatable feature"
    )]
    Sum { reserved: String, resource: String, expected: String },
}

/// Bytes by node and resource. `whole` is what the node as a whole reserves: for the system, for Kubernetes and before eviction.
pub(in super::super) fn reserved(
    topology: &Topology,
    whole: &BTreeMap<String, Quantity>,
    given: &[Reservation],
) -> Result<BTreeMap<usize, Sizes>, ReservedError> {
    let mut by_node: BTreeMap<usize, Sizes> =
        topology.memory_nodes.keys().map(|number| (*number, Sizes::new())).collect();
    let mut sums: BTreeMap<String, Quantity> = BTreeMap::new();
    for one in given {
        let node = by_node.get_mut(&one.numa_node).ok_or(ReservedError::NoSuchNode(one.numa_node))?;
        for (resource, text) in &one.limits {
            let wrong = || ReservedError::Quantity { resource: resource.clone(), text: text.clone() };
            let amount = Quantity::parse(text).map_err(|_| wrong())?;
            node.insert(resource.clone(), u64::try_from(amount.value()).map_err(|_| wrong())?);
            let sum = sums.remove(resource).map_or(amount, |sum| sum + amount);
            sums.insert(resource.clone(), sum);
        }
    }
    let is_memory = |name: &&String| *name == "memory" || name.starts_with("hugepages-");
    let resources: BTreeSet<&String> = sums.keys().chain(whole.keys().filter(is_memory)).collect();
    for resource in resources {
        let of = |amounts: &BTreeMap<String, Quantity>| amounts.get(resource).copied().unwrap_or(Quantity::ZERO);
        let (reserved, expected) = (of(&sums), of(whole));
        if reserved.value() != expected.value() {
            let (reserved, expected) = (reserved.canonical(), expected.canonical());
            return Err(ReservedError::Sum { reserved, resource: resource.clone(), expected });
        }
    }
    Ok(by_node)
}
