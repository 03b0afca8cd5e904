//! Defaults of pod spec, in a Pod and in every template of one.

use machinery::object::{child_mut, set_default};
use machinery::quantity::Quantity;
use serde_json::{Map, Value, json};

const FILE_MODE: i64 = 0o644;
const TOKEN_SECONDS: i64 = 3600;
const CERTIFICATE_SECONDS: i64 = 86400;

/// The defaults of a template: `metadata`, `spec`, and everything below.
pub fn template(parent: &mut Value) {
    let template = Value::Object(std::mem::take(child_mut(parent, "template")));
    parent["template"] = template;
    let template = &mut parent["template"];
    set_default(template, "metadata", json!({}));
    set_default(template, "spec", json!({}));
    spec(&mut template["spec"]);
}

/// The defaults of a pod spec that hold in a Pod and in a template alike.
pub fn spec(spec: &mut Value) {
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    set_default(spec, "securityContext", json!({}));
    set_default(spec, "terminationGracePeriodSeconds", 30);
    default_text(spec, "schedulerName", "default-scheduler");
    // `serviceAccount` is the old name of the field and always says the same.
    let account =
        [text(spec, "serviceAccountName"), text(spec, "serviceAccount")].into_iter().find(|name| !name.is_empty());
    if let Some(account) = account.map(str::to_string) {
        spec["serviceAccountName"] = account.clone().into();
        spec["serviceAccount"] = account.into();
    }
    for volume in items(spec, "volumes") {
        self::volume(volume);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(spec, list) {
            self::container(container);
        }
    }
    round_up(spec.get_mut("overhead"));
    for list in ["limits", "requests"] {
        round_up(spec.pointer_mut(&format!("/resources/{list}")));
    }
}

/// What only a Pod gets: requests from limits, ports of the host, links to services.
pub(crate) fn pod_only(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            requests_from_limits(container);
        }
    }
    pod_level_requests(spec);
    if spec["hostNetwork"] == true {
        for list in ["containers", "initContainers"] {
            for port in items(spec, list).flat_map(|container| items(container, "ports")) {
                if port["hostPort"].as_i64().unwrap_or(0) == 0 {
                    port["hostPort"] = port["containerPort"].clone();
                }
            }
        }
    }
    set_default(spec, "enableServiceLinks", true);
}

fn container(container: &mut Value) {
    set_default(container, "resources", json!({}));
    if text(container, "imagePullPolicy").is_empty() {
        let policy = pull_policy(text(container, "image"));
        container["imagePullPolicy"] = policy.into();
    }
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    for port in items(container, "ports") {
        default_text(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        let Some(source) = variable.get_mut("valueFrom") else { continue };
        field_reference(source);
        if let Some(reference) = source.get_mut("fileKeyRef") {
            set_default(reference, "optional", false);
        }
    }
    for list in ["limits", "requests"] {
        round_up(container.pointer_mut(&format!("/resources/{list}")));
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) {
            self::probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container.pointer_mut(&format!("/lifecycle/{hook}")) {
            http_get(hook);
        }
    }
}

/// The pull policy where none is said: an image that may move under its tag is asked for each time.
pub fn pull_policy(image: &str) -> &'static str {
    match image_tag(image) {
        Some("latest") => "Always",
        _ => "IfNotPresent",
    }
}

/// The tag of an image, `latest` where it has neither tag nor digest, nothing where the image is not a reference.
fn image_tag(image: &str) -> Option<&str> {
    if image.is_empty() || image.contains(char::is_whitespace) {
        return None;
    }
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    match (name[start..].split_once(':'), digest) {
        (Some((path, tag)), _) => (!path.is_empty() && !tag.is_empty()).then_some(tag),
        (None, Some(_)) => None,
        (None, None) => (name == name.to_lowercase() || start > 0).then_some("latest"),
    }
}

fn probe(probe: &mut Value) {
    for (field, seconds) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe[field].as_i64().unwrap_or(0) == 0 {
            probe[field] = seconds.into();
        }
    }
    http_get(probe);
    if let Some(grpc) = probe.get_mut("grpc").filter(|grpc| grpc.is_object()) {
        set_default(grpc, "service", "");
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet").filter(|get| get.is_object()) {
        default_text(get, "path", "/");
        default_text(get, "scheme", "HTTP");
    }
}

/// `fieldRef` and `resourceFieldRef` of a variable or of a file.
fn field_reference(source: &mut Value) {
    if let Some(reference) = source.get_mut("fieldRef") {
        default_text(reference, "apiVersion", "v1");
    }
    if let Some(reference) = source.get_mut("resourceFieldRef") {
        set_default(reference, "divisor", "0");
    }
}

const NO_SOURCE: [&str; 1] = ["name"];

fn volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|fields| {
        fields.iter().any(|(field, value)| !NO_SOURCE.contains(&field.as_str()) && !value.is_null())
    });
    if !has_source {
        volume["emptyDir"] = json!({});
    }
    let Some(fields) = volume.as_object_mut() else { return };
    for (kind, source) in fields.iter_mut().filter(|(_, source)| source.is_object()) {
        volume_source(kind, source);
    }
}

/// The defaults of one volume source, in a pod or in a persistent volume.
pub(crate) fn volume_source(kind: &str, source: &mut Value) {
    match kind {
        "secret" | "configMap" => set_default(source, "defaultMode", FILE_MODE),
        "hostPath" => set_default(source, "type", ""),
        "downwardAPI" => {
            set_default(source, "defaultMode", FILE_MODE);
            items(source, "items").for_each(field_reference);
        }
        "projected" => {
            set_default(source, "defaultMode", FILE_MODE);
            items(source, "sources").for_each(projection);
        }
        "iscsi" => default_text(source, "iscsiInterface", "default"),
        "rbd" => {
            default_text(source, "pool", "rbd");
            default_text(source, "user", "admin");
            default_text(source, "keyring", "/etc/ceph/keyring");
        }
        "azureDisk" => {
            for (field, text) in [("cachingMode", "ReadWrite"), ("kind", "Shared"), ("fsType", "ext4")] {
                set_default(source, field, text);
            }
            set_default(source, "readOnly", false);
        }
        "scaleIO" => {
            default_text(source, "storageMode", "ThinProvisioned");
            default_text(source, "fsType", "xfs");
        }
        "image" if text(source, "pullPolicy").is_empty() => {
            let policy = pull_policy(text(source, "reference"));
            source["pullPolicy"] = policy.into();
        }
        "ephemeral" => {
            if let Some(claim) = source.get_mut("volumeClaimTemplate").filter(|claim| claim.is_object()) {
                set_default(claim, "metadata", json!({}));
                set_default(claim, "spec", json!({}));
                claim_spec(&mut claim["spec"]);
            }
        }
        _ => {}
    }
}

/// The defaults of a claim's spec, in a claim and in a template of one.
pub fn claim_spec(spec: &mut Value) {
    set_default(spec, "resources", json!({}));
    set_default(spec, "volumeMode", "Filesystem");
    for list in ["limits", "requests"] {
        round_up(spec.pointer_mut(&format!("/resources/{list}")));
    }
}

fn projection(source: &mut Value) {
    if let Some(token) = source.get_mut("serviceAccountToken") {
        set_default(token, "expirationSeconds", TOKEN_SECONDS);
    }
    if let Some(certificate) = source.get_mut("podCertificate") {
        set_default(certificate, "maxExpirationSeconds", CERTIFICATE_SECONDS);
    }
    if let Some(downward) = source.get_mut("downwardAPI") {
        items(downward, "items").for_each(field_reference);
    }
}

fn requests_from_limits(container: &mut Value) {
    let limits = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
    let Some(limits) = limits.filter(|limits| !limits.is_empty()) else { return };
    let resources = child_mut(container, "resources");
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    for (name, amount) in limits {
        set_default(requests, &name, amount);
    }
}

/// A pod that says only its limits requests what its containers request, or else the limits.
fn pod_level_requests(spec: &mut Value) {
    let limits = spec.pointer("/resources/limits").and_then(Value::as_object).cloned();
    let Some(limits) = limits.filter(|limits| !limits.is_empty()) else { return };
    let containers = super::resources::containers_requests(spec);
    let resources = child_mut(spec, "resources");
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    for (name, amount) in containers {
        if matches!(name.as_str(), "cpu" | "memory") {
            set_default(requests, &name, amount.canonical());
        }
    }
    for (name, amount) in limits {
        if super::resources::is_pod_level(&name) {
            set_default(requests, &name, amount);
        }
    }
}

/// Amounts of resources are never finer than thousandths.
fn round_up(list: Option<&mut Value>) {
    for amount in list.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        if let Ok(quantity) = Quantity::from_value(amount)
            && quantity.round_up_milli() != quantity
        {
            *amount = quantity.round_up_milli().canonical().into();
        }
    }
}

/// Sets a text that is missing or empty.
pub(crate) fn default_text(value: &mut Value, field: &str, default: &str) {
    if text(value, field).is_empty() && value.is_object() {
        value[field] = default.into();
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

/// The items of a list to edit; none where there is no list.
pub fn items<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter(|item| item.is_object())
}
