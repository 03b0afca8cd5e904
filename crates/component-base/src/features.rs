//! Feature gates by upstream's names. Features are as upstream has them by default; the few that a component has both ways
//! it names itself, and every other change is refused.

use std::collections::BTreeMap;

use crate::metrics::{Metric, Page};

const ENABLED: Metric<'_> = Metric::gauge(
    "kubernetes_feature_enabled",
    "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
);

/// What `--feature-gates` said, as far as it differs from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    changed: BTreeMap<&'static str, bool>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("missing bool value for {0}")]
    NoValue(String),
    #[error("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    Value { name: String, value: String },
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    #[error("cannot set feature gate {name} to {value}, feature is locked to {locked}")]
    Locked { name: &'static str, value: bool, locked: bool },
    #[error("knarr does not support {name}={value}: it has this feature only as upstream's default")]
    Fixed { name: &'static str, value: bool },
}

/// One gate of upstream's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gate {
    name: &'static str,
    default: bool,
    stage: &'static str,
    locked: bool,
}

impl Gates {
    /// `text` is `A=true,B=false`; `open` are the gates that this component can set either way.
    pub fn parse(text: &str, open: &[&str]) -> Result<Gates, GateError> {
        let mut gates = Gates::default();
        let wanted = pairs(text)?;
        // Upstream sets these before all single gates, whatever their place.
        for (all, stage) in [("AllAlpha", "ALPHA"), ("AllBeta", "BETA")] {
            let Some((_, value)) = wanted.iter().find(|(name, _)| name == all) else { continue };
            for gate in known().filter(|gate| gate.stage == stage && !gate.locked) {
                let is_single = wanted.iter().any(|(name, _)| name == gate.name);
                if !is_single {
                    gates.set(gate, *value, open)?;
                }
            }
        }
        for (name, value) in wanted.iter().filter(|(name, _)| name != "AllAlpha" && name != "AllBeta") {
            let gate = known().find(|gate| gate.name == name).ok_or_else(|| GateError::Unknown(name.clone()))?;
            if gate.locked && gate.default != *value {
                return Err(GateError::Locked { name: gate.name, value: *value, locked: gate.default });
            }
            gates.set(gate, *value, open)?;
        }
        Ok(gates)
    }

    fn set(&mut self, gate: Gate, value: bool, open: &[&str]) -> Result<(), GateError> {
        if value == gate.default {
            self.changed.remove(gate.name);
            return Ok(());
        }
        if !open.contains(&gate.name) {
            return Err(GateError::Fixed { name: gate.name, value });
        }
        self.changed.insert(gate.name, value);
        Ok(())
    }

    /// A gate that upstream does not have is closed.
    pub fn is_on(&self, name: &str) -> bool {
        let default = || known().find(|gate| gate.name == name).is_some_and(|gate| gate.default);
        self.changed.get(name).copied().unwrap_or_else(default)
    }

    /// As `--feature-gates` would say it.
    pub fn written(&self) -> String {
        let pairs: Vec<String> = self.changed.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join(",")
    }

    /// Every gate, and whether it is open.
    pub fn write(&self, page: &mut Page) {
        let mut family = page.family(&ENABLED);
        for gate in known() {
            let stage = if gate.stage == "GA" { "" } else { gate.stage };
            let value = self.changed.get(gate.name).copied().unwrap_or(gate.default);
            family.sample(&[("name", gate.name), ("stage", stage)], u8::from(value));
        }
    }
}

fn pairs(text: &str) -> Result<Vec<(String, bool)>, GateError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').ok_or_else(|| GateError::NoValue(part.to_owned()))?;
        let (name, value) = (name.trim().to_owned(), value.trim());
        match value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok((name, true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok((name, false)),
            _ => Err(GateError::Value { name, value: value.to_owned() }),
        }
    };
    parts.map(pair).collect()
}

fn known() -> impl Iterator<Item = Gate> {
    let lines = include_str!("features.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split(' ');
        let (name, default, stage) = (words.next()?, words.next()?, words.next()?);
        Some(Gate { name, default: default == "true", stage, locked: words.next().is_some() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let found = Gates::parse(text, &["ClusterTrustBundle"]);
        let found = found.map(|gates| gates.written()).map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn gates_are_known_by_name() {
        check("", Ok(""));
        check("ClusterTrustBundle=true, APIServerIdentity=true", Ok("ClusterTrustBundle=true"));
        check("ClusterTrustBundle=false,AllAlpha=false", Ok(""));
        check("NoSuchGate=true", Err("unrecognized feature gate: NoSuchGate"));
        check("ClusterTrustBundle", Err("missing bool value for ClusterTrustBundle"));
        check(
            "ClusterTrustBundle=yes",
            Err(r#"invalid value of ClusterTrustBundle=yes, err: strconv.ParseBool: parsing "yes": invalid syntax"#),
        );
        check(
            "APIServerTracing=false",
            Err("cannot set feature gate APIServerTracing to false, feature is locked to true"),
        );
        check(
            "APIServerIdentity=false",
            Err("knarr does not support APIServerIdentity=false: it has this feature only as upstream's default"),
        );
        let refused = Gates::parse("AllAlpha=true", &[]).unwrap_err();
        assert!(matches!(refused, GateError::Fixed { value: true, .. }), "{refused}");
    }

    #[test]
    fn every_gate_is_told() {
        let gates = Gates::parse("ClusterTrustBundle=true", &["ClusterTrustBundle"]).unwrap();
        assert!(gates.is_on("ClusterTrustBundle") && gates.is_on("APIServerIdentity") && !gates.is_on("NoSuchGate"));
        assert!(!Gates::default().is_on("ClusterTrustBundle"));
        let mut page = Page::default();
        gates.write(&mut page);
        let text = page.text();
        assert!(text.contains("kubernetes_feature_enabled{name=\"ClusterTrustBundle\",stage=\"BETA\"} 1\n"), "{text}");
        assert!(text.contains("kubernetes_feature_enabled{name=\"APIServerTracing\",stage=\"\"} 1\n"), "{text}");
        assert!(text.lines().count() > 200);
    }

    #[test]
    fn the_table_is_sorted_and_whole() {
        let names: Vec<&str> = known().map(|gate| gate.name).collect();
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(names, sorted);
        assert!(known().all(|gate| ["ALPHA", "BETA", "GA", "DEPRECATED"].contains(&gate.stage)));
    }
}
