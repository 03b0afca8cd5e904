//! One policy rule of a role: what it allows, and whether it covers another rule. Pure.

use machinery::codec::null_as_default;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Attributes;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub non_resource_urls: Vec<String>,
}

/// The rules of a Role or ClusterRole. A rule that does not parse allows nothing, and harms no other.
pub fn rules_of(role: &Value) -> Vec<Rule> {
    let rules = role.get("rules").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    rules.iter().filter_map(|rule| Rule::deserialize(rule).ok()).collect()
}

impl Rule {
    pub fn allows(&self, a: &Attributes) -> bool {
        if !has(&self.verbs, a.verb) {
            return false;
        }
        if a.resource.is_empty() {
            return self.non_resource_urls.iter().any(|url| url_covers(url, a.path));
        }
        has(&self.api_groups, a.group)
            && self.resources.iter().any(|rule| resource_matches(rule, a.resource, a.subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == a.name))
    }

    /// Whether everything `other` allows is allowed by this rule alone. `other` comes from `split`.
    fn covers(&self, other: &Rule) -> bool {
        let names = if other.resource_names.is_empty() {
            self.resource_names.is_empty()
        } else {
            self.resource_names.is_empty() || other.resource_names.iter().all(|n| self.resource_names.contains(n))
        };
        names
            && other.verbs.iter().all(|verb| has(&self.verbs, verb))
            && other.api_groups.iter().all(|group| has(&self.api_groups, group))
            && other.resources.iter().all(|resource| {
                let (plain, sub) = resource.split_once('/').unwrap_or((resource, ""));
                self.resources.iter().any(|rule| resource_matches(rule, plain, sub))
            })
            && other.non_resource_urls.iter().all(|url| self.non_resource_urls.iter().any(|own| url_covers(own, url)))
    }

    /// The rule as a list of the smallest rules: one verb, one resource, one name.
    fn split(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        for verb in &self.verbs {
            for group in &self.api_groups {
                for resource in &self.resources {
                    let part = Rule {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    let named = |name: &String| Rule { resource_names: vec![name.clone()], ..part.clone() };
                    parts.extend(self.resource_names.iter().map(named));
                }
            }
            for url in &self.non_resource_urls {
                parts.push(Rule { verbs: vec![verb.clone()], non_resource_urls: vec![url.clone()], ..Rule::default() });
            }
        }
        parts
    }

    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`
    fn describe(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.into_iter().filter(|(_, values)| !values.is_empty());
        let parts: Vec<String> = parts.map(|(name, values)| format!("{name}:{}", quoted_list(values))).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// Descriptions of what `wanted` allows and `held` does not; empty where all is held.
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let parts = wanted.iter().flat_map(Rule::split);
    let missing = parts.filter(|part| !held.iter().any(|rule| rule.covers(part)));
    let mut described: Vec<String> = compact(missing).iter().map(Rule::describe).collect();
    described.sort();
    described.dedup();
    described
}

/// `["a" "b"]`, as Go writes a list of texts.
pub(crate) fn quoted_list(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// Small rules that differ in their verbs only become one.
fn compact(parts: impl Iterator<Item = Rule>) -> Vec<Rule> {
    let mut merged: Vec<Rule> = Vec::new();
    for part in parts {
        let same = |other: &&mut Rule| {
            part.non_resource_urls.is_empty()
                && other.api_groups == part.api_groups
                && other.resources == part.resources
                && other.resource_names == part.resource_names
        };
        match merged.iter_mut().find(same) {
            Some(rule) => {
                rule.verbs.extend(part.verbs.into_iter().filter(|verb| !rule.verbs.contains(verb)).collect::<Vec<_>>())
            }
            None => merged.push(part),
        }
    }
    merged
}

fn has(values: &[String], wanted: &str) -> bool {
    values.iter().any(|value| value == "*" || value == wanted)
}

/// A rule's resource is `*`, `pods`, `pods/log`, or `*/log` for that subresource of everything.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    match (rule.split_once('/'), subresource) {
        (None, "") => rule == resource,
        (None, _) => false,
        (Some((plain, sub)), _) => sub == subresource && (plain == "*" || plain == resource) && !subresource.is_empty(),
    }
}

fn url_covers(own: &str, other: &str) -> bool {
    own == other || own.ends_with('*') && other.starts_with(own.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::authn::User;

    fn rule(value: Value) -> Rule {
        Rule::deserialize(&value).unwrap()
    }

    #[test]
    fn requests_match_rules() {
        let user = User::default();
        let check = |value: Value, resource: &str, name: &str, expected: bool| {
            let (group, rest) = resource.split_once(':').unwrap();
            let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
            let a = Attributes { subresource, name, ..Attributes::resource(&user, "get", group, resource) };
            assert_eq!(rule(value.clone()).allows(&a), expected, "{value} {group}:{rest} {name}");
        };
        let pods = |resources: Value| json!({"verbs": ["get"], "apiGroups": [""], "resources": resources});
        check(pods(json!(["pods"])), ":pods", "", true);
        check(pods(json!(["pods"])), ":pods/log", "", false);
        check(pods(json!(["pods"])), "apps:pods", "", false);
        check(pods(json!(["pods/log"])), ":pods/log", "", true);
        check(pods(json!(["pods/log"])), ":pods", "", false);
        check(pods(json!(["*/log"])), ":pods/log", "", true);
        check(pods(json!(["*/log"])), ":pods/exec", "", false);
        check(pods(json!(["*"])), ":pods/exec", "", true);
        check(pods(json!(["pods/*"])), ":pods/exec", "", false);
        check(json!({"verbs": ["list"], "apiGroups": ["*"], "resources": ["*"]}), ":pods", "", false);
        check(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}), "x.io:y", "z", true);
        let named = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"]});
        check(named.clone(), ":pods", "b", true);
        check(named.clone(), ":pods", "c", false);
        check(named, ":pods", "", false);
    }

    #[test]
    fn paths_match_rules() {
        let user = User::default();
        let check = |url: &str, path: &str, expected: bool| {
            let value = rule(json!({"verbs": ["get"], "nonResourceURLs": [url]}));
            assert_eq!(value.allows(&Attributes::path(&user, "get", path)), expected, "{url} {path}");
            assert!(!value.allows(&Attributes::path(&user, "post", path)));
        };
        check("/version", "/version", true);
        check("/version", "/version/", false);
        check("/apis/*", "/apis/apps", true);
        check("/apis/*", "/apis", false);
        check("*", "/anything", true);
    }

    #[test]
    fn missing_permissions_are_described() {
        let check = |held: Value, wanted: Value, expected: &[&str]| {
            let read = |value: Value| rules_of(&json!({ "rules": value }));
            assert_eq!(missing(&read(held), &read(wanted.clone())), expected, "{wanted}");
        };
        let rules =
            |verbs: Value, resources: Value| json!([{"verbs": verbs, "apiGroups": [""], "resources": resources}]);
        check(rules(json!(["*"]), json!(["pods"])), rules(json!(["get", "list"]), json!(["pods"])), &[]);
        check(
            rules(json!(["get"]), json!(["pods"])),
            rules(json!(["get", "list", "watch"]), json!(["pods", "secrets"])),
            &[
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "watch"]}"#,
            ],
        );
        check(rules(json!(["get"]), json!(["*/scale"])), rules(json!(["get"]), json!(["a/scale"])), &[]);
        check(
            rules(json!(["get"]), json!(["pods"])),
            rules(json!(["*"]), json!(["*"])),
            &[r#"{APIGroups:[""], Resources:["*"], Verbs:["*"]}"#],
        );
        let named = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
        check(rules(json!(["get"]), json!(["pods"])), named.clone(), &[]);
        check(
            named.clone(),
            rules(json!(["get"]), json!(["pods"])),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        );
        check(json!([]), named, &[r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}"#]);
        check(
            json!([{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]),
            json!([{"verbs": ["get"], "nonResourceURLs": ["/a/b", "/c"]}]),
            &[r#"{NonResourceURLs:["/c"], Verbs:["get"]}"#],
        );
    }
}
