//! Validation of Event. What comes through `events.k8s.io` must obey more; see that kind.

use machinery::field::{Errors, FieldError, Path, Problem};
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::json;

use crate::core::check;

const TEXT_MAX: usize = 128;
const MESSAGE_MAX: usize = 1024;

/// Events with a time of their own are of the new kind, and must say who reports what.
pub(crate) fn validate(event: &Node, errors: &mut Errors) {
    validate_reported_by("reportingComponent", event, errors);
}

/// The field that says who reports has a name of its own in each group.
pub(crate) fn validate_reported_by(reporter: &'static str, event: &Node, errors: &mut Errors) {
    let namespace = event.value.namespace();
    let object = event.at("involvedObject").at("namespace");
    let fits = match (object.str(), event.has("eventTime")) {
        ("", false) => matches!(namespace, "" | "default"),
        ("", true) => matches!(namespace, "default" | "kube-system"),
        (object, false) => object == namespace,
        (_, true) => true,
    };
    if !fits {
        check::invalid_text(&object, "does not match event.namespace", errors);
    }
    if event.has("eventTime") {
        let controller = Node::new(event.at("reportingComponent").value, Path::new(reporter));
        check::required_text(&controller, errors);
        check::text(&controller, names::qualified_name(controller.str()), errors);
        for field in ["reportingInstance", "action", "reason"] {
            check::required_text(&event.at(field), errors);
            at_most(&event.at(field), TEXT_MAX, errors);
        }
        at_most(&event.at("message"), MESSAGE_MAX, errors);
    }
    for sentence in names::dns_subdomain(namespace) {
        errors.invalid_value(&Path::new("namespace"), &json!(namespace), sentence);
    }
}

/// The further rules for events written through `events.k8s.io`, on the stored form.
pub(crate) fn validate_strict(event: &Node, errors: &mut Errors) {
    series(event, errors);
    if !event.has("eventTime") {
        errors.required(&event.at("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        blank(&event.at("type").path, &format!("has invalid value: {kind}"), errors);
    }
    for field in ["firstTimestamp", "lastTimestamp", "count"] {
        if event.has(field) && event.number(field) != Some(0) {
            blank(&event.at(field).path, "needs to be unset", errors);
        }
    }
    let source = event.at("source");
    if !source.text("component").is_empty() || !source.text("host").is_empty() {
        blank(&source.path, "needs to be unset", errors);
    }
}

/// Of an event written through `events.k8s.io`, only the series may change.
pub(crate) fn validate_strict_update(new: &Node, old: &Node, errors: &mut Errors) {
    const FIXED: [(&str, &str); 14] = [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    if new.at("series").value != old.at("series").value {
        series(new, errors);
    }
    for (field, shown) in FIXED {
        let (after, before) = (new.at(field), old.at(field));
        if after.value != before.value {
            errors.invalid_value(&Path::new(shown), after.value, check::IMMUTABLE);
        }
    }
}

fn series(event: &Node, errors: &mut Errors) {
    let series = event.at("series");
    if !series.exists() {
        return;
    }
    if series.number("count").unwrap_or(0) < 2 {
        blank(&series.at("count").path, "should be at least 2", errors);
    }
    if !series.has("lastObservedTime") {
        errors.required(&series.at("lastObservedTime"), "");
    }
}

fn at_most(node: &Node, bytes_max: usize, errors: &mut Errors) {
    if node.str().len() > bytes_max {
        blank(&node.path, &format!("can have at most {bytes_max} characters"), errors);
    }
}

/// These messages show an empty value, whatever the field holds.
fn blank(path: &Path, detail: &str, errors: &mut Errors) {
    errors.push(FieldError::new(Problem::Invalid, path, "\"\"", detail));
}
