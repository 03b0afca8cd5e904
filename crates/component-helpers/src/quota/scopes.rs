//! Which objects a quota cares for: all of them, or those in its scopes.

use serde_json::Value;

use super::pod_resources::is_best_effort;

/// One scope: which, and which of its objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    pub scope: String,
    operator: String,
    values: Value,
}

impl Selector {
    /// `{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}`
    pub fn read(term: &Value) -> Selector {
        let text = |field: &str| term[field].as_str().unwrap_or("").to_owned();
        Selector { scope: text("scopeName"), operator: text("operator"), values: term["values"].clone() }
    }

    /// Whether the object is in it. Scopes are about pods and claims; nothing else is in one.
    pub fn has(&self, group: &str, plural: &str, object: &Value) -> bool {
        match (group, plural) {
            ("", "pods") => pod_in(&self.scope, &self.operator, &self.values, object),
            ("", "persistentvolumeclaims") => claim_in(&self.scope, &self.operator, &self.values, object),
            _ => false,
        }
    }
}

/// As Go shows the struct: `{PriorityClass In [high]}`.
impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values: Vec<&str> = self.values.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        write!(f, "{{{} {} [{}]}}", self.scope, self.operator, values.join(" "))
    }
}

/// The scopes that a quota names.
pub fn of_quota(quota: &Value) -> Vec<Selector> {
    let spec = &quota["spec"];
    let named = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let named = named.map(|scope| Selector { scope: scope.into(), operator: "Exists".into(), values: Value::Null });
    let selected = spec.pointer("/scopeSelector/matchExpressions").and_then(Value::as_array);
    named.chain(selected.into_iter().flatten().map(Selector::read)).collect()
}

/// Whether the object is in every scope of the quota.
pub fn matches(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    of_quota(quota).iter().all(|selector| selector.has(group, plural, object))
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
