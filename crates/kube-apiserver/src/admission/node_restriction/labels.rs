//! Labels that a kubelet may not put on its node, since pods are steered by them.

use machinery::object::Meta;
use serde_json::{Map, Value};

/// What kubelets have always set, and may.
const OWN: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// The labels that differ and may not, in order.
pub fn forbidden(new: &Value, old: &Value) -> Vec<String> {
    let labels = |object: &Value| object.meta("labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let (new, old) = (labels(new), labels(old));
    let differs = |key: &String, other: &Map<String, Value>, mine: &Map<String, Value>| other.get(key) != mine.get(key);
    let mut found: Vec<String> = new.keys().filter(|key| differs(key, &old, &new)).cloned().collect();
    found.extend(old.keys().filter(|key| !new.contains_key(*key)).cloned());
    found.retain(|key| is_forbidden(key));
    found.sort();
    found
}

fn is_forbidden(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let within = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let reserved = within("kubernetes.io") || within("k8s.io");
    reserved && !OWN.contains(&label) && !OWN_DOMAINS.iter().any(|own| within(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_labels_are_forbidden() {
        let check = |label: &str, expected: bool| assert_eq!(is_forbidden(label), expected, "{label}");
        check("color", false);
        check("example.com/color", false);
        check("kubernetes.io/hostname", false);
        check("kubelet.kubernetes.io/x", false);
        check("a.node.kubernetes.io/x", false);
        check("node-role.kubernetes.io/control-plane", true);
        check("other.k8s.io/x", true);
        check("node-restriction.kubernetes.io/x", true);
        check("a.node-restriction.kubernetes.io/x", true);
        check("notkubernetes.io/x", false);
    }
}
