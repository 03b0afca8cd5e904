//! Limits that are a number or a part of the whole, such as maxUnavailable.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub(crate) fn resolve_up(value: &IntOrString, whole: i32) -> i32 {
    resolve(value, whole, |product| (product + 99) / 100)
}

pub(crate) fn resolve_down(value: &IntOrString, whole: i32) -> i32 {
    resolve(value, whole, |product| product / 100)
}

/// What cannot be read counts as nothing; validation keeps such from being stored.
fn resolve(value: &IntOrString, whole: i32, round: fn(i64) -> i64) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            i32::try_from(round(i64::from(whole) * i64::from(percent))).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_rounded_as_asked() {
        let check = |text: &str, whole: i32, expected: (i32, i32)| {
            let value = text.parse().map_or_else(|_| IntOrString::String(text.into()), IntOrString::Int);
            assert_eq!((resolve_down(&value, whole), resolve_up(&value, whole)), expected, "{text} of {whole}");
        };
        check("3", 10, (3, 3));
        check("25%", 10, (2, 3));
        check("100%", i32::MAX, (i32::MAX, i32::MAX));
        check("2000000000%", i32::MAX, (i32::MAX, i32::MAX));
        check("what", 10, (0, 0));
    }
}
