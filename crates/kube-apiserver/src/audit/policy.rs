//! The audit policy: how much is written down of which request. Reading it checks it; asking it is pure.

use machinery::field::Errors;
use machinery::node::Node;
use serde::Deserialize;

use crate::authn::User;
use crate::configuration::{self, Document, Header, Shape};
use crate::target::Target;

const HEADER: Header = Header { kind: "Policy", group: "audit.k8s.io", versions: &["v1"] };
const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];
const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];
const TEXTS: Shape = Shape::List(&Shape::Text);
const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    ("metadata", Shape::Anything),
    ("omitStages", TEXTS),
    ("omitManagedFields", Shape::Flag),
    (
        "rules",
        Shape::List(&Shape::Object(&[
            ("level", Shape::Text),
            ("users", TEXTS),
            ("userGroups", TEXTS),
            ("verbs", TEXTS),
            (
                "resources",
                Shape::List(&Shape::Object(&[("group", Shape::Text), ("resources", TEXTS), ("resourceNames", TEXTS)])),
            ),
            ("namespaces", TEXTS),
            ("nonResourceURLs", TEXTS),
            ("omitStages", TEXTS),
            ("omitManagedFields", Shape::Flag),
        ])),
    ),
]);

/// Levels and stages that there are not.
fn wrong_values(policy: &Node) -> Errors {
    let mut errors = Errors::default();
    let mut stages = |at: &Node| {
        for stage in at.each("omitStages").filter(|stage| !STAGES.contains(&stage.str())) {
            errors.not_supported(&stage, &STAGES);
        }
    };
    stages(policy);
    policy.each("rules").for_each(|rule| stages(&rule));
    for rule in policy.each("rules") {
        let level = rule.at("level");
        if !level.exists() {
            errors.required(&level, "");
        } else if !LEVELS.contains(&level.str()) {
            errors.not_supported(&level, &LEVELS);
        }
    }
    errors
}

/// How much of a request is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// What the policy says of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub level: Level,
    pub omit_managed_fields: bool,
    omit_stages: Vec<Stage>,
}

impl Chosen {
    pub fn writes(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omit_stages.contains(&stage)
    }
}

/// Why a policy is not taken.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error(transparent)]
    File(#[from] configuration::Error),
    #[error(transparent)]
    Fields(#[from] serde_json::Error),
    #[error("it has no rules: loaded illegal policy with 0 rules")]
    NoRules,
    #[error("rules[{index}]: {error}")]
    Rule { index: usize, error: RuleError },
}

#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("rules cannot apply to both regular resources and non-resource URLs")]
    Both,
    #[error("nonResourceURLs: {0:?}: must begin with a '/' character")]
    UrlStart(String),
    #[error("nonResourceURLs: {0:?}: wildcards '*' must be the final character of the path")]
    UrlWildcard(String),
    #[error("resourceNames: using resourceNames requires at least one resource")]
    NamesAlone,
}

impl Policy {
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let document = Document::decode(text)?;
        HEADER.check(&document.value)?;
        document.check(&SHAPE, &document.value, "")?;
        document.refuse(&wrong_values(&Node::root(&document.value)))?;
        let policy: Policy = serde_json::from_value(document.value)?;
        if policy.rules.is_empty() {
            return Err(PolicyError::NoRules);
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.check().map_err(|error| PolicyError::Rule { index, error })?;
        }
        Ok(policy)
    }

    /// The first rule that matches decides; what no rule matches is not written down.
    pub fn choose(&self, user: Option<&User>, target: &Target, path: &str) -> Chosen {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, target, path)) else {
            return Chosen { level: Level::None, omit_managed_fields: false, omit_stages: Vec::new() };
        };
        Chosen {
            level: rule.level,
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            omit_stages: self.omit_stages.iter().chain(&rule.omit_stages).copied().collect(),
        }
    }
}

impl Rule {
    fn check(&self) -> Result<(), RuleError> {
        let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if of_resources && !self.non_resource_urls.is_empty() {
            return Err(RuleError::Both);
        }
        for url in &self.non_resource_urls {
            if url != "*" && !url.starts_with('/') {
                return Err(RuleError::UrlStart(url.clone()));
            }
            if url.trim_end_matches('*').contains('*') || url.ends_with("**") {
                return Err(RuleError::UrlWildcard(url.clone()));
            }
        }
        for resources in &self.resources {
            if !resources.resource_names.is_empty() && resources.resources.is_empty() {
                return Err(RuleError::NamesAlone);
            }
        }
        Ok(())
    }

    fn matches(&self, user: Option<&User>, target: &Target, path: &str) -> bool {
        let is_user = |user: &User| self.users.is_empty() || self.users.contains(&user.name);
        let in_group = |user: &User| {
            self.user_groups.is_empty() || user.groups.iter().any(|group| self.user_groups.contains(group))
        };
        let who = match user {
            Some(user) => is_user(user) && in_group(user),
            None => self.users.is_empty() && self.user_groups.is_empty(),
        };
        if !who || !(self.verbs.is_empty() || has(&self.verbs, target.verb.as_str())) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return target.is_resource && self.matches_resource(target);
        }
        if !self.non_resource_urls.is_empty() {
            let fits = |wanted: &String| match wanted.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => wanted == path,
            };
            return !target.is_resource && self.non_resource_urls.iter().any(fits);
        }
        true
    }

    fn matches_resource(&self, target: &Target) -> bool {
        if !self.namespaces.is_empty() && !has(&self.namespaces, &target.namespace) {
            return false;
        }
        let of_group = |resources: &&Resources| resources.group == target.group;
        self.resources.is_empty() || self.resources.iter().filter(of_group).any(|resources| resources.matches(target))
    }
}

impl Resources {
    fn matches(&self, target: &Target) -> bool {
        if self.resources.is_empty() {
            return true;
        }
        let named = self.resource_names.is_empty() || has(&self.resource_names, &target.name);
        let fits = |wanted: &String| match wanted.split_once('/') {
            _ if wanted == "*" => true,
            None => target.subresource.is_empty() && *wanted == target.resource,
            Some((resource, "*")) => resource == target.resource,
            Some((resource, sub)) => sub == target.subresource && (resource == "*" || resource == target.resource),
        };
        named && self.resources.iter().any(fits)
    }
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| entry == text)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::authn::fixtures::user;
    use crate::query::Query;
    use crate::target::parse;

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: ["watch"]
  resources:
  - group: ""
    resources: ["endpoints", "services"]
- level: RequestResponse
  omitManagedFields: false
  resources:
  - group: ""
    resources: ["pods"]
- level: Metadata
  resources:
  - group: ""
    resources: ["pods/log", "*/status"]
- level: None
  userGroups: ["system:authenticated"]
  nonResourceURLs: ["/api*", "/version"]
- level: Request
  namespaces: ["kube-system"]
  resources:
  - group: ""
    resources: ["configmaps"]
    resourceNames: ["special"]
- level: Metadata
  omitStages: [ResponseStarted]
  resources:
  - group: ""
    resources: ["secrets", "configmaps"]
- level: Request
  resources:
  - group: "apps"
"#;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = Policy::parse(POLICY).unwrap();
        let check = |name: &str, method: &str, url: &str, expected: Level| {
            let user = user(name, &["system:authenticated"]);
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let method: Method = method.parse().unwrap();
            let target = parse(&method, path, &Query::parse(Some(query))).unwrap();
            let chosen = policy.choose(Some(&user), &target, path);
            assert_eq!(chosen.level, expected, "{name} {method} {url}");
            assert!(!chosen.writes(Stage::RequestReceived));
        };
        check("system:kube-proxy", "GET", "/api/v1/services?watch=1", Level::None);
        check("eve", "GET", "/api/v1/namespaces/a/pods/b", Level::RequestResponse);
        check("eve", "GET", "/api/v1/namespaces/a/pods/b/log", Level::Metadata);
        check("eve", "PATCH", "/api/v1/nodes/b/status", Level::Metadata);
        check("eve", "GET", "/api/v1/namespaces/a/pods/b/exec", Level::None);
        check("eve", "GET", "/apis", Level::None);
        check("eve", "GET", "/api/v1/namespaces/kube-system/configmaps/special", Level::Request);
        check("eve", "GET", "/api/v1/namespaces/default/configmaps/special", Level::Metadata);
        check("eve", "GET", "/api/v1/namespaces/default/secrets/special", Level::Metadata);
        check("eve", "GET", "/apis/apps/v1/deployments", Level::Request);
        check("eve", "GET", "/metrics", Level::None);
    }

    #[test]
    fn stages_and_managed_fields_can_be_left_out() {
        let policy = Policy::parse(POLICY).unwrap();
        let chosen = |path: &str| policy.choose(None, &parse(&Method::GET, path, &Query::default()).unwrap(), path);
        let secrets = chosen("/api/v1/secrets");
        assert!(!secrets.writes(Stage::ResponseStarted) && secrets.writes(Stage::ResponseComplete));
        assert!(secrets.omit_managed_fields);
        let pods = chosen("/api/v1/pods");
        assert!(pods.writes(Stage::ResponseStarted) && !pods.omit_managed_fields);
    }

    #[test]
    fn mistakes_are_named() {
        let check = |text: &str, expected: &str| {
            let error = Policy::parse(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(expected), "{text}: {error}");
        };
        let head = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: ";
        check("{apiVersion: v1, kind: Policy}", "expected kind \"Policy\" of audit.k8s.io/v1");
        check("{apiVersion: audit.k8s.io/v1, kind: Policy}", "0 rules");
        check(&format!("{head}[{{level: All}}]}}"), "line 1: rules[0].level: Unsupported value: \"All\"");
        check(&format!("{head}[{{users: [a]}}]}}"), "rules[0].level: Required value");
        check(&format!("{head}[{{level: None, omitStages: [End]}}]}}"), "rules[0].omitStages[0]: Unsupported value");
        check(&format!("{head}[{{level: None, verb: [get]}}]}}"), "line 1: unknown field \"rules[0].verb\"");
        check(&format!("{head}[{{level: None, nonResourceURLs: [a]}}]}}"), "must begin with a '/'");
        check(&format!("{head}[{{level: None, nonResourceURLs: [/a*b]}}]}}"), "final character");
        check(&format!("{head}[{{level: None, namespaces: [a], nonResourceURLs: [/a]}}]}}"), "rules[0]: rules cannot");
    }
}
