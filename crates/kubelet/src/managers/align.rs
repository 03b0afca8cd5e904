//! The topology manager's decision: which memory nodes a container gets, of what all managers say about it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::cpu::go_bool;
use super::mask::{Hint, Hints, Mask};
use super::topology::Topology;

/// `topologyManagerPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    #[default]
    None,
    BestEffort,
    Restricted,
    SingleNumaNode,
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::BestEffort => "best-effort",
            Policy::Restricted => "restricted",
            Policy::SingleNumaNode => "single-numa-node",
        }
    }
}

/// `topologyManagerScope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Container,
    Pod,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Scope::Container => "container",
            Scope::Pod => "pod",
        }
    }
}

/// What upstream takes without being told to take more.
const NODES_MAX: usize = 8;

/// `topologyManagerPolicyOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub prefer_closest_numa_nodes: bool,
    pub max_allowable_numa_nodes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { prefer_closest_numa_nodes: false, max_allowable_numa_nodes: NODES_MAX }
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionError {
    #[error("unknown Topology Manager Policy option: {0:?}")]
    Unknown(String),
    #[error("bad value for option {name:?}: {value:?}")]
    Value { name: String, value: String },
    #[error("the minimum value of \"max-allowable-numa-nodes\" should not be less than {NODES_MAX}")]
    TooFew,
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooMany(usize),
    #[error("cannot discover NUMA topology: the kernel gives no distances between NUMA nodes")]
    NoDistances,
}

impl Options {
    pub fn parse(given: &BTreeMap<String, String>) -> Result<Options, OptionError> {
        let mut options = Options::default();
        for (name, value) in given {
            let wrong = || OptionError::Value { name: name.clone(), value: value.clone() };
            match name.as_str() {
                "prefer-closest-numa-nodes" => {
                    options.prefer_closest_numa_nodes = go_bool(value).ok_or_else(wrong)?;
                }
                "max-allowable-numa-nodes" => {
                    let most = value.parse().map_err(|_| wrong())?;
                    if most < NODES_MAX {
                        return Err(OptionError::TooFew);
                    }
                    options.max_allowable_numa_nodes = most;
                }
                _ => return Err(OptionError::Unknown(name.clone())),
            }
        }
        Ok(options)
    }
}

/// Decides by one policy on one machine.
pub(super) struct Align {
    pub policy: Policy,
    pub scope: Scope,
    closest: bool,
    nodes: Vec<usize>,
    distances: BTreeMap<usize, Vec<u64>>,
}

impl Align {
    pub fn new(policy: Policy, scope: Scope, options: Options, topology: &Topology) -> Result<Align, OptionError> {
        let nodes = topology.numa_nodes();
        if policy != Policy::None && nodes.len() > options.max_allowable_numa_nodes {
            return Err(OptionError::TooMany(options.max_allowable_numa_nodes));
        }
        let distances: BTreeMap<usize, Vec<u64>> =
            topology.memory_nodes.iter().map(|(number, node)| (*number, node.distances.clone())).collect();
        if policy != Policy::None && options.prefer_closest_numa_nodes && distances.values().any(Vec::is_empty) {
            return Err(OptionError::NoDistances);
        }
        Ok(Align { policy, scope, closest: options.prefer_closest_numa_nodes, nodes, distances })
    }

    /// The best nodes, and whether a container may run there.
    pub fn merge(&self, providers: &[Hints]) -> (Hint, bool) {
        let mut lists = flattened(providers);
        if self.policy == Policy::SingleNumaNode {
            let is_single = |hint: &Hint| hint.preferred && hint.mask.is_none_or(|mask| mask.count() == 1);
            lists.iter_mut().for_each(|list| list.retain(is_single));
        }
        let all = Mask::of(self.nodes.iter().copied());
        let mut best = self.best(&lists, all).unwrap_or(Hint { mask: Some(all), preferred: false });
        match self.policy {
            Policy::None => (Hint { mask: None, preferred: true }, true),
            Policy::BestEffort => (best, true),
            Policy::Restricted => (best, best.preferred),
            Policy::SingleNumaNode => {
                best.mask = best.mask.filter(|mask| *mask != all);
                (best, best.preferred)
            }
        }
    }

    fn best(&self, lists: &[Vec<Hint>], all: Mask) -> Option<Hint> {
        let narrowest = |list: &Vec<Hint>| list.iter().filter_map(|hint| hint.mask).map(Mask::count).min();
        let widest = lists.iter().filter_map(narrowest).max().unwrap_or(0);
        let merged = merged(lists, all).into_iter().filter(|hint| hint.mask.is_some_and(|mask| mask.count() > 0));
        merged.reduce(|current, candidate| if self.is_better(candidate, current, widest) { candidate } else { current })
    }

    /// Preferred ones come first. Of others, those that are as wide as the widest of what is narrowest for one resource, then
    /// narrower ones by falling width, then wider ones by growing width.
    fn is_better(&self, candidate: Hint, current: Hint, widest: usize) -> bool {
        let (Some(one), Some(other)) = (candidate.mask, current.mask) else { return false };
        if candidate.preferred != current.preferred {
            return candidate.preferred;
        }
        if candidate.preferred || other.count() > widest {
            return self.is_closer(one, other);
        }
        if one.count() > widest {
            return false;
        }
        if one.count() != other.count() {
            return one.count() > other.count();
        }
        self.is_closer(one, other)
    }

    fn is_closer(&self, one: Mask, other: Mask) -> bool {
        if self.closest && self.policy != Policy::SingleNumaNode && one.count() == other.count() {
            let (near, far) = (self.distance(one), self.distance(other));
            if near != far {
                return near < far;
            }
        }
        one.is_narrower_than(other)
    }

    /// The sum over all pairs; masks of the same size are compared by it as by their average.
    fn distance(&self, mask: Mask) -> u64 {
        let pairs = mask.nodes().flat_map(|from| mask.nodes().map(move |to| (from, to)));
        pairs.filter_map(|(from, to)| self.distances.get(&from)?.get(to)).sum()
    }
}

/// One list of hints for each resource of each manager.
fn flattened(providers: &[Hints]) -> Vec<Vec<Hint>> {
    let any = || vec![Hint { mask: None, preferred: true }];
    let of_provider = |hints: &Hints| -> Vec<Vec<Hint>> {
        if hints.is_empty() {
            return vec![any()];
        }
        let list = |hints: &Option<Vec<Hint>>| match hints {
            None => any(),
            Some(none) if none.is_empty() => vec![Hint { mask: None, preferred: false }],
            Some(hints) => hints.clone(),
        };
        hints.values().map(list).collect()
    };
    providers.iter().flat_map(of_provider).collect()
}

/// What each choice of one hint per resource comes to: the nodes that all have in common, preferred where all are and agree. Equal
/// outcomes are followed once, so that the work is bounded by the sets of nodes, not by the choices.
fn merged(lists: &[Vec<Hint>], all: Mask) -> BTreeSet<Hint> {
    type Choice = (Mask, Option<Mask>, bool);
    let mut choices: BTreeSet<Choice> = BTreeSet::from([(all, None, true)]);
    for list in lists {
        let mut next = BTreeSet::new();
        for (common, first, preferred) in &choices {
            for hint in list {
                let agrees = match (first, hint.mask) {
                    (Some(first), Some(mask)) => *first == mask,
                    _ => true,
                };
                let common = hint.mask.map_or(*common, |mask| common.and(mask));
                next.insert((common, first.or(hint.mask), *preferred && hint.preferred && agrees));
            }
        }
        choices = next;
    }
    choices.into_iter().map(|(mask, _, preferred)| Hint { mask: Some(mask), preferred }).collect()
}
