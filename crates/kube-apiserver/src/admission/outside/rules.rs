//! Matches requests against rules of webhooks and policies. Pure.

use serde_json::Value;

/// One rule, read once.
#[derive(Debug, Default)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// Only those objects, where there are any; policies have this.
    names: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    Cluster,
    Namespaced,
}

/// What is asked, in one of the versions of its resource.
#[derive(Debug)]
pub struct Asked<'a> {
    pub operation: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// Of a namespace its own name.
    pub namespace: &'a str,
    pub name: &'a str,
}

impl Rule {
    /// Whether it may be about that resource at all, whatever is asked of it.
    pub fn names(&self, group: &str, resource: &str) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == "*" || one == text);
        has(&self.groups, group) && self.resources.iter().any(|(one, _)| one == "*" || one == resource)
    }

    pub fn all(list: &Value) -> Vec<Rule> {
        list.as_array().into_iter().flatten().map(Rule::read).collect()
    }

    fn read(rule: &Value) -> Rule {
        let texts = |field: &str| -> Vec<String> {
            let list = rule[field].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(Into::into).collect()
        };
        let split = |text: String| match text.split_once('/') {
            Some((resource, subresource)) => (resource.to_string(), subresource.to_string()),
            None => (text, String::new()),
        };
        Rule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources").into_iter().map(split).collect(),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
            names: texts("resourceNames"),
        }
    }

    pub fn matches(&self, asked: &Asked) -> bool {
        let is = |known: &str, text: &str| known == "*" || known == text;
        let any = |list: &[String], text: &str| list.iter().any(|known| is(known, text));
        let resource = |(resource, subresource): &(String, String)| {
            is(resource, asked.resource) && is(subresource, asked.subresource)
        };
        let clustered = asked.namespace.is_empty() || (asked.group.is_empty() && asked.resource == "namespaces");
        let in_scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => clustered,
            Scope::Namespaced => !clustered,
        };
        in_scope
            && any(&self.operations, asked.operation)
            && any(&self.groups, asked.group)
            && any(&self.versions, asked.version)
            && self.resources.iter().any(resource)
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked<'a>(resource: &'a str, subresource: &'a str, namespace: &'a str) -> Asked<'a> {
        Asked { operation: "CREATE", group: "", version: "v1", resource, subresource, namespace, name: "x" }
    }

    fn rule(resources: &[&str], scope: &str) -> Rule {
        let rule = json!({"operations": ["CREATE", "CONNECT"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": resources, "scope": scope});
        Rule::read(&rule)
    }

    /// A rule that names a resource or its subresource may be about it; writers of all other kinds take turns.
    #[test]
    fn what_a_rule_may_be_about() {
        for (resources, expected) in
            [(["pods"], true), (["pods/status"], true), (["*"], true), (["*/*"], true), (["secrets"], false)]
        {
            assert_eq!(rule(&resources, "*").names("", "pods"), expected, "{resources:?}");
        }
        assert!(!rule(&["pods"], "*").names("metrics.k8s.io", "pods"));
    }

    #[test]
    fn resources_and_their_subresources() {
        let check = |resources: &[&str], resource: &str, subresource: &str, expected: bool| {
            let found = rule(resources, "*").matches(&asked(resource, subresource, "n"));
            assert_eq!(found, expected, "{resources:?} {resource}/{subresource}");
        };
        check(&["pods"], "pods", "", true);
        check(&["pods"], "pods", "exec", false);
        check(&["pods"], "secrets", "", false);
        check(&["pods/exec"], "pods", "exec", true);
        check(&["pods/exec"], "pods", "", false);
        check(&["pods/*"], "pods", "exec", true);
        check(&["pods/*"], "pods", "", true);
        check(&["*"], "secrets", "", true);
        check(&["*"], "pods", "exec", false);
        check(&["*/exec"], "pods", "exec", true);
        check(&["*/*"], "pods", "exec", true);
        check(&["*/*"], "pods", "", true);
    }

    #[test]
    fn scopes_groups_versions_operations_and_names() {
        let check = |scope: &str, resource: &str, namespace: &str, expected: bool| {
            assert_eq!(rule(&["*"], scope).matches(&asked(resource, "", namespace)), expected, "{scope} {resource}");
        };
        check("Namespaced", "pods", "n", true);
        check("Cluster", "pods", "n", false);
        check("Cluster", "nodes", "", true);
        check("Namespaced", "nodes", "", false);
        // A namespace is in itself, but it is an object of the cluster.
        check("Cluster", "namespaces", "n", true);
        check("Namespaced", "namespaces", "n", false);

        let pods = rule(&["pods"], "*");
        assert!(!pods.matches(&Asked { operation: "DELETE", ..asked("pods", "", "n") }));
        assert!(pods.matches(&Asked { operation: "CONNECT", ..asked("pods", "", "n") }));
        assert!(!pods.matches(&Asked { group: "apps", ..asked("pods", "", "n") }));
        assert!(!pods.matches(&Asked { version: "v2", ..asked("pods", "", "n") }));
        let named = Rule { names: vec!["y".into()], ..rule(&["pods"], "*") };
        assert!(!named.matches(&asked("pods", "", "n")));
        assert!(named.matches(&Asked { name: "y", ..asked("pods", "", "n") }));
    }
}
