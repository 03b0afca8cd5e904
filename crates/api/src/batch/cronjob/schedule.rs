//! The schedule of a CronJob: five fields or a word such as `@daily`, with the errors upstream's reader gives.

use machinery::duration::{self, InvalidDuration};

/// When a CronJob is due. Bit `n` of a field is set where the value `n` matches.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    At(Fields),
    /// `@every 1h30m`, in seconds.
    Every(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fields {
    pub minutes: u64,
    pub hours: u64,
    pub days: u64,
    pub months: u64,
    pub weekdays: u64,
    /// Where both days and weekdays are narrowed down, either may match; where one is a star, both must.
    pub any_day: bool,
    pub any_weekday: bool,
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error("empty spec string")]
    Empty,
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    Fields(Vec<String>),
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    #[error("failed to parse duration {text}: {why}")]
    Duration { text: String, why: InvalidDuration },
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    #[error("too many slashes: {0}")]
    Slashes(String),
    #[error("beginning of range ({found}) below minimum ({minimum}): {range}")]
    Low { found: u64, minimum: u64, range: String },
    #[error("end of range ({found}) above maximum ({maximum}): {range}")]
    High { found: u64, maximum: u64, range: String },
    #[error("beginning of range ({low}) beyond end of range ({high}): {range}")]
    Backwards { low: u64, high: u64, range: String },
    #[error("step of range should be a positive number: {0}")]
    Step(String),
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {0:?}: invalid syntax")]
    NoNumber(String),
    #[error("negative number ({number}) not allowed: {text}")]
    Negative { number: i64, text: String },
}

struct Bounds {
    low: u64,
    high: u64,
    names: &'static [(&'static str, u64)],
}

const MINUTES: Bounds = Bounds { low: 0, high: 59, names: &[] };
const HOURS: Bounds = Bounds { low: 0, high: 23, names: &[] };
const DAYS: Bounds = Bounds { low: 1, high: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    low: 1,
    high: 12,
    names: &[
        ("jan", 1),
        ("feb", 2),
        ("mar", 3),
        ("apr", 4),
        ("may", 5),
        ("jun", 6),
        ("jul", 7),
        ("aug", 8),
        ("sep", 9),
        ("oct", 10),
        ("nov", 11),
        ("dec", 12),
    ],
};
const WEEKDAYS: Bounds = Bounds {
    low: 0,
    high: 6,
    names: &[("sun", 0), ("mon", 1), ("tue", 2), ("wed", 3), ("thu", 4), ("fri", 5), ("sat", 6)],
};

impl Schedule {
    pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
        if text.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let text = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest.trim()),
            None => text,
        };
        if text.starts_with('@') {
            return descriptor(text);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(ScheduleError::Fields(fields.into_iter().map(Into::into).collect()));
        };
        // Every second day is no star any more.
        let star = |text: &str| {
            text.split(',').any(|part| {
                let (range, step) = part.split_once('/').unwrap_or((part, "1"));
                range.starts_with(['*', '?']) && step.parse::<u64>().is_ok_and(|step| step <= 1)
            })
        };
        Ok(Schedule::At(Fields {
            minutes: field(minutes, &MINUTES)?,
            hours: field(hours, &HOURS)?,
            days: field(days, &DAYS)?,
            months: field(months, &MONTHS)?,
            weekdays: field(weekdays, &WEEKDAYS)?,
            any_day: star(days),
            any_weekday: star(weekdays),
        }))
    }
}

fn descriptor(text: &str) -> Result<Schedule, ScheduleError> {
    let five = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(every) = text.strip_prefix("@every ") else {
                return Err(ScheduleError::Descriptor(text.into()));
            };
            let every = duration::parse(every).map_err(|why| ScheduleError::Duration { text: text.into(), why })?;
            return Ok(Schedule::Every(u64::try_from(every.as_secs()).unwrap_or_default().max(1)));
        }
    };
    Schedule::parse(five)
}

/// One field: ranges, steps and lists of them.
fn field(text: &str, bounds: &Bounds) -> Result<u64, ScheduleError> {
    let mut bits = 0;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        bits |= range(part, bounds)?;
    }
    Ok(bits)
}

fn range(text: &str, bounds: &Bounds) -> Result<u64, ScheduleError> {
    let slashed: Vec<&str> = text.split('/').collect();
    let hyphened: Vec<&str> = slashed[0].split('-').collect();
    let single = hyphened.len() == 1;
    let (low, mut high) = match hyphened.as_slice() {
        ["*" | "?"] | ["*" | "?", ..] if hyphened[0] == "*" || hyphened[0] == "?" => (bounds.low, bounds.high),
        [one] => {
            let value = number_or_name(one, bounds)?;
            (value, value)
        }
        [low, high] => (number_or_name(low, bounds)?, number_or_name(high, bounds)?),
        _ => return Err(ScheduleError::Hyphens(text.into())),
    };
    let step = match slashed.as_slice() {
        [_] => 1,
        [_, step] => {
            // `n/step` means from n to the end.
            if single {
                high = bounds.high;
            }
            number(step)?
        }
        _ => return Err(ScheduleError::Slashes(text.into())),
    };
    if low < bounds.low {
        return Err(ScheduleError::Low { found: low, minimum: bounds.low, range: text.into() });
    }
    if high > bounds.high {
        return Err(ScheduleError::High { found: high, maximum: bounds.high, range: text.into() });
    }
    if low > high {
        return Err(ScheduleError::Backwards { low, high, range: text.into() });
    }
    if step == 0 {
        return Err(ScheduleError::Step(text.into()));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    Ok((low..=high).step_by(step).fold(0, |bits, value| bits | 1 << value))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, ScheduleError> {
    let lower = text.to_lowercase();
    match bounds.names.iter().find(|(name, _)| *name == lower) {
        Some((_, value)) => Ok(*value),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, ScheduleError> {
    let number: i64 = text.parse().map_err(|_| ScheduleError::NoNumber(text.into()))?;
    u64::try_from(number).map_err(|_| ScheduleError::Negative { number, text: text.into() })
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    fn check(text: &str, problem: &str) {
        let error = Schedule::parse(text).err().map(|error| error.to_string());
        assert_eq!(error.unwrap_or_default(), problem, "{text}");
    }

    #[test]
    fn schedules() {
        check("*/5 * * * *", "");
        check("0 0 1,15 jan-mar MON-fri", "");
        check("? ? ? ? ?", "");
        check("@daily", "");
        check("@every 1h30m", "");
        check("", "empty spec string");
        check("x", "expected exactly 5 fields, found 1: [x]");
        check("@never", "unrecognized descriptor: @never");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("1-2-3 * * * *", "too many hyphens: 1-2-3");
        check("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax");
    }

    /// Answers of upstream's reader.
    #[test]
    fn what_upstream_says_to_schedules() {
        for (text, problem) in [
            ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
            ("@every 1d", "failed to parse duration @every 1d: time: unknown unit \"d\" in duration \"1d\""),
            ("@every -5s", ""),
            ("@every", "unrecognized descriptor: @every"),
            ("@Daily", "unrecognized descriptor: @Daily"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
            ("*/61 * * * *", ""),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("1--2 * * * *", "too many hyphens: 1--2"),
            ("0-60 * * * *", "end of range (60) above maximum (59): 0-60"),
            ("* 24 * * *", "end of range (24) above maximum (23): 24"),
            ("* * 32 * *", "end of range (32) above maximum (31): 32"),
            ("* * * 13 *", "end of range (13) above maximum (12): 13"),
            ("* * * 0 *", "beginning of range (0) below minimum (1): 0"),
            ("* * * foo *", "failed to parse int from foo: strconv.Atoi: parsing \"foo\": invalid syntax"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("* * * * sun-sat", ""),
            ("* * * * sat-sun", "beginning of range (6) beyond end of range (0): sat-sun"),
            ("1,2,x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("1, * * * *", ""),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("+1 * * * *", ""),
            ("1.5 * * * *", "failed to parse int from 1.5: strconv.Atoi: parsing \"1.5\": invalid syntax"),
            ("?/5 * * * *", ""),
            ("5/ * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("\t1   2 3 4 5 ", ""),
            ("* * * dec-jan *", "beginning of range (12) beyond end of range (1): dec-jan"),
        ] {
            check(text, problem);
        }
        assert_eq!(Schedule::parse("@every -5s"), Ok(Schedule::Every(1)));
        assert_eq!(Schedule::parse("@every 1h30m1.9s"), Ok(Schedule::Every(5401)));
    }

    #[test]
    fn bits() {
        let Ok(Schedule::At(fields)) = Schedule::parse("50/5 1-3 * * 0") else { panic!("a good schedule") };
        assert_eq!((fields.minutes, fields.hours), (1 << 50 | 1 << 55, 0b1110));
        assert_eq!((fields.any_day, fields.any_weekday), (true, false));
        let Ok(Schedule::At(fields)) = Schedule::parse("0 0 */2 * */1") else { panic!("a good schedule") };
        assert_eq!((fields.any_day, fields.any_weekday), (false, true));
    }
}
