//! The rules of aggregated roles: the union of what they select, each rule once, in the order of the roles' names.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::core::{Selector, SelectorExt};
use reconcile::{Key, Plan, Write};
use serde_json::json;

/// Who owns the rules of an aggregated role.
const MANAGER: &str = "clusterrole-aggregation-controller";

/// An aggregated role may feed another (`view` feeds `edit` feeds `admin`), so rounds follow until nothing moves. Two
/// roles that feed each other settle too: a rule is added once.
pub(super) fn plan(roles: &[Arc<ClusterRole>]) -> Plan {
    let roles: BTreeMap<&str, &ClusterRole> = roles.iter().map(|role| (name(role), role.as_ref())).collect();
    let stored = |role: &ClusterRole| role.rules.clone().unwrap_or_default();
    let mut rules: BTreeMap<&str, Vec<PolicyRule>> = roles.iter().map(|(name, role)| (*name, stored(role))).collect();
    let aggregated: Vec<(&str, Vec<Selector>)> =
        roles.iter().filter_map(|(name, role)| Some((*name, selectors(role)?))).collect();
    for _ in 0..=aggregated.len() {
        let mut moved = false;
        for (name, selectors) in &aggregated {
            let wanted = union(name, selectors, &roles, &rules);
            moved |= rules[name] != wanted;
            rules.insert(name, wanted);
        }
        if !moved {
            break;
        }
    }
    let changed = aggregated.iter().filter(|(name, _)| rules[name] != stored(roles[name]));
    let writes = changed.map(|(name, _)| {
        let body = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules[name],
        });
        Write::apply::<ClusterRole>(&Key::cluster(*name), MANAGER, body)
    });
    Plan { writes: writes.collect(), ..Plan::default() }
}

fn union(
    own: &str,
    selectors: &[Selector],
    roles: &BTreeMap<&str, &ClusterRole>,
    rules: &BTreeMap<&str, Vec<PolicyRule>>,
) -> Vec<PolicyRule> {
    let mut found: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let selected = roles.iter().filter(|(name, role)| {
            **name != own && selector.matches(role.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
        });
        for rule in selected.flat_map(|(name, _)| &rules[name]) {
            if !found.contains(rule) {
                found.push(rule.clone());
            }
        }
    }
    found
}

/// None for a role that is not aggregated. A selector that cannot be read selects nothing.
fn selectors(role: &ClusterRole) -> Option<Vec<Selector>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.iter().flatten();
    Some(selectors.filter_map(|selector| Selector::try_from(selector.clone()).ok()).collect())
}

fn name(role: &ClusterRole) -> &str {
    role.metadata.name.as_deref().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A role with rules of one verb each; `feeds` are labels, `takes` the label it selects by.
    fn role(name: &str, feeds: &[&str], takes: Option<&str>, verbs: &[&str]) -> Arc<ClusterRole> {
        let labels: BTreeMap<&str, &str> = feeds.iter().map(|label| (*label, "true")).collect();
        let rules: Vec<_> = verbs.iter().map(|verb| json!({"verbs": [verb]})).collect();
        let mut role = json!({"metadata": {"name": name, "labels": labels}, "rules": rules});
        if let Some(label) = takes {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
        Arc::new(serde_json::from_value(role).unwrap())
    }

    fn check(roles: &[Arc<ClusterRole>], expected: &[(&str, &str)]) {
        let verbs = |write: &Write| {
            let rules = write.body()["rules"].as_array().unwrap();
            rules.iter().map(|rule| rule["verbs"][0].as_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        let plan = plan(roles);
        let writes: Vec<(&str, String)> = plan
            .writes
            .iter()
            .map(|write| (write.body()["metadata"]["name"].as_str().unwrap(), verbs(write)))
            .collect();
        let writes: Vec<(&str, &str)> = writes.iter().map(|(name, verbs)| (*name, verbs.as_str())).collect();
        assert_eq!(writes, expected);
    }

    #[test]
    fn roles_feed_each_other() {
        let roles = [
            role("admin", &[], Some("to-admin"), &[]),
            role("edit", &["to-admin"], Some("to-edit"), &[]),
            role("view", &["to-edit"], Some("to-view"), &["read"]),
            role("a", &["to-view"], None, &["read"]),
            role("b", &["to-edit"], None, &["write", "read"]),
        ];
        check(&roles, &[("admin", "write read"), ("edit", "write read")]);
    }

    #[test]
    fn a_role_that_no_longer_matches_takes_its_rules_away() {
        check(&[role("view", &[], Some("to-view"), &["read"]), role("a", &[], None, &["read"])], &[("view", "")]);
    }

    #[test]
    fn a_circle_settles() {
        check(&[role("a", &["x"], Some("y"), &[]), role("b", &["y"], Some("x"), &["read"])], &[("a", "read")]);
    }
}
