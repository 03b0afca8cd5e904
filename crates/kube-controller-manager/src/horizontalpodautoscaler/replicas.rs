//! From metrics to a number of replicas. Pods that say nothing, or that only just start, are guessed at such that a mistake
//! changes less, not more.

use std::collections::BTreeMap;
use std::time::Duration;

use component_helpers::pods::{condition, phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::error::ReplicasError;
use super::settings::Autoscaling;

/// How much off the target is near enough, downwards and upwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    pub down: f64,
    pub up: f64,
}

impl Tolerance {
    fn accepts(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// A measured value in thousandths, when, and over which time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub milli: i64,
    pub at: Timestamp,
    pub window: SignedDuration,
}

/// What one pod should use, and what it has asked for where use is measured in parts of that.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Average { milli: i64 },
    Utilization { percent: i32, requests: &'a BTreeMap<String, i64> },
}

#[derive(Debug, PartialEq)]
pub(super) struct Proposal {
    pub replicas: i32,
    /// Percent of requests, where that is the target.
    pub utilization: Option<i32>,
    pub average_milli: i64,
}

/// For metrics that each pod has. `starting` leaves out pods that only just start, which matters for processors.
pub(super) fn by_pods(
    now: Timestamp,
    current: i32,
    pods: &[Pod],
    samples: &BTreeMap<String, Sample>,
    target: Target,
    starting: Option<&Autoscaling>,
    tolerance: Tolerance,
) -> Result<Proposal, ReplicasError> {
    if pods.is_empty() {
        return Err(ReplicasError::NoPods);
    }
    let mut measured: BTreeMap<&str, i64> = BTreeMap::new();
    let (mut unready, mut missing) = (Vec::new(), Vec::new());
    for pod in pods {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() || phase(pod) == "Failed" {
            continue;
        }
        match samples.get(name) {
            _ if phase(pod) == "Pending" => unready.push(name),
            None => missing.push(name),
            Some(sample) if starting.is_some_and(|settings| is_starting(settings, now, pod, sample)) => {
                unready.push(name)
            }
            Some(sample) => measured.extend([(name, sample.milli)]),
        }
    }
    if measured.is_empty() {
        return Err(ReplicasError::NoMetrics);
    }
    let ready = measured.len();
    let (ratio, utilization, average) = ratio(&measured, target)?;
    let proposal = |replicas| Ok(Proposal { replicas, utilization, average_milli: average });
    let grows_with_unready = !unready.is_empty() && ratio > 1.0;
    if !grows_with_unready && missing.is_empty() {
        if tolerance.accepts(ratio) {
            return proposal(current);
        }
        return proposal(ceil(ratio * ready as f64));
    }
    for name in missing {
        let guess = match target {
            // Going down, they use what they may; going up, nothing.
            _ if ratio > 1.0 => 0,
            Target::Average { milli } => milli,
            // Exactly as wanted: nothing speaks for more or less.
            Target::Utilization { .. } if ratio == 1.0 => continue,
            Target::Utilization { percent, requests } => {
                requests.get(name).copied().unwrap_or(0).saturating_mul(percent.max(100).into()) / 100
            }
        };
        measured.insert(name, guess);
    }
    if grows_with_unready {
        measured.extend(unready.into_iter().map(|name| (name, 0)));
    }
    let (guessed, _, _) = self::ratio(&measured, target)?;
    if tolerance.accepts(guessed) || (ratio < 1.0 && guessed > 1.0) || (ratio > 1.0 && guessed < 1.0) {
        return proposal(current);
    }
    let replicas = ceil(guessed * measured.len() as f64);
    if (guessed < 1.0 && replicas > current) || (guessed > 1.0 && replicas < current) {
        return proposal(current);
    }
    proposal(replicas)
}

/// For a metric of something else that each replica should have a part of.
pub(super) fn by_average(current: i32, milli: i64, target_milli: i64, tolerance: Tolerance) -> Proposal {
    let ratio = milli as f64 / (target_milli as f64 * f64::from(current.max(1)));
    let replicas = if tolerance.accepts(ratio) { current } else { ceil(milli as f64 / target_milli as f64) };
    Proposal { replicas, utilization: None, average_milli: milli / i64::from(current.max(1)) }
}

/// For a metric of something else that should come near a value.
pub(super) fn by_value(current: i32, pods: &[Pod], milli: i64, target_milli: i64, tolerance: Tolerance) -> Proposal {
    let ratio = milli as f64 / target_milli as f64;
    let ready = pods.iter().filter(|pod| phase(pod) == "Running" && component_helpers::pods::is_ready(pod)).count();
    let replicas = match current {
        0 => ceil(ratio),
        _ if tolerance.accepts(ratio) => current,
        _ => ceil(ratio * ready as f64),
    };
    Proposal { replicas, utilization: None, average_milli: milli }
}

fn ceil(replicas: f64) -> i32 {
    // Beyond the largest number it is the largest number.
    replicas.ceil() as i32
}

/// Measured by wanted, the percentage of requests, and the average.
fn ratio(measured: &BTreeMap<&str, i64>, target: Target) -> Result<(f64, Option<i32>, i64), ReplicasError> {
    let total: i64 = measured.values().fold(0, |sum, milli| sum.saturating_add(*milli));
    let average = total / measured.len().max(1) as i64;
    match target {
        Target::Average { milli } => Ok((average as f64 / milli as f64, None, average)),
        Target::Utilization { percent, requests } => {
            let asked: i64 = measured.keys().filter_map(|name| requests.get(*name)).sum();
            if asked == 0 {
                return Err(ReplicasError::NoneKnown);
            }
            let current = i32::try_from(total.saturating_mul(100) / asked).unwrap_or(i32::MAX);
            Ok((f64::from(current) / f64::from(percent), Some(current), average))
        }
    }
}

fn is_starting(settings: &Autoscaling, now: Timestamp, pod: &Pod, sample: &Sample) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let ready = condition(pod, "Ready");
    let (Some(started), Some(ready)) = (started, ready) else { return true };
    let since = ready.last_transition_time.as_ref().map_or(started, |time| time.0);
    let shorter =
        |span: SignedDuration, than: Duration| span < SignedDuration::try_from(than).unwrap_or(SignedDuration::MAX);
    if shorter(now.duration_since(started), settings.cpu_initialization_period) {
        return ready.status == "False" || sample.at.duration_since(since) < sample.window;
    }
    ready.status == "False" && shorter(since.duration_since(started), settings.initial_readiness_delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name phase use`: pods that have asked for 1000, and what they use; `-` is missing, `old`/`new` ready long since or not.
    fn check(current: i32, percent: i32, text: &str, expected: Result<i32, &str>) {
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let (mut pods, mut samples, mut requests) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for line in text.split(';').map(str::trim).filter(|line| !line.is_empty()) {
            let [name, phase, used] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
            let (phase, ready) = if phase == "Unready" { ("Running", "False") } else { (phase, "True") };
            let object = serde_json::json!({"metadata": {"name": name}, "status": {"phase": phase,
                "startTime": "1970-01-12T13:45:00Z",
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "1970-01-12T13:45:05Z"}]}});
            pods.push(serde_json::from_value(object).expect("a pod"));
            requests.insert(name.to_owned(), 1000);
            if let Ok(milli) = used.parse() {
                samples.insert(name.to_owned(), Sample { milli, at: now, window: SignedDuration::from_secs(15) });
            }
        }
        let target = Target::Utilization { percent, requests: &requests };
        let found = by_pods(
            now,
            current,
            &pods,
            &samples,
            target,
            Some(&Autoscaling::default()),
            Tolerance { down: 0.1, up: 0.1 },
        );
        let found = found.map(|found| found.replicas).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(ToString::to_string), "{text}");
    }

    #[test]
    fn replicas_follow_use() {
        check(2, 50, "a Running 500; b Running 500", Ok(2));
        check(2, 50, "a Running 540; b Running 540", Ok(2));
        check(2, 50, "a Running 1000; b Running 1000", Ok(4));
        check(4, 50, "a Running 100; b Running 100; c Running 100; d Running 100", Ok(1));
        // A missing pod is guessed at such that little changes.
        check(2, 50, "a Running 1000; b Running -", Ok(2));
        check(4, 50, "a Running 500; b Running -; c Running -; d Running -", Ok(4));
        check(3, 50, "a Running 10; b Running 10; c Running -", Ok(3));
        check(3, 50, "a Running 2000; b Running 2000; c Unready 10", Ok(8));
        check(2, 50, "a Pending -; b Running 5000", Ok(10));
        check(2, 50, "a Failed 1; b Running 1000", Ok(2));
        check(2, 50, "", Err("no pods returned by selector while calculating replica count"));
        check(2, 50, "a Running -", Err("did not receive metrics for targeted pods (pods might be unready)"));
    }

    #[test]
    fn other_metrics_are_shared_or_approached() {
        let tolerance = Tolerance { down: 0.1, up: 0.1 };
        assert_eq!(by_average(2, 10_000, 2_000, tolerance).replicas, 5);
        assert_eq!(by_average(5, 10_100, 2_000, tolerance).replicas, 5);
        assert_eq!(by_value(0, &[], 3_000, 1_000, tolerance).replicas, 3);
        assert_eq!(by_value(4, &[], 1_050, 1_000, tolerance).replicas, 4);
    }
}
