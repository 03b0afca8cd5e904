//! Metrics as v1's annotations write them: target and selector flat beside the name, where v2 nests them.

use serde_json::{Map, Value, json};

/// How one kind of metric spells its flat fields: in the spec and in the status.
struct Source {
    kind: &'static str,
    field: &'static str,
    /// v1's name of the described object, where there is one.
    object: bool,
    name: &'static str,
    selector: &'static str,
    /// v2 field, v1 field of the target.
    target: &'static [(&'static str, &'static str)],
    current: &'static [(&'static str, &'static str)],
}

const SOURCES: [Source; 5] = [
    Source {
        kind: "Object",
        field: "object",
        object: true,
        name: "metricName",
        selector: "selector",
        target: &[("value", "targetValue"), ("averageValue", "averageValue")],
        current: &[("value", "currentValue"), ("averageValue", "averageValue")],
    },
    Source {
        kind: "Pods",
        field: "pods",
        object: false,
        name: "metricName",
        selector: "selector",
        target: &[("averageValue", "targetAverageValue")],
        current: &[("averageValue", "currentAverageValue")],
    },
    Source {
        kind: "External",
        field: "external",
        object: false,
        name: "metricName",
        selector: "metricSelector",
        target: &[("value", "targetValue"), ("averageValue", "targetAverageValue")],
        current: &[("value", "currentValue"), ("averageValue", "currentAverageValue")],
    },
    RESOURCE,
    Source { kind: "ContainerResource", field: "containerResource", ..RESOURCE },
];

const RESOURCE: Source = Source {
    kind: "Resource",
    field: "resource",
    object: false,
    name: "",
    selector: "",
    target: &[("averageUtilization", "targetAverageUtilization"), ("averageValue", "targetAverageValue")],
    current: &[("averageUtilization", "currentAverageUtilization"), ("averageValue", "currentAverageValue")],
};

pub(super) fn spec_to_v2(metric: &Value) -> Value {
    nested(metric, "target", |source| source.target)
}

pub(super) fn status_to_v2(metric: &Value) -> Value {
    nested(metric, "current", |source| source.current)
}

pub(super) fn spec_to_v1(metric: &Value) -> Value {
    flat(metric, "target", |source| source.target)
}

pub(super) fn status_to_v1(metric: &Value) -> Value {
    flat(metric, "current", |source| source.current)
}

fn source_of(metric: &Value) -> Option<&'static Source> {
    SOURCES.iter().find(|source| metric["type"] == source.kind)
}

fn nested(metric: &Value, part: &str, fields: fn(&Source) -> &'static [(&'static str, &'static str)]) -> Value {
    let Some(source) = source_of(metric) else { return json!({"type": metric["type"]}) };
    let from = &metric[source.field];
    let mut to = Map::new();
    if source.object {
        to.insert("describedObject".into(), from["target"].clone());
    }
    if source.name.is_empty() {
        copy(from, &mut to, "name", "name");
        copy(from, &mut to, "container", "container");
    } else {
        let mut identifier = Map::new();
        copy(from, &mut identifier, source.name, "name");
        copy(from, &mut identifier, source.selector, "selector");
        to.insert("metric".into(), identifier.into());
    }
    let mut amounts = Map::new();
    for (new, old) in fields(source) {
        copy(from, &mut amounts, old, new);
    }
    // An object's plain value has no omitempty in v1: beside an average it is a zero that says nothing.
    if amounts.contains_key("averageValue") && amounts.get("value").is_some_and(|value| value == "0") {
        amounts.remove("value");
    }
    if part == "target" {
        let kind = match () {
            () if amounts.contains_key("averageUtilization") => "Utilization",
            () if amounts.contains_key("averageValue") => "AverageValue",
            () => "Value",
        };
        amounts.insert("type".into(), kind.into());
    }
    to.insert(part.into(), amounts.into());
    json!({"type": source.kind, source.field: to})
}

fn flat(metric: &Value, part: &str, fields: fn(&Source) -> &'static [(&'static str, &'static str)]) -> Value {
    let Some(source) = source_of(metric) else { return json!({"type": metric["type"]}) };
    let from = &metric[source.field];
    let mut to = Map::new();
    if source.object {
        to.insert("target".into(), from["describedObject"].clone());
    }
    if source.name.is_empty() {
        copy(from, &mut to, "name", "name");
        copy(from, &mut to, "container", "container");
    } else {
        copy(&from["metric"], &mut to, "name", source.name);
        copy(&from["metric"], &mut to, "selector", source.selector);
    }
    for (new, old) in fields(source) {
        copy(&from[part], &mut to, new, old);
    }
    if source.object {
        let value = if part == "target" { "targetValue" } else { "currentValue" };
        to.entry(value).or_insert("0".into());
    }
    json!({"type": source.kind, source.field: to})
}

fn copy(from: &Value, to: &mut Map<String, Value>, old: &str, new: &str) {
    if let Some(value) = from.get(old).filter(|value| !value.is_null()) {
        to.insert(new.into(), value.clone());
    }
}
