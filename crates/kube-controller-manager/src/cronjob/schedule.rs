//! When a CronJob is due: the five fields of cron, its macros, and `@every`, as `api::batch::cronjob::schedule` reads them.
//!
//! An instant is due when the clock on the wall of the time zone shows a time that the fields name. So a time that a change
//! of the clock leaves out is not due that day, and one that comes twice is due twice, as upstream.

use api::batch::cronjob::schedule::{self as text, Fields};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

/// What the API server has read in the text, and where the clock hangs.
#[derive(Clone, Debug)]
pub struct Schedule {
    when: text::Schedule,
    zone: TimeZone,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScheduleError {
    #[error(transparent)]
    Text(#[from] text::ScheduleError),
    #[error("provided bad location {0}")]
    Zone(String),
}

/// A schedule that nothing meets, such as the 30th of February, is given up after so many years.
const YEARS_MAX: i16 = 5;

impl Schedule {
    pub fn parse(text: &str, zone: TimeZone) -> Result<Schedule, ScheduleError> {
        let named = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ="));
        let zone = match named.map(|named| named.split_once(' ').map_or(named, |(name, _)| name)) {
            None => zone,
            Some(name) => TimeZone::get(name).map_err(|_| ScheduleError::Zone(name.into()))?,
        };
        Ok(Schedule { when: text::Schedule::parse(text)?, zone })
    }

    /// The first due time after that.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.when {
            text::Schedule::Every(seconds) => {
                Timestamp::from_second(after.as_second()).ok()?.checked_add(duration_of(*seconds)).ok()
            }
            text::Schedule::At(fields) => next(fields, after, &self.zone),
        }
    }

    /// The last due time after `earliest` that is not after `now`, and how many there were, at most one more than `limit`.
    pub fn last(&self, earliest: Timestamp, now: Timestamp, limit: usize) -> Option<(Timestamp, usize)> {
        let first = self.next(earliest).filter(|first| *first <= now)?;
        let mut times = std::iter::successors(Some(first), |time| self.next(*time)).take_while(|time| *time <= now);
        let missed = times.by_ref().take(limit + 1).count();
        let last = match &self.when {
            text::Schedule::Every(seconds) => {
                let seconds = duration_of(*seconds).as_secs().max(1);
                let turns = now.duration_since(first).as_secs() / seconds;
                first.checked_add(SignedDuration::from_secs(turns * seconds)).ok()?
            }
            text::Schedule::At(_) => self.last_near(first, now),
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

fn duration_of(seconds: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn next(fields: &Fields, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    // A field of commas alone names nothing.
    if [fields.minutes, fields.hours, fields.months].contains(&0) {
        return None;
    }
    let start = after.as_second().checked_add(60 - after.as_second().rem_euclid(60))?;
    let mut at = Timestamp::from_second(start).ok()?.to_zoned(zone.clone());
    let last_year = at.year().checked_add(YEARS_MAX)?;
    while at.year() <= last_year {
        let later = if !has(fields.months, at.month()) {
            start_of(at.date().last_of_month().tomorrow().ok()?, zone)?
        } else if !has_day(fields, at.date()) {
            start_of(at.date().tomorrow().ok()?, zone)?
        } else if !has(fields.hours, at.hour()) {
            at.checked_add((60 - i64::from(at.minute())).minutes()).ok()?
        } else if !has(fields.minutes, at.minute()) {
            at.checked_add(1.minutes()).ok()?
        } else {
            return Some(at.timestamp());
        };
        // Where the clock goes back at midnight, the start of a day may lie behind.
        at = if later.timestamp() > at.timestamp() { later } else { at.checked_add(1.hours()).ok()? };
    }
    None
}

fn has_day(fields: &Fields, date: Date) -> bool {
    let day = has(fields.days, date.day());
    let weekday = has(fields.weekdays, date.weekday().to_sunday_zero_offset());
    let both = fields.any_day || fields.any_weekday;
    if both { day && weekday } else { day || weekday }
}

fn start_of(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.to_zoned(zone.clone()).ok()
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
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
        assert_eq!(schedule(", * * * *", "UTC").next("2026-01-01T00:00:00Z".parse().expect("a time")), None);
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
            "TZ=UTC",
        ] {
            assert!(Schedule::parse(text, TimeZone::UTC).is_err(), "{text}");
        }
    }
}
