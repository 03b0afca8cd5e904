//! Validation of Node: bad taints, resources and pod networks, and changes of what is given once.

use machinery::field::{Errors, FieldError, Path, Problem, shown};
use machinery::names;
use machinery::node::Node;
use serde_json::{Value, json};

use crate::core::{check, resources};

pub(super) fn validate(node: &Node, errors: &mut Errors) {
    taints(node, errors);
    capacity(node, errors);
    let swap = node.at("status").at("nodeInfo").at("swap").at("capacity");
    if swap.int().is_some_and(|bytes| bytes <= 0) {
        let path = Path::new("metadata").child("nodeSwapStatus").child("capacity");
        errors.invalid_value(&path, swap.value, "must be greater than zero");
    }
    declared_features(&node.at("status").at("declaredFeatures"), errors);
    let networks = node.at("spec").at("podCIDRs");
    for network in networks.items() {
        check::text(&network, names::cidr(network.str()), errors);
    }
    if networks.len() > 1 {
        let v6 = networks.items().filter(|network| network.str().contains(':')).count();
        if v6 != 1 || networks.len() > 2 {
            errors.invalid(&networks, "may specify no more than one CIDR for each IP family");
        }
    }
}

/// Features that a kubelet has: sorted, each once, such as `MyFeature/mySubFeature`.
fn declared_features(list: &Node, errors: &mut Errors) {
    const NAME_MAX: usize = 253;
    let mut last = None;
    for feature in list.items() {
        let name = feature.str();
        if name.len() > NAME_MAX {
            let detail = format!("invalid feature name {name:?}: must be no more than {NAME_MAX} characters");
            errors.invalid(&feature, detail);
        } else if !is_feature_name(name) {
            errors.invalid(
                &feature,
                format!(
                    "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments \
                     separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric \
                     characters and slashes"
                ),
            );
        }
        match last {
            Some(before) if before == name => errors.duplicate(&feature),
            Some(before) if before > name => errors.invalid(&feature, "list must be sorted alphabetically"),
            _ => {}
        }
        last = Some(name);
    }
}

fn is_feature_name(name: &str) -> bool {
    let word = |part: &str| {
        part.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    name.starts_with(|letter: char| letter.is_ascii_uppercase()) && name.split('/').all(word)
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let (spec, before) = (new.at("spec"), old.at("spec"));
    capacity(new, errors);
    declared_features(&new.at("status").at("declaredFeatures"), errors);
    addresses(new, errors);
    let networks = spec.at("podCIDRs");
    if !before.at("podCIDRs").is_empty() && networks.value != before.at("podCIDRs").value {
        errors.forbidden(&networks, "node updates may not change podCIDR except from \"\" to valid");
    }
    let provider = spec.at("providerID");
    if !before.text("providerID").is_empty() && provider.str() != before.text("providerID") {
        errors.forbidden(&provider, "node updates may not change providerID except from \"\" to valid");
    }
    if spec.at("configSource").exists() {
        config_source(&spec.at("configSource"), Holder::Spec, errors);
    }
    let config = new.at("status").at("config");
    for field in ["assigned", "active", "lastKnownGood"] {
        if config.at(field).exists() {
            config_source(&config.at(field), Holder::Status, errors);
        }
    }
    taints(new, errors);
    let external = spec.at("externalID");
    if external.str() != before.text("externalID") {
        errors.forbidden(&external, "may not be updated");
    }
}

/// Upstream names the place `metadata.taints`.
fn taints(node: &Node, errors: &mut Errors) {
    let list = node.at("spec").at("taints");
    let mut seen = Vec::new();
    for item in Node::new(list.value, Path::new("metadata").child("taints")).items() {
        let (key, value, effect) = (item.at("key"), item.at("value"), item.at("effect"));
        check::text(&key, names::qualified_name(key.str()), errors);
        let sentences = names::label_value(value.str());
        if !sentences.is_empty() {
            check::invalid_text(&value, sentences.join(";"), errors);
        }
        check::required_one_of(&effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"], errors);
        if seen.contains(&(key.str(), effect.str())) {
            let shown = format!(
                r#"{{"Key":{},"Value":{},"Effect":{},"TimeAdded":{}}}"#,
                shown(&json!(key.str())),
                shown(&json!(value.str())),
                shown(&json!(effect.str())),
                shown(item.at("timeAdded").value)
            );
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::new(Problem::Duplicate, &item.path, shown, detail));
            continue;
        }
        seen.push((key.str(), effect.str()));
    }
}

fn capacity(node: &Node, errors: &mut Errors) {
    for list in ["capacity", "allocatable"] {
        let path = Path::new("status").child(list);
        for (name, quantity) in node.at("status").at(list).entries() {
            resources::quantity(name, &Node::new(quantity.value, path.named(name)), errors);
        }
    }
}

fn addresses(node: &Node, errors: &mut Errors) {
    let mut seen: Vec<&Value> = Vec::new();
    for address in node.at("status").each("addresses") {
        if seen.contains(&address.value) {
            let shown = format!(
                r#"{{"Type":{},"Address":{}}}"#,
                shown(&json!(address.text("type"))),
                shown(&json!(address.text("address")))
            );
            errors.push(FieldError::new(Problem::Duplicate, &address.path, shown, ""));
        }
        seen.push(address.value);
    }
}

/// Where a kubelet configuration is named: the spec asks, the status reports exactly what was used.
#[derive(Clone, Copy, PartialEq)]
enum Holder {
    Spec,
    Status,
}

/// Kubelets no longer read it, but upstream still checks it.
fn config_source(source: &Node, holder: Holder, errors: &mut Errors) {
    let map = source.at("configMap");
    if !map.exists() {
        return errors.invalid_value(
            &source.path,
            &json!({"ConfigMap": null}),
            "exactly one reference subfield must be non-nil",
        );
    }
    for field in ["uid", "resourceVersion"] {
        let node = map.at(field);
        match (holder, node.str().is_empty()) {
            (Holder::Spec, false) => errors.forbidden(&node, format!("{field} must not be set in spec")),
            (Holder::Status, true) => errors.required(&node, ""),
            _ => {}
        }
    }
    type Rule = fn(&str) -> Vec<String>;
    let rules: [(&'static str, Rule); 3] =
        [("namespace", names::dns_label), ("name", names::dns_subdomain), ("kubeletConfigKey", names::config_map_key)];
    for (field, rule) in rules {
        let node = map.at(field);
        match node.str() {
            "" => errors.required(&node, ""),
            text => check::text(&node, rule(text), errors),
        }
    }
}
