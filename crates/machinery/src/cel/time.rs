//! Durations and times.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

use super::EvalError;
use super::value::Val;

/// A duration as Go reads it: `1h30m`, `-1.5s`, `100ms`.
pub fn duration(text: &str) -> Option<SignedDuration> {
    crate::duration::parse(text).ok()
}

/// A duration as it is turned into text: seconds.
pub fn shown(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    match nanos % 1_000_000_000 {
        0 => format!("{}s", nanos / 1_000_000_000),
        _ => {
            let text = format!("{}.{:09}", (nanos / 1_000_000_000).abs(), (nanos % 1_000_000_000).abs());
            format!("{}{}s", if nanos < 0 { "-" } else { "" }, text.trim_end_matches('0'))
        }
    }
}

/// `getHours` and its like, of times and durations.
pub fn part<'a>(value: &Val<'a>, name: &str, zone: Option<&str>) -> Option<Result<Val<'a>, EvalError>> {
    match value {
        Val::Duration(duration) if zone.is_none() => {
            let number = match name {
                "getHours" => duration.as_hours(),
                "getMinutes" => duration.as_mins(),
                "getSeconds" => duration.as_secs(),
                "getMilliseconds" => i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
                _ => return None,
            };
            Some(Ok(Val::Int(number)))
        }
        Val::Time(time) => {
            let at = match in_zone(*time, zone) {
                Ok(at) => at,
                Err(error) => return Some(Err(error)),
            };
            let number = match name {
                "getFullYear" => i64::from(at.year()),
                "getMonth" => i64::from(at.month()) - 1,
                "getDate" => i64::from(at.day()),
                "getDayOfMonth" => i64::from(at.day()) - 1,
                "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
                "getDayOfYear" => i64::from(at.day_of_year()) - 1,
                "getHours" => i64::from(at.hour()),
                "getMinutes" => i64::from(at.minute()),
                "getSeconds" => i64::from(at.second()),
                "getMilliseconds" => i64::from(at.millisecond()),
                _ => return None,
            };
            Some(Ok(Val::Int(number)))
        }
        _ => None,
    }
}

fn in_zone(time: Timestamp, zone: Option<&str>) -> Result<Zoned, EvalError> {
    let Some(zone) = zone else { return Ok(time.to_zoned(TimeZone::UTC)) };
    // Fixed offsets are written `+01:00`.
    if let Some((hours, minutes)) = zone.split_once(':') {
        let (hours, minutes): (i32, i32) = match (hours.parse(), minutes.parse()) {
            (Ok(hours), Ok(minutes)) => (hours, minutes),
            _ => return Err(EvalError::Failed(format!("unknown time zone {zone}"))),
        };
        let minutes = if hours < 0 || zone.starts_with('-') { -minutes } else { minutes };
        let offset =
            jiff::tz::Offset::from_seconds(hours.saturating_mul(3600).saturating_add(minutes.saturating_mul(60)));
        return offset.map(|offset| time.to_zoned(TimeZone::fixed(offset))).map_err(EvalError::failed);
    }
    let zone = TimeZone::get(zone).map_err(|_| EvalError::Failed(format!("unknown time zone {zone}")))?;
    Ok(time.to_zoned(zone))
}
