//! Checks that kinds of several groups share: references, addresses, selectors, counts. Each adds upstream's sentence
//! for what it finds. The rules of names themselves are in `machinery::names`.

use std::net::IpAddr;

use ipnet::IpNet;
use machinery::field::{Errors, FieldError, Path, Problem, shown};
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

pub(crate) const IMMUTABLE: &str = "field is immutable";
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// One error for each sentence of a name rule.
pub(crate) fn rule(at: &Node, problems: Vec<String>, errors: &mut Errors) {
    for problem in problems {
        errors.invalid(at, problem);
    }
}

/// A text that must be there and must follow a rule.
pub(crate) fn required_rule(at: &Node, rule_of: fn(&str) -> Vec<String>, errors: &mut Errors) {
    match at.str() {
        "" => errors.required(at, ""),
        text => rule(at, rule_of(text), errors),
    }
}

/// A text that must follow a rule where it is there.
pub(crate) fn optional_rule(at: &Node, rule_of: fn(&str) -> Vec<String>, errors: &mut Errors) {
    if !at.str().is_empty() {
        rule(at, rule_of(at.str()), errors);
    }
}

pub(crate) fn immutable(new: &Node, old: &Node, errors: &mut Errors) {
    if !same(new.value, old.value) {
        errors.invalid(new, IMMUTABLE);
    }
}

/// Equal as Go's semantic equality sees it: a missing field, null and an empty list or map are the same.
/// Every field of both sides is looked at once: schemas are deep, and a second look per level doubles with each of them.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.iter().all(|(key, value)| same(value, right.get(key).unwrap_or(&Value::Null)))
                && right.iter().all(|(key, value)| left.contains_key(key) || is_nothing(value))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Null, other) | (other, Value::Null) => is_nothing(other),
        _ => left == right,
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

pub(crate) fn not_negative(at: &Node, errors: &mut Errors) {
    if at.int().is_some_and(|number| number < 0) {
        errors.invalid(at, NOT_NEGATIVE);
    }
}

/// A text with a `%` at its end, of which there may be at most 100 of 100, or a count that is not negative.
pub(crate) fn count_or_percent(at: &Node, errors: &mut Errors) {
    match at.value {
        Value::String(text) => {
            let digits = text.strip_suffix('%').unwrap_or("");
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                errors.invalid(
                    at,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                     regex used for validation is '[0-9]+%')",
                );
            } else if digits.parse::<i64>().map_or(true, |percent| percent > 100) {
                errors.invalid(at, "must not be greater than 100%");
            }
        }
        _ => not_negative(at, errors),
    }
}

/// A value of a list of allowed ones; upstream shows that list in its own order.
pub(crate) fn one_of(at: &Node, supported: &[&str], errors: &mut Errors) {
    if !supported.contains(&at.str()) {
        errors.not_supported(at, supported);
    }
}

/// `metav1.LabelSelector`.
pub(crate) fn label_selector(selector: &Node, errors: &mut Errors) {
    labels(&selector.at("matchLabels"), errors);
    for expression in selector.each("matchExpressions") {
        let values = expression.at("values");
        match expression.text("operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                }
            }
            _ => errors.invalid_value(
                &expression.at("operator").path,
                &expression.text("operator").into(),
                "not a valid selector operator",
            ),
        }
        let key = expression.at("key");
        for problem in names::qualified_name(key.str()) {
            errors.invalid_value(&key.path, &key.str().into(), problem);
        }
        for value in values.items() {
            rule(&value, names::label_value(value.str()), errors);
        }
    }
}

/// A map of labels. Upstream's errors name the map, and show the key or the value.
pub(crate) fn labels(map: &Node, errors: &mut Errors) {
    for (key, value) in map.entries() {
        for problem in names::qualified_name(key) {
            errors.invalid_value(&map.path, &key.into(), problem);
        }
        for problem in names::label_value(value.str()) {
            errors.invalid_value(&map.path, value.value, problem);
        }
    }
}

/// `metav1.Condition` lists of status.
pub(crate) fn conditions(list: &Node, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.items() {
        let kind = condition.at("type");
        if seen.contains(&kind.str()) {
            errors.push(FieldError::new(Problem::Duplicate, &kind.path, shown(&kind.str().into()), ""));
        }
        seen.push(kind.str());
        for problem in names::qualified_name(kind.str()) {
            errors.invalid_value(&kind.path, &kind.str().into(), problem);
        }
        one_of_texts(&condition.at("status"), &["False", "True", "Unknown"], errors);
        if condition.number("observedGeneration").is_some_and(|generation| generation < 0) {
            errors.invalid(&condition.at("observedGeneration"), "must be greater than or equal to zero");
        }
        required(&condition.at("lastTransitionTime"), "", errors);
        let reason = condition.at("reason");
        required(&reason, "", errors);
        if !reason.str().is_empty() && !is_condition_reason(reason.str()) {
            errors.invalid(
                &reason,
                "a condition reason must start with alphabetic character, optionally followed by a string of \
                 alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for \
                 validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
            );
        }
        for (field, bytes_max) in [("reason", REASON_MAX), ("message", MESSAGE_MAX)] {
            if condition.text(field).len() > bytes_max {
                errors.too_long(&condition.at(field), bytes_max);
            }
        }
    }
}

const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32768;

fn is_condition_reason(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| word(*byte))
        && bytes.iter().all(|byte| word(*byte) || matches!(byte, b',' | b':'))
}

/// As `one_of`, where a missing text is shown as `""`.
pub(crate) fn one_of_texts(at: &Node, supported: &[&str], errors: &mut Errors) {
    if !supported.contains(&at.str()) {
        let text = Value::from(at.str());
        errors.not_supported(&Node::new(&text, at.path.clone()), supported);
    }
}

/// `Required value` where a text is missing or empty.
pub(crate) fn required(at: &Node, detail: &str, errors: &mut Errors) {
    if at.str().is_empty() {
        errors.required(at, detail);
    }
}

/// `Invalid value: ""` at a struct, which is how upstream points at a whole that contradicts itself.
pub(crate) fn invalid_whole(path: &Path, detail: &str, errors: &mut Errors) {
    errors.push(FieldError::new(Problem::Invalid, path, "\"\"", detail));
}

/// An address of a field that once took leading zeros and IPv4-mapped IPv6; both are refused now.
pub(crate) fn ip_address(at: &Node, errors: &mut Errors) {
    rule(at, names::ip(at.str()), errors);
}

/// A network of such a field. Answers with the network wherever it can be read at all.
pub(crate) fn cidr(at: &Node, errors: &mut Errors) -> Option<IpNet> {
    let text = at.str();
    let parsed =
        names::lenient_cidr(text).and_then(|(address, prefix)| IpNet::new(address, prefix.try_into().ok()?).ok());
    let Some(network) = parsed else {
        errors.invalid(at, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        return None;
    };
    let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
    if address.parse::<IpAddr>().is_err() || (prefix.len() > 1 && prefix.starts_with('0')) {
        errors.invalid(at, "must not have leading 0s in IP or prefix length");
    } else if matches!(network.addr(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        errors.invalid(at, "must not have an IPv4-mapped IPv6 address");
    } else if network.addr() != network.network() {
        errors.invalid(at, "must not have bits set beyond the prefix length");
    }
    Some(network)
}

/// As `cidr`, for newer fields that also take only one spelling of a network.
pub(crate) fn canonical_cidr(at: &Node, errors: &mut Errors) -> Option<IpNet> {
    let found_before = errors.0.len();
    let network = cidr(at, errors)?;
    let canonical = network.trunc().to_string();
    if errors.0.len() == found_before && canonical != at.str() {
        errors.invalid(at, format!("must be in canonical form ({canonical:?})"));
    }
    Some(network)
}

/// Whether a text is an IP address in any spelling, leading zeros included.
pub(crate) fn is_ip(text: &str) -> bool {
    names::lenient_ip(text).is_some()
}

/// `example.com/path`, as controllers and finalizers are named.
pub(crate) fn domain_prefixed_path(at: &Node, errors: &mut Errors) {
    let text = at.str();
    if text.is_empty() {
        errors.required(at, "");
        return;
    }
    let (host, path) = text.split_once('/').unwrap_or((text, ""));
    if host.is_empty() || path.is_empty() {
        errors.invalid(at, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        return;
    }
    for problem in names::dns_subdomain(host) {
        errors.invalid_value(&at.path, &host.into(), problem);
    }
    if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)) {
        errors.invalid_value(
            &at.path,
            &path.into(),
            "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_go_holds_alike_is_the_same() {
        let check = |left: Value, right: Value, expected: bool| {
            assert_eq!((same(&left, &right), same(&right, &left)), (expected, expected), "{left} {right}");
        };
        check(json!({"a": 1, "b": null}), json!({"a": 1, "c": [], "d": {}}), true);
        check(json!({"a": {"b": []}}), json!({"a": {}}), true);
        check(json!({"a": 1}), json!({"a": 1, "b": 0}), false);
        check(json!([{"a": []}]), json!([{}]), true);
        check(json!([1]), json!([1, 2]), false);
    }

    #[test]
    fn deep_values_are_compared_in_linear_time() {
        let deep = (0..60).fold(json!("end"), |below, _| json!({"properties": {"below": below}}));
        // Twice the work per level would take longer than the universe has.
        assert!(same(&deep, &deep.clone()));
    }

    fn found(rule: impl Fn(&Node, &mut Errors), value: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        rule(&Node::new(value, Path::new("f")), &mut errors);
        errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect()
    }

    #[test]
    fn conditions_of_statuses() {
        let good = json!({
            "type": "Ready", "status": "True", "reason": "AllGood", "lastTransitionTime": "2030-01-01T00:00:00Z", "message": "",
        });
        assert!(found(conditions, &json!([good])).is_empty());
        assert_eq!(found(conditions, &json!([good, good])), ["f[1].type: Duplicate value: \"Ready\""]);
        let bad = json!({"type": "a b", "status": "Maybe", "observedGeneration": -1, "reason": "not so"});
        let expected = [
            "f[0].type: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
             validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "f[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\"",
            "f[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
            "f[0].lastTransitionTime: Required value",
            "f[0].reason: Invalid value: \"not so\": a condition reason must start with alphabetic character, optionally \
             followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' \
             (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for \
             validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
        ];
        assert_eq!(found(conditions, &json!([bad])), expected);
        let long = json!([{"type": "a", "status": "True", "lastTransitionTime": "x", "reason": "a".repeat(1025), "message": "a".repeat(32769)}]);
        assert_eq!(
            found(conditions, &long),
            [
                "f[0].reason: Too long: may not be more than 1024 bytes",
                "f[0].message: Too long: may not be more than 32768 bytes",
            ]
        );
    }

    #[test]
    fn counts_and_percents() {
        for (value, expected) in [
            (json!(0), None),
            (json!(-1), Some("must be greater than or equal to 0")),
            (json!("100%"), None),
            (json!("101%"), Some("must not be greater than 100%")),
            (json!("a%"), Some("a valid percent string must be")),
            (json!("%"), Some("a valid percent string must be")),
            (json!("5"), Some("a valid percent string must be")),
            (json!("99999999999999999999%"), Some("must not be greater than 100%")),
        ] {
            let problems = found(count_or_percent, &value);
            assert_eq!(problems.is_empty(), expected.is_none(), "{value} {problems:?}");
            assert!(problems.iter().all(|problem| problem.contains(expected.unwrap_or_default())), "{problems:?}");
        }
    }

    #[test]
    fn paths_with_a_domain() {
        let domain = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        for (text, expected) in [
            ("acme.io/foo/bar", None),
            ("foo", Some(format!("f: Invalid value: \"foo\": {domain}"))),
            ("/foo", Some(format!("f: Invalid value: \"/foo\": {domain}"))),
            ("acme.io/", Some(format!("f: Invalid value: \"acme.io/\": {domain}"))),
            ("", Some("f: Required value".to_owned())),
        ] {
            assert_eq!(found(domain_prefixed_path, &json!(text)).first(), expected.as_ref(), "{text}");
        }
    }
}
