//! Conditions of workloads: set where something changed, keeping the time of the last transition.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The time that a condition has been as it is, given what it was before.
pub(crate) fn transition(before: Option<(&str, Option<&Time>)>, status: &str, now: Timestamp) -> Time {
    match before {
        Some((old, Some(since))) if old == status => since.clone(),
        _ => Time(seconds(now)),
    }
}

/// API times have whole seconds.
pub(crate) fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
