//! A set of processors, memory nodes or other small numbers, written as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// No machine has more processors; a range in a file is not believed beyond it.
const NUMBER_MAX: usize = 65_535;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<usize>);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no list of numbers and ranges such as \"0-3,8\"")]
pub struct ParseError(String);

impl CpuSet {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        self.0.contains(&number)
    }

    /// From the smallest to the largest.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn union(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.union(&other.0).copied().collect())
    }

    pub(super) fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }

    pub(super) fn difference(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.difference(&other.0).copied().collect())
    }

    pub(super) fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> CpuSet {
        CpuSet(numbers.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<CpuSet, ParseError> {
        let wrong = || ParseError(text.to_owned());
        let number = |part: &str| part.parse().ok().filter(|number| *number <= NUMBER_MAX).ok_or_else(wrong);
        let mut set = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            match part.split_once('-') {
                None => drop(set.insert(number(part)?)),
                Some((from, to)) => {
                    let (from, to) = (number(from)?, number(to)?);
                    if from > to {
                        return Err(wrong());
                    }
                    set.extend(from..=to);
                }
            }
        }
        Ok(CpuSet(set))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for number in self.iter() {
            match ranges.last_mut() {
                Some((_, to)) if *to + 1 == number => *to = number,
                _ => ranges.push((number, number)),
            }
        }
        for (position, (from, to)) in ranges.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            if from == to {
                write!(f, "{comma}{from}")?;
            } else {
                write!(f, "{comma}{from}-{to}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, shown) in [("", ""), ("0\n", "0"), ("0-3,8", "0-3,8"), ("8,0,1,2,3", "0-3,8"), ("1-1", "1")] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), shown);
        }
        for wrong in ["a", "1-", "3-1", "1,,2", "-1", "0-99999999"] {
            assert!(wrong.parse::<CpuSet>().is_err(), "{wrong}");
        }
    }
}
