//! The list of checks, and how their findings are told.

use serde_json::Value;

use super::policy::{Level, Standard, Version};
use super::{baseline, restricted};

/// What is wrong: `hostPath volumes (volume "v")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub reason: String,
    pub detail: String,
}

/// One check. It holds from a version on, until a later one of the same id takes its place.
pub struct Check {
    pub id: &'static str,
    pub level: Level,
    pub since: u32,
    /// The baseline check that this one makes needless.
    pub overrides: &'static str,
    pub run: fn(&Pod<'_>) -> Option<Violation>,
}

/// A pod, or the template of one.
pub struct Pod<'a> {
    pub pod: &'a Value,
    pub spec: &'a Value,
    pub version: Version,
}

impl<'a> Pod<'a> {
    /// All containers, in the order they start.
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |field| spec.get(field).and_then(Value::as_array).into_iter().flatten())
    }

    /// Names of the containers of which something is true, in order.
    pub(crate) fn containers_where(&self, wrong: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| wrong(container)).map(name).collect()
    }

    /// A field of the pod's own security context.
    pub fn context(&self, path: &str) -> Option<&'a Value> {
        self.spec.get("securityContext")?.pointer(path).filter(|value| !value.is_null())
    }

    pub(crate) fn is_windows(&self) -> bool {
        self.spec.pointer("/os/name").and_then(Value::as_str) == Some("windows")
    }

    /// Root in a user namespace of its own is nobody on the host.
    pub(crate) fn has_own_users(&self) -> bool {
        self.spec.get("hostUsers") == Some(&Value::Bool(false))
    }

    pub fn at_least(&self, minor: u32) -> bool {
        self.version >= Version::minor(minor)
    }
}

/// A field of a container's security context.
pub fn context<'a>(container: &'a Value, path: &str) -> Option<&'a Value> {
    container.get("securityContext")?.pointer(path).filter(|value| !value.is_null())
}

pub fn name(value: &Value) -> &str {
    value.get("name").and_then(Value::as_str).unwrap_or("")
}

/// Every check of the level and below, in upstream's order.
pub fn evaluate(standard: Standard, pod: &Value) -> Vec<Violation> {
    if standard.level == Level::Privileged {
        return Vec::new();
    }
    let pod = Pod { pod, spec: pod.get("spec").unwrap_or(&Value::Null), version: standard.version };
    let applies = |check: &&Check| check.level <= standard.level && pod.at_least(check.since);
    let all = || baseline::CHECKS.iter().chain(restricted::CHECKS);
    let overridden = |check: &&Check| !all().filter(applies).any(|other| other.overrides == check.id);
    all().filter(applies).filter(overridden).filter_map(|check| (check.run)(&pod)).collect()
}

/// `reason (detail), reason (detail)`.
pub fn details(violations: &[Violation]) -> String {
    let parts = violations.iter().map(|violation| match violation.detail.as_str() {
        "" => violation.reason.clone(),
        detail => format!("{} ({detail})", violation.reason),
    });
    parts.collect::<Vec<_>>().join(", ")
}

pub fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason.as_str()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn violation(reason: impl Into<String>, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason: reason.into(), detail: detail.into() })
}

/// `container "a"`, `containers "a", "b"`.
pub fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// `pod and container "a"`: those who said it themselves. None where nobody did.
pub(crate) fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".into()),
        (false, false) => Some(containers(names)),
        (true, false) => Some(format!("pod and {}", containers(names))),
    }
}

pub fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

pub fn quoted<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().map(|name| format!("{:?}", name.as_ref())).collect::<Vec<_>>().join(", ")
}
