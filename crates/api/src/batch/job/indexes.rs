//! Lists of indexes as Jobs write them: `0,2-5,7`.

/// What is wrong with a list of indexes, as upstream says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexesError {
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order { previous: i64, current: i64 },
    #[error(
        "the fragment {0:?} violates the requirement that an index interval can have at most two parts separated by '-'"
    )]
    Parts(String),
    #[error("cannot convert string to integer for index: {0:?}")]
    NoNumber(String),
    #[error("too large index: {0:?}")]
    TooLarge(String),
}

/// How many indexes a list holds, all below `completions` and in order.
pub fn count(list: &str, completions: i64) -> Result<i64, IndexesError> {
    let (mut total, mut last) = (0, None);
    for (first, end) in intervals(list, completions)? {
        if let Some(last) = last
            && last >= first
        {
            return Err(IndexesError::Order { previous: last, current: first });
        }
        last = Some(end);
        total += end - first + 1;
    }
    Ok(total)
}

/// The intervals of a list, first and last index of each.
pub(crate) fn intervals(list: &str, completions: i64) -> Result<Vec<(i64, i64)>, IndexesError> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    list.split(',').map(|part| interval(part, completions)).collect()
}

fn interval(text: &str, completions: i64) -> Result<(i64, i64), IndexesError> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.len() > 2 {
        return Err(IndexesError::Parts(text.to_owned()));
    }
    let number = |text: &str| {
        let index: i64 = text.parse().map_err(|_| IndexesError::NoNumber(text.to_owned()))?;
        if index >= completions { Err(IndexesError::TooLarge(text.to_owned())) } else { Ok(index) }
    };
    let first = number(parts[0])?;
    match parts.get(1) {
        None => Ok((first, first)),
        Some(end) => match number(end)? {
            end if first >= end => Err(IndexesError::Order { previous: first, current: end }),
            end => Ok((first, end)),
        },
    }
}

/// The first index that is in both lists. Parts that cannot be read are left to others.
pub fn overlap(left: &str, right: &str, completions: i64) -> Option<i64> {
    let read = |list: &str| -> Vec<(i64, i64)> {
        list.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (left, right) = (read(left), read(right));
    let (mut row, mut column) = (0, 0);
    while let (Some(one), Some(other)) = (left.get(row), right.get(column)) {
        if one.0 <= other.1 && other.0 <= one.1 {
            return Some(one.0.max(other.0));
        }
        if one.0 <= other.0 { row += 1 } else { column += 1 }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{count, overlap};

    #[test]
    fn lists() {
        assert_eq!(count("", 5), Ok(0));
        assert_eq!(count("0,2-4", 5), Ok(4));
        for (list, expected) in [
            ("5", "too large index: \"5\""),
            ("1,1", "non-increasing order, previous: 1, current: 1"),
            ("x", "cannot convert string to integer for index: \"x\""),
        ] {
            assert_eq!(count(list, 5).unwrap_err().to_string(), expected, "{list}");
        }
        let parts = "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts \
                     separated by '-'";
        assert_eq!(count("1-2-3", 5).unwrap_err().to_string(), parts);
        assert_eq!(overlap("0-2,5", "3,4-6", 9), Some(5));
        assert_eq!(overlap("0-2", "3", 9), None);
    }
}
