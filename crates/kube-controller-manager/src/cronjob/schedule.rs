//! When a CronJob is due: the five fields of cron, its macros, and `@every`.
//!
//! An instant is due when the clock on the wall of the time zone shows a time that the fields name. So a time that a change
//! of the clock leaves out is not due that day, and one that comes twice is due twice, as upstream.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

#[derive(Clone, Debug)]
pub struct Schedule {
    when: When,
    zone: TimeZone,
}

#[derive(Clone, Debug)]
enum When {
    Every(SignedDuration),
    Fields(Box<Fields>),
}

/// Each field is a set of bits.
#[derive(Clone, Debug)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// With a star among days and weekdays, both must match; otherwise one is enough.
    both: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScheduleError {
    #[error("expected exactly 5 fields, found {0}: [{1}]")]
    Fields(usize, String),
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    #[error("failed to parse duration {0}")]
    Duration(String),
    #[error("failed to parse int from {0}")]
    Number(String),
    #[error("{what} of range ({value}) {than} {limit}: {text}")]
    Range { what: &'static str, value: u32, than: &'static str, limit: u32, text: String },
    #[error("provided bad location {0}")]
    Zone(String),
    #[error("empty spec string")]
    Empty,
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A schedule that nothing meets, such as the 30th of February, is given up after so many years.
const YEARS_MAX: i16 = 5;

impl Schedule {
    pub fn parse(text: &str, zone: TimeZone) -> Result<Schedule, ScheduleError> {
        let (zone, text) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            None => (zone, text),
            Some(named) => {
                let (name, rest) = named.split_once(' ').unwrap_or((named, ""));
                (TimeZone::get(name).map_err(|_| ScheduleError::Zone(name.into()))?, rest)
            }
        };
        let text = text.trim();
        let when = match text.strip_prefix('@') {
            Some(_) => macro_of(text)?,
            None if text.is_empty() => return Err(ScheduleError::Empty),
            None => When::Fields(Box::new(Fields::parse(text)?)),
        };
        Ok(Schedule { when, zone })
    }

    /// The first due time after that.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.when {
            When::Every(delay) => Timestamp::from_second(after.as_second()).ok()?.checked_add(*delay).ok(),
            When::Fields(fields) => fields.next(after, &self.zone),
        }
    }

    /// The last due time after `earliest` that is not after `now`, and how many there were, at most one more than `limit`.
    pub fn last(&self, earliest: Timestamp, now: Timestamp, limit: usize) -> Option<(Timestamp, usize)> {
        let first = self.next(earliest).filter(|first| *first <= now)?;
        let mut times = std::iter::successors(Some(first), |time| self.next(*time)).take_while(|time| *time <= now);
        let missed = times.by_ref().take(limit + 1).count();
        let last = match &self.when {
            When::Every(delay) => {
                let turns = now.duration_since(first).as_secs() / delay.as_secs().max(1);
                first.checked_add(SignedDuration::from_secs(turns * delay.as_secs())).ok()?
            }
            When::Fields(_) => self.last_near(first, now),
        };
        Some((last, missed))
    }

    /// Looks back further and further, so that years of missed minutes cost little.
    fn last_near(&self, first: Timestamp, now: Timestamp) -> Timestamp {
        const HOURS: &[i64] = &[1, 24, 24 * 32, 24 * 366, 24 * 366 * 8];
        let starts = HOURS.iter().filter_map(|hours| now.checked_sub(SignedDuration::from_hours(*hours)).ok());
        for start in starts {
            let times = std::iter::successors(self.next(start.max(first)), |time| self.next(*time));
            if let Some(last) = times.take_while(|time| *time <= now).last() {
                return last;
            }
            if start <= first {
                break;
            }
        }
        first
    }
}

fn macro_of(text: &str) -> Result<When, ScheduleError> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let delay = text.strip_prefix("@every ").ok_or_else(|| ScheduleError::Descriptor(text.into()))?;
            let seconds =
                machinery::duration::parse(delay.trim()).map_err(|_| ScheduleError::Duration(text.into()))?.as_secs();
            return Ok(When::Every(SignedDuration::from_secs(seconds.max(1))));
        }
    };
    Ok(When::Fields(Box::new(Fields::parse(fields)?)))
}

impl Fields {
    fn parse(text: &str) -> Result<Fields, ScheduleError> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts[..] else {
            return Err(ScheduleError::Fields(parts.len(), parts.join(" ")));
        };
        let (minutes, _) = field(minute, 0, 59, &[])?;
        let (hours, _) = field(hour, 0, 23, &[])?;
        let (days, any_day) = field(day, 1, 31, &[])?;
        let (months, _) = field(month, 1, 12, MONTHS)?;
        let (weekdays, any_weekday) = field(weekday, 0, 6, WEEKDAYS)?;
        Ok(Fields { minutes, hours, days, months, weekdays, both: any_day || any_weekday })
    }

    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = after.as_second().checked_add(60 - after.as_second().rem_euclid(60))?;
        let mut at = Timestamp::from_second(start).ok()?.to_zoned(zone.clone());
        let last_year = at.year().checked_add(YEARS_MAX)?;
        while at.year() <= last_year {
            let later = if !has(self.months, at.month()) {
                start_of(at.date().last_of_month().tomorrow().ok()?, zone)?
            } else if !self.has_day(at.date()) {
                start_of(at.date().tomorrow().ok()?, zone)?
            } else if !has(self.hours, at.hour()) {
                at.checked_add((60 - i64::from(at.minute())).minutes()).ok()?
            } else if !has(self.minutes, at.minute()) {
                at.checked_add(1.minutes()).ok()?
            } else {
                return Some(at.timestamp());
            };
            // Where the clock goes back at midnight, the start of a day may lie behind.
            at = if later.timestamp() > at.timestamp() { later } else { at.checked_add(1.hours()).ok()? };
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.both { day && weekday } else { day || weekday }
    }
}

fn start_of(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.to_zoned(zone.clone()).ok()
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
}

/// The bits of a list of ranges, and whether it leaves everything open.
fn field(text: &str, least: u32, most: u32, names: &[&str]) -> Result<(u64, bool), ScheduleError> {
    let (mut bits, mut open) = (0, false);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let step = step.map_or(Ok(1), |step| number(step, least, &[]))?;
        let star = matches!(range, "*" | "?");
        let (first, last) = match range.split_once('-') {
            _ if star => (least, most),
            Some((first, last)) => (number(first, least, names)?, number(last, least, names)?),
            None => {
                let first = number(range, least, names)?;
                // `5/15` means from 5 to the end.
                (first, if part.contains('/') { most } else { first })
            }
        };
        let wrong =
            |what, value, than, limit| Err(ScheduleError::Range { what, value, than, limit, text: part.into() });
        if first < least {
            return wrong("beginning", first, "below minimum", least);
        }
        if last > most {
            return wrong("end", last, "above maximum", most);
        }
        if first > last {
            return wrong("beginning", first, "beyond end of range", last);
        }
        if step == 0 {
            return wrong("step", 0, "should be a positive number, not", 0);
        }
        open |= star && step == 1;
        bits |= (first..=last).step_by(step as usize).fold(0, |bits, value| bits | 1u64 << value);
    }
    if bits == 0 {
        return Err(ScheduleError::Number(text.into()));
    }
    Ok((bits, open))
}

fn number(text: &str, least: u32, names: &[&str]) -> Result<u32, ScheduleError> {
    let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
    match named {
        Some(place) => Ok(least + place as u32),
        None => text.parse().map_err(|_| ScheduleError::Number(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str, zone: &str) -> Schedule {
        Schedule::parse(text, TimeZone::get(zone).expect("a zone")).expect("a schedule")
    }

    /// The next times after one, all in UTC.
    fn check(text: &str, zone: &str, after: &str, expected: &[&str]) {
        let mut at: Timestamp = after.parse().expect("a time");
        for next in expected {
            at = schedule(text, zone).next(at).expect("is due again");
            assert_eq!(at.to_string(), *next, "{text} {zone} after {after}");
        }
    }

    #[test]
    fn fields_name_times() {
        check("* * * * *", "UTC", "2026-11-15T08:15:46Z", &["2026-11-15T08:16:00Z", "2026-11-15T08:17:00Z"]);
        check("*/20 6-7 * * *", "UTC", "2026-01-01T07:39:59Z", &["2026-01-01T07:40:00Z", "2026-01-02T06:00:00Z"]);
        check("5/25 0 * * *", "UTC", "2026-01-01T00:05:00Z", &["2026-01-01T00:30:00Z", "2026-01-01T00:55:00Z"]);
        check(
            "0 0 * FEB,dec mon-TUE",
            "UTC",
            "2026-01-01T00:00:00Z",
            &["2026-02-02T00:00:00Z", "2026-02-03T00:00:00Z"],
        );
        // A day of the month or a day of the week.
        check("0 0 13 * 5", "UTC", "2026-02-07T00:00:00Z", &["2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"]);
        check("0 0 */2 * 5", "UTC", "2026-02-13T00:00:00Z", &["2026-02-15T00:00:00Z", "2026-02-17T00:00:00Z"]);
        check("@hourly", "UTC", "2026-01-01T00:00:00Z", &["2026-01-01T01:00:00Z"]);
        check("@weekly", "UTC", "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z"]);
        check("@yearly", "UTC", "2026-01-01T00:00:00Z", &["2027-01-01T00:00:00Z"]);
        check("@every 1h30m", "UTC", "2026-01-01T00:00:00.5Z", &["2026-01-01T01:30:00Z", "2026-01-01T03:00:00Z"]);
        check("TZ=Asia/Tokyo 0 9 * * *", "UTC", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z"]);
    }

    #[test]
    fn leap_days_come_every_four_years() {
        check("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
        let never = schedule("0 0 30 2 *", "UTC");
        assert_eq!(never.next("2026-01-01T00:00:00Z".parse().expect("a time")), None);
    }

    #[test]
    fn clocks_change() {
        // On 2026-03-29 there is no 02:30 in Berlin.
        check("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", &["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"]);
        // On 2026-10-25 there are two.
        check(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        );
        check("0 12 * * *", "America/New_York", "2026-03-07T18:00:00Z", &["2026-03-08T16:00:00Z"]);
        // Half an hour forth on Lord Howe, and midnight that does not exist in Beirut.
        check("45 1 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", &["2026-10-03T15:15:00Z"]);
        check("0 0 * * *", "Asia/Beirut", "2026-03-28T00:00:00Z", &["2026-03-29T21:00:00Z"]);
        check("30 0 * * *", "Asia/Beirut", "2026-03-27T23:00:00Z", &["2026-03-29T21:30:00Z"]);
    }

    #[test]
    fn the_last_time_is_found_however_many_were_missed() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        let check = |text: &str, earliest: &str, now: &str, expected: Option<(&str, usize)>| {
            let found = schedule(text, "UTC").last(time(earliest), time(now), 100);
            assert_eq!(found, expected.map(|(last, missed)| (time(last), missed)), "{text}");
        };
        check("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:00:59Z", None);
        check("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:02:30Z", Some(("2026-01-01T00:02:00Z", 2)));
        check("* * * * *", "1999-01-01T00:00:00Z", "2026-01-01T00:02:30Z", Some(("2026-01-01T00:02:00Z", 101)));
        check("0 0 29 2 *", "1999-01-01T00:00:00Z", "2026-01-01T00:02:30Z", Some(("2024-02-29T00:00:00Z", 7)));
        check("@every 7s", "2026-01-01T00:00:00Z", "2026-01-01T10:00:00Z", Some(("2026-01-01T09:59:54Z", 101)));
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "@never",
            "@every x",
            "x * * * *",
            "TZ=Mars/City * * * * *",
        ] {
            assert!(Schedule::parse(text, TimeZone::UTC).is_err(), "{text}");
        }
    }
}
