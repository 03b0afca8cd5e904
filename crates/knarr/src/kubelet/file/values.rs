//! What upstream refuses in a KubeletConfiguration, in its words: numbers out of range, and fields that contradict each other.
//! Fields that knarr does not read are `known.rs`'s.

use std::path::{Component, Path};

use anyhow::{Context, bail};
use jiff::SignedDuration;
use machinery::{duration, names};
use serde_json::{Map, Value};

/// Field, flag, and the numbers that it may have; what may be zero, although that is outside, is switched off by it.
const RANGES: [(&str, &str, i64, i64, bool); 5] = [
    ("healthzPort", "--healthz-port", 1, 65535, true),
    ("imageGCHighThresholdPercent", "--image-gc-high-threshold", 0, 100, false),
    ("imageGCLowThresholdPercent", "--image-gc-low-threshold", 0, 100, false),
    ("oomScoreAdj", "--oom-score-adj", -1000, 1000, false),
    // Zero is the usual port.
    ("port", "--port", 1, 65535, true),
];
const NOT_NEGATIVE: [(&str, &str); 2] = [("maxPods", "--max-pods"), ("podsPerCore", "--pods-per-core")];
/// Where images are removed from, and down to, when nothing is said.
const HIGH_THRESHOLD: i64 = 85;
const LOW_THRESHOLD: i64 = 80;
const TOPOLOGY_POLICIES: [&str; 4] = ["none", "best-effort", "restricted", "single-numa-node"];
const TOPOLOGY_SCOPES: [&str; 2] = ["container", "pod"];
const EFFECTS: [&str; 4] = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check(fields: &Map<String, Value>) -> anyhow::Result<()> {
    let mut found = numbers(fields);
    found.extend(times(fields)?);
    found.extend(words(fields));
    found.extend(fields.get("registerWithTaints").and_then(Value::as_array).into_iter().flatten().flat_map(taint));
    // One stands alone, several in brackets, as Go writes them.
    match found.as_slice() {
        [] => Ok(()),
        [one] => bail!("{one}"),
        several => bail!("[{}]", several.join(", ")),
    }
}

fn wrong(what: impl std::fmt::Display) -> String {
    format!("invalid configuration: {what}")
}

fn number(fields: &Map<String, Value>, field: &str) -> Option<i64> {
    fields.get(field).and_then(Value::as_i64)
}

fn numbers(fields: &Map<String, Value>) -> Vec<String> {
    let number = |field: &str| number(fields, field);
    let mut found = Vec::new();
    for (field, flag, min, max, zero) in RANGES {
        let outside = number(field).filter(|value| !((min..=max).contains(value) || (zero && *value == 0)));
        found.extend(
            outside.map(|value| wrong(format!("{field} ({flag}) {value} must be between {min} and {max}, inclusive"))),
        );
    }
    for (field, flag) in NOT_NEGATIVE {
        let negative = number(field).filter(|value| *value < 0);
        found.extend(negative.map(|value| wrong(format!("{field} ({flag}) {value} must not be a negative number"))));
    }
    let high = number("imageGCHighThresholdPercent").unwrap_or(HIGH_THRESHOLD);
    let low = number("imageGCLowThresholdPercent").unwrap_or(LOW_THRESHOLD);
    if low >= high {
        found.push(wrong(format!(
            "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
        )));
    }
    if number("nodeLeaseDurationSeconds").is_some_and(|seconds| seconds < 0) {
        found.push(wrong("nodeLeaseDurationSeconds must be greater than 0"));
    }
    if number("containerLogMaxFiles").is_some_and(|files| files <= 1) {
        found.push(wrong("containerLogMaxFiles must be greater than 1"));
    }
    match number("maxParallelImagePulls") {
        Some(pulls) if pulls < 1 => {
            found.push(wrong(format!("maxParallelImagePulls {pulls} must be a positive number")));
        }
        Some(pulls) if pulls > 1 && fields.get("serializeImagePulls") == Some(&Value::Bool(true)) => found.push(wrong(
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false",
        )),
        _ => {}
    }
    found
}

fn times(fields: &Map<String, Value>) -> anyhow::Result<Vec<String>> {
    let time = |field: &str| -> anyhow::Result<SignedDuration> {
        match fields.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()) {
            None => Ok(SignedDuration::ZERO),
            Some(text) => duration::parse(text).with_context(|| field.to_owned()),
        }
    };
    let mut found = Vec::new();
    let (all, critical) = (time("shutdownGracePeriod")?, time("shutdownGracePeriodCriticalPods")?);
    // Go shows the type around these.
    let shown = |time: SignedDuration| format!("{{{}}}", duration::written(time));
    if critical > all {
        let (critical, all) = (shown(critical), shown(all));
        found.push(wrong(format!("shutdownGracePeriodCriticalPods {critical} must be <= shutdownGracePeriod {all}")));
    }
    for (field, time) in [("shutdownGracePeriod", all), ("shutdownGracePeriodCriticalPods", critical)] {
        if time < SignedDuration::from_secs(1) && !time.is_zero() {
            found.push(wrong(format!("{field} {} must be either zero or otherwise >= 1 sec", shown(time))));
        }
    }
    let age = time("imageMinimumGCAge")?;
    if age.is_negative() {
        found.push(wrong(format!("imageMinimumGCAge {} must not be negative", duration::written(age))));
    }
    Ok(found)
}

fn words(fields: &Map<String, Value>) -> Vec<String> {
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut found = Vec::new();
    let policy = text("topologyManagerPolicy");
    if !policy.is_empty() && !TOPOLOGY_POLICIES.contains(&policy) {
        let known = TOPOLOGY_POLICIES.map(|known| format!("{known:?}")).join(" ");
        let what = format!("topologyManagerPolicy (--topology-manager-policy) {policy:?} must be one of: [{known}]");
        found.push(wrong(what));
    }
    let scope = text("topologyManagerScope");
    if !scope.is_empty() && !TOPOLOGY_SCOPES.contains(&scope) {
        let [container, pod] = TOPOLOGY_SCOPES;
        found.push(wrong(format!(
            "topologyManagerScope (--topology-manager-scope) {scope:?} must be one of: {container:?}, or {pod:?}"
        )));
    }
    let logs = text("podLogsDir");
    if logs.is_empty() {
        return found;
    }
    let path = Path::new(logs);
    if !path.is_absolute() {
        found.push(wrong(format!("pod logs path {logs:?} must be absolute path")));
    }
    let is_plain = path.components().all(|part| !matches!(part, Component::ParentDir | Component::CurDir));
    if !is_plain || path.components().collect::<std::path::PathBuf>().as_os_str() != logs {
        found.push(wrong(format!("pod logs path {logs:?} must be normalized")));
    }
    if !logs.is_ascii() {
        found.push(wrong(format!("pod logs path {logs:?} mut contains ASCII characters only")));
    }
    found
}

fn taint(taint: &Value) -> Vec<String> {
    let text = |field: &str| taint.get(field).and_then(Value::as_str).unwrap_or_default();
    let (key, value, effect) = (text("key"), text("value"), text("effect"));
    let mut found = Vec::new();
    let is_good =
        names::qualified_name(key).is_empty() && names::label_value(value).is_empty() && EFFECTS.contains(&effect);
    if !is_good {
        found.push(format!("invalid taint: {{{key} {value} {effect} <nil>}}"));
    }
    if taint.get("timeAdded").is_some_and(|time| !time.is_null()) {
        found.push(wrong("taint.TimeAdded is not nil"));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(fields: Value, expected: &str) {
        let told = check(fields.as_object().expect("fields")).expect_err("it is refused");
        assert_eq!(format!("{told:#}"), expected, "{fields}");
    }

    /// What upstream's own tests of its validation expect, of the fields that knarr reads.
    #[test]
    fn what_upstream_refuses_is_refused_in_its_words() {
        for (fields, expected) in [
            (json!({"nodeLeaseDurationSeconds": -1}), "nodeLeaseDurationSeconds must be greater than 0"),
            (
                json!({"healthzPort": 65536}),
                "healthzPort (--healthz-port) 65536 must be between 1 and 65535, inclusive",
            ),
            (
                json!({"imageGCHighThresholdPercent": 101}),
                "imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive",
            ),
            (
                json!({"imageGCLowThresholdPercent": -1}),
                "imageGCLowThresholdPercent (--image-gc-low-threshold) -1 must be between 0 and 100, inclusive",
            ),
            (
                json!({"imageGCLowThresholdPercent": 0, "imageGCHighThresholdPercent": 0}),
                "imageGCLowThresholdPercent (--image-gc-low-threshold) 0 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 0",
            ),
            (
                json!({"imageGCLowThresholdPercent": 1, "imageGCHighThresholdPercent": 0}),
                "imageGCLowThresholdPercent (--image-gc-low-threshold) 1 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 0",
            ),
            (json!({"maxPods": -1}), "maxPods (--max-pods) -1 must not be a negative number"),
            (
                json!({"oomScoreAdj": 1001}),
                "oomScoreAdj (--oom-score-adj) 1001 must be between -1000 and 1000, inclusive",
            ),
            (json!({"podsPerCore": -1}), "podsPerCore (--pods-per-core) -1 must not be a negative number"),
            (json!({"port": 65536}), "port (--port) 65536 must be between 1 and 65535, inclusive"),
            (json!({"maxParallelImagePulls": 0}), "maxParallelImagePulls 0 must be a positive number"),
            (
                json!({"maxParallelImagePulls": 4, "serializeImagePulls": true}),
                "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false",
            ),
            (
                json!({"topologyManagerPolicy": "invalid-policy"}),
                r#"topologyManagerPolicy (--topology-manager-policy) "invalid-policy" must be one of: ["none" "best-effort" "restricted" "single-numa-node"]"#,
            ),
            (
                json!({"topologyManagerScope": "invalid-scope"}),
                r#"topologyManagerScope (--topology-manager-scope) "invalid-scope" must be one of: "container", or "pod""#,
            ),
            (
                json!({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "2s"}),
                "shutdownGracePeriodCriticalPods {2s} must be <= shutdownGracePeriod {1s}",
            ),
            (
                json!({"shutdownGracePeriod": "1ms"}),
                "shutdownGracePeriod {1ms} must be either zero or otherwise >= 1 sec",
            ),
            (
                json!({"shutdownGracePeriod": "2s", "shutdownGracePeriodCriticalPods": "1ms"}),
                "shutdownGracePeriodCriticalPods {1ms} must be either zero or otherwise >= 1 sec",
            ),
            (json!({"imageMinimumGCAge": "-1ns"}), "imageMinimumGCAge -1ns must not be negative"),
            (
                json!({"registerWithTaints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]}),
                "taint.TimeAdded is not nil",
            ),
            (json!({"podLogsDir": "./test"}), r#"pod logs path "./test" must be absolute path"#),
            (json!({"podLogsDir": "/path/../"}), r#"pod logs path "/path/../" must be normalized"#),
            (json!({"podLogsDir": "/🧪"}), r#"pod logs path "/🧪" mut contains ASCII characters only"#),
            (json!({"containerLogMaxFiles": 1}), "containerLogMaxFiles must be greater than 1"),
        ] {
            let told = format!("{:#}", check(fields.as_object().expect("fields")).expect_err("it is refused"));
            // Another field may be wrong by the same value; upstream's tests look for the one, too.
            assert!(told.contains(&format!("invalid configuration: {expected}")), "{fields}: {told}");
        }
    }

    #[test]
    fn taints_are_those_of_the_api() {
        let taints = |key: &str, value: &str, effect: &str| json!({"registerWithTaints": [{"key": key, "value": value, "effect": effect}]});
        for good in [taints("a.b/c", "", "NoSchedule"), taints("a", "b", "NoExecute"), taints("a", "b", "")] {
            assert!(check(good.as_object().expect("fields")).is_ok(), "{good}");
        }
        refused(taints("", "v", "NoSchedule"), "invalid taint: { v NoSchedule <nil>}");
        refused(taints("a/b/c", "v", "NoSchedule"), "invalid taint: {a/b/c v NoSchedule <nil>}");
        refused(taints("a", "v v", "NoSchedule"), "invalid taint: {a v v NoSchedule <nil>}");
        refused(taints("a", "v", "Sometimes"), "invalid taint: {a v Sometimes <nil>}");
    }

    #[test]
    fn several_are_told_together_and_what_is_no_time_by_its_field() {
        refused(
            json!({"maxPods": -1, "containerLogMaxFiles": 0}),
            "[invalid configuration: maxPods (--max-pods) -1 must not be a negative number, invalid configuration: containerLogMaxFiles must be greater than 1]",
        );
        refused(json!({"shutdownGracePeriod": "soon"}), "shutdownGracePeriod: time: invalid duration \"soon\"");
        for good in [
            json!({}),
            json!({"port": 0, "healthzPort": 0, "maxPods": 0}),
            json!({"imageGCLowThresholdPercent": 0, "imageGCHighThresholdPercent": 100}),
            json!({"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}),
            json!({"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"}),
            json!({"podLogsDir": "/var/log/pods"}),
        ] {
            assert!(check(good.as_object().expect("fields")).is_ok(), "{good}");
        }
    }
}
