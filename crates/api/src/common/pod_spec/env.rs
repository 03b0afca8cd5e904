//! Environment variables and references to fields, resources and keys.

use machinery::field::{Errors, Problem};
use machinery::names;
use machinery::node::Node;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::text::{dns_label, invalid_each, no_backsteps, push};

const ENVIRONMENT_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

const OTHER_FIELDS: &[&str] = &["spec.restartPolicy", "spec.schedulerName", "status.phase"];

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn env(errors: &mut Errors, list: &Node) {
    for variable in list.items() {
        let name = variable.at("name");
        match name.str() {
            "" => errors.required(&name, ""),
            text => invalid_each(errors, &name, names::relaxed_env_var_name(text)),
        }
        value_from(errors, &variable);
    }
}

fn value_from(errors: &mut Errors, variable: &Node) {
    let from = variable.at("valueFrom");
    if !from.exists() {
        return;
    }
    let mut sources = 0;
    if from.has("fieldRef") {
        sources += 1;
        field_reference(errors, &from.at("fieldRef"), ENVIRONMENT_FIELDS);
    }
    if from.has("resourceFieldRef") {
        sources += 1;
        resource_reference(errors, &from.at("resourceFieldRef"), Container::Own);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if from.has(kind) {
            sources += 1;
            key_reference(errors, &from.at(kind));
        }
    }
    if from.has("fileKeyRef") {
        sources += 1;
        file_reference(errors, &from.at("fileKeyRef"));
    }
    let detail = match sources {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !variable.text("value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.invalid_value(&from.path, &Value::from(""), detail);
}

pub(super) fn env_from(errors: &mut Errors, list: &Node) {
    for source in list.items() {
        let prefix = source.at("prefix");
        if !prefix.str().is_empty() {
            invalid_each(errors, &prefix, names::relaxed_env_var_name(prefix.str()));
        }
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            if source.has(kind) {
                sources += 1;
                let name = source.at(kind).at("name");
                match name.str() {
                    "" => errors.required(&name, ""),
                    text => invalid_each(errors, &name, names::dns_subdomain(&names::mask_trailing_dash(text))),
                }
            }
        }
        // Upstream reports these at the list.
        let detail = match sources {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.invalid_value(&list.path, &Value::from(""), detail);
    }
}

/// Files of variables lie in volumes that belong to the pod alone.
pub(super) fn file_volumes(errors: &mut Errors, spec: &Node) {
    let containers =
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| spec.each(list));
    for variable in containers.flat_map(|container| container.each("env")) {
        let reference = variable.at("valueFrom").at("fileKeyRef");
        if !reference.exists() {
            continue;
        }
        let name = reference.at("volumeName");
        match spec.each("volumes").find(|volume| volume.text("name") == name.str()) {
            Some(volume) if volume.has("emptyDir") => {}
            Some(_) => errors.invalid(&name, "referenced volume must be of type emptyDir"),
            None => push(errors, Problem::NotFound, &name.path, &name.str().into(), ""),
        }
    }
}

/// A reference to a field of the pod: `fields` are those that may be named without a subscript.
pub(super) fn field_reference(errors: &mut Errors, reference: &Node, fields: &[&str]) {
    for field in ["apiVersion", "fieldPath"] {
        if reference.text(field).is_empty() {
            return errors.required(&reference.at(field), "");
        }
    }
    let path = reference.at("fieldPath");
    if reference.text("apiVersion") != "v1" {
        let problem = format!("unsupported pod version: {}", reference.text("apiVersion"));
        return errors.invalid(&path, format!("error converting fieldPath: {problem}"));
    }
    if let Some((field, key)) = path.str().strip_suffix("']").and_then(|text| text.split_once("['")) {
        let problems = match field {
            "metadata.annotations" => names::qualified_name(&key.to_lowercase()),
            "metadata.labels" => names::qualified_name(key),
            _ => {
                let problem = format!("field label does not support subscript: {}", path.str());
                return errors.invalid(&path, format!("error converting fieldPath: {problem}"));
            }
        };
        for problem in problems {
            errors.invalid_value(&reference.path, &Value::from(key), problem);
        }
        return;
    }
    let field = if path.str() == "spec.host" { "spec.nodeName" } else { path.str() };
    if fields.contains(&field) {
        return;
    }
    if [ENVIRONMENT_FIELDS, VOLUME_FIELDS, OTHER_FIELDS].iter().any(|known| known.contains(&field)) {
        errors.not_supported(&path, fields)
    } else {
        errors.invalid(&path, format!("error converting fieldPath: field label not supported: {field}"))
    }
}

/// Whose resources are meant: a variable's own container, or one that a volume must name.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Container {
    Own,
    Named,
}

pub(super) fn resource_reference(errors: &mut Errors, reference: &Node, container: Container) {
    let resource = reference.at("resource");
    let name = resource.str();
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if container == Container::Named && reference.text("containerName").is_empty() {
        errors.required(&reference.at("containerName"), "");
    } else if name.is_empty() {
        errors.required(&resource, "");
    } else if !RESOURCES.contains(&name) && !huge {
        errors.not_supported(&resource, RESOURCES);
    }
    divisor(errors, reference, name);
}

fn divisor(errors: &mut Errors, reference: &Node, resource: &str) {
    const BYTES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let Ok(divisor) = Quantity::from_value(reference.at("divisor").value) else { return };
    if divisor.is_zero() {
        return;
    }
    let kind = match resource {
        "limits.cpu" | "requests.cpu" => "cpu",
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if resource.contains(".hugepages-") => "hugepages",
        _ => return,
    };
    let (allowed, list) = match kind {
        "cpu" => (["1m", "1"].as_slice(), "1m and 1".to_string()),
        _ => (BYTES, BYTES.join(", ")),
    };
    if !allowed.contains(&divisor.canonical().as_str()) {
        let detail = format!("only divisor's values {list} are supported with the {kind} resource");
        errors.invalid_value(&reference.path.child("divisor"), &Value::from(resource), detail);
    }
}

fn key_reference(errors: &mut Errors, reference: &Node) {
    let (name, key) = (reference.at("name"), reference.at("key"));
    for problem in names::dns_subdomain(name.str()) {
        errors.invalid_value(&name.path, &Value::from(name.str()), problem);
    }
    match key.str() {
        "" => errors.required(&key, ""),
        text => invalid_each(errors, &key, names::config_map_key(text)),
    }
}

fn file_reference(errors: &mut Errors, reference: &Node) {
    let (volume, path, key) = (reference.at("volumeName"), reference.at("path"), reference.at("key"));
    match key.str() {
        "" => errors.required(&key, ""),
        text => invalid_each(errors, &key, names::relaxed_env_var_name(text)),
    }
    match volume.str() {
        "" => errors.required(&volume, ""),
        _ => dns_label(errors, &volume),
    }
    match path.str() {
        "" => errors.required(&path, ""),
        _ => no_backsteps(errors, &path.path, path.value),
    }
}
