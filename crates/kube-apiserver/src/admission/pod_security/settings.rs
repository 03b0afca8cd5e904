//! What the file of admission configuration says of PodSecurity: the standards of namespaces without labels, and who is
//! held to none.

use std::collections::BTreeSet;

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use serde_json::Value;

use super::super::configuration::Part;
use super::policy::{BAD_LEVEL, BAD_VERSION, Level, Policy, Standard, Version};
use crate::configuration::{self, Header, Shape};

const HEADERS: [Header; 1] = [Header {
    kind: "PodSecurityConfiguration",
    group: "pod-security.admission.config.k8s.io",
    versions: &["v1", "v1beta1", "v1alpha1"],
}];
const NAMES: Shape = Shape::List(&Shape::Text);
const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    (
        "defaults",
        Shape::Object(&[
            ("enforce", Shape::Text),
            ("enforce-version", Shape::Text),
            ("audit", Shape::Text),
            ("audit-version", Shape::Text),
            ("warn", Shape::Text),
            ("warn-version", Shape::Text),
        ]),
    ),
    ("exemptions", Shape::Object(&[("usernames", NAMES), ("runtimeClasses", NAMES), ("namespaces", NAMES)])),
]);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub defaults: Policy,
    usernames: BTreeSet<String>,
    runtime_classes: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

impl Settings {
    pub fn read(part: &Part<'_>) -> Result<Settings, configuration::Error> {
        let value = part.read(&HEADERS, &SHAPE)?;
        let mut errors = Errors::default();
        let defaults = Policy {
            enforce: standard(value, "enforce", &mut errors),
            audit: standard(value, "audit", &mut errors),
            warn: standard(value, "warn", &mut errors),
        };
        let subdomain = |name: &str| names::dns_subdomain(name).join(", ");
        let label = |name: &str| names::dns_label(name).join(", ");
        let user = |name: &str| if name.is_empty() { "username must not be empty".to_owned() } else { String::new() };
        let settings = Settings {
            defaults,
            usernames: exempt(value, "usernames", user, &mut errors),
            runtime_classes: exempt(value, "runtimeClasses", subdomain, &mut errors),
            namespaces: exempt(value, "namespaces", label, &mut errors),
        };
        part.refuse(&errors)?;
        Ok(settings)
    }

    /// Why nothing is demanded of that pod, as the audit log calls it.
    pub(crate) fn exemption(&self, namespace: &str, user: &str, pod: &Value) -> Option<&'static str> {
        let class = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str).unwrap_or("");
        if self.namespaces.contains(namespace) {
            Some("namespace")
        } else if self.usernames.contains(user) {
            Some("user")
        } else if self.runtime_classes.contains(class) {
            Some("runtimeClass")
        } else {
            None
        }
    }

    pub(crate) fn is_exempt_namespace(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace)
    }
}

fn standard(value: &Value, mode: &str, errors: &mut Errors) -> Standard {
    let mut bad = |field: &str, text: &str, why: &str| {
        errors.push(FieldError::new(Problem::Invalid, format!("defaults.{field}"), format!("{text:?}"), why));
    };
    let text = |field: &str| value["defaults"][field].as_str().unwrap_or_default();
    let level = match text(mode) {
        "" => Level::Privileged,
        given => Level::parse(given).unwrap_or_else(|| {
            bad(mode, given, BAD_LEVEL);
            Level::Restricted
        }),
    };
    let field = format!("{mode}-version");
    let version = match text(&field) {
        "" => Version::LATEST,
        given => Version::parse(given).unwrap_or_else(|| {
            bad(&field, given, BAD_VERSION);
            Version::LATEST
        }),
    };
    Standard { level, version }
}

fn exempt(value: &Value, field: &str, problem: impl Fn(&str) -> String, errors: &mut Errors) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let list = value["exemptions"][field].as_array().into_iter().flatten();
    for (index, name) in list.filter_map(Value::as_str).enumerate() {
        let at = format!("exemptions.{field}[{index}]");
        let why = problem(name);
        if !why.is_empty() {
            errors.push(FieldError::new(Problem::Invalid, at, format!("{name:?}"), why));
        } else if !found.insert(name.to_owned()) {
            errors.push(FieldError::new(Problem::Duplicate, at, format!("{name:?}"), ""));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exemptions_hold_by_namespace_user_and_runtime() {
        let one = |name: &str| BTreeSet::from([name.to_owned()]);
        let settings = Settings {
            usernames: one("ada"),
            runtime_classes: one("vm"),
            namespaces: one("infra"),
            ..Settings::default()
        };
        let (plain, in_vm) = (json!({"spec": {}}), json!({"spec": {"runtimeClassName": "vm"}}));
        assert_eq!(settings.exemption("infra", "x", &plain), Some("namespace"));
        assert_eq!(settings.exemption("n", "ada", &plain), Some("user"));
        assert_eq!(settings.exemption("n", "x", &in_vm), Some("runtimeClass"));
        assert_eq!(settings.exemption("n", "x", &plain), None);
    }

    #[test]
    fn defaults_are_checked() {
        let mut errors = Errors::default();
        let value = json!({"defaults": {"enforce": "baseline", "enforce-version": "v1.30", "warn": "x", "warn-version": "1.2"}});
        assert_eq!(standard(&value, "enforce", &mut errors).to_string(), "baseline:v1.30");
        assert!(errors.is_empty());
        standard(&value, "warn", &mut errors);
        assert_eq!(errors.0.len(), 2);
        exempt(&json!({"exemptions": {"namespaces": ["a", "a"]}}), "namespaces", |_| String::new(), &mut errors);
        assert_eq!(errors.0[2].field, "exemptions.namespaces[1]");
    }
}
