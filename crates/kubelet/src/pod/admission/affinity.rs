//! Node selectors and required node affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod};

use super::spec;

pub(super) fn fits(labels: &BTreeMap<String, String>, node_name: &str, pod: &Pod) -> bool {
    let wishes = spec::wishes(pod);
    let selected = wishes.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = wishes
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let one_of = required
        .is_none_or(|selector| selector.node_selector_terms.iter().any(|term| term_fits(labels, node_name, term)));
    selected && one_of
}

fn term_fits(labels: &BTreeMap<String, String>, node_name: &str, term: &NodeSelectorTerm) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term that says nothing matches nothing.
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label = |rule: &NodeSelectorRequirement| holds(rule, labels.get(&rule.key).map(String::as_str));
    let by_field = |rule: &NodeSelectorRequirement| holds(rule, (rule.key == "metadata.name").then_some(node_name));
    expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn holds(rule: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match rule.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(have, than)| have > than),
        "Lt" => numbers().is_some_and(|(have, than)| have < than),
        _ => false,
    }
}
