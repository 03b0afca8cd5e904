//! What the labels of a namespace ask for: a level and a version of the standards, for each of three modes.

use machinery::field::{Errors, FieldError, Path, Problem};
use machinery::object::Meta;
use serde_json::Value;

const PREFIX: &str = "pod-security.kubernetes.io/";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The minor version of Kubernetes whose standards hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standard {
    pub level: Level,
    pub version: Version,
}

/// Nothing is demanded where nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub enforce: Standard,
    pub audit: Standard,
    pub warn: Standard,
}

impl Version {
    pub(crate) const LATEST: Version = Version(u32::MAX);

    pub fn minor(minor: u32) -> Version {
        Version(minor)
    }

    pub fn parse(text: &str) -> Option<Version> {
        if text == "latest" {
            return Some(Version::LATEST);
        }
        let minor = text.strip_prefix("v1.")?;
        let plain = minor == "0" || !minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit());
        minor.parse().ok().filter(|_| plain).map(Version)
    }
}

impl Level {
    pub fn parse(text: &str) -> Option<Level> {
        match text {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }
}

/// What is wrong with a level or a version that cannot be read, in upstream's words.
pub(crate) const BAD_LEVEL: &str = "must be one of privileged, baseline, restricted";
pub(crate) const BAD_VERSION: &str = "must be \"latest\" or \"v1.x\"";

impl std::fmt::Display for Standard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::LATEST => write!(f, "{level}:latest"),
            Version(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        let nothing = Standard { level: Level::Privileged, version: Version::LATEST };
        Policy { enforce: nothing, audit: nothing, warn: nothing }
    }
}

impl Policy {
    /// The policy of a namespace, and what is wrong with its labels. A wrong `enforce` is read as the strictest, any
    /// other as none; what has no label is as the defaults say.
    pub fn read(namespace: &Value, defaults: &Policy) -> (Policy, Errors) {
        let mut errors = Errors::default();
        let (enforce, enforce_level, _) = mode(namespace, "enforce", defaults.enforce, Level::Restricted, &mut errors);
        let (audit, _, _) = mode(namespace, "audit", defaults.audit, Level::Privileged, &mut errors);
        let (mut warn, warn_level, warn_version) =
            mode(namespace, "warn", defaults.warn, Level::Privileged, &mut errors);
        // Who enforces a level wants to be warned of it where nothing else is said.
        if warn_level == LabelState::Missing && enforce_level == LabelState::Good && enforce.level > warn.level {
            warn.level = enforce.level;
            if warn_version == LabelState::Missing {
                warn.version = enforce.version;
            }
        }
        (Policy { enforce, audit, warn }, errors)
    }
}

#[derive(PartialEq, Eq)]
enum LabelState {
    Missing,
    Good,
    Bad,
}

fn mode(
    namespace: &Value,
    mode: &str,
    default: Standard,
    fallback: Level,
    errors: &mut Errors,
) -> (Standard, LabelState, LabelState) {
    let mut bad = |key: &str, text: &str, why: &str| {
        let path = Path::new("metadata").child("labels").key(key);
        errors.push(FieldError::new(Problem::Invalid, path.to_string(), format!("{text:?}"), why));
    };
    let key = format!("{PREFIX}{mode}");
    let (level, level_given) = match namespace.label(&key).map(|text| (text, Level::parse(text))) {
        None => (default.level, LabelState::Missing),
        Some((_, Some(level))) => (level, LabelState::Good),
        Some((text, None)) => {
            bad(&key, text, BAD_LEVEL);
            (fallback, LabelState::Bad)
        }
    };
    let key = format!("{PREFIX}{mode}-version");
    let (version, version_given) = match namespace.label(&key).map(|text| (text, Version::parse(text))) {
        None => (default.version, LabelState::Missing),
        Some((_, Some(version))) => (version, LabelState::Good),
        Some((text, None)) => {
            bad(&key, text, BAD_VERSION);
            (Version::LATEST, LabelState::Bad)
        }
    };
    (Standard { level, version }, level_given, version_given)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(labels: &[(&str, &str)], enforce: &str, warn: &str, problems: usize) {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).into())).collect();
        let (policy, errors) = Policy::read(&json!({"metadata": {"labels": labels}}), &Policy::default());
        assert_eq!(
            (policy.enforce.to_string(), policy.warn.to_string(), errors.0.len()),
            (enforce.into(), warn.into(), problems)
        );
    }

    #[test]
    fn labels_make_the_policy() {
        let none = "privileged:latest";
        check(&[], none, none, 0);
        check(&[("warn", "baseline")], none, "baseline:latest", 0);
        check(&[("enforce", "restricted"), ("enforce-version", "v1.24")], "restricted:v1.24", "restricted:v1.24", 0);
        check(&[("enforce", "baseline"), ("warn", "privileged")], "baseline:latest", none, 0);
        check(&[("enforce", "strict")], "restricted:latest", none, 1);
        check(&[("warn", "strict"), ("audit", "x"), ("enforce-version", "v1.x")], none, none, 3);
    }

    #[test]
    fn a_wrong_label_is_named() {
        let namespace = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "x"}}});
        let (_, errors) = Policy::read(&namespace, &Policy::default());
        assert_eq!(
            errors.summary(),
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"x\": must be one of privileged, baseline, restricted"
        );
    }
}
