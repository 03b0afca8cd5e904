//! `--runtime-config`: which groups, versions and resources are served beyond or below what is by default.

use std::collections::{BTreeMap, BTreeSet};

use api::OPTIONAL;
use component_base::features::Gates;
use machinery::kind::Kind;

use crate::aggregate;

/// What was asked for, and the gates that some kinds need besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeConfig {
    /// By `api/all` and the like, `group/version` or `group/version/resource`.
    asked: BTreeMap<String, bool>,
    gates: Gates,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    #[error("invalid runtime-config with only api/all=false")]
    Nothing,
    #[error("runtime-config invalid key {0}")]
    Key(String),
    #[error("unknown api groups {0}")]
    Groups(String),
    #[error("group version {0} that has not been registered")]
    Version(String),
    #[error("invalid value {key}={value}")]
    Value { key: String, value: String },
    #[error("invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}")]
    NotLower { key: String, resource: String },
    #[error("knarr cannot serve {0}")]
    NotServed(String),
    #[error("knarr cannot run without {0}: the API server reads it itself")]
    Needed(String),
}

/// Groups of versions, in the order in which they are applied.
const MATCHERS: [(&str, Stage); 4] =
    [("api/all", Stage::Any), ("api/ga", Stage::Stable), ("api/beta", Stage::Beta), ("api/alpha", Stage::Alpha)];

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Any,
    Stable,
    Beta,
    Alpha,
}

impl Stage {
    fn has(self, version: &str) -> bool {
        let stage = match () {
            () if version.contains("alpha") => Stage::Alpha,
            () if version.contains("beta") => Stage::Beta,
            () => Stage::Stable,
        };
        self == Stage::Any || self == stage
    }
}

impl RuntimeConfig {
    /// `text` is `group/version=true,group/version/resource=false,api/beta=true`; a key without a value is on.
    pub fn parse(text: &str, gates: Gates) -> Result<RuntimeConfig, RuntimeConfigError> {
        let mut asked = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').map_or((part, ""), |(key, value)| (key.trim(), value.trim()));
            asked.insert(key.to_owned(), boolean(key, value)?);
        }
        if asked.len() == 1 && asked.get("api/all") == Some(&false) {
            return Err(RuntimeConfigError::Nothing);
        }
        let config = RuntimeConfig { asked, gates };
        config.check_keys()?;
        config.check_needed()?;
        Ok(config)
    }

    fn check_keys(&self) -> Result<(), RuntimeConfigError> {
        let known = |key: &&String| !MATCHERS.iter().any(|(name, _)| name == key);
        let mut strangers = BTreeSet::new();
        for key in self.asked.keys().filter(known) {
            let parts: Vec<&str> = key.split('/').collect();
            let (group, version, resource) = match parts[..] {
                [group, version] => (group, version, None),
                [group, version, resource] => (group, version, Some(resource)),
                _ => return Err(RuntimeConfigError::Key(key.clone())),
            };
            let group_version = format!("{group}/{version}").trim_start_matches('/').to_owned();
            if !has_group(group) {
                strangers.insert(group_version);
                continue;
            }
            let kinds = || api::every_kind().filter(|kind| kind.group == group && kind.version == version);
            if kinds().next().is_none() && !aggregate::is_known_version(group, version) {
                return Err(RuntimeConfigError::Version(group_version));
            }
            if let Some(resource) = resource.filter(|resource| resource.to_lowercase() != **resource) {
                return Err(RuntimeConfigError::NotLower { key: key.clone(), resource: resource.to_owned() });
            }
            let is_served = kinds().any(|kind| resource.is_none_or(|resource| kind.plural == resource));
            if !is_served && self.asked[key] {
                return Err(RuntimeConfigError::NotServed(key.clone()));
            }
        }
        if strangers.is_empty() {
            Ok(())
        } else {
            Err(RuntimeConfigError::Groups(strangers.into_iter().collect::<Vec<_>>().join(",")))
        }
    }

    fn check_needed(&self) -> Result<(), RuntimeConfigError> {
        let missing = api::KINDS.iter().find(|kind| is_needed(kind) && !self.serves(kind));
        missing
            .map_or(Ok(()), |kind| Err(RuntimeConfigError::Needed(format!("{}/{}", kind.api_version(), kind.plural))))
    }

    /// Whether a built-in kind is served in that version.
    pub(crate) fn serves(&self, kind: &Kind) -> bool {
        let optional = OPTIONAL.iter().find(|optional| is_same(optional.kind, kind));
        let mut serves = optional.is_none();
        for (name, stage) in MATCHERS {
            if let Some(value) = self.asked.get(name).filter(|_| stage.has(kind.version)) {
                serves = *value;
            }
        }
        let version = format!("{}/{}", kind.group, kind.version);
        let resource = format!("{version}/{}", kind.plural);
        for key in [version, resource] {
            serves = self.asked.get(&key).copied().unwrap_or(serves);
        }
        let gate = optional.and_then(|optional| optional.gate);
        if serves && let Some(gate) = gate.filter(|gate| !self.gates.is_on(gate)) {
            tracing::warn!(
                resource = kind.plural,
                version = kind.version,
                gate,
                "not serving resource: its feature gate is off"
            );
            return false;
        }
        serves
    }

    /// As the flag would say it.
    pub(crate) fn written(&self) -> String {
        self.asked.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn gates(&self) -> &Gates {
        &self.gates
    }
}

fn boolean(key: &str, value: &str) -> Result<bool, RuntimeConfigError> {
    match value {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(RuntimeConfigError::Value { key: key.to_owned(), value: value.to_owned() }),
    }
}

fn is_same(one: &Kind, other: &Kind) -> bool {
    (one.group, one.version, one.plural) == (other.group, other.version, other.plural)
}

fn has_group(group: &str) -> bool {
    aggregate::is_known_group(group) || api::every_kind().any(|kind| kind.group == group)
}

/// What the server reads or writes itself, beside what `start` makes views of.
const NEEDED: &[(&str, &str)] = &[
    ("networking.k8s.io", "ipaddresses"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
];

fn is_needed(kind: &Kind) -> bool {
    let is_it = |(group, plural): &&(&str, &str)| *group == kind.group && *plural == kind.plural;
    NEEDED.iter().chain(crate::start::READ).any(|pair| is_it(&pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RuntimeConfig, RuntimeConfigError> {
        let open: Vec<&str> = OPTIONAL.iter().filter_map(|optional| optional.gate).collect();
        let all: Vec<String> = open.iter().map(|gate| format!("{gate}=true")).collect();
        let gates = Gates::parse(&all.join(","), &open).expect("they are open");
        RuntimeConfig::parse(text, gates)
    }

    /// The optional kinds that are served, and those of the default ones that are not.
    fn check(text: &str, optional: usize, missing: &[&str]) {
        let config = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let served = OPTIONAL.iter().filter(|optional| config.serves(optional.kind)).count();
        let not: Vec<&str> = api::KINDS.iter().filter(|kind| !config.serves(kind)).map(|kind| kind.plural).collect();
        assert_eq!((served, &not[..]), (optional, missing), "{text}");
    }

    #[test]
    fn what_is_served() {
        let of = |stage: &str| OPTIONAL.iter().filter(|optional| optional.kind.version.contains(stage)).count();
        check("", 0, &[]);
        check("api/all=true", OPTIONAL.len(), &[]);
        check("api/beta=true", of("beta"), &[]);
        check("api/alpha=true,api/beta=false", of("alpha"), &[]);
        check("resource.k8s.io/v1beta1=true", 4, &[]);
        check("resource.k8s.io/v1beta1", 4, &[]);
        check("resource.k8s.io/v1beta1/resourceslices=true", 1, &[]);
        check(
            "api/beta=true,resource.k8s.io/v1beta1=false,resource.k8s.io/v1beta1/deviceclasses=true",
            of("beta") - 3,
            &[],
        );
        check("batch/v1=false", 0, &["cronjobs", "jobs"]);
        check("batch/v1/cronjobs=false", 0, &["cronjobs"]);
        check("autoscaling/v1=false", 0, &["horizontalpodautoscalers"]);
    }

    #[test]
    fn a_closed_gate_keeps_a_kind_away() {
        let config = RuntimeConfig::parse("certificates.k8s.io/v1beta1=true", Gates::default()).expect("good");
        assert!(OPTIONAL.iter().all(|optional| !config.serves(optional.kind)));
        check("certificates.k8s.io/v1beta1=true", 2, &[]);
        check("certificates.k8s.io/v1beta1/podcertificaterequests=true,storagemigration.k8s.io/v1beta1=true", 2, &[]);
    }

    #[test]
    fn wrong_configurations_are_refused() {
        for (text, expected) in [
            ("api/all=false", "invalid runtime-config with only api/all=false"),
            ("api/all=false,batch/v1=true", "knarr cannot run without v1/configmaps: the API server reads it itself"),
            ("/v1/pods=false", "knarr cannot run without v1/pods: the API server reads it itself"),
            ("pods", "runtime-config invalid key pods"),
            ("a.example/v1=true,b.example/v1=true", "unknown api groups a.example/v1,b.example/v1"),
            ("batch/v9=true", "group version batch/v9 that has not been registered"),
            ("batch/v1=maybe", "invalid value batch/v1=maybe"),
            (
                "batch/v1/CronJobs=true",
                "invalid key batch/v1/CronJobs: group/version/resource and resource is always lowercase plural, not \"CronJobs\"",
            ),
            ("resource.k8s.io/v1alpha3=true", "knarr cannot serve resource.k8s.io/v1alpha3"),
            ("batch/v1/nothing=true", "knarr cannot serve batch/v1/nothing"),
        ] {
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(expected.to_owned()), "{text}");
        }
    }
}
