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
const CONFIGS_MAX: usize = 32;
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
    let known = RequestNames::of(&requests);
    devices::set(&requests, REQUESTS_MAX, devices::name_key, errors, validate_request);
    devices::list(&claim.at("constraints"), CONSTRAINTS_MAX, errors, |constraint, errors| {
        known.check_all(&constraint.at("requests"), errors);
        if constraint.has("matchAttribute") {
            devices::fully_qualified_name(&constraint.at("matchAttribute"), errors);
        } else if constraint.has("distinctAttribute") {
            devices::fully_qualified_name(&constraint.at("distinctAttribute"), errors);
        } else {
            let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
                          are set";
            errors.required(constraint, detail);
        }
    });
    devices::list(&claim.at("config"), CONFIGS_MAX, errors, |config, errors| {
        known.check_all(&config.at("requests"), errors);
        devices::config(config, false, errors);
    });
}

fn validate_request(request: &Node, errors: &mut Errors) {
    devices::dns_label(&request.at("name"), errors);
    let (exactly, alternatives) = (request.at("exactly"), request.at("firstAvailable"));
    match (exactly.exists(), !alternatives.is_empty()) {
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid_value(&request.path, &Value::Null, detail);
        }
        (false, false) => errors.required(request, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, false) => validate_devices(&exactly, errors),
        (false, true) => {
            devices::set(&alternatives, ALTERNATIVES_MAX, devices::name_key, errors, |alternative, errors| {
                devices::dns_label(&alternative.at("name"), errors);
                validate_devices(alternative, errors);
            });
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
        validate_toleration(&toleration, errors);
    }
}

fn validate_toleration(toleration: &Node, errors: &mut Errors) {
    check::optional_rule(&toleration.at("key"), names::qualified_name, errors);
    let (operator, value) = (toleration.at("operator"), toleration.at("value"));
    match operator.str() {
        "Exists" if !value.str().is_empty() => errors.invalid(&value, "must be empty for operator `Exists`"),
        "Exists" => {}
        "Equal" => check::rule(&value, names::label_value(value.str()), errors),
        "" => errors.required(&operator, ""),
        _ => errors.not_supported(&operator, &["Equal", "Exists"]),
    }
    devices::effect(&toleration.at("effect"), errors);
}

/// What constraints, configurations and results may refer to: requests, and alternatives as `request/alternative`.
pub(super) struct RequestNames(Vec<String>);

impl RequestNames {
    pub(super) fn of(requests: &Node) -> RequestNames {
        let mut known = Vec::new();
        for request in requests.items() {
            known.push(request.text("name").to_string());
            for alternative in request.each("firstAvailable") {
                known.push(format!("{}/{}", request.text("name"), alternative.text("name")));
            }
        }
        RequestNames(known)
    }

    pub(super) fn check_all(&self, list: &Node, errors: &mut Errors) {
        let key = |name: &Node| devices::text_key(name.str());
        devices::set(list, REQUESTS_MAX, key, errors, |name, errors| self.check(name, errors));
    }

    pub(super) fn check(&self, name: &Node, errors: &mut Errors) {
        let detail =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let segments: Vec<&str> = name.str().split('/').collect();
        if segments.len() <= 2 {
            for segment in segments {
                let segment = segment.into();
                devices::dns_label(&Node::new(&segment, name.path.clone()), errors);
            }
        }
        if !self.0.iter().any(|one| one == name.str()) {
            errors.invalid_value(&name.path, &name.str().into(), detail);
        }
    }
}
