//! Validation of PersistentVolume; its source has a file of its own.

use machinery::field::{Errors, FieldError, Path, Problem, shown};
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::{Map, Value};

use super::sources::{self, SOURCES};
use crate::common::pod_spec::text::go_terms;
use crate::core::{check, resources, selectors};

pub(super) fn validate(volume: &Node, errors: &mut Errors) {
    let spec = volume.at("spec");
    modes(&spec, errors);
    let capacity = spec.at("capacity");
    if capacity.is_empty() {
        errors.required(&capacity, "");
    }
    if !capacity.has("storage") || capacity.len() > 1 {
        let detail = "supported values: \"storage\"";
        errors.push(FieldError::new(Problem::NotSupported, &capacity.path, shown(capacity.value), detail));
    }
    for (_, amount) in capacity.entries() {
        resources::basic(&amount, errors);
        resources::positive(&amount, errors);
    }
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if !policy.str().is_empty() {
        check::one_of(&policy, &["Delete", "Recycle", "Retain"], errors);
    }
    let affinity = spec.at("nodeAffinity");
    if affinity.exists() {
        if affinity.has("required") {
            selectors::node_selector(&affinity.at("required"), errors)
        } else {
            errors.required(&affinity.at("required"), "must specify required node constraints")
        }
    }
    sources::validate(&spec, volume.value.name(), affinity.exists(), errors);
    if policy.str() == "Recycle" && is_root(spec.at("hostPath").text("path")) {
        errors.forbidden(&policy, "may not be 'recycle' for a hostPath mount of '/'");
    }
    let class = spec.at("storageClassName");
    if !class.str().is_empty() {
        check::text(&class, names::dns_subdomain(class.str()), errors);
    }
    let mode = spec.at("volumeMode");
    if mode.exists() {
        check::one_of(&mode, &["Block", "Filesystem"], errors);
    }
    let attributes = spec.at("volumeAttributesClassName");
    if attributes.exists() {
        match attributes.str() {
            "" => errors.required(&attributes, "an empty string is disallowed"),
            text => check::text(&attributes, names::dns_subdomain(text), errors),
        }
        if !spec.has("csi") {
            errors.required(&spec.at("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

/// A volume that stands inside a VolumeAttachment: a CSI volume, without what only a stored volume has.
pub(crate) fn inline_spec(spec: &Node, errors: &mut Errors) {
    const INLINE: &str = "may not be specified in the context of inline volumes";
    for field in ["claimRef", "capacity"] {
        if !spec.at(field).is_empty() {
            errors.forbidden(&spec.at(field), INLINE);
        }
    }
    if !spec.has("csi") {
        errors.required(&spec.at("csi"), "has to be specified in the context of inline volumes");
    }
    modes(spec, errors);
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if !matches!(policy.str(), "" | "Retain") {
        errors.forbidden(&policy, "may only be Retain in the context of inline volumes");
    }
    let affinity = spec.at("nodeAffinity");
    if affinity.exists() {
        errors.forbidden(&affinity, INLINE);
    }
    sources::validate(spec, "", false, errors);
    let (class, mode) = (spec.at("storageClassName"), spec.at("volumeMode"));
    if !class.str().is_empty() {
        errors.forbidden(&class, INLINE);
    }
    if mode.exists() && mode.str() != "Filesystem" {
        errors.forbidden(&mode, "may not specify volumeMode other than Filesystem in the context of inline volumes");
    }
}

fn modes(spec: &Node, errors: &mut Errors) {
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "");
    }
    access_modes(&modes, errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let is_value = |error: &FieldError| error.field.contains(".nodeSelectorTerms[") && error.field.contains(".values[");
    let mut found = Errors::default();
    validate(new, &mut found);
    if found.0.iter().any(is_value) {
        // Label values that an older server took may stay.
        let mut before = Errors::default();
        validate(&Node::root(old.value), &mut before);
        found.0.retain(|error| !(is_value(error) && before.0.iter().any(is_value)));
    }
    errors.0.append(&mut found.0);
    let (new, old) = (new.at("spec"), old.at("spec"));
    let (mut after, before) = (source_fields(&new), source_fields(&old));
    // The secret for growing a volume may be added later, once.
    let expand =
        |map: &Map<String, Value>| map.get("csi").is_some_and(|csi| csi.get("controllerExpandSecretRef").is_some());
    if before.contains_key("csi")
        && !expand(&before)
        && let Some(csi) = after.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove("controllerExpandSecretRef");
    }
    if after != before {
        let path = new.path.child("persistentvolumesource");
        let detail = format!(
            "spec.persistentvolumesource is immutable after creation\n- {}\n+ {}",
            Value::Object(before),
            Value::Object(after)
        );
        errors.push(FieldError::new(Problem::Forbidden, path, "", detail));
    }
    if new.at("volumeMode").value != old.at("volumeMode").value {
        errors.invalid_value(&Path::new("volumeMode"), new.at("volumeMode").value, check::IMMUTABLE);
    }
    let (affinity, before) = (new.at("nodeAffinity"), old.at("nodeAffinity"));
    if before.exists() && affinity.value != before.value && !only_renamed_labels(affinity.value, before.value) {
        let detail = "field is immutable, except for updating from beta label to GA";
        let terms = affinity.at("required").at("nodeSelectorTerms");
        let shown = if affinity.has("required") {
            format!(r#"{{"Required":{{"NodeSelectorTerms":{}}}}}"#, go_terms(terms.value))
        } else if affinity.exists() {
            r#"{"Required":null}"#.to_owned()
        } else {
            "null".to_owned()
        };
        errors.push(FieldError::new(Problem::Invalid, Path::new("nodeAffinity"), shown, detail));
    }
    let class = new.at("volumeAttributesClassName");
    if old.has("volumeAttributesClassName") && !class.exists() {
        errors.forbidden(&class, "update from non-nil value to nil is forbidden");
    }
}

/// The modes of a volume or a claim: known ones, and ReadWriteOncePod only alone.
pub(crate) fn access_modes(modes: &Node, errors: &mut Errors) {
    const SUPPORTED: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let (mut alone, mut shared) = (false, false);
    for mode in modes.items() {
        match mode.str() {
            "ReadWriteOncePod" => alone = true,
            text if SUPPORTED.contains(&text) => shared = true,
            text => check::not_supported(modes, text, &SUPPORTED, errors),
        }
    }
    if alone && shared {
        errors.forbidden(modes, "may not use ReadWriteOncePod with other access modes");
    }
}

fn source_fields(spec: &Node) -> Map<String, Value> {
    let given = |field: &str| spec.value.get(field).filter(|value| !value.is_null()).cloned();
    SOURCES.iter().filter_map(|source| Some((source.field.to_string(), given(source.field)?))).collect()
}

fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "." | ".."))
}

/// Volumes made when topology labels were beta may be moved to the final labels.
fn only_renamed_labels(new: &Value, old: &Value) -> bool {
    const RENAMED: [(&str, &str); 5] = [
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ];
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(field, value)| {
                    old.get(field).is_some_and(|before| match (field.as_str(), value.as_str(), before.as_str()) {
                        ("key", Some(to), Some(from)) => to == from || RENAMED.contains(&(from, to)),
                        _ => only_renamed_labels(value, before),
                    })
                })
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| only_renamed_labels(new, old))
        }
        _ => new == old,
    }
}
