//! How fast the number of replicas may change: stabilization windows, policies, and the least and the most there may be.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerSpec};

use super::settings::Autoscaling;

/// No window and no period is longer than this, so older entries are forgotten.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);

/// What an autoscaler remembers between two looks: what it recommended and what it changed.
#[derive(Default)]
pub(super) struct Memory {
    pub recommendations: VecDeque<(Timestamp, i32)>,
    pub changes: VecDeque<(Timestamp, i32)>,
}

impl Memory {
    pub fn forget_old(&mut self, now: Timestamp) {
        let recent = |(at, _): &(Timestamp, i32)| now.duration_since(*at) <= LONGEST;
        self.recommendations.retain(recent);
        self.changes.retain(recent);
    }
}

/// A condition: whether, why, and in words.
pub(super) type Said = (bool, &'static str, &'static str);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    pub replicas: i32,
    pub able: Said,
    pub limited: Said,
}

/// What becomes of a wish for so many replicas.
pub(super) fn allow(
    now: Timestamp,
    settings: &Autoscaling,
    spec: &HorizontalPodAutoscalerSpec,
    current: i32,
    wanted: i32,
    memory: &mut Memory,
) -> Allowed {
    memory.recommendations.push_back((now, wanted));
    memory.forget_old(now);
    let (stabilized, able) = stabilize(now, settings, spec, current, wanted, memory);
    let least = spec.min_replicas.unwrap_or(1);
    let (mut low, mut low_said) = (least, TOO_FEW);
    let (mut high, mut high_said) = (spec.max_replicas, TOO_MANY);
    if stabilized > current {
        let limit = up_limit(now, spec, current, memory);
        if limit < high {
            (high, high_said) = (
                limit,
                (true, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"),
            );
        }
    } else if stabilized < current {
        let limit = down_limit(now, spec, current, memory);
        if limit > low {
            (low, low_said) = (
                limit,
                (true, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"),
            );
        }
    }
    let (replicas, limited) = match stabilized {
        replicas if replicas < low => (low, low_said),
        replicas if replicas > high => (high, high_said),
        replicas => (replicas, (false, "DesiredWithinRange", "the desired count is within the acceptable range")),
    };
    Allowed { replicas, able, limited }
}

const TOO_FEW: Said = (true, "TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: Said = (true, "TooManyReplicas", "the desired replica count is more than the maximum replica count");

fn rules(spec: &HorizontalPodAutoscalerSpec) -> (Option<&HPAScalingRules>, Option<&HPAScalingRules>) {
    let behavior = spec.behavior.as_ref();
    (behavior.and_then(|all| all.scale_up.as_ref()), behavior.and_then(|all| all.scale_down.as_ref()))
}

/// Going up follows the lowest, going down the highest of the recent wishes.
fn stabilize(
    now: Timestamp,
    settings: &Autoscaling,
    spec: &HorizontalPodAutoscalerSpec,
    current: i32,
    wanted: i32,
    memory: &Memory,
) -> (i32, Said) {
    let window = |rules: Option<&HPAScalingRules>, otherwise: SignedDuration| {
        let seconds = rules.and_then(|rules| rules.stabilization_window_seconds);
        seconds.map_or(otherwise, |seconds| SignedDuration::from_secs(seconds.into()))
    };
    let (up, down) = rules(spec);
    let down_window = SignedDuration::try_from(settings.downscale_stabilization).unwrap_or(SignedDuration::MAX);
    let within = |window: SignedDuration| {
        let recent = memory.recommendations.iter().filter(move |(at, _)| now.duration_since(*at) < window);
        recent.map(|(_, replicas)| *replicas).chain([wanted])
    };
    let lowest = within(window(up, SignedDuration::ZERO)).min().unwrap_or(wanted);
    let highest = within(window(down, down_window)).max().unwrap_or(wanted);
    let stabilized = current.max(lowest).min(highest);
    let said = if stabilized == wanted {
        (true, "ReadyForNewScale", "recommended size matches current size")
    } else if stabilized > wanted {
        (
            true,
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        )
    } else {
        (
            true,
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        )
    };
    (stabilized, said)
}

/// What the replicas grew by, or shrank by, in a period.
fn changed(now: Timestamp, memory: &Memory, period_seconds: i32, up: bool) -> i32 {
    let period = SignedDuration::from_secs(period_seconds.into());
    let recent = memory.changes.iter().filter(|(at, _)| now.duration_since(*at) < period);
    recent.map(|(_, change)| if up { (*change).max(0) } else { (-*change).max(0) }).sum()
}

fn up_limit(now: Timestamp, spec: &HorizontalPodAutoscalerSpec, current: i32, memory: &Memory) -> i32 {
    if spec.behavior.is_none() {
        return current.saturating_mul(2).max(4);
    }
    let up = rules(spec).0;
    let policies = up.map_or(&[][..], |rules| rules.policies.as_deref().unwrap_or_default());
    let limits = policies.iter().map(|policy| {
        let before = current.saturating_sub(changed(now, memory, policy.period_seconds, true));
        match policy.type_.as_str() {
            "Pods" => before.saturating_add(policy.value),
            _ => (f64::from(before) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
        }
    });
    match up.and_then(|rules| rules.select_policy.as_deref()) {
        Some("Disabled") => current,
        Some("Min") => limits.min().unwrap_or(i32::MAX),
        _ => limits.max().unwrap_or(i32::MAX),
    }
    .max(current)
}

fn down_limit(now: Timestamp, spec: &HorizontalPodAutoscalerSpec, current: i32, memory: &Memory) -> i32 {
    let down = rules(spec).1;
    let policies = down.map_or(&[][..], |rules| rules.policies.as_deref().unwrap_or_default());
    let limits = policies.iter().map(|policy| {
        let before = current.saturating_add(changed(now, memory, policy.period_seconds, false));
        match policy.type_.as_str() {
            "Pods" => before.saturating_sub(policy.value),
            _ => (f64::from(before) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
        }
    });
    match down.and_then(|rules| rules.select_policy.as_deref()) {
        Some("Disabled") => current,
        Some("Min") => limits.max().unwrap_or(0),
        _ => limits.min().unwrap_or(0),
    }
    .min(current)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(behavior: serde_json::Value, current: i32, wanted: i32, past: &[(i64, i32)], expected: (i32, &str, &str)) {
        let object = serde_json::json!({"maxReplicas": 100, "minReplicas": 2, "behavior": behavior,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}});
        let spec: HorizontalPodAutoscalerSpec = serde_json::from_value(object).expect("a spec");
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let at = |ago: i64| Timestamp::from_second(1_000_000 - ago).expect("a time");
        let recommendations = past.iter().map(|(ago, replicas)| (at(*ago), *replicas)).collect();
        let mut memory = Memory { recommendations, changes: VecDeque::from([(at(10), 5)]) };
        let allowed = allow(now, &Autoscaling::default(), &spec, current, wanted, &mut memory);
        assert_eq!((allowed.replicas, allowed.able.1, allowed.limited.1), expected, "{behavior} {current} {wanted}");
    }

    #[test]
    fn changes_keep_to_their_limits() {
        use serde_json::{Value, json};
        let none = Value::Null;
        check(none.clone(), 3, 50, &[], (6, "ReadyForNewScale", "ScaleUpLimit"));
        check(none.clone(), 80, 500, &[], (100, "ReadyForNewScale", "TooManyReplicas"));
        check(none.clone(), 5, 1, &[], (2, "ReadyForNewScale", "TooFewReplicas"));
        check(none.clone(), 5, 3, &[(100, 5)], (5, "ScaleDownStabilized", "DesiredWithinRange"));
        check(none, 5, 3, &[(400, 5)], (3, "ReadyForNewScale", "DesiredWithinRange"));
        let up = json!({"scaleUp": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 7, "periodSeconds": 60}]}});
        check(up.clone(), 10, 20, &[(30, 11)], (11, "ScaleUpStabilized", "DesiredWithinRange"));
        // Five of the seven were used up ten seconds ago.
        check(up, 10, 20, &[], (12, "ReadyForNewScale", "ScaleUpLimit"));
        let policies = json!([{"type": "Percent", "value": 10, "periodSeconds": 60}, {"type": "Pods", "value": 4, "periodSeconds": 60}]);
        let down = |select: &str| json!({"scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": policies}});
        check(down("Max"), 20, 3, &[], (16, "ReadyForNewScale", "ScaleDownLimit"));
        check(down("Min"), 20, 3, &[], (18, "ReadyForNewScale", "ScaleDownLimit"));
        check(down("Disabled"), 20, 3, &[], (20, "ReadyForNewScale", "ScaleDownLimit"));
    }
}
