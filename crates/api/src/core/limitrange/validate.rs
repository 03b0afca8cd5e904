//! Validation of LimitRange: limits that contradict each other.

use std::collections::BTreeSet;

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use machinery::quantity::{Format, Quantity};
use serde_json::json;

use crate::core::{check, resources};

pub(super) fn validate(range: &Node, errors: &mut Errors) {
    let mut types = Vec::new();
    for limit in range.at("spec").each("limits") {
        let kind = limit.at("type");
        limit_type(&kind, errors);
        if types.contains(&kind.str()) {
            errors.duplicate(&kind);
        }
        types.push(kind.str());
        resource_names(&limit, &["max", "min"], errors);
        if kind.str() == "Pod" {
            for field in ["default", "defaultRequest"] {
                if !limit.at(field).is_empty() {
                    errors.forbidden(&limit.at(field), "may not be specified when `type` is 'Pod'");
                }
            }
        } else {
            resource_names(&limit, &["default", "defaultRequest"], errors);
        }
        if kind.str() == "PersistentVolumeClaim" && !limit.at("min").has("storage") && !limit.at("max").has("storage") {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::new(Problem::Required, limit.path.child("limits"), "", detail));
        }
        resource_names(&limit, &["maxLimitRequestRatio"], errors);
        for resource in all_resources(&limit) {
            Limits::of(&limit, resource).validate(resource, errors);
        }
    }
}

fn limit_type(kind: &Node, errors: &mut Errors) {
    let sentences = names::qualified_name(kind.str());
    let sound = sentences.is_empty();
    check::text(kind, sentences, errors);
    if sound && !kind.str().contains('/') && !matches!(kind.str(), "Pod" | "Container" | "PersistentVolumeClaim") {
        errors.invalid(kind, "must be a standard limit type or fully qualified");
    }
}

fn resource_names(limit: &Node, fields: &[&'static str], errors: &mut Errors) {
    for field in fields {
        for (resource, amount) in limit.at(field).entries() {
            match limit.text("type") {
                "Pod" | "Container" => resources::container_name(resource, &amount, errors),
                _ => _ = resources::name(resource, &amount, errors),
            }
        }
    }
}

fn all_resources<'a>(limit: &Node<'a>) -> BTreeSet<&'a str> {
    let fields: &[&'static str] = match limit.text("type") {
        "Pod" => &["max", "min", "maxLimitRequestRatio"],
        _ => &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"],
    };
    fields
        .iter()
        .flat_map(|field| limit.at(field).entries().map(|(resource, _)| resource).collect::<Vec<_>>())
        .collect()
}

/// All that one item says of one resource.
struct Limits<'a> {
    min: Node<'a>,
    max: Node<'a>,
    default: Node<'a>,
    request: Node<'a>,
    ratio: Node<'a>,
}

impl<'a> Limits<'a> {
    fn of(limit: &Node<'a>, resource: &str) -> Limits<'a> {
        let at = |field| limit.at(field).key(resource);
        Limits {
            min: at("min"),
            max: at("max"),
            default: at("default"),
            request: at("defaultRequest"),
            ratio: at("maxLimitRequestRatio"),
        }
    }

    fn validate(&self, resource: &str, errors: &mut Errors) {
        let Limits { min, max, default, request, ratio } = self;
        ordered((min, "min value"), (max, "max value"), (min, min), errors);
        ordered((min, "min value"), (request, "default request value"), (request, request), errors);
        ordered((request, "default request value"), (max, "max value"), (request, request), errors);
        ordered((request, "default request value"), (default, "default limit value"), (request, request), errors);
        // Upstream shows the other amount in these two.
        ordered((min, "min value"), (default, "default value"), (default, min), errors);
        ordered((default, "default value"), (max, "max value"), (default, max), errors);
        if ratio.exists() {
            self.ratio(errors);
        }
        if !resources::is_overcommit_allowed(resource)
            && default.exists()
            && request.exists()
            && resources::amount(default) != resources::amount(request)
        {
            let (default, amount) = (resources::amount(default), resources::amount(request));
            let detail = format!(
                "default value {} must equal to defaultRequest value {} in {resource}",
                default.canonical(),
                amount.canonical()
            );
            resources::invalid_amount(request, detail, errors);
        }
    }

    /// The ratio of limit to request cannot be more than the extremes allow.
    fn ratio(&self, errors: &mut Errors) {
        let ratio = resources::amount(&self.ratio);
        if ratio < Quantity::from_int(1, Format::DecimalSi) {
            resources::invalid_amount(&self.ratio, format!("ratio {} is less than 1", ratio.canonical()), errors);
        }
        if self.min.exists() && self.max.exists() {
            let limit = resources::amount(&self.max).as_f64() / resources::amount(&self.min).as_f64();
            if ratio.as_f64() > limit {
                let detail = format!("ratio {} is greater than max/min = {limit:.6}", ratio.canonical());
                resources::invalid_amount(&self.ratio, detail, errors);
            }
        }
    }
}

/// Refuses a low amount above a high one; `at` and `value` say where and what the message shows.
fn ordered(low: (&Node, &str), high: (&Node, &str), (at, value): (&Node, &Node), errors: &mut Errors) {
    if !low.0.exists() || !high.0.exists() {
        return;
    }
    let (below, above) = (resources::amount(low.0), resources::amount(high.0));
    if below > above {
        let detail = format!("{} {} is greater than {} {}", low.1, below.canonical(), high.1, above.canonical());
        errors.invalid_value(&at.path, &json!(resources::amount(value).canonical()), detail);
    }
}
