//! What a pod may learn about itself: fields of its object and resources of its containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource;
use machinery::quantity::Quantity;

use super::Addresses;

/// A reference that leads nowhere; users read the text in the message of a container or of an event.
#[derive(Debug, thiserror::Error)]
pub enum DownwardError {
    #[error("fieldPath {0:?} does not support subscript")]
    Subscript(String),
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    #[error("unsupported container resource : {0}")]
    Resource(String),
    #[error("container {0} not found")]
    NoContainer(String),
}

/// The value of a `fieldRef`.
pub fn field(pod: &Pod, path: &str, addresses: &Addresses) -> Result<String, DownwardError> {
    let metadata = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let first = |values: &[String]| values.first().cloned().unwrap_or_default();
    let spec = pod.spec.as_ref();
    if let Some((map, key)) = subscript(path) {
        let values = match map {
            "metadata.labels" => metadata.labels.as_ref(),
            "metadata.annotations" => metadata.annotations.as_ref(),
            _ => return Err(DownwardError::Subscript(path.to_owned())),
        };
        return Ok(values.and_then(|values| values.get(key)).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => text(&metadata.name),
        "metadata.namespace" => text(&metadata.namespace),
        "metadata.uid" => text(&metadata.uid),
        "metadata.labels" => format_map(metadata.labels.as_ref()),
        "metadata.annotations" => format_map(metadata.annotations.as_ref()),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.podIP" => first(&addresses.pod_ips),
        "status.podIPs" => addresses.pod_ips.join(","),
        "status.hostIP" => first(&addresses.host_ips),
        "status.hostIPs" => addresses.host_ips.join(","),
        _ => return Err(DownwardError::Field(path.to_owned())),
    })
}

/// The value of a `resourceFieldRef`. A limit that is not set is the pod's, then what the node can give.
pub fn resource(
    pod: &Pod,
    container: &Container,
    selector: &ResourceFieldSelector,
    allocatable: &BTreeMap<String, resource::Quantity>,
) -> Result<String, DownwardError> {
    let unsupported = || DownwardError::Resource(selector.resource.clone());
    let (side, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    let own = container.resources.as_ref();
    let whole = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let set = |amounts: Option<&BTreeMap<String, resource::Quantity>>| {
        let amount = amounts?.get(name).and_then(|amount| Quantity::parse(&amount.0).ok())?;
        (!amount.is_zero()).then_some(amount)
    };
    let amount = match side {
        "limits" if known => set(own.and_then(|own| own.limits.as_ref()))
            .or_else(|| set(whole.and_then(|whole| whole.limits.as_ref())))
            .or_else(|| set(Some(allocatable)).filter(|_| !name.starts_with("hugepages-"))),
        "requests" if known => set(own.and_then(|own| own.requests.as_ref())),
        _ => return Err(unsupported()),
    };
    let amount = amount.unwrap_or(Quantity::ZERO);
    let divisor = selector.divisor.as_ref().and_then(|divisor| Quantity::parse(&divisor.0).ok());
    let divisor = divisor.filter(|divisor| !divisor.is_zero()).unwrap_or(Quantity::from_milli(1000, amount.format));
    // Rounded up, so that a share of something is never told as nothing.
    let (amount, divisor) = match name {
        "cpu" => (amount.milli_value(), divisor.milli_value()),
        _ => (amount.value(), divisor.value()),
    };
    Ok((i128::from(amount) + i128::from(divisor) - 1).div_euclid(i128::from(divisor)).to_string())
}

/// `metadata.labels['x']` as its map and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// Lines of `key="value"`, sorted by key.
fn format_map(values: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<_> = values.into_iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// As Go's `%q` writes it, which is what programs that read these files expect.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            // Go writes what cannot be seen below 0x80 in two digits, and the rest in four or eight.
            character if (character as u32) < 0x20 || character as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", character as u32));
            }
            character if character.is_control() => out.push_str(&format!("\\u{:04x}", character as u32)),
            character => out.push(character),
        }
    }
    out.push('"');
    out
}

/// The container that a `resourceFieldRef` names.
pub(crate) fn container_of<'a>(pod: &'a Pod, name: &str) -> Result<&'a Container, DownwardError> {
    let spec = pod.spec.as_ref();
    let mut all = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    all.find(|container| container.name == name).ok_or_else(|| DownwardError::NoContainer(name.to_owned()))
}
