//! What the workload kinds have in common: a selector, a template, counted replicas, a status of the controller's.

use machinery::field::Errors;
use machinery::kind::{human_duration, since};
use machinery::node::Node;
use machinery::table::Cell;
use serde_json::{Map, Value};

use super::pod_spec::text::{NOT_NEGATIVE, not_negative, push};
use super::pod_spec::{template, warnings};
use super::selector::{self, Match};
use machinery::names;

pub use jiff::Timestamp;

/// What a kind calls itself where its messages differ.
pub struct Words {
    pub kind: &'static str,
    pub empty_selector: &'static str,
}

/// The selector of a workload, which must be there and say something, and the template that it must match.
pub(crate) fn selector_and_template(errors: &mut Errors, spec: &Node, words: &Words) {
    required_selector(errors, spec, words);
    let template = spec.at("template");
    match selects(spec) {
        Match::Yes => {}
        Match::No => mismatch(errors, &template),
        // Upstream looks no further then.
        Match::Unreadable => return errors.invalid(&spec.at("selector"), "invalid label selector"),
    }
    template::validate(errors, &template);
    always_restarted(errors, &template, words);
}

pub(crate) fn required_selector(errors: &mut Errors, spec: &Node, words: &Words) {
    let node = spec.at("selector");
    if !node.exists() {
        return errors.required(&node, "");
    }
    selector::validate(&node, errors);
    if selector::is_empty(node.value) {
        errors.invalid(&node, words.empty_selector);
    }
}

/// Whether the selector matches the template. An empty one is another error's business.
pub fn selects(spec: &Node) -> Match {
    let (own, labels) = (spec.at("selector"), spec.at("template").at("metadata").at("labels"));
    if own.exists() && selector::is_empty(own.value) { Match::Yes } else { selector::matches(own.value, labels.value) }
}

pub fn mismatch(errors: &mut Errors, template: &Node) {
    errors.invalid(&template.at("metadata").at("labels"), "`selector` does not match template `labels`");
}

/// Pods of a workload that never ends restart always.
pub(crate) fn always_restarted(errors: &mut Errors, template: &Node, words: &Words) {
    let spec = template.at("spec");
    let policy = spec.at("restartPolicy");
    if policy.str() != "Always" {
        errors.not_supported(&policy, &["Always"]);
    }
    if spec.has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {} is not Supported", words.kind);
        errors.forbidden(&spec.at("activeDeadlineSeconds"), detail);
    }
}

/// A field that stays as it was made.
pub fn immutable(errors: &mut Errors, new: &Node, old: &Node) {
    if new.value != old.value {
        errors.invalid(new, "field is immutable");
    }
}

/// A number or a percentage, neither below zero.
pub(crate) fn number_or_percent(errors: &mut Errors, at: &Node) {
    match at.value {
        Value::String(text) if !is_percent(text) => errors.invalid(
            at,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
             used for validation is '[0-9]+%')",
        ),
        Value::String(_) => {}
        _ => not_negative(errors, at),
    }
}

pub(crate) fn at_most_all(errors: &mut Errors, at: &Node) {
    if at.value.as_str().is_some_and(|text| is_percent(text) && amount(at) > 100) {
        errors.invalid(at, "must not be greater than 100%");
    }
}

/// The number, or the percentage as a number.
pub fn amount(at: &Node) -> i64 {
    match at.value {
        Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(0),
        value => value.as_i64().unwrap_or(0),
    }
}

fn is_percent(text: &str) -> bool {
    text.strip_suffix('%').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Counts in a status: none below zero.
pub fn counts(errors: &mut Errors, status: &Node, fields: &[&'static str]) {
    for field in fields {
        if status.number(field).is_some_and(|count| count < 0) {
            errors.invalid(&status.at(field), NOT_NEGATIVE);
        }
    }
}

/// Counts in a status that are parts of another count.
pub(crate) fn at_most(errors: &mut Errors, status: &Node, fields: &[&'static str], whole: &str, name: &str) {
    for field in fields {
        let count = status.number(field).unwrap_or(0);
        if count > status.number(whole).unwrap_or(0) {
            errors.invalid_value(&status.at(field).path, &count.into(), format!("cannot be greater than {name}"));
        }
    }
}

/// `status.collisionCount` only grows.
pub fn collisions(errors: &mut Errors, new: &Node, old: &Node) {
    let count = |node: &Node| node.value.pointer("/status/collisionCount").and_then(Value::as_i64).unwrap_or(0);
    if count(new) < count(old) {
        let path = new.path.child("status").child("collisionCount");
        push(errors, machinery::field::Problem::Invalid, &path, &count(new).into(), "cannot be decremented");
    }
}

/// A status is written by controllers alone; an update of the object leaves it as it was.
pub(crate) fn keep_status(new: &mut Value, old: &Value) {
    match old.get("status") {
        Some(status) => new["status"] = status.clone(),
        None => _ = new.as_object_mut().map(|fields| fields.remove("status")),
    }
}

/// The warnings for a workload whose pods carry its name, on create and whenever its spec changes.
pub(crate) fn template_warnings(new: &Value, old: Option<&Value>, template: &str) -> Vec<String> {
    if old.is_some_and(|old| old.get("spec") == new.get("spec")) {
        return Vec::new();
    }
    let path = template.replace('/', ".");
    warnings::pod(path.trim_start_matches('.'), new.pointer(template).unwrap_or(&Value::Null))
}

/// A name that pods and hosts take on should be a DNS label.
pub(crate) fn name_warning(object: &Value, old: Option<&Value>) -> Option<String> {
    let problems = names::dns_label(machinery::object::Meta::name(object));
    (old.is_none() && !problems.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            problems.join(" ")
        )
    })
}

/// A whole number of an object, 0 where it is missing.
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The names of a template's containers, and their images.
pub(crate) fn containers_and_images(pod_spec: Option<&Value>) -> [Cell; 2] {
    let list = pod_spec.and_then(|spec| spec.get("containers")).and_then(Value::as_array);
    ["name", "image"].map(|field| {
        let texts = list.into_iter().flatten().map(|container| container[field].as_str().unwrap_or(""));
        texts.collect::<Vec<_>>().join(",").into()
    })
}

/// Labels as `kubectl get` shows them: `a=b,c=d`.
pub fn labels_text(labels: Option<&Value>) -> String {
    let entries = labels.and_then(Value::as_object).into_iter().flat_map(Map::iter);
    let texts: Vec<String> = entries.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    or_none(texts.join(","))
}

/// A label selector as `kubectl get` shows it: `a=b,c in (d,e),!f`, in the order of keys.
pub fn selector_text(selector: Option<&Value>) -> String {
    let equal = selector.and_then(|selector| selector.get("matchLabels")).and_then(Value::as_object);
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in equal.into_iter().flatten() {
        parts.push((key, format!("{key}={}", value.as_str().unwrap_or(""))));
    }
    let requirements = selector.and_then(|selector| selector.get("matchExpressions")).and_then(Value::as_array);
    for requirement in requirements.into_iter().flatten() {
        let key = requirement["key"].as_str().unwrap_or("");
        let mut values: Vec<&str> =
            requirement["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match requirement["operator"].as_str().unwrap_or("") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_string(),
        };
        parts.push((key, text));
    }
    parts.sort_by(|left, right| left.0.cmp(right.0));
    or_none(parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

pub(crate) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".into() } else { text }
}

/// How long ago a time was, `<unknown>` where there is none.
pub fn ago(object: &Value, pointer: &str, now: Timestamp) -> String {
    since(object.pointer(pointer).and_then(Value::as_str).unwrap_or(""), now)
}

/// The time between two stamps, as `kubectl get` shows it.
pub fn between(start: Timestamp, end: Timestamp) -> String {
    human_duration(end.as_second() - start.as_second())
}
