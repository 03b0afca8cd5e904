//! Aggregated ClusterRoles: their rules are the union of the roles their selectors name. Pure; a controller writes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinery::node::Node;
use serde_json::Value;

/// The aggregated roles whose rules are not what they should be, with the rules they should have.
///
/// An aggregated role may feed another (`view` feeds `edit` feeds `admin`), so rounds follow until nothing moves;
/// more rounds than roles would mean two roles that feed each other, which settle too, as rules are only added once.
pub fn aggregate(cluster_roles: &[Arc<Value>]) -> Vec<(String, Vec<Value>)> {
    let roles: BTreeMap<&str, &Value> = cluster_roles.iter().map(|role| (name_of(role), role.as_ref())).collect();
    let stored = |role: &Value| role.get("rules").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut rules: BTreeMap<&str, Vec<Value>> = roles.iter().map(|(name, role)| (*name, stored(role))).collect();
    let aggregated: Vec<&str> =
        roles.iter().filter(|(_, role)| !selectors(role).is_empty()).map(|(name, _)| *name).collect();

    for _ in 0..=aggregated.len() {
        let mut moved = false;
        for name in &aggregated {
            let wanted = union(name, roles[name], &roles, &rules);
            moved |= rules[name] != wanted;
            rules.insert(name, wanted);
        }
        if !moved {
            break;
        }
    }
    let changed = aggregated.into_iter().filter(|name| rules[name] != stored(roles[name]));
    changed.map(|name| (name.to_string(), rules[name].clone())).collect()
}

fn union(own: &str, role: &Value, roles: &BTreeMap<&str, &Value>, rules: &BTreeMap<&str, Vec<Value>>) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for selector in selectors(role) {
        for (name, other) in roles {
            if *name == own || !selects(selector, other.pointer("/metadata/labels").unwrap_or(&Value::Null)) {
                continue;
            }
            for rule in &rules[name] {
                if !found.contains(rule) {
                    found.push(rule.clone());
                }
            }
        }
    }
    found
}

fn selectors(role: &Value) -> &[Value] {
    role.pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// A label selector in its written-out form. An unknown operator selects nothing.
fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let selector = Node::root(selector);
    let by_labels = selector.at("matchLabels").value.as_object();
    by_labels.is_none_or(|wanted| wanted.iter().all(|(key, value)| label(key) == value.as_str()))
        && selector.at("matchExpressions").items().all(|expression| {
            let actual = label(expression.text("key"));
            let among = || {
                let values = expression.at("values");
                values.value.as_array().is_some_and(|values| values.iter().any(|value| value.as_str() == actual))
            };
            match expression.text("operator") {
                "In" => actual.is_some() && among(),
                "NotIn" => actual.is_none() || !among(),
                "Exists" => actual.is_some(),
                "DoesNotExist" => actual.is_none(),
                _ => false,
            }
        })
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, labels: Value, selectors: Value, verbs: &[&str]) -> Arc<Value> {
        let rules: Vec<Value> = verbs.iter().map(|verb| json!({"verbs": [verb]})).collect();
        let mut role = json!({"metadata": {"name": name, "labels": labels}, "rules": rules});
        if !selectors.is_null() {
            role["aggregationRule"] = json!({ "clusterRoleSelectors": selectors });
        }
        Arc::new(role)
    }

    #[test]
    fn roles_feed_each_other() {
        let wants = |key: &str| json!([{"matchLabels": {key: "true"}}]);
        let roles = [
            role("admin", json!({}), wants("to-admin"), &[]),
            role("edit", json!({"to-admin": "true"}), wants("to-edit"), &[]),
            role("view", json!({"to-edit": "true"}), wants("to-view"), &["read"]),
            role("aggregate-to-view", json!({"to-view": "true"}), Value::Null, &["read"]),
            role("aggregate-to-edit", json!({"to-edit": "true"}), Value::Null, &["write", "read"]),
        ];
        let rules = |verbs: &[&str]| verbs.iter().map(|verb| json!({"verbs": [verb]})).collect::<Vec<Value>>();
        let expected =
            vec![("admin".to_string(), rules(&["write", "read"])), ("edit".to_string(), rules(&["write", "read"]))];
        assert_eq!(aggregate(&roles), expected);
    }

    #[test]
    fn a_circle_settles() {
        let roles = [
            role("a", json!({"x": "1"}), json!([{"matchLabels": {"x": "2"}}]), &[]),
            role("b", json!({"x": "2"}), json!([{"matchLabels": {"x": "1"}}]), &[]),
        ];
        assert_eq!(aggregate(&roles), vec![]);
    }

    #[test]
    fn expressions_select() {
        let check = |selector: Value, expected: bool| {
            assert_eq!(selects(&selector, &json!({"a": "1", "b": "2"})), expected, "{selector}");
        };
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), true);
        check(json!({"matchLabels": {"a": "1", "b": "2"}}), true);
        check(json!({"matchLabels": {"a": "1", "b": "3"}}), false);
        check(expression("a", "In", json!(["1", "2"])), true);
        check(expression("c", "In", json!(["1"])), false);
        check(expression("a", "NotIn", json!(["1"])), false);
        check(expression("c", "NotIn", json!(["1"])), true);
        check(expression("a", "Exists", Value::Null), true);
        check(expression("a", "DoesNotExist", Value::Null), false);
        check(expression("a", "Nonsense", Value::Null), false);
    }
}
