//! Which FlowSchema a request belongs to: the first in order of precedence that one of its rules matches. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use machinery::object::Meta;
use serde_json::Value;

use crate::authn::{User, split_user_name};
use crate::target::Target;

const ALL: &str = "*";

/// One request as classification sees it.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub user: &'a User,
    pub target: &'a Target,
    pub path: &'a str,
}

/// A FlowSchema, read once.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub name: String,
    pub level: String,
    pub precedence: i64,
    pub distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

/// By what the requests of one schema are divided into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    None,
    User,
    Namespace,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Clone, Debug, PartialEq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

#[derive(Clone, Debug, PartialEq)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

impl Schema {
    pub fn read(object: &Value) -> Schema {
        let spec = &object["spec"];
        Schema {
            name: object.name().to_string(),
            level: text(&spec["priorityLevelConfiguration"]["name"]),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            distinguisher: match spec["distinguisherMethod"]["type"].as_str() {
                Some("ByUser") => Distinguisher::User,
                Some("ByNamespace") => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: list(&spec["rules"]).map(Rule::read).collect(),
        }
    }

    /// The order in which schemas are asked.
    pub fn order(&self) -> (i64, &str) {
        (self.precedence, &self.name)
    }

    pub fn matches(&self, asked: &Asked) -> bool {
        self.rules.iter().any(|rule| rule.matches(asked))
    }

    /// The request's flow within the priority level, as the source of its queues.
    pub fn flow(&self, asked: &Asked) -> u64 {
        let distinguisher = match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &asked.user.name,
            Distinguisher::Namespace => &asked.target.namespace,
        };
        let mut hasher = DefaultHasher::new();
        self.name.hash(&mut hasher);
        distinguisher.hash(&mut hasher);
        hasher.finish()
    }
}

impl Rule {
    fn read(value: &Value) -> Rule {
        Rule {
            subjects: list(&value["subjects"]).filter_map(Subject::read).collect(),
            resources: list(&value["resourceRules"]).map(ResourceRule::read).collect(),
            paths: list(&value["nonResourceRules"])
                .map(|rule| PathRule { verbs: texts(&rule["verbs"]), paths: texts(&rule["nonResourceURLs"]) })
                .collect(),
        }
    }

    // What is asked is looked at before who asks: most schemas are for everything that somebody does.
    fn matches(&self, asked: &Asked) -> bool {
        let fits = if asked.target.is_resource {
            self.resources.iter().any(|rule| rule.matches(asked.target))
        } else {
            self.paths.iter().any(|rule| rule.matches(asked.target.verb.as_str(), asked.path))
        };
        fits && self.subjects.iter().any(|subject| subject.matches(asked.user))
    }
}

impl Subject {
    fn read(value: &Value) -> Option<Subject> {
        match value["kind"].as_str()? {
            "User" => Some(Subject::User(text(&value["user"]["name"]))),
            "Group" => Some(Subject::Group(text(&value["group"]["name"]))),
            "ServiceAccount" => {
                let account = &value["serviceAccount"];
                Some(Subject::ServiceAccount { namespace: text(&account["namespace"]), name: text(&account["name"]) })
            }
            _ => None,
        }
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == ALL || *name == user.name,
            Subject::Group(name) => name == ALL || user.groups.contains(name),
            Subject::ServiceAccount { namespace, name } => {
                split_user_name(&user.name).is_some_and(|(its_namespace, its_name)| {
                    its_namespace == namespace && (name == ALL || its_name == name)
                })
            }
        }
    }
}

impl ResourceRule {
    fn read(value: &Value) -> ResourceRule {
        ResourceRule {
            verbs: texts(&value["verbs"]),
            groups: texts(&value["apiGroups"]),
            resources: texts(&value["resources"]),
            namespaces: texts(&value["namespaces"]),
            cluster_scope: value["clusterScope"].as_bool().unwrap_or(false),
        }
    }

    fn matches(&self, target: &Target) -> bool {
        let resource = |wanted: &String| match target.subresource.as_str() {
            _ if wanted == ALL => true,
            "" => *wanted == target.resource,
            sub => {
                let rest = wanted.strip_prefix(target.resource.as_str()).and_then(|rest| rest.strip_prefix('/'));
                rest == Some(sub)
            }
        };
        has(&self.verbs, target.verb.as_str())
            && has(&self.groups, &target.group)
            && self.resources.iter().any(resource)
            && match target.namespace.as_str() {
                "" => self.cluster_scope,
                namespace => has(&self.namespaces, namespace),
            }
    }
}

impl PathRule {
    fn matches(&self, verb: &str, path: &str) -> bool {
        let fits = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => wanted == path,
        };
        has(&self.verbs, verb) && self.paths.iter().any(fits)
    }
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| entry == ALL || entry == text)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_string()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).map(text).collect()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::authn::fixtures::user;
    use crate::query::Query;
    use crate::target;

    fn standard() -> Vec<Schema> {
        let objects = crate::bootstrap::objects(&Default::default());
        let mut schemas: Vec<Schema> =
            objects.iter().filter(|object| object["kind"] == "FlowSchema").map(Schema::read).collect();
        schemas.sort_by(|a, b| a.order().cmp(&b.order()));
        schemas
    }

    #[test]
    fn requests_find_the_schema_upstream_finds() {
        let schemas = standard();
        let check = |name: &str, groups: &[&str], method: &str, url: &str, expected: Option<&str>| {
            let user = user(name, groups);
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let method: Method = method.parse().unwrap();
            let target = target::parse(&method, path, &Query::parse(Some(query))).unwrap();
            let asked = Asked { user: &user, target: &target, path };
            let found = schemas.iter().find(|schema| schema.matches(&asked)).map(|schema| schema.name.as_str());
            assert_eq!(found, expected, "{name} {method} {url}");
        };
        let known = &["system:authenticated"][..];
        let nodes = &["system:nodes", "system:authenticated"][..];
        let accounts = &["system:serviceaccounts", "system:authenticated"][..];
        check("root", &["system:masters"], "GET", "/api/v1/pods", Some("exempt"));
        check("eve", known, "GET", "/readyz", Some("probes"));
        check("eve", known, "GET", "/readyz/ping", Some("global-default"));
        check("system:anonymous", &["system:unauthenticated"], "GET", "/healthz", Some("probes"));
        check("eve", known, "GET", "/api/v1/pods", Some("global-default"));
        check("system:node:a", nodes, "PATCH", "/api/v1/nodes/a/status", Some("system-node-high"));
        check("system:node:a", nodes, "GET", "/api/v1/nodes/a/proxy", Some("system-nodes"));
        check("system:node:a", nodes, "GET", "/api/v1/pods?watch=1", Some("system-nodes"));
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x";
        check("system:kube-scheduler", known, "PUT", lease, Some("system-leader-election"));
        check("system:kube-scheduler", known, "DELETE", lease, Some("kube-scheduler"));
        let garbage = "system:serviceaccount:kube-system:generic-garbage-collector";
        check(garbage, accounts, "GET", "/api/v1/pods", Some("kube-system-service-accounts"));
        check("system:serviceaccount:shop:robot", accounts, "GET", "/api", Some("service-accounts"));
        check("nobody", &[], "GET", "/api/v1/pods", None);
    }

    #[test]
    fn flows_are_divided_as_the_schema_says() {
        let target = target::parse(&Method::GET, "/api/v1/namespaces/a/pods", &Query::default()).unwrap();
        let other = target::parse(&Method::GET, "/api/v1/namespaces/b/pods", &Query::default()).unwrap();
        let (eve, bob) = (user("eve", &[]), user("bob", &[]));
        let flow = |distinguisher: Distinguisher, user: &User, target: &Target| {
            let schema = Schema { distinguisher, ..standard().remove(0) };
            schema.flow(&Asked { user, target, path: "" })
        };
        for (distinguisher, by_user, by_namespace) in [
            (Distinguisher::None, false, false),
            (Distinguisher::User, true, false),
            (Distinguisher::Namespace, false, true),
        ] {
            let first = flow(distinguisher, &eve, &target);
            assert_eq!(first != flow(distinguisher, &bob, &target), by_user, "{distinguisher:?}");
            assert_eq!(first != flow(distinguisher, &eve, &other), by_namespace, "{distinguisher:?}");
        }
    }

    #[test]
    fn rules_match_as_documented() {
        let path = |wanted: &str, path: &str| {
            PathRule { verbs: vec!["get".into()], paths: vec![wanted.into()] }.matches("get", path)
        };
        for (wanted, given, expected) in [
            ("*", "/anything", true),
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/etcd", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("/healthz/*", "/healthzy", false),
        ] {
            assert_eq!(path(wanted, given), expected, "{wanted} {given}");
        }
        let rule = |resources: &[&str], namespaces: &[&str], cluster_scope: bool| ResourceRule {
            verbs: vec!["list".into()],
            groups: vec!["".into()],
            resources: resources.iter().map(|text| text.to_string()).collect(),
            namespaces: namespaces.iter().map(|text| text.to_string()).collect(),
            cluster_scope,
        };
        let matches =
            |rule: ResourceRule, url: &str| rule.matches(&target::parse(&Method::GET, url, &Query::default()).unwrap());
        assert!(matches(rule(&["pods"], &["*"], false), "/api/v1/namespaces/a/pods"));
        assert!(!matches(rule(&["pods"], &["*"], false), "/api/v1/pods"), "all namespaces at once is the cluster");
        assert!(matches(rule(&["pods"], &[], true), "/api/v1/pods"));
        assert!(!matches(rule(&["pods"], &["b"], true), "/api/v1/namespaces/a/pods"));
        assert!(!matches(rule(&["secrets"], &["*"], true), "/api/v1/pods"));
    }
}
