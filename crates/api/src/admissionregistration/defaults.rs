//! Defaults of webhooks, policies and bindings.

use machinery::object::set_default;
use serde_json::{Value, json};

pub(super) fn validating_webhooks(configuration: &mut Value) {
    for webhook in items(configuration.get_mut("webhooks")) {
        webhook_defaults(webhook);
    }
}

pub(super) fn mutating_webhooks(configuration: &mut Value) {
    for webhook in items(configuration.get_mut("webhooks")) {
        webhook_defaults(webhook);
        set_default(webhook, "reinvocationPolicy", "Never");
    }
}

pub(super) fn policy(policy: &mut Value) {
    let Some(spec) = policy.get_mut("spec") else { return };
    set_default(spec, "failurePolicy", "Fail");
    if let Some(resources) = spec.get_mut("matchConstraints") {
        match_resources(resources);
    }
}

pub(super) fn binding(binding: &mut Value) {
    if let Some(resources) = binding.pointer_mut("/spec/matchResources") {
        match_resources(resources);
    }
}

fn webhook_defaults(webhook: &mut Value) {
    set_default(webhook, "failurePolicy", "Fail");
    set_default(webhook, "matchPolicy", "Equivalent");
    set_default(webhook, "namespaceSelector", json!({}));
    set_default(webhook, "objectSelector", json!({}));
    set_default(webhook, "timeoutSeconds", 10);
    if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
        set_default(service, "port", 443);
    }
    rules(webhook.get_mut("rules"));
}

fn match_resources(resources: &mut Value) {
    set_default(resources, "matchPolicy", "Equivalent");
    set_default(resources, "namespaceSelector", json!({}));
    set_default(resources, "objectSelector", json!({}));
    rules(resources.get_mut("resourceRules"));
    rules(resources.get_mut("excludeResourceRules"));
}

fn rules(list: Option<&mut Value>) {
    for rule in items(list) {
        set_default(rule, "scope", "*");
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}
