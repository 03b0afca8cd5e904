//! Sets of completion indexes, kept as ranges: `0-3,7,9-12`, as the status of a Job writes them.

use std::fmt;

/// Ranges without gaps between neighbours, in order; both ends belong to a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// What a status says, as far as it lies below the number of completions: that number may have become smaller.
    pub fn parse(text: &str, completions: i32) -> Indexes {
        let mut indexes = Indexes::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) else { continue };
            let last = last.min(completions.saturating_sub(1));
            if first >= 0 && first <= last {
                indexes.insert_range(first, last);
            }
        }
        indexes
    }

    pub fn insert(&mut self, index: i32) {
        self.insert_range(index, index);
    }

    pub fn extend(&mut self, other: &Indexes) {
        other.0.iter().for_each(|(first, last)| self.insert_range(*first, *last));
    }

    pub fn contains(&self, index: i32) -> bool {
        let place = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(place).is_some_and(|(first, _)| *first <= index)
    }

    pub fn total(&self) -> i32 {
        let total: i64 = self.0.iter().map(|(first, last)| i64::from(*last) - i64::from(*first) + 1).sum();
        i32::try_from(total).unwrap_or(i32::MAX)
    }

    /// How many indexes are in both.
    pub fn common(&self, other: &Indexes) -> i32 {
        let pairs = self.0.iter().flat_map(|one| other.0.iter().map(move |two| (one, two)));
        let both = pairs.map(|(one, two)| i64::from(one.1.min(two.1)) - i64::from(one.0.max(two.0)) + 1);
        i32::try_from(both.filter(|count| *count > 0).sum::<i64>()).unwrap_or(i32::MAX)
    }

    /// The first so many that are not among these.
    pub fn missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut found = Vec::new();
        let mut next = 0;
        let mut ranges = self.0.iter().peekable();
        while found.len() < count && next < completions {
            match ranges.next_if(|(first, _)| *first <= next) {
                Some((_, last)) => next = last.saturating_add(1),
                None => {
                    found.push(next);
                    next += 1;
                }
            }
        }
        found
    }

    fn insert_range(&mut self, first: i32, last: i32) {
        let from = self.0.partition_point(|(_, end)| end.saturating_add(1) < first);
        let to = self.0.partition_point(|(start, _)| *start <= last.saturating_add(1));
        let (mut first, mut last) = (first, last);
        if from < to {
            first = first.min(self.0[from].0);
            last = last.max(self.0[to - 1].1);
        }
        self.0.splice(from..to, [(first, last)]);
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<I: IntoIterator<Item = i32>>(all: I) -> Indexes {
        let mut indexes = Indexes::default();
        all.into_iter().for_each(|index| indexes.insert(index));
        indexes
    }
}

impl fmt::Display for Indexes {
    /// Two neighbours stand as a list, three and more as a range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_written_short() {
        let check = |text: &str, more: &[i32], expected: &str| {
            let mut indexes = Indexes::parse(text, 100);
            more.iter().for_each(|index| indexes.insert(*index));
            assert_eq!(indexes.to_string(), expected, "{text} {more:?}");
        };
        check("", &[], "");
        check("", &[3, 1, 2], "1-3");
        check("1,2", &[0], "0-2");
        check("0-3,5-7", &[4], "0-7");
        check("0-3,5-7", &[9, 10], "0-3,5-7,9,10");
        check("0-3", &[2], "0-3");
        check("97-200,x,5-3", &[], "97-99");
        check("2-4,8", &[1, 5, 7, 9], "1-5,7-9");
    }

    #[test]
    fn what_is_missing_is_found() {
        let indexes = Indexes::parse("0-1,3,6-8", 10);
        assert_eq!(indexes.missing(9, 10), [2, 4, 5, 9]);
        assert_eq!(indexes.missing(2, 10), [2, 4]);
        assert_eq!(indexes.total(), 6);
        assert!(indexes.contains(7) && !indexes.contains(5) && !indexes.contains(9));
        assert_eq!(indexes.common(&Indexes::parse("1-6", 10)), 3);
        assert_eq!(Indexes::parse("0-2147483647", i32::MAX).missing(3, i32::MAX), Vec::<i32>::new());
    }
}
