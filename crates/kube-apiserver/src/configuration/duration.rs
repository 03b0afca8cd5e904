//! Times as Go writes them in files: `1h30m`, `500ms`.

use std::time::Duration;

/// `None` for what Go's `ParseDuration` refuses, and for negative times.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    // What Go writes is a part of what jiff reads: without words and spaces.
    let plain = text.chars().all(|sign| sign.is_ascii_digit() || "+-.nuµmsh".contains(sign));
    let parsed = plain.then(|| text.parse::<jiff::SignedDuration>().ok()).flatten()?;
    Duration::try_from(parsed).ok()
}

/// As Go prints one: `1m0s`.
pub fn go_duration(duration: Duration) -> String {
    let fraction = duration.subsec_nanos();
    if duration < Duration::from_secs(1) && fraction > 0 {
        return format!("{}ms", duration.as_secs_f64() * 1000.0);
    }
    let seconds = duration.as_secs();
    let rest = (seconds % 60) as f64 + f64::from(fraction) / 1e9;
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_as_go_does() {
        for (text, expected) in [
            ("5m", Some("5m0s")),
            ("1h30m", Some("1h30m0s")),
            ("500ms", Some("500ms")),
            ("1.5s", Some("1.5s")),
            ("0", Some("0s")),
            ("-1s", None),
            ("5", None),
            ("five", None),
            ("5 minutes", None),
        ] {
            assert_eq!(duration(text).map(go_duration).as_deref(), expected, "{text}");
        }
    }
}
