//! What the user decided about failed pods and about success: `podFailurePolicy`, `successPolicy`.

use component_helpers::pods::condition;
use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, SuccessPolicyRule};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::indexes::Indexes;
use super::pods::statuses;

/// What becomes of a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Count,
    Ignore,
    FailIndex,
    /// With what users are told.
    FailJob(String),
}

/// The first rule that matches decides; without one the failure counts.
pub(super) fn verdict(spec: &JobSpec, pod: &Pod) -> Verdict {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    for (place, rule) in rules.enumerate() {
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let pod_name = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        let action = rule.action.as_str();
        let matched = if let Some(codes) = &rule.on_exit_codes {
            statuses(pod).find_map(|status| exit_code(status, codes).map(|code| (status, code))).map(|(status, code)| {
                let container = &status.name;
                format!("Container {container} for pod {pod_name} failed with exit code {code} matching {action} rule at index {place}")
            })
        } else {
            let patterns = rule.on_pod_conditions.iter().flatten();
            let mut met = patterns.filter(|pattern| {
                let wanted = pattern.status.as_deref().unwrap_or("True");
                condition(pod, &pattern.type_).is_some_and(|condition| condition.status == wanted)
            });
            let kind = met.next().map(|pattern| &pattern.type_);
            kind.map(|kind| format!("Pod {pod_name} has condition {kind} matching {action} rule at index {place}"))
        };
        if let Some(message) = matched {
            return match action {
                "Ignore" => Verdict::Ignore,
                "FailIndex" => Verdict::FailIndex,
                "FailJob" => Verdict::FailJob(message),
                _ => Verdict::Count,
            };
        }
    }
    Verdict::Count
}

/// The code of a container that failed with one of the codes, or with another one.
fn exit_code(status: &ContainerStatus, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<i32> {
    let code = status.state.as_ref()?.terminated.as_ref()?.exit_code;
    let named = wanted.container_name.as_ref().is_none_or(|name| *name == status.name);
    let listed = wanted.values.contains(&code);
    let matching = match wanted.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    };
    (named && code != 0 && matching).then_some(code)
}

/// Which rule of the success policy is met.
pub(super) fn success(spec: &JobSpec, completions: i32, succeeded: &Indexes) -> Option<String> {
    let rules = spec.success_policy.iter().flat_map(|policy| &policy.rules);
    let met = |rule: &SuccessPolicyRule| match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(indexes), count) => {
            let required = Indexes::parse(indexes, completions);
            succeeded.common(&required) >= count.unwrap_or(required.total())
        }
        (None, Some(count)) => succeeded.total() >= count,
        (None, None) => false,
    };
    let place = rules.into_iter().position(met).filter(|_| succeeded.total() > 0)?;
    Some(format!("Matched rules at index {place}"))
}
