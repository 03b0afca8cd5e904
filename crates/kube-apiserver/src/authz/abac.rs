//! ABAC: a file with one policy a line, read at the start. The first that fits allows.

use std::path::Path;

use machinery::codec;
use serde_json::{Value, json};

use super::{Attributes, Decision};
use crate::authn::User;

const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const GROUP: &str = "abac.authorization.kubernetes.io/";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read policy file {path}: {why}")]
    Read { path: String, why: std::io::Error },
    #[error("error reading policy file {path}, line {line}: {why}")]
    Line { path: String, line: usize, why: LineError },
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum LineError {
    #[error("{0}")]
    Json(String),
    #[error("unrecognized object: {0}")]
    Kind(String),
    #[error("unknown field {0:?}")]
    Field(String),
    #[error("{0}: expected {1}")]
    Type(String, &'static str),
}

#[derive(Debug, Default)]
pub struct Policies(Vec<Policy>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Policy {
    user: String,
    group: String,
    read_only: bool,
    api_group: String,
    resource: String,
    namespace: String,
    path: String,
}

impl Policies {
    pub fn read(path: &Path) -> Result<Policies, Error> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|why| Error::Read { path: shown.clone(), why })?;
        let mut policies = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why| Error::Line { path: shown.clone(), line: index + 1, why };
            policies.push(Policy::parse(line).map_err(wrong)?);
        }
        Ok(Policies(policies))
    }

    pub fn authorize(&self, a: &Attributes) -> Decision {
        if self.0.iter().any(|policy| policy.allows(a)) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion("No policy matched.".into())
        }
    }

    /// What the user may do in the namespace: rules about resources, then about paths.
    pub fn rules(&self, user: &User, namespace: &str) -> (Vec<Value>, Vec<Value>) {
        let in_it =
            |policy: &&Policy| policy.is_about(user) && (policy.namespace == "*" || policy.namespace == namespace);
        let verbs = |policy: &Policy| if policy.read_only { json!(["get", "list", "watch"]) } else { json!(["*"]) };
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        for policy in self.0.iter().filter(in_it) {
            if !policy.resource.is_empty() {
                resources.push(json!({
                    "verbs": verbs(policy), "apiGroups": [policy.api_group], "resources": [policy.resource],
                }));
            }
            if !policy.path.is_empty() {
                paths.push(json!({"verbs": verbs(policy), "nonResourceURLs": [policy.path]}));
            }
        }
        (resources, paths)
    }
}

impl Policy {
    fn parse(line: &str) -> Result<Policy, LineError> {
        let value = codec::decode_json(line.as_bytes()).map_err(|error| LineError::Json(error.to_string()))?.value;
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        match (version, kind) {
            (VERSION, "Policy") => Policy::of_spec(value.get("spec").unwrap_or(&Value::Null), "spec."),
            // Lines without a version are of the first form.
            ("", "") => Ok(Policy::of_spec(&value, "")?.converted()),
            (version, kind) if version.starts_with(GROUP) => Err(LineError::Kind(format!("{version}, Kind={kind}"))),
            (version, kind) => {
                Err(LineError::Kind(format!("{version}, Kind={kind}: it must be a Policy of {VERSION}")))
            }
        }
    }

    fn of_spec(spec: &Value, prefix: &str) -> Result<Policy, LineError> {
        let mut policy = Policy::default();
        for (field, value) in spec.as_object().into_iter().flatten() {
            let place = match field.as_str() {
                "user" => &mut policy.user,
                "group" => &mut policy.group,
                "apiGroup" => &mut policy.api_group,
                "resource" => &mut policy.resource,
                "namespace" => &mut policy.namespace,
                "nonResourcePath" => &mut policy.path,
                "readonly" => {
                    let flag = value.as_bool();
                    policy.read_only =
                        flag.ok_or_else(|| LineError::Type(format!("{prefix}{field}"), "true or false"))?;
                    continue;
                }
                _ => return Err(LineError::Field(format!("{prefix}{field}"))),
            };
            let text = value.as_str().ok_or_else(|| LineError::Type(format!("{prefix}{field}"), "a string"))?;
            text.clone_into(place);
        }
        Ok(policy)
    }

    /// In the first form what is not said means everything; nobody at all means everybody who is known.
    fn converted(mut self) -> Policy {
        if self.user.is_empty() && self.group.is_empty() {
            self.group = crate::authn::ALL_AUTHENTICATED.into();
        }
        if self.user == "*" {
            self.user.clear();
            self.group = crate::authn::ALL_AUTHENTICATED.into();
        }
        if self.group == "*" {
            self.group = crate::authn::ALL_AUTHENTICATED.into();
        }
        let all = |text: String| if text.is_empty() { "*".to_owned() } else { text };
        let about_all = self.resource.is_empty() && self.namespace.is_empty();
        self.resource = all(self.resource);
        self.namespace = all(self.namespace);
        self.api_group = "*".into();
        if about_all {
            self.path = "*".into();
        }
        self
    }

    fn allows(&self, a: &Attributes) -> bool {
        let reads = matches!(a.verb, "get" | "list" | "watch");
        self.is_about(a.user) && (reads || !self.read_only) && self.is_for(a)
    }

    fn is_about(&self, user: &User) -> bool {
        let fits = |wanted: &str, found: bool| match wanted {
            "" => None,
            "*" => Some(true),
            _ => Some(found),
        };
        let named = fits(&self.user, self.user == user.name);
        let grouped = fits(&self.group, user.groups.contains(&self.group));
        match (named, grouped) {
            (None, None) => false,
            (named, grouped) => named.unwrap_or(true) && grouped.unwrap_or(true),
        }
    }

    fn is_for(&self, a: &Attributes) -> bool {
        let fits = |wanted: &str, found: &str| wanted == "*" || wanted == found;
        if !a.resource.is_empty() {
            return fits(&self.namespace, a.namespace)
                && fits(&self.resource, a.resource)
                && fits(&self.api_group, a.group);
        }
        fits(&self.path, a.path)
            || self.path.strip_suffix('*').is_some_and(|start| a.path.starts_with(start.trim_end_matches('*')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::user;

    /// The example of upstream's documentation.
    const EXAMPLE: &str = r#"
# comment
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "bob", "namespace": "projectCaribou", "resource": "pods", "readonly": true}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "system:authenticated", "readonly": true, "nonResourcePath": "/api/*"}}
{"user":"old"}
"#;

    fn policies(text: &str) -> Result<Policies, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Policies::read(file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_published_example_decides() {
        let policies = policies(EXAMPLE).unwrap();
        let check = |name: &str, verb: &str, what: &str, namespace: &str, expected: bool| {
            let user = user(name, &["system:authenticated"]);
            let a = if what.starts_with('/') {
                Attributes::path(&user, verb, what)
            } else {
                Attributes { namespace, ..Attributes::resource(&user, verb, "", what) }
            };
            assert_eq!(policies.authorize(&a).is_allowed(), expected, "{name} {verb} {what}");
        };
        check("alice", "delete", "secrets", "any", true);
        check("bob", "get", "pods", "projectCaribou", true);
        check("bob", "create", "pods", "projectCaribou", false);
        check("bob", "get", "pods", "other", false);
        check("bob", "get", "secrets", "projectCaribou", false);
        check("bob", "get", "/api/v1", "", true);
        check("bob", "post", "/api/v1", "", false);
        check("bob", "get", "/metrics", "", false);
        check("old", "create", "pods", "x", true);
        check("old", "get", "/metrics", "", true);
    }

    #[test]
    fn mistakes_have_their_line() {
        let check = |line: &str, expected: &str| {
            let told = policies(&format!("# first\n{line}\n")).unwrap_err();
            assert!(told.contains("line 2") && told.contains(expected), "{told}");
        };
        check("{", "line 2");
        check(r#"{"user": 7}"#, "user: expected a string");
        check(r#"{"usr": "a"}"#, "unknown field \"usr\"");
        check(r#"{"apiVersion": "v1", "kind": "Pod"}"#, "unrecognized object");
        assert!(Policies::read(Path::new("/no/such")).unwrap_err().to_string().contains("/no/such"));
    }
}
