//! Validation of CronJob.

use jiff::tz::TimeZoneDatabase;
use machinery::field::Errors;
use machinery::node::Node;

use super::schedule::Schedule;
use crate::batch::job::job_spec;
use crate::common::pod_spec::text::{not_negative, one_of};

/// The name of a CronJob's Job is its own name and eleven more characters.
const NAME_MAX: usize = 52;

pub(super) fn validate(cron: &Node, errors: &mut Errors) {
    spec(&cron.at("spec"), None, errors);
    let name = cron.at("metadata").at("name");
    if name.str().len() > NAME_MAX {
        errors.invalid(&name, format!("must be no more than {NAME_MAX} characters"));
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    spec(&new.at("spec"), Some(&old.at("spec")), errors);
}

fn spec(spec: &Node, old: Option<&Node>, errors: &mut Errors) {
    let zone = spec.at("timeZone");
    schedule(spec, old, errors);
    not_negative(errors, &spec.at("startingDeadlineSeconds"));
    if old.is_none_or(|old| old.at("timeZone").value != zone.value) {
        time_zone(&zone, errors);
    }
    one_of(errors, &spec.at("concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    let job = spec.at("jobTemplate").at("spec");
    job_spec(errors, &job);
    if job.has("selector") {
        errors.invalid(&job.at("selector"), "`selector` will be auto-generated");
    }
    if job.flag("manualSelector") {
        errors.not_supported(&job.at("manualSelector"), &["nil", "false"]);
    }
    not_negative(errors, &spec.at("successfulJobsHistoryLimit"));
    not_negative(errors, &spec.at("failedJobsHistoryLimit"));
}

fn schedule(spec: &Node, old: Option<&Node>, errors: &mut Errors) {
    let schedule = spec.at("schedule");
    if schedule.str().is_empty() {
        return errors.required(&schedule, "");
    }
    if let Err(why) = Schedule::parse(schedule.str()) {
        errors.invalid(&schedule, why.to_string());
    }
    // A zone in the schedule was never documented; those that have one already may keep it.
    let kept = old.is_some_and(|old| old.text("schedule").contains("TZ"));
    match (schedule.str().contains("TZ"), kept) {
        (true, true) if spec.has("timeZone") => {
            errors.invalid(&schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
        }
        (true, false) => errors.invalid(&schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        _ => {}
    }
}

fn time_zone(zone: &Node, errors: &mut Errors) {
    if !zone.exists() {
        return;
    }
    let name = zone.str();
    if name.is_empty() {
        return errors.invalid(zone, "timeZone must be nil or non-empty string");
    }
    let local = name.eq_ignore_ascii_case("local");
    if local {
        errors.invalid(zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    if !is_known(name) && name != "Local" {
        errors.invalid(zone, format!("unknown time zone {name}"));
    }
}

/// Names are looked up in the database that is part of the program, as upstream's are, letter by letter.
fn is_known(name: &str) -> bool {
    let part = |part: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
        (1..=14).contains(&part.len())
            && part.bytes().all(good)
            && !part.starts_with('-')
            && !matches!(part, "." | "..")
    };
    name.split('/').all(part) && TimeZoneDatabase::bundled().get(name).is_ok_and(|zone| zone.iana_name() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn zones() {
        for good in ["UTC", "Etc/UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "EST5EDT"] {
            assert!(is_known(good), "{good}");
        }
        for bad in ["", "utc", "europe/berlin", "Nope/Zone", "../etc/passwd", "Europe//Berlin"] {
            assert!(!is_known(bad), "{bad}");
        }
    }
}
