//! Sentences for a user who writes a pod spec that is accepted but will surprise.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

const NODE_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
];

/// The warnings for a pod spec; `path` is where it stands: `spec` or `spec.template.spec`.
pub fn spec(path: &str, spec: &Value, annotations: &Value, annotations_path: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (label, advice) in NODE_LABELS {
        if !spec["nodeSelector"][*label].is_null() {
            out.push(format!("{path}.nodeSelector[{label}]: {advice}"));
        }
    }
    affinity(path, spec, &mut out);
    spread(path, spec, &mut out);
    deprecated_annotations(annotations, annotations_path, &mut out);
    for (index, secret) in list(spec, "imagePullSecrets").enumerate() {
        if text(secret, "name").is_empty() {
            out.push(format!("{path}.imagePullSecrets[{index}].name: invalid empty name \"{}\"", text(secret, "name")));
        }
    }
    let mut secrets = BTreeSet::new();
    for secret in list(spec, "imagePullSecrets") {
        secrets.insert(text(secret, "name"));
    }
    volumes(path, spec, &mut out);
    host_aliases(path, spec, &mut out);
    for field in LISTS {
        for (index, container) in list(spec, field).enumerate() {
            self::container(&format!("{path}.{field}[{index}]"), container, &mut out);
        }
    }
    ports(path, spec, &mut out);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        out.push(format!(
            "{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    let overridden =
        !spec["hostNetwork"].is_null() && spec["hostNetwork"] == true && !text(spec, "hostname").is_empty();
    if overridden && spec["setHostnameAsFQDN"] == true {
        out.push(format!("{path}.hostname: hostname will be ignored when hostNetwork is enabled"));
    }
    out
}

fn affinity(path: &str, spec: &Value, out: &mut Vec<String>) {
    let node = "affinity.nodeAffinity";
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = &spec["affinity"]["nodeAffinity"];
    for (index, term) in list(&affinity[required], "nodeSelectorTerms").enumerate() {
        node_term(&format!("{path}.{node}.{required}.nodeSelectorTerms[{index}]"), term, out);
    }
    for (index, term) in list(affinity, preferred).enumerate() {
        node_term(&format!("{path}.{node}.{preferred}[{index}].preference"), &term["preference"], out);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = &spec["affinity"][kind];
        let terms = list(pods, required)
            .enumerate()
            .map(|(index, term)| (format!("{path}.affinity.{kind}.{required}[{index}]"), term));
        let weighted = list(pods, preferred).enumerate().map(|(index, term)| {
            (format!("{path}.affinity.{kind}.{preferred}[{index}].podAffinityTerm"), &term["podAffinityTerm"])
        });
        for (place, term) in terms.chain(weighted) {
            if term["labelSelector"].is_null() {
                out.push(format!("{place}.labelSelector: a null labelSelector results in matching no pod"));
            }
        }
    }
}

fn node_term(path: &str, term: &Value, out: &mut Vec<String>) {
    for (index, requirement) in list(term, "matchExpressions").enumerate() {
        for (label, advice) in NODE_LABELS.iter().filter(|(label, _)| text(requirement, "key") == *label) {
            out.push(format!("{path}.matchExpressions[{index}].key: {label} is {advice}"));
        }
        for value in list(requirement, "values").filter_map(Value::as_str) {
            if let Some(problem) = machinery::names::label_value(value).first() {
                out.push(format!(
                    "{path}.matchExpressions[{index}].values[0]: invalid label value \"{value}\": {problem}"
                ));
            }
        }
    }
}

fn spread(path: &str, spec: &Value, out: &mut Vec<String>) {
    for (index, constraint) in list(spec, "topologySpreadConstraints").enumerate() {
        let key = text(constraint, "topologyKey");
        for (_, advice) in NODE_LABELS.iter().filter(|(label, _)| key == *label) {
            out.push(format!("{path}.topologySpreadConstraints[{index}].topologyKey: {key} is {advice}"));
        }
        if constraint["labelSelector"].is_null() {
            out.push(format!(
                "{path}.topologySpreadConstraints[{index}].labelSelector: a null labelSelector results in matching no pod"
            ));
        }
    }
}

fn deprecated_annotations(annotations: &Value, path: &str, out: &mut Vec<String>) {
    for key in annotations.as_object().into_iter().flat_map(serde_json::Map::keys) {
        let advice = match key.as_str() {
            "scheduler.alpha.kubernetes.io/critical-pod" => {
                "non-functional in v1.16+; use the \"priorityClassName\" field instead"
            }
            "seccomp.security.alpha.kubernetes.io/pod" => {
                "non-functional in v1.27+; use the \"seccompProfile\" field instead"
            }
            key if key.starts_with("container.seccomp.security.alpha.kubernetes.io/") => {
                "non-functional in v1.27+; use the \"seccompProfile\" field instead"
            }
            key if key.starts_with("container.apparmor.security.beta.kubernetes.io/") => {
                "deprecated since v1.30; use the \"appArmorProfile\" field instead"
            }
            "security.alpha.kubernetes.io/sysctls" | "security.alpha.kubernetes.io/unsafe-sysctls" => {
                "non-functional in v1.11+; use the \"sysctls\" field instead"
            }
            _ => continue,
        };
        out.push(format!("{path}[{key}]: {advice}"));
    }
}

fn volumes(path: &str, spec: &Value, out: &mut Vec<String>) {
    const IN_TREE: &[(&str, &str)] = &[
        ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", "deprecated in v1.11"),
        ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    for (index, volume) in list(spec, "volumes").enumerate() {
        for (kind, advice) in IN_TREE.iter().filter(|(kind, _)| !volume[*kind].is_null()) {
            out.push(format!("{path}.volumes[{index}].{kind}: {advice}"));
        }
    }
}

fn host_aliases(path: &str, spec: &Value, out: &mut Vec<String>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for alias in list(spec, "hostAliases") {
        *seen.entry(text(alias, "ip")).or_default() += 1;
    }
    for (address, count) in seen {
        if count > 1 {
            out.push(format!("{path}.hostAliases: duplicate ip \"{address}\""));
        }
    }
}

fn container(path: &str, container: &Value, out: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut repeated = BTreeSet::new();
    for (index, variable) in list(container, "env").enumerate() {
        let name = text(variable, "name");
        let again = !seen.insert(name);
        // A variable that extends its earlier value, PATH for one, is meant to be there twice.
        let extends = text(variable, "value").contains(&format!("$({name})"));
        if again && !extends && repeated.insert(name) {
            let first = list(container, "env").position(|other| text(other, "name") == name).unwrap_or(0);
            out.push(format!(
                "{path}.env[{index}]: hides previous definition of \"{name}\", which may be dropped when using apply"
            ));
            debug_assert!(first < index, "the first definition stands before the second");
        }
    }
    for list_name in ["limits", "requests"] {
        let amounts = container["resources"][list_name].as_object();
        for (resource, amount) in amounts.into_iter().flatten() {
            let fraction = machinery::quantity::Quantity::from_value(amount).is_ok_and(|amount| !amount.is_whole());
            if fraction && matches!(resource.as_str(), "memory" | "ephemeral-storage") {
                let shown = amount.as_str().map_or_else(|| amount.to_string(), str::to_string);
                out.push(format!("{path}.resources.{list_name}[{resource}]: fractional byte value \"{shown}\" is invalid, must be an integer"));
            }
        }
    }
}

/// The same port twice is allowed, and nearly always a mistake.
fn ports(path: &str, spec: &Value, out: &mut Vec<String>) {
    for (index, container) in list(spec, "containers").enumerate() {
        let mut seen: BTreeSet<(i64, &str, &str, i64)> = BTreeSet::new();
        for (place, port) in list(container, "ports").enumerate() {
            let number = port["containerPort"].as_i64().unwrap_or(0);
            let protocol = text(port, "protocol");
            let host = (text(port, "hostIP"), port["hostPort"].as_i64().unwrap_or(0));
            let conflict = seen.iter().find(|(other, other_protocol, ip, host_port)| {
                (*other, *other_protocol) == (number, protocol) && (*ip, *host_port) == host
            });
            if conflict.is_some() {
                let first = list(container, "ports").position(|other| {
                    other["containerPort"].as_i64().unwrap_or(0) == number && text(other, "protocol") == protocol
                });
                out.push(format!(
                    "{path}.containers[{index}].ports[{place}]: duplicate port definition with {path}.containers[{index}].ports[{}]",
                    first.unwrap_or(0)
                ));
            }
            seen.insert((number, protocol, host.0, host.1));
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}
