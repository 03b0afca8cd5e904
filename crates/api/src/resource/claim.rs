//! What a claim asks for, in ResourceClaim and ResourceClaimTemplate.

use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::set_default;
use serde_json::Value;

use super::devices;
use crate::check;
use machinery::names;

const REQUESTS_MAX: usize = 32;
const CONSTRAINTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;

/// A request that does not say how many devices it wants, wants one.
pub(super) fn defaults(spec: &mut Value) {
    for request in items(spec.pointer_mut("/devices/requests")) {
        if let Some(exactly) = request.get_mut("exactly").filter(|exactly| exactly.is_object()) {
            device_request(exactly);
        }
        for alternative in items(request.get_mut("firstAvailable")) {
            device_request(alternative);
        }
    }
}

fn device_request(request: &mut Value) {
    if request["allocationMode"].as_str().unwrap_or("").is_empty() {
        request["allocationMode"] = "ExactCount".into();
    }
    if request["allocationMode"] == "ExactCount" && request["count"].as_i64().unwrap_or(0) == 0 {
        request["count"] = 1.into();
    }
    for toleration in items(request.get_mut("tolerations")) {
        set_default(toleration, "operator", "Equal");
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

pub(super) fn validate(spec: &Node, errors: &mut Errors) {
    let claim = spec.at("devices");
    let requests = claim.at("requests");
    devices::limit(&requests, REQUESTS_MAX, errors);
    for request in requests.items() {
        validate_request(&request, errors);
    }
    devices::unique(requests.items().map(|request| request.at("name")), errors);
    let known = request_names(&requests);
    let constraints = claim.at("constraints");
    devices::limit(&constraints, CONSTRAINTS_MAX, errors);
    for constraint in constraints.items() {
        references(&constraint.at("requests"), &known, errors);
        let attribute = constraint.at("matchAttribute");
        if attribute.exists() {
            devices::fully_qualified_name(&attribute, errors)
        } else if !constraint.has("distinctAttribute") {
            errors.required(&attribute, "");
        }
    }
    for config in devices::configs(&claim.at("config"), errors) {
        references(&config.at("requests"), &known, errors);
    }
}

fn validate_request(request: &Node, errors: &mut Errors) {
    check::required_rule(&request.at("name"), names::dns_label, errors);
    let (exactly, alternatives) = (request.at("exactly"), request.at("firstAvailable"));
    match (exactly.exists(), !alternatives.is_empty()) {
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid_value(&request.path, &"".into(), detail);
        }
        (false, false) => errors.required(request, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, false) => validate_devices(&exactly, errors),
        (false, true) => {
            devices::limit(&alternatives, ALTERNATIVES_MAX, errors);
            for alternative in alternatives.items() {
                check::required_rule(&alternative.at("name"), names::dns_label, errors);
                validate_devices(&alternative, errors);
            }
            devices::unique(alternatives.items().map(|alternative| alternative.at("name")), errors);
        }
    }
}

fn validate_devices(request: &Node, errors: &mut Errors) {
    check::required_rule(&request.at("deviceClassName"), names::dns_subdomain, errors);
    devices::selectors(&request.at("selectors"), errors);
    let (mode, count) = (request.at("allocationMode"), request.at("count"));
    let number = count.int().unwrap_or(0);
    match mode.str() {
        "ExactCount" if number <= 0 => errors.invalid_value(&count.path, &number.into(), "must be greater than zero"),
        "ExactCount" => {}
        "All" if number != 0 => {
            errors.invalid(&count, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        _ => check::one_of_texts(&mode, &["All", "ExactCount"], errors),
    }
    for toleration in request.each("tolerations") {
        let key = toleration.at("key");
        check::optional_rule(&key, names::qualified_name, errors);
        match toleration.text("operator") {
            "Exists" if !toleration.text("value").is_empty() => {
                errors.invalid(&toleration.at("value"), "must be empty for operator `Exists`");
            }
            "Exists" => {}
            "Equal" => check::rule(&toleration.at("value"), names::label_value(toleration.text("value")), errors),
            "" => errors.required(&toleration.at("operator"), ""),
            _ => errors.not_supported(&toleration.at("operator"), &["Equal", "Exists"]),
        }
    }
}

/// What constraints and configurations may refer to: requests, and alternatives as `request/alternative`.
fn request_names(requests: &Node) -> Vec<String> {
    let mut known = Vec::new();
    for request in requests.items() {
        known.push(request.text("name").to_string());
        for alternative in request.each("firstAvailable") {
            known.push(format!("{}/{}", request.text("name"), alternative.text("name")));
        }
    }
    known
}

fn references(list: &Node, known: &[String], errors: &mut Errors) {
    devices::limit(list, REQUESTS_MAX, errors);
    for name in list.items() {
        if !known.iter().any(|one| one == name.str()) {
            let detail = "must be the name of a request in the claim or the name of a request and a subrequest \
                          separated by '/'";
            errors.invalid(&name, detail);
        }
    }
    devices::unique(list.items(), errors);
}
