//! How long a Job waits before it replaces a failed pod: 10 s, doubled with every failure since the last success.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::Pod;

use super::pods::{ended_at, has_failed, has_succeeded, index_failures, index_ignored_failures};

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// Judged by the pods there are, so that it is the same after a restart.
pub(super) fn remaining(spec: &JobSpec, pods: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    let success = pods.iter().filter(|pod| has_succeeded(pod)).filter_map(|pod| ended_at(pod)).max();
    let failures = pods.iter().filter(|pod| has_failed(pod, spec)).filter_map(|pod| ended_at(pod));
    let since: Vec<Timestamp> = failures.filter(|at| success.is_none_or(|success| *at > success)).collect();
    wait(since.len() as u64, *since.iter().max()?, now)
}

/// For the successor of that pod of an index.
pub(super) fn remaining_after(last: &Pod, now: Timestamp) -> Option<Duration> {
    let failures = i64::from(index_failures(last)) + i64::from(index_ignored_failures(last)) + 1;
    wait(failures.unsigned_abs(), ended_at(last)?, now)
}

fn wait(failures: u64, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let doubled = 1i32.checked_shl(u32::try_from(failures.checked_sub(1)?.min(30)).ok()?)?;
    let delay = FIRST.checked_mul(doubled).unwrap_or(LONGEST).min(LONGEST);
    // A clock that jumped back does not make the wait longer than it would ever be.
    let left = (last.checked_add(delay).ok()?).duration_since(now).min(delay);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_ten_minutes() {
        let check = |failures, ago: i64, expected: Option<u64>| {
            let now = Timestamp::from_second(1_000_000).expect("a time");
            let last = Timestamp::from_second(1_000_000 - ago).expect("a time");
            assert_eq!(wait(failures, last, now).map(|wait| wait.as_secs()), expected, "{failures} {ago}");
        };
        check(0, 0, None);
        check(1, 0, Some(10));
        check(1, 10, None);
        check(2, 5, Some(15));
        check(6, 0, Some(320));
        check(7, 0, Some(600));
        check(u64::MAX, 0, Some(600));
        check(1, -5000, Some(10));
    }
}
