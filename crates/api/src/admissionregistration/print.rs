//! The columns of `kubectl get` for webhooks, policies and bindings.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::show;

pub(super) fn webhooks(configuration: &Value, now: Timestamp) -> Vec<Cell> {
    vec![configuration.name().into(), show::count(&configuration["webhooks"]).into(), age(configuration, now)]
}

pub(super) fn validating_policy(policy: &Value, now: Timestamp) -> Vec<Cell> {
    row_of_policy(policy, "validations", now)
}

pub(super) fn mutating_policy(policy: &Value, now: Timestamp) -> Vec<Cell> {
    row_of_policy(policy, "mutations", now)
}

fn row_of_policy(policy: &Value, list: &str, now: Timestamp) -> Vec<Cell> {
    let spec = &policy["spec"];
    let parameters = match &spec["paramKind"] {
        Value::Object(kind) => {
            let text = |field: &str| kind.get(field).and_then(Value::as_str).unwrap_or("");
            format!("{}/{}", text("apiVersion"), text("kind"))
        }
        _ => "<unset>".into(),
    };
    vec![policy.name().into(), show::count(&spec[list]).into(), parameters.into(), age(policy, now)]
}

pub(super) fn binding(binding: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &binding["spec"];
    let reference = &spec["paramRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or("");
    let parameters = match (text("namespace"), text("name")) {
        _ if !reference.is_object() => "<unset>".to_string(),
        (_, "") => show::label_selector(&reference["selector"]),
        ("", name) => name.to_string(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![binding.name().into(), spec["policyName"].as_str().unwrap_or("").into(), parameters.into(), age(binding, now)]
}
