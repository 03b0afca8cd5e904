//! Lists of indexes as Jobs write them: `0,2-5,7`.

/// How many indexes a list holds, all below `completions` and in order.
pub fn count(list: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for (first, end) in intervals(list, completions)? {
        if let Some(last) = last
            && last >= first
        {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        last = Some(end);
        total += end - first + 1;
    }
    Ok(total)
}

/// The intervals of a list, first and last index of each.
pub(crate) fn intervals(list: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    list.split(',').map(|part| interval(part, completions)).collect()
}

fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.len() > 2 {
        return Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        ));
    }
    let number = |text: &str| {
        let index: i64 = text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        match index >= completions {
            true => Err(format!("too large index: {text:?}")),
            false => Ok(index),
        }
    };
    let first = number(parts[0])?;
    match parts.get(1) {
        None => Ok((first, first)),
        Some(end) => match number(end)? {
            end if first >= end => Err(format!("non-increasing order, previous: {first}, current: {end}")),
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
        match one.0 <= other.0 {
            true => row += 1,
            false => column += 1,
        }
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
        assert_eq!(count("5", 5), Err("too large index: \"5\"".into()));
        assert_eq!(count("1,1", 5), Err("non-increasing order, previous: 1, current: 1".into()));
        assert_eq!(count("x", 5), Err("cannot convert string to integer for index: \"x\"".into()));
        assert_eq!(overlap("0-2,5", "3,4-6", 9), Some(5));
        assert_eq!(overlap("0-2", "3", 9), None);
    }
}
