//! Sets of memory (NUMA) nodes, and what a manager says about which of them would suit a container.

use std::collections::BTreeMap;

/// Memory nodes as bits, at most 64 of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mask(u64);

impl Mask {
    /// Numbers that do not fit are left out: no kernel has so many nodes.
    pub fn of(nodes: impl IntoIterator<Item = usize>) -> Mask {
        Mask(nodes.into_iter().filter(|node| *node < 64).fold(0, |mask, node| mask | 1 << node))
    }

    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn has(self, node: usize) -> bool {
        node < 64 && self.0 & 1 << node != 0
    }

    pub fn has_any(self, mut nodes: impl Iterator<Item = usize>) -> bool {
        nodes.any(|node| self.has(node))
    }

    pub fn nodes(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |node| self.has(*node))
    }

    pub fn and(self, other: Mask) -> Mask {
        Mask(self.0 & other.0)
    }

    /// Fewer nodes; among as many, those with lower numbers.
    pub fn is_narrower_than(self, other: Mask) -> bool {
        (self.count(), self.0) < (other.count(), other.0)
    }
}

/// Every set of these nodes but the empty one, from the smallest to the largest.
pub(crate) fn masks(nodes: &[usize]) -> Vec<Mask> {
    (1..=nodes.len()).flat_map(|size| combinations(nodes, size)).map(Mask::of).collect()
}

/// The subsets of a size, in the order of their elements.
pub(crate) fn combinations(of: &[usize], size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (position, first) in of.iter().enumerate() {
        for mut rest in combinations(&of[position + 1..], size - 1) {
            rest.insert(0, *first);
            all.push(rest);
        }
    }
    all
}

/// Nodes that would do. No mask is no preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hint {
    pub mask: Option<Mask>,
    pub preferred: bool,
}

/// What one manager says, by resource: nothing where any node would do, an empty list where none does.
pub(crate) type Hints = BTreeMap<String, Option<Vec<Hint>>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_come_from_small_to_large() {
        let shown: Vec<Vec<usize>> = masks(&[0, 1, 2]).into_iter().map(|mask| mask.nodes().collect()).collect();
        let expected: [&[usize]; 7] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
        assert_eq!(shown, expected);
        assert!(Mask::of([3]).is_narrower_than(Mask::of([0, 1])));
        assert!(Mask::of([0, 2]).is_narrower_than(Mask::of([1, 2])) && !Mask::of([1]).is_narrower_than(Mask::of([0])));
        assert!(!Mask::of([64]).has(64) && Mask::of([64]).count() == 0);
    }
}
