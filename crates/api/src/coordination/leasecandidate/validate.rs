//! Validation of LeaseCandidate.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use crate::check;

const OLDEST: &str = "OldestEmulationVersion";

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    check::immutable(&new.at("spec").at("leaseName"), &old.at("spec").at("leaseName"), errors);
}

pub(super) fn validate(candidate: &Node, errors: &mut Errors) {
    let spec = candidate.at("spec");
    check::required(&spec.at("leaseName"), "", errors);
    let emulation = version(&spec.at("emulationVersion"), errors);
    let binary = spec.at("binaryVersion");
    check::required(&binary, "", errors);
    let binary_version = version(&binary, errors);
    let given = !binary.str().is_empty() && !spec.text("emulationVersion").is_empty();
    if given && binary_version < emulation {
        errors.invalid(&binary, "must be greater than or equal to `emulationVersion`");
    }
    strategy(&spec, emulation, errors);
}

fn strategy(spec: &Node, emulation: Version, errors: &mut Errors) {
    let strategy = spec.at("strategy");
    if strategy.str().is_empty() {
        errors.required(&strategy, "");
        return;
    }
    if strategy.str() == OLDEST && emulation == Version::default() {
        errors.required(&spec.at("emulationVersion"), "must be specified when `strategy` is 'OldestEmulationVersion'");
    }
    // Upstream names the field twice.
    let named = Node::new(strategy.value, strategy.path.child("strategy"));
    if !strategy.str().contains('/') {
        if strategy.str() != OLDEST {
            errors.not_supported(&named, &[OLDEST]);
        }
    } else {
        check::rule(&named, names::qualified_name(strategy.str()), errors);
    }
}

/// As semver.org orders them: a release comes after all that lead to it, and a build does not count.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    numbers: [u64; 3],
    /// Orders a release behind everything that leads to it.
    is_release: bool,
    before: Vec<Identifier>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

/// Nothing where none is given or it is not one.
fn version(at: &Node, errors: &mut Errors) -> Version {
    if at.str().is_empty() {
        return Version::default();
    }
    parse(at.str()).unwrap_or_else(|| {
        errors.invalid(at, "must be a valid semantic version");
        Version::default()
    })
}

fn parse(text: &str) -> Option<Version> {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (numbers, before) = text.split_once('-').map_or((text, None), |(numbers, before)| (numbers, Some(before)));
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if build.is_some_and(|build| !build.split('.').all(is_word)) {
        return None;
    }
    let mut parts = numbers.split('.');
    let numbers = [number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?];
    let identifier = |word: &str| {
        if !is_word(word) {
            None
        } else if word.bytes().all(|byte| byte.is_ascii_digit()) {
            number(word).map(Identifier::Number)
        } else {
            Some(Identifier::Text(word.to_owned()))
        }
    };
    let identifiers = before.into_iter().flat_map(|before| before.split('.')).map(identifier);
    let before_release = identifiers.collect::<Option<Vec<_>>>()?;
    let is_whole = parts.next().is_none();
    is_whole.then_some(Version { numbers, is_release: before.is_none(), before: before_release })
}

/// Without a sign and without zeros before it.
fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Rules;

    #[test]
    fn candidates_name_a_lease_a_version_and_a_strategy() {
        let rules = Rules::of(json!({
            "apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate",
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"leaseName": "l", "binaryVersion": "1.36.4", "emulationVersion": "1.36.0", "strategy": OLDEST},
        }));
        let check = |change: serde_json::Value, expected: &[&str]| rules.create(json!({"spec": change}), expected);
        check(json!({"leaseName": ""}), &["spec.leaseName: Required value"]);
        check(json!({"binaryVersion": ""}), &["spec.binaryVersion: Required value"]);
        check(
            json!({"binaryVersion": "1.36"}),
            &[
                r#"spec.binaryVersion: Invalid value: "1.36": must be a valid semantic version"#,
                r#"spec.binaryVersion: Invalid value: "1.36": must be greater than or equal to `emulationVersion`"#,
            ],
        );
        check(
            json!({"emulationVersion": ""}),
            &["spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'"],
        );
        check(
            json!({"strategy": "Other"}),
            &[r#"spec.strategy.strategy: Unsupported value: "Other": supported values: "OldestEmulationVersion""#],
        );
        check(json!({"strategy": "example.com/mine"}), &[]);
        rules.update(
            json!({"spec": {"leaseName": "m"}}),
            &[r#"spec.leaseName: Invalid value: "m": field is immutable"#],
        );
    }

    #[test]
    fn versions_are_ordered_as_semver_orders_them() {
        let ordered =
            ["0.0.1-alpha", "0.0.1-alpha.1", "0.0.1-alpha.beta", "0.0.1", "1.2.3-1", "1.2.3-x", "1.2.3", "1.10.0"];
        for pair in ordered.windows(2) {
            assert!(parse(pair[0]).unwrap() < parse(pair[1]).unwrap(), "{pair:?}");
        }
        assert_eq!(parse("1.2.3+a"), parse("1.2.3+b"));
        for wrong in ["1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.-3", ""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
