//! Times and durations as Go reads and writes them, with Go's words for what is wrong.

use jiff::Timestamp;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Go's sentence for a time that cannot be read: which part of the layout the rest of the text does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")]
    Layout { text: String, layout: &'static str, rest: String, element: &'static str },
    #[error("parsing time {text:?}: {part} out of range")]
    Range { text: String, part: &'static str },
    #[error("parsing time {text:?}: extra text: {extra:?}")]
    Extra { text: String, extra: String },
}

/// Whether the text already is what the server writes: `2006-01-02T15:04:05Z`.
pub(crate) fn is_normal(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 20 || bytes[19] != b'Z' || !shape_is_right(&bytes[..19]) {
        return false;
    }
    // Two digits at a time; this runs for every time of every object, so it does without a full parse.
    let two = |at: usize| u32::from(bytes[at] - b'0') * 10 + u32::from(bytes[at + 1] - b'0');
    let year = two(0) * 100 + two(2);
    let days = match two(5) {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&two(8)) && two(11) < 24 && two(14) < 60 && two(17) < 60
}

/// A time in whole seconds, UTC.
pub fn normal(text: &str) -> Result<String, TimeError> {
    let time = parse(text).ok_or_else(|| problem(text, LAYOUT))?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A time with six digits behind the second, UTC.
pub(crate) fn normal_micro(text: &str) -> Result<String, TimeError> {
    // Go wants exactly as many digits as its layout has.
    let fraction = text.get(19..).map_or(0, |rest| rest.bytes().skip(1).take_while(u8::is_ascii_digit).count());
    let six_digits = fraction == 6 && text.as_bytes()[19] == b'.';
    let time = parse(text).filter(|_| six_digits).ok_or_else(|| problem(text, MICRO_LAYOUT))?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

/// Only the shape of RFC 3339 is taken; jiff alone would take more.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let zone = match bytes.last()? {
        b'Z' => 1,
        _ => 6,
    };
    let body = bytes.len().checked_sub(zone).map(|end| &bytes[..end])?;
    let (seconds, fraction) = (body.get(..19)?, &body[19..]);
    let fraction_is_right = match fraction {
        [] => true,
        [b'.' | b',', digits @ ..] => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let zone = &bytes[bytes.len() - zone..];
    let zone_is_right = zone == b"Z" || (matches!(zone[0], b'+' | b'-') && zone[3] == b':');
    if !(shape_is_right(seconds) && fraction_is_right && zone_is_right) {
        return None;
    }
    text.parse().ok()
}

fn shape_is_right(seconds: &[u8]) -> bool {
    let shape = b"dddd-dd-ddTdd:dd:dd";
    seconds.len() == shape.len()
        && seconds.iter().zip(shape).all(|(byte, wanted)| match wanted {
            b'd' => byte.is_ascii_digit(),
            _ => byte == wanted,
        })
}

/// What Go finds first in a time that cannot be read.
fn problem(text: &str, layout: &'static str) -> TimeError {
    let cannot = |rest: &str, element| TimeError::Layout { text: text.into(), layout, rest: rest.into(), element };
    let out_of_place = |part| TimeError::Range { text: text.into(), part };
    let elements: [(&'static str, usize); 11] = [
        ("2006", 4),
        ("-", 0),
        ("01", 2),
        ("-", 0),
        ("02", 2),
        ("T", 0),
        ("15", 2),
        (":", 0),
        ("04", 2),
        (":", 0),
        ("05", 2),
    ];
    let mut rest = text;
    let mut ranges = Vec::new();
    for (element, digits) in elements {
        if digits == 0 {
            match rest.strip_prefix(element) {
                Some(after) => rest = after,
                None => return cannot(rest, element),
            }
        } else {
            match rest.get(..digits).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
                Some(part) => {
                    ranges.push(part.parse::<u32>().unwrap_or(0));
                    rest = &rest[digits..];
                }
                None => return cannot(rest, element),
            }
        }
        if let Some(what) = out_of_range(&ranges) {
            return out_of_place(what);
        }
    }
    if layout == MICRO_LAYOUT {
        match rest.get(1..7).filter(|digits| rest.starts_with('.') && digits.bytes().all(|byte| byte.is_ascii_digit()))
        {
            Some(_) => rest = &rest[7..],
            None => return cannot(rest, ".000000"),
        }
    } else if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    let zone = match rest.as_bytes() {
        [b'Z', ..] => 1,
        [b'+' | b'-', a, b, b':', c, d, ..] if [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()) => 6,
        _ => return cannot(rest, "Z07:00"),
    };
    match &rest[zone..] {
        "" => out_of_place("day"),
        extra => TimeError::Extra { text: text.into(), extra: extra.into() },
    }
}

fn out_of_range(parts: &[u32]) -> Option<&'static str> {
    let last = *parts.last()?;
    match parts.len() {
        2 if last == 0 || last > 12 => Some("month"),
        3 if last == 0 || last > 31 => Some("day"),
        4 if last > 23 => Some("hour"),
        5 if last > 59 => Some("minute"),
        6 if last > 59 => Some("second"),
        _ => None,
    }
}

/// A duration such as `1h30m` in the form Go writes: `1h30m0s`.
pub fn duration(text: &str) -> Result<String, crate::duration::InvalidDuration> {
    crate::duration::parse(text).map(crate::duration::written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, expected) in [
            ("2024-05-06T07:08:09Z", "2024-05-06T07:08:09Z"),
            ("2024-05-06T07:08:09.5+02:00", "2024-05-06T05:08:09Z"),
            ("x", r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#),
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            ("2024-05-06", r#"parsing time "2024-05-06" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
            ("2024-13-06T07:08:09Z", r#"parsing time "2024-13-06T07:08:09Z": month out of range"#),
            ("2024-02-30T07:08:09Z", r#"parsing time "2024-02-30T07:08:09Z": day out of range"#),
        ] {
            assert_eq!(normal(text).unwrap_or_else(|error| error.to_string()), expected);
        }
        for (text, expected) in [
            ("2024-05-06T07:08:09.123456+01:00", "2024-05-06T06:08:09.123456Z"),
            (
                "2024-05-06T07:08:09Z",
                r#"parsing time "2024-05-06T07:08:09Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
            (
                "2024-05-06T07:08:09.1234567Z",
                r#"parsing time "2024-05-06T07:08:09.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#,
            ),
        ] {
            assert_eq!(normal_micro(text).unwrap_or_else(|error| error.to_string()), expected);
        }
        for (text, expected) in [
            ("2024-02-29T23:59:59Z", true),
            ("2023-02-29T00:00:00Z", false),
            ("2024-05-06T07:08:60Z", false),
            ("2024-00-06T07:08:09Z", false),
            ("2024-05-06T07:08:09z", false),
        ] {
            assert_eq!(is_normal(text), expected, "for {text}");
        }
    }
}
