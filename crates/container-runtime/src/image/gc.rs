//! Chooses images to remove when disk space is needed. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

/// What is known of an image when room is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub id: String,
    /// Its layers and their sizes. Only what no other image has is won by a removal.
    pub layers: Vec<(String, u64)>,
    pub pulled_at: Timestamp,
    pub last_used: Timestamp,
    pub in_use: bool,
    pub pinned: bool,
}

/// The images to remove to win so many bytes: those that were not used for the longest time first. Never one that a
/// container has, that is pinned, or that is younger than `age_min`, so it may be less than was wanted.
pub fn choose(now: Timestamp, candidates: &[Candidate], bytes_wanted: u64, age_min: Duration) -> Vec<String> {
    let mut holders: BTreeMap<&str, usize> = BTreeMap::new();
    for candidate in candidates {
        for layer in distinct(candidate).into_keys() {
            *holders.entry(layer).or_default() += 1;
        }
    }
    let mut removable: Vec<&Candidate> = candidates
        .iter()
        .filter(|candidate| !candidate.in_use && !candidate.pinned)
        .filter(|candidate| now.duration_since(candidate.pulled_at).unsigned_abs() >= age_min)
        .collect();
    removable.sort_by_key(|candidate| (candidate.last_used, candidate.pulled_at, &candidate.id));
    let mut won = 0;
    let mut chosen = Vec::new();
    for candidate in removable {
        if won >= bytes_wanted {
            break;
        }
        for (layer, bytes) in distinct(candidate) {
            let count = holders.entry(layer).or_default();
            *count -= 1;
            if *count == 0 {
                won += bytes;
            }
        }
        chosen.push(candidate.id.clone());
    }
    chosen
}

fn distinct(candidate: &Candidate) -> BTreeMap<&str, u64> {
    candidate.layers.iter().map(|(layer, bytes)| (layer.as_str(), *bytes)).collect()
}

/// Layers of the store that nothing needs.
pub(crate) fn unneeded<'a>(present: impl IntoIterator<Item = &'a String>, needed: &BTreeSet<String>) -> Vec<String> {
    present.into_iter().filter(|layer| !needed.contains(*layer)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: &str, last_used: i64, layers: &[(&str, u64)]) -> Candidate {
        Candidate {
            id: id.to_owned(),
            layers: layers.iter().map(|(layer, bytes)| (layer.to_string(), *bytes)).collect(),
            pulled_at: Timestamp::from_second(last_used).unwrap(),
            last_used: Timestamp::from_second(last_used).unwrap(),
            in_use: false,
            pinned: false,
        }
    }

    fn check(candidates: &[Candidate], bytes: u64, expected: &[&str]) {
        let now = Timestamp::from_second(1000).unwrap();
        assert_eq!(choose(now, candidates, bytes, Duration::from_secs(120)), expected);
    }

    #[test]
    fn the_longest_unused_goes_first_and_no_more_than_needed() {
        let all = [
            candidate("new", 500, &[("a", 10)]),
            candidate("old", 100, &[("b", 10)]),
            candidate("mid", 300, &[("c", 10)]),
        ];
        check(&all, 0, &[]);
        check(&all, 5, &["old"]);
        check(&all, 11, &["old", "mid"]);
        check(&all, 999, &["old", "mid", "new"]);
    }

    #[test]
    fn used_pinned_and_young_images_stay() {
        let mut all = vec![
            candidate("used", 1, &[("a", 10)]),
            candidate("pinned", 2, &[("b", 10)]),
            candidate("young", 900, &[]),
        ];
        all[0].in_use = true;
        all[1].pinned = true;
        check(&all, 10, &[]);
    }

    #[test]
    fn a_shared_layer_is_won_only_with_its_last_image() {
        let all = [
            candidate("one", 1, &[("base", 100), ("x", 1)]),
            candidate("two", 2, &[("base", 100), ("y", 1)]),
            candidate("three", 3, &[("z", 1)]),
        ];
        check(&all, 1, &["one"]);
        check(&all, 50, &["one", "two"]);
    }
}
