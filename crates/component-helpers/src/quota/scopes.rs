//! Which objects a quota cares for: all of them, or those in its scopes.

use serde_json::Value;

use super::pod_resources::is_best_effort;

/// Whether the object is in every scope of the quota.
pub fn matches(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let spec = &quota["spec"];
    let named = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut all = named.map(|scope| (scope, "Exists", &Value::Null)).chain(
        spec.pointer("/scopeSelector/matchExpressions").and_then(Value::as_array).into_iter().flatten().map(|term| {
            (term["scopeName"].as_str().unwrap_or(""), term["operator"].as_str().unwrap_or(""), &term["values"])
        }),
    );
    all.all(|(scope, operator, values)| match (group, plural) {
        ("", "pods") => pod_in(scope, operator, values, object),
        ("", "persistentvolumeclaims") => claim_in(scope, operator, values, object),
        // Scopes are about pods and claims; nothing else is in one.
        _ => false,
    })
}

fn pod_in(scope: &str, operator: &str, values: &Value, pod: &Value) -> bool {
    let spec = &pod["spec"];
    let terminating = spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = spec["priorityClassName"].as_str().filter(|class| !class.is_empty());
            selects(operator, values, class.as_slice())
        }
        "CrossNamespacePodAffinity" => looks_abroad(spec),
        _ => false,
    }
}

/// A claim goes by the class that it wants, the one it has, and the one it is changing to.
fn claim_in(scope: &str, operator: &str, values: &Value, claim: &Value) -> bool {
    let places = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ];
    let classes: Vec<&str> =
        places.iter().filter_map(|place| claim.pointer(place)?.as_str()).filter(|class| !class.is_empty()).collect();
    scope == "VolumeAttributesClass" && selects(operator, values, &classes)
}

/// Selection as labels have it: what is not there is not in any set.
fn selects(operator: &str, values: &Value, given: &[&str]) -> bool {
    let listed = |name: &str| values.as_array().is_some_and(|list| list.iter().any(|value| value == name));
    match operator {
        "In" => given.iter().any(|name| listed(name)),
        "NotIn" => !given.iter().any(|name| listed(name)),
        "Exists" => !given.is_empty(),
        "DoesNotExist" => given.is_empty(),
        _ => false,
    }
}

/// Whether any of the pod's affinities is about pods of other namespaces.
fn looks_abroad(spec: &Value) -> bool {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let affinity = &spec["affinity"][kind];
        let required = affinity[REQUIRED].as_array().into_iter().flatten();
        let preferred = affinity[PREFERRED].as_array().into_iter().flatten().map(|term| &term["podAffinityTerm"]);
        required.chain(preferred).any(|term| {
            term["namespaces"].as_array().is_some_and(|list| !list.is_empty())
                || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(quota: Value, pod: Value, expected: bool) {
        assert_eq!(matches(&json!({"spec": quota}), "", "pods", &json!({"spec": pod})), expected, "{quota} {pod}");
    }

    #[test]
    fn pods_are_in_their_scopes() {
        let busy = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]});
        check(json!({}), json!({}), true);
        check(json!({"scopes": ["BestEffort"]}), json!({}), true);
        check(json!({"scopes": ["BestEffort"]}), busy.clone(), false);
        check(json!({"scopes": ["NotBestEffort", "NotTerminating"]}), busy, true);
        check(json!({"scopes": ["Terminating"]}), json!({"activeDeadlineSeconds": 5}), true);
        check(json!({"scopes": ["Terminating"]}), json!({}), false);
        let class = |operator: &str| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]}});
        check(class("In"), json!({"priorityClassName": "high"}), true);
        check(class("In"), json!({"priorityClassName": "low"}), false);
        check(class("In"), json!({}), false);
        check(class("NotIn"), json!({}), true);
        check(class("Exists"), json!({"priorityClassName": "low"}), true);
        let abroad = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["x"]}]}}});
        check(json!({"scopes": ["CrossNamespacePodAffinity"]}), abroad, true);
        check(json!({"scopes": ["CrossNamespacePodAffinity"]}), json!({}), false);
    }

    #[test]
    fn other_objects_are_in_no_scope() {
        assert!(!matches(&json!({"spec": {"scopes": ["NotTerminating"]}}), "", "services", &json!({})));
        assert!(matches(&json!({"spec": {}}), "", "services", &json!({})));
    }
}
