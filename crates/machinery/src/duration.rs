//! Durations in Go's notation, which flags, files and objects of Kubernetes have: `1h30m`, `500ms`, `-1.5s`.

use jiff::SignedDuration;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// Nanoseconds below zero reach one further than those above.
const NANOS_MAX: u64 = 1 << 63;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDuration {
    #[error("time: invalid duration {0:?}")]
    Form(String),
    #[error("time: missing unit in duration {0:?}")]
    NoUnit(String),
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    Unit { unit: String, text: String },
}

/// The same without the whole text.
enum Wrong<'a> {
    Form,
    NoUnit,
    Unit(&'a str),
}

/// Reads what Go's `time.ParseDuration` reads.
pub fn parse(text: &str) -> Result<SignedDuration, InvalidDuration> {
    let whole = || text.to_owned();
    nanos(text).map(SignedDuration::from_nanos).map_err(|wrong| match wrong {
        Wrong::Form => InvalidDuration::Form(whole()),
        Wrong::NoUnit => InvalidDuration::NoUnit(whole()),
        Wrong::Unit(unit) => InvalidDuration::Unit { unit: unit.to_owned(), text: whole() },
    })
}

/// The same for times that cannot be negative.
pub fn parse_positive(text: &str) -> Result<std::time::Duration, InvalidDuration> {
    parse(text)?.try_into().map_err(|_| InvalidDuration::Form(text.to_owned()))
}

fn nanos(text: &str) -> Result<i64, Wrong<'_>> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(Wrong::Form);
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (part, after) = first_part(rest)?;
        total = total.checked_add(part).filter(|total| *total <= NANOS_MAX).ok_or(Wrong::Form)?;
        rest = after;
    }
    let total = i128::from(total);
    i64::try_from(if is_negative { -total } else { total }).map_err(|_| Wrong::Form)
}

/// A number and its unit, and what follows them.
fn first_part(text: &str) -> Result<(u64, &str), Wrong<'_>> {
    let is_number = |sign: char| sign.is_ascii_digit() || sign == '.';
    // A number ends with its second point, which then stands where a unit should.
    let end = text.find(|sign| !is_number(sign)).unwrap_or(text.len());
    let end = text[..end].match_indices('.').nth(1).map_or(end, |(second, _)| second);
    let (number, rest) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(Wrong::Form);
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| Wrong::Form)? };
    let (unit, rest) = rest.split_at(rest.find(is_number).unwrap_or(rest.len()));
    if unit.is_empty() {
        return Err(Wrong::NoUnit);
    }
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(Wrong::Unit(unit))?;
    let nanos = whole.checked_mul(*unit).and_then(|whole| whole.checked_add(part_of(fraction, *unit)));
    nanos.map(|nanos| (nanos, rest)).ok_or(Wrong::Form)
}

/// As many digits as fit are worked with in floating point, as Go does: a third of an hour is twenty minutes.
fn part_of(fraction: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in fraction.bytes().map(|digit| u64::from(digit - b'0')) {
        let Some(more) =
            value.checked_mul(10).and_then(|tens| tens.checked_add(digit)).filter(|more| *more <= NANOS_MAX)
        else {
            break;
        };
        value = more;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Writes it as Go's `Duration.String` does: `1h30m0s`, `1.5ms`, `0s`.
pub fn written(duration: SignedDuration) -> String {
    let sign = if duration.is_negative() { "-" } else { "" };
    let nanos = duration.as_nanos().unsigned_abs();
    match nanos {
        0 => "0s".into(),
        1..1_000 => format!("{sign}{nanos}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", with_fraction(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", with_fraction(nanos, 1_000_000)),
        _ => {
            let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = with_fraction(rest, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// The same for times that are never negative. What is longer than Go can say is shown as the longest that it can.
pub fn written_positive(duration: std::time::Duration) -> String {
    written(duration.try_into().unwrap_or(SignedDuration::from_nanos(i64::MAX)))
}

fn with_fraction(value: u128, unit: u128) -> String {
    let digits = format!("{:0width$}", value % unit, width = unit.ilog10() as usize);
    match digits.trim_end_matches('0') {
        "" => (value / unit).to_string(),
        digits => format!("{}.{digits}", value / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (text, expected) in [
            ("90s", "1m30s"),
            ("1.5h", "1h30m0s"),
            ("1h30m", "1h30m0s"),
            ("1500us", "1.5ms"),
            ("1µs", "1µs"),
            ("1μs", "1µs"),
            ("7ns", "7ns"),
            ("500ms", "500ms"),
            (".5s", "500ms"),
            ("1.s", "1s"),
            ("-1.5s", "-1.5s"),
            ("+5m", "5m0s"),
            ("0", "0s"),
            ("-0", "0s"),
            ("0.3333333333333333333h", "20m0s"),
            ("9223372036854775807ns", "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(parse(text).map(written).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        let (form, no_unit) = ("invalid duration", "missing unit in duration");
        for (text, why) in [
            ("", form),
            ("-", form),
            ("5", no_unit),
            ("five", form),
            ("5 minutes", "unknown unit \" minutes\" in duration"),
            ("1h 30m", "unknown unit \"h \" in duration"),
            ("s", form),
            (".s", form),
            ("1.2.3s", no_unit),
            ("1d", "unknown unit \"d\" in duration"),
            ("--1s", form),
            ("9223372036854775808ns", form),
            ("3000000h", form),
        ] {
            let error = parse(text).map(written).unwrap_err();
            assert_eq!(error.to_string(), format!("time: {why} {text:?}"));
        }
        assert!(parse_positive("-1s").is_err());
        assert_eq!(parse_positive("1m30s").map(written_positive).as_deref(), Ok("1m30s"));
    }
}
