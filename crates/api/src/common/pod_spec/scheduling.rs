//! Where a pod may run: affinity, tolerations, spreading, gates.

use std::collections::BTreeSet;

use crate::common::selector;
use machinery::field::{Errors, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use super::text::{label_name, one_of_if_set, push};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn affinity(errors: &mut Errors, affinity: &Node) {
    let node = affinity.at("nodeAffinity");
    if node.has(REQUIRED) {
        node_selector(errors, &node.at(REQUIRED));
    }
    for term in node.each(PREFERRED) {
        weight(errors, &term);
        // A preference that no node can meet does no harm, so its values are not looked at.
        node_term(errors, &term.at("preference"), Values::Any);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.at(kind);
        for term in pods.each(REQUIRED) {
            pod_term(errors, &term);
        }
        for term in pods.each(PREFERRED) {
            weight(errors, &term);
            pod_term(errors, &term.at("podAffinityTerm"));
        }
    }
}

fn weight(errors: &mut Errors, term: &Node) {
    let weight = term.at("weight");
    if !(1..=100).contains(&weight.int().unwrap_or(0)) {
        errors.invalid_value(&weight.path, &weight.int().unwrap_or(0).into(), "must be in the range 1-100");
    }
}

/// A selector of nodes that must match, in pods and in persistent volumes.
pub fn node_selector(errors: &mut Errors, selector: &Node) {
    let terms = selector.at("nodeSelectorTerms");
    if terms.is_empty() {
        return errors.required(&terms, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_term(errors, &term, Values::Labels);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Values {
    Any,
    Labels,
}

fn node_term(errors: &mut Errors, term: &Node, allowed: Values) {
    for requirement in term.each("matchExpressions") {
        let (operator, values) = (requirement.at("operator"), requirement.at("values"));
        match operator.str() {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'")
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            }
            "Gt" | "Lt" if values.len() != 1 => {
                errors.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'")
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            text => errors.invalid_value(&operator.path, &text.into(), "not a valid selector operator"),
        }
        label_name(errors, &requirement.at("key"));
        if allowed == Values::Labels {
            for value in values.items() {
                names::label_value(value.str()).into_iter().for_each(|problem| errors.invalid(&value, problem));
            }
        }
    }
    for requirement in term.each("matchFields") {
        let (operator, values) = (requirement.at("operator"), requirement.at("values"));
        match operator.str() {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => errors
                .required(&values, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"),
            text => errors.invalid_value(&operator.path, &text.into(), "not a valid selector operator"),
        }
        match requirement.text("key") {
            "metadata.name" => {
                for value in values.items() {
                    names::dns_subdomain(value.str()).into_iter().for_each(|problem| errors.invalid(&value, problem));
                }
            }
            key => errors.invalid_value(&requirement.path.child("key"), &key.into(), "not a valid field selector key"),
        }
    }
}

fn pod_term(errors: &mut Errors, term: &Node) {
    let labels = term.at("labelSelector");
    selector::validate(&labels, errors);
    selector::validate(&term.at("namespaceSelector"), errors);
    for namespace in term.each("namespaces") {
        for problem in names::dns_label(namespace.str()) {
            // Upstream leaves out index and plural.
            errors.invalid_value(&term.path.child("namespace"), namespace.value, problem);
        }
    }
    label_keys(errors, term, &labels);
    let topology = term.at("topologyKey");
    if topology.str().is_empty() {
        errors.required(&topology, "can not be empty");
    }
    for problem in names::qualified_name(topology.str()) {
        errors.invalid_value(&topology.path, &topology.str().into(), problem);
    }
}

/// Keys whose values come from the pod: matched ones are already in the selector when this runs, so that each stands there
/// once and none twice. The same key may not be in both lists, and none may go without a selector.
fn label_keys(errors: &mut Errors, term: &Node, labels: &Node) {
    let (matched, mismatched) = (term.at("matchLabelKeys"), term.at("mismatchLabelKeys"));
    for list in [&matched, &mismatched].into_iter().filter(|list| !list.is_empty()) {
        if labels.exists() {
            list.items().for_each(|key| label_name(errors, &key));
        } else {
            errors.forbidden(list, "must not be specified when labelSelector is not set");
        }
    }
    let mut known: BTreeSet<&str> = labels.at("matchLabels").entries().map(|(key, _)| key).collect();
    for key in labels.each("matchExpressions").map(|requirement| requirement.text("key")) {
        let place = matched.items().position(|matched| matched.str() == key);
        if let Some(place) = place.filter(|_| known.contains(key)) {
            // Upstream leaves the list out of the path.
            let path = term.path.index(place);
            errors.invalid_value(&path, &key.into(), "exists in both matchLabelKeys and labelSelector");
        }
        known.insert(key);
    }
    for key in matched.items() {
        if mismatched.items().any(|other| other.str() == key.str()) {
            errors.invalid(&key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

pub fn tolerations(errors: &mut Errors, list: &Node) {
    for toleration in list.items() {
        let (key, operator, effect) = (toleration.at("key"), toleration.at("operator"), toleration.at("effect"));
        let value = Value::from(toleration.text("value"));
        if !key.str().is_empty() {
            label_name(errors, &key);
        } else if operator.str() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid_value(&operator.path, &operator.str().into(), detail);
        }
        if toleration.has("tolerationSeconds") && effect.str() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid_value(&effect.path, &effect.str().into(), detail);
        }
        match operator.str() {
            "Equal" | "" => {
                let problems = names::label_value(toleration.text("value"));
                if !problems.is_empty() {
                    errors.invalid_value(&operator.path, &value, problems.join(";"));
                }
            }
            "Exists" if value == "" => {}
            "Exists" => errors.invalid_value(&operator.path, &value, "value must be empty when `operator` is 'Exists'"),
            // Known, but of a feature that is off in this release.
            "Lt" | "Gt" => errors.not_supported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => errors.not_supported(&operator, &["Equal", "Exists"]),
        }
        if !effect.str().is_empty() {
            one_of_if_set(errors, &effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

pub(super) fn spread(errors: &mut Errors, list: &Node) {
    let constraints: Vec<Node> = list.items().collect();
    for (index, constraint) in constraints.iter().enumerate() {
        let (skew, topology) = (constraint.at("maxSkew"), constraint.at("topologyKey"));
        if skew.int().unwrap_or(0) <= 0 {
            errors.invalid_value(&skew.path, &skew.int().unwrap_or(0).into(), "must be greater than zero");
        }
        if topology.str().is_empty() {
            errors.required(&topology, "can not be empty");
        }
        let action = constraint.at("whenUnsatisfiable");
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action.str()) {
            errors.not_supported(&action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let pair = |constraint: &Node| {
            (constraint.value["topologyKey"].clone(), constraint.value["whenUnsatisfiable"].clone())
        };
        if constraints[index + 1..].iter().any(|other| pair(other) == pair(constraint)) {
            let shown = format!("{{{}, {}}}", topology.str(), action.str());
            let path = constraint.path.child("{topologyKey, whenUnsatisfiable}");
            push(errors, Problem::Duplicate, &path, &Value::from(shown), "");
        }
        let domains = constraint.at("minDomains");
        if let Some(number) = domains.int() {
            if number <= 0 {
                errors.invalid(&domains, "must be greater than zero");
            }
            if action.str() != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.str());
                errors.invalid(&domains, detail);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            one_of_if_set(errors, &constraint.at(policy), &["Honor", "Ignore"]);
        }
        let labels = constraint.at("labelSelector");
        label_keys(errors, constraint, &labels);
        selector::validate(&labels, errors);
    }
}

pub(super) fn gates(errors: &mut Errors, spec: &Node) {
    for gate in spec.each("readinessGates") {
        label_name(errors, &gate.at("conditionType"));
    }
    let mut seen = BTreeSet::new();
    for gate in spec.each("schedulingGates") {
        let name = Value::from(gate.text("name"));
        for problem in names::qualified_name(gate.text("name")) {
            errors.invalid_value(&gate.path, &name, problem);
        }
        if !seen.insert(gate.text("name")) {
            push(errors, Problem::Duplicate, &gate.path, &name, "");
        }
    }
}
