//! Validation of HorizontalPodAutoscaler.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use machinery::quantity::Quantity;
use serde_json::Value;

use crate::check;
use crate::core::resources;

const STABILIZATION_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;

const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

type Rule = fn(&Node, &Kept, &mut Errors);

/// What a stored autoscaler does wrong already may stay so.
#[derive(Default)]
struct Kept {
    described_versions: bool,
}

impl Kept {
    fn of(old_spec: &Node) -> Kept {
        let is_bad = |metric: Node| {
            let described = metric.at("object").at("describedObject");
            described.text("apiVersion").matches('/').count() > 1
        };
        Kept { described_versions: old_spec.each("metrics").any(is_bad) }
    }
}

/// The kinds of metrics in upstream's order of checks: type, field, rule.
const SOURCES: [(&str, &str, Rule); 5] = [
    ("Object", "object", object),
    ("External", "external", external),
    ("Pods", "pods", pods),
    ("Resource", "resource", resource),
    ("ContainerResource", "containerResource", container_resource),
];

pub(super) fn validate(autoscaler: &Node, errors: &mut Errors) {
    validate_update(autoscaler, &Node::root(&Value::Null), errors);
}

/// What an older server took of the target and of the least number of pods stays.
pub(super) fn validate_update(autoscaler: &Node, old: &Node, errors: &mut Errors) {
    let (spec, old) = (autoscaler.at("spec"), old.at("spec"));
    let least = if old.number("minReplicas") == Some(0) { 0 } else { 1 };
    let (min, max) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    let max_replicas = max.int().unwrap_or(0);
    if min.int().is_some_and(|count| count < least) {
        errors.invalid(&min, format!("must be greater than or equal to {least}"));
    }
    if max_replicas == 0 {
        errors.required(&max, "must be set and greater than 0");
    } else if max_replicas < 1 {
        errors.invalid_value(&max.path, &max_replicas.into(), "must be greater than or equal to 1");
    }
    if min.int().is_some_and(|count| max_replicas < count) {
        errors.invalid_value(&max.path, &max_replicas.into(), "must be greater than or equal to `minReplicas`");
    }
    let (target, before) = (spec.at("scaleTargetRef"), old.at("scaleTargetRef"));
    let same = |field: &str| target.text(field) == before.text(field);
    let group = if before.exists() && same("apiVersion") && same("kind") { Group::Any } else { Group::Needed };
    reference(&target, group, errors);
    let metrics = spec.at("metrics");
    let kept = Kept::of(&old);
    for entry in metrics.items() {
        metric(&entry, &kept, errors);
    }
    let counts_without_pods = |metric: Node| ["Object", "External"].contains(&metric.text("type"));
    if min.int() == Some(0) && !metrics.items().any(counts_without_pods) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&metrics, detail);
    }
    for direction in ["scaleUp", "scaleDown"] {
        if spec.at("behavior").has(direction) {
            scaling_rules(&spec.at("behavior").at(direction), errors);
        }
    }
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    for field in ["currentReplicas", "desiredReplicas"] {
        check::not_negative(&new.at("status").at(field), errors);
    }
}

enum Group {
    /// What is scaled has a group, except the one kind of the core that can be scaled.
    Needed,
    /// What is measured may be of the core, a Service for example.
    Free,
    /// What was not changed.
    Any,
}

fn reference(reference: &Node, group: Group, errors: &mut Errors) {
    check::required_rule(&reference.at("kind"), names::path_segment_name, errors);
    check::required_rule(&reference.at("name"), names::path_segment_name, errors);
    let version = reference.at("apiVersion");
    let slashes = version.str().matches('/').count();
    let is_core_scalable = reference.text("kind") == "ReplicationController";
    let problem = match group {
        Group::Any => return,
        _ if slashes > 1 => format!("unexpected GroupVersion string: {}", version.str()),
        Group::Needed if (slashes == 0 || version.str().starts_with('/')) && !is_core_scalable => {
            "apiVersion must specify API group".to_string()
        }
        _ => return,
    };
    errors.invalid_value(&version.path, &version.str().into(), problem);
}

fn metric(metric: &Node, kept: &Kept, errors: &mut Errors) {
    let kind = metric.at("type");
    check::required(&kind, "must specify a metric source type", errors);
    check::one_of_texts(&kind, TYPES, errors);
    let present: Vec<_> = SOURCES.iter().filter(|(_, field, _)| metric.has(field)).collect();
    if let Some((_, field, check_source)) = present.first() {
        check_source(&metric.at(field), kept, errors);
    }
    let expected = match SOURCES.iter().find(|(name, _, _)| *name == kind.str()) {
        Some((_, field, _)) => {
            if !metric.has(field) {
                errors.required(&metric.at(field), "must populate information for the given metric source");
            }
            *field
        }
        None => {
            // Upstream says it a second time.
            check::one_of_texts(&kind, TYPES, errors);
            ""
        }
    };
    if present.len() != 1 {
        for (_, field, _) in present.iter().filter(|(_, field, _)| *field != expected) {
            errors.forbidden(&metric.at(field), "must populate the given metric source only");
        }
    }
}

fn object(source: &Node, kept: &Kept, errors: &mut Errors) {
    let group = if kept.described_versions { Group::Any } else { Group::Free };
    reference(&source.at("describedObject"), group, errors);
    identifier(&source.at("metric"), errors);
    let target = source.at("target");
    validate_target(&target, errors);
    if !target.has("value") && !target.has("averageValue") {
        errors.required(&target.at("averageValue"), "must set either a target value or averageValue");
    }
}

fn external(source: &Node, _kept: &Kept, errors: &mut Errors) {
    identifier(&source.at("metric"), errors);
    let target = source.at("target");
    validate_target(&target, errors);
    match (target.has("value"), target.has("averageValue")) {
        (false, false) => {
            errors.required(&target.at("averageValue"), "must set either a target value for metric or a per-pod target")
        }
        (true, true) => {
            errors.forbidden(&target.at("value"), "may not set both a target value for metric and a per-pod target")
        }
        _ => {}
    }
}

fn pods(source: &Node, _kept: &Kept, errors: &mut Errors) {
    identifier(&source.at("metric"), errors);
    let target = source.at("target");
    validate_target(&target, errors);
    if !target.has("averageValue") {
        errors.required(&target.at("averageValue"), "must specify a positive target averageValue");
    }
}

fn resource(source: &Node, _kept: &Kept, errors: &mut Errors) {
    check::required(&source.at("name"), "must specify a resource name", errors);
    resource_target(&source.at("target"), errors);
}

fn container_resource(source: &Node, _kept: &Kept, errors: &mut Errors) {
    let name = source.at("name");
    match name.str() {
        "" => errors.required(&name, "must specify a resource name"),
        text => resources::container_name(text, &name, errors),
    }
    let container = source.at("container");
    check::required(&container, "must specify a container", errors);
    check::optional_rule(&container, names::dns_label, errors);
    resource_target(&source.at("target"), errors);
}

fn resource_target(target: &Node, errors: &mut Errors) {
    validate_target(target, errors);
    match (target.has("averageUtilization"), target.has("averageValue")) {
        (false, false) => errors
            .required(&target.at("averageUtilization"), "must set either a target raw value or a target utilization"),
        (true, true) => {
            errors
                .forbidden(&target.at("averageValue"), "may not set both a target raw value and a target utilization");
        }
        _ => {}
    }
}

fn identifier(metric: &Node, errors: &mut Errors) {
    let name = metric.at("name");
    check::required(&name, "must specify a metric name", errors);
    check::rule(&name, names::path_segment_name(name.str()), errors);
}

fn validate_target(target: &Node, errors: &mut Errors) {
    let kind = target.at("type");
    check::required(&kind, "must specify a metric target type", errors);
    if !["Utilization", "Value", "AverageValue"].contains(&kind.str()) {
        errors.invalid_value(&kind.path, &kind.str().into(), "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = target.at(field);
        if amount.exists() && Quantity::from_value(amount.value).is_ok_and(|quantity| quantity.sign() != 1) {
            errors.invalid(&amount, "must be positive");
        }
    }
    let utilization = target.at("averageUtilization");
    if utilization.int().is_some_and(|percent| percent < 1) {
        errors.invalid(&utilization, "must be greater than 0");
    }
}

fn scaling_rules(rules: &Node, errors: &mut Errors) {
    let window = rules.at("stabilizationWindowSeconds");
    match window.int().unwrap_or(0) {
        ..0 => errors.invalid(&window, "must be greater than or equal to zero"),
        seconds if seconds > STABILIZATION_SECONDS_MAX => {
            errors.invalid(&window, format!("must be less than or equal to {STABILIZATION_SECONDS_MAX}"));
        }
        _ => {}
    }
    if rules.has("selectPolicy") {
        check::one_of(&rules.at("selectPolicy"), &["Disabled", "Max", "Min"], errors);
    }
    let policies = rules.at("policies");
    if policies.is_empty() {
        errors.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        check::one_of_texts(&policy.at("type"), &["Percent", "Pods"], errors);
        for field in ["value", "periodSeconds"] {
            let number = policy.at(field);
            let count = number.int().unwrap_or(0);
            if count <= 0 {
                errors.invalid_value(&number.path, &count.into(), "must be greater than zero");
            }
        }
        let period = policy.at("periodSeconds");
        if period.int().is_some_and(|seconds| seconds > PERIOD_SECONDS_MAX) {
            errors.invalid(&period, format!("must be less than or equal to {PERIOD_SECONDS_MAX}"));
        }
    }
    let tolerance = rules.at("tolerance");
    if tolerance.exists() && Quantity::from_value(tolerance.value).is_ok_and(|quantity| quantity.sign() < 0) {
        errors.invalid(&tolerance, check::NOT_NEGATIVE);
    }
}
