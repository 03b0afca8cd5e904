//! Which nodes a pod's nodeSelector and node affinity allow, and how much it likes them.

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PreferredSchedulingTerm,
};

use crate::labels::Labels;

/// What a pod demands of nodes; empty when it demands nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Required<'a> {
    labels: Option<&'a Labels>,
    terms: Option<&'a NodeSelector>,
}

impl<'a> Required<'a> {
    pub fn of(pod: &'a Pod) -> Required<'a> {
        let spec = pod.spec.as_ref();
        let affinity =
            spec.and_then(|spec| spec.affinity.as_ref()).and_then(|affinity| affinity.node_affinity.as_ref());
        Required {
            labels: spec.and_then(|spec| spec.node_selector.as_ref()).filter(|labels| !labels.is_empty()),
            terms: affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_none() && self.terms.is_none()
    }

    pub fn allows(&self, node: &str, labels: &Labels) -> bool {
        let mut selected = self.labels.into_iter().flatten();
        selected.all(|(key, value)| labels.get(key) == Some(value))
            && self.terms.is_none_or(|selector| selector_matches(selector, node, labels))
    }

    /// The only nodes it can be, when every term names nodes by `metadata.name`.
    pub fn names(&self) -> Option<Vec<&'a str>> {
        let mut names = Vec::new();
        for term in &self.terms?.node_selector_terms {
            let fields = term.match_fields.as_deref().unwrap_or_default();
            let mut named = fields.iter().filter(|field| field.key == "metadata.name" && field.operator == "In");
            // All fields of a term must hold: what is left is what each of them names.
            let first: Vec<&str> = named.next()?.values.iter().flatten().map(String::as_str).collect();
            let others: Vec<_> = named.collect();
            let holds = |name: &&str| {
                others.iter().all(|field| field.values.iter().flatten().any(|other| other.as_str() == *name))
            };
            names.extend(first.into_iter().filter(holds));
        }
        Some(names)
    }
}

/// Any of its terms; one that is empty matches nothing.
pub fn selector_matches(selector: &NodeSelector, node: &str, labels: &Labels) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node, labels))
}

pub fn term_matches(term: &NodeSelectorTerm, node: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|each| requirement_matches(each, labels.get(&each.key).map(String::as_str)))
        && fields.iter().all(|each| requirement_matches(each, (each.key == "metadata.name").then_some(node)))
}

/// How much the pod likes a node: the sum of the weights of what it prefers and finds there.
pub fn preference(preferred: &[PreferredSchedulingTerm], node: &str, labels: &Labels) -> i64 {
    let found = preferred.iter().filter(|term| term.weight != 0 && term_matches(&term.preference, node, labels));
    found.map(|term| i64::from(term.weight)).sum()
}

fn requirement_matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |value: &str| values.iter().any(|each| each == value);
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, than)| value > than),
        "Lt" => numbers().is_some_and(|(value, than)| value < than),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod")
    }

    fn labels() -> Labels {
        [("zone", "a"), ("cores", "8")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn terms(terms: serde_json::Value) -> Pod {
        let required = serde_json::json!({"nodeSelectorTerms": terms});
        let affinity = serde_json::json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        pod(serde_json::json!({"containers": [], "affinity": {"nodeAffinity": affinity}}))
    }

    #[test]
    fn terms_are_alternatives_and_their_requirements_are_not() {
        let check = |term: serde_json::Value, expected: bool| {
            assert_eq!(Required::of(&terms(term.clone())).allows("n1", &labels()), expected, "{term}");
        };
        let is = |key: &str, operator: &str, values: &[&str]| serde_json::json!({"key": key, "operator": operator, "values": values});
        check(serde_json::json!([{"matchExpressions": [is("zone", "In", &["a", "b"])]}]), true);
        check(serde_json::json!([{"matchExpressions": [is("zone", "In", &["a"]), is("cores", "Gt", &["8"])]}]), false);
        check(serde_json::json!([{"matchExpressions": [is("cores", "Lt", &["9"])]}]), true);
        check(serde_json::json!([{"matchExpressions": [is("disk", "NotIn", &["ssd"])]}]), true);
        check(serde_json::json!([{"matchExpressions": [is("disk", "Exists", &[])]}]), false);
        check(serde_json::json!([{}, {"matchFields": [is("metadata.name", "In", &["n1"])]}]), true);
        check(serde_json::json!([{"matchFields": [is("metadata.name", "In", &["n2"])]}]), false);
        check(serde_json::json!([{}]), false);
    }

    #[test]
    fn a_node_selector_asks_for_all_its_labels() {
        let allowed = |selector: serde_json::Value| {
            let pod = pod(serde_json::json!({"containers": [], "nodeSelector": selector}));
            Required::of(&pod).allows("n1", &labels())
        };
        assert!(allowed(serde_json::json!({"zone": "a", "cores": "8"})));
        assert!(!allowed(serde_json::json!({"zone": "a", "cores": "9"})));
        assert!(allowed(serde_json::json!({})));
    }

    #[test]
    fn names_are_known_only_when_every_term_has_them() {
        let name = |name: &str| serde_json::json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let pod = terms(serde_json::json!([{"matchFields": [name("a")]}, {"matchFields": [name("b")]}]));
        assert_eq!(Required::of(&pod).names(), Some(vec!["a", "b"]));
        let exists = serde_json::json!({"key": "x", "operator": "Exists"});
        let pod = terms(serde_json::json!([{"matchFields": [name("a")]}, {"matchExpressions": [exists]}]));
        assert_eq!(Required::of(&pod).names(), None);
    }
}
