//! Sentences for a user who writes a pod spec that is accepted but will surprise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use machinery::names;
use machinery::quantity::Quantity;
use serde_json::Value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NO_POD: &str = "a null labelSelector results in matching no pod";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_ADVICE: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const APPARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";
pub(crate) const APPARMOR_ADVICE: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";

const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

/// Volume plugins that are gone or going: the field, the field as upstream shows it, what became of it.
const PLUGINS: &[(&str, &str, &str)] = &[
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

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

/// The warnings for a pod, or for a template of one. `path` is where it stands: empty or `spec.template`.
pub fn pod(path: &str, pod: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
    let place = format!("{prefix}spec");
    let (spec, annotations) = (&pod["spec"], &pod["metadata"]["annotations"]);
    for (label, advice) in NODE_LABELS {
        if !spec["nodeSelector"][*label].is_null() {
            out.push(format!("{place}.nodeSelector[{label}]: {advice}"));
        }
    }
    node_affinity(&place, spec, &mut out);
    spread(&place, spec, &mut out);
    let annotations_path = format!("{prefix}metadata.annotations");
    for (key, advice) in ANNOTATIONS.iter().filter(|(key, _)| !annotations[*key].is_null()) {
        out.push(format!("{annotations_path}[{key}]: {advice}"));
    }
    volumes(&place, spec, &mut out);
    token_paths(&place, spec, &mut out);
    repeated(&place, spec, "hostAliases", "ip", &mut out);
    repeated(&place, spec, "imagePullSecrets", "name", &mut out);
    for (index, secret) in list(spec, "imagePullSecrets").enumerate() {
        if text(secret, "name").is_empty() {
            out.push(format!("{place}.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
    fractions(&format_args!("{place}.overhead"), &spec["overhead"], &["memory", "ephemeral-storage"], &mut out);
    let pod_context = &spec["securityContext"];
    if pod_context["seccompProfile"].is_null() && !annotations[SECCOMP_POD].is_null() {
        out.push(format!("{annotations_path}[{SECCOMP_POD}]: {SECCOMP_ADVICE}"));
    }
    for (place, container) in containers(&place, spec) {
        let context = &container["securityContext"];
        let key = format!("{SECCOMP_CONTAINER}{}", text(container, "name"));
        if context["seccompProfile"].is_null() && !annotations[&key].is_null() {
            out.push(format!("{annotations_path}[{key}]: {SECCOMP_ADVICE}"));
        }
        let key = format!("{APPARMOR_CONTAINER}{}", text(container, "name"));
        let has_profile = !pod_context["appArmorProfile"].is_null() || !context["appArmorProfile"].is_null();
        if !has_profile && !annotations[&key].is_null() {
            out.push(format!("{annotations_path}[{key}]: {APPARMOR_ADVICE}"));
        }
        for resource in ["memory", "ephemeral-storage"] {
            for bound in ["limits", "requests"] {
                let amounts = &container["resources"][bound];
                fractions(&format_args!("{place}.resources.{bound}"), amounts, &[resource], &mut out);
            }
        }
        variables(&place, container, &mut out);
    }
    ports(&place, spec, &mut out);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        out.push(format!(
            "{place}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    pod_affinity(&place, spec, &mut out);
    out
}

fn node_affinity(path: &str, spec: &Value, out: &mut Vec<String>) {
    let affinity = &spec["affinity"]["nodeAffinity"];
    let path = format!("{path}.affinity.nodeAffinity");
    for (index, term) in list(&affinity[REQUIRED], "nodeSelectorTerms").enumerate() {
        node_term(&format!("{path}.{REQUIRED}.nodeSelectorTerms[{index}]"), term, Values::Checked, out);
    }
    for (index, term) in list(affinity, PREFERRED).enumerate() {
        node_term(&format!("{path}.{PREFERRED}[{index}].preference"), &term["preference"], Values::Unchecked, out);
    }
}

fn pod_affinity(path: &str, spec: &Value, out: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = &spec["affinity"][kind];
        let path = format!("{path}.affinity.{kind}");
        let required =
            list(pods, REQUIRED).enumerate().map(|(index, term)| (format!("{path}.{REQUIRED}[{index}]"), term));
        let preferred = list(pods, PREFERRED)
            .enumerate()
            .map(|(index, term)| (format!("{path}.{PREFERRED}[{index}].podAffinityTerm"), &term["podAffinityTerm"]));
        for (place, term) in required.chain(preferred) {
            if term["labelSelector"].is_null() {
                out.push(format!("{place}.labelSelector: {NO_POD}"));
            }
        }
    }
}

/// Whether validation looks at the values of a node selector; where it does not, a bad one is worth a warning.
#[derive(Clone, Copy, PartialEq)]
enum Values {
    Checked,
    Unchecked,
}

fn node_term(path: &str, term: &Value, values: Values, out: &mut Vec<String>) {
    for (index, requirement) in list(term, "matchExpressions").enumerate() {
        for (label, advice) in NODE_LABELS.iter().filter(|(label, _)| text(requirement, "key") == *label) {
            out.push(format!("{path}.matchExpressions[{index}].key: {label} is {advice}"));
        }
        if values == Values::Checked {
            continue;
        }
        for (place, value) in list(requirement, "values").filter_map(Value::as_str).enumerate() {
            for problem in names::label_value(value) {
                out.push(format!("{path}.matchExpressions[{index}].values[{place}]: {value} is invalid, {problem}"));
            }
        }
    }
}

fn spread(path: &str, spec: &Value, out: &mut Vec<String>) {
    for (index, constraint) in list(spec, "topologySpreadConstraints").enumerate() {
        let key = text(constraint, "topologyKey");
        let place = format!("{path}.topologySpreadConstraints[{index}]");
        for (_, advice) in NODE_LABELS.iter().filter(|(label, _)| key == *label) {
            out.push(format!("{place}.topologyKey: {key} is {advice}"));
        }
        if constraint["labelSelector"].is_null() {
            out.push(format!("{place}.labelSelector: {NO_POD}"));
        }
    }
}

fn volumes(path: &str, spec: &Value, out: &mut Vec<String>) {
    for (index, volume) in list(spec, "volumes").enumerate() {
        for (_, shown, advice) in PLUGINS.iter().filter(|(kind, ..)| !volume[*kind].is_null()) {
            out.push(format!("{path}.volumes[{index}].{shown}: {advice}"));
        }
    }
}

/// Files that a token of a service account hides.
fn token_paths(path: &str, spec: &Value, out: &mut Vec<String>) {
    let tokens: BTreeSet<&str> = list(spec, "volumes")
        .flat_map(projections)
        .filter_map(|source| source["serviceAccountToken"]["path"].as_str())
        .collect();
    for (index, volume) in list(spec, "volumes").enumerate() {
        for source in projections(volume) {
            for (kind, shown) in [("configMap", "configMap"), ("secret", "secrets"), ("downwardAPI", "downwardAPI")] {
                for (item, file) in list(&source[kind], "items").map(|item| text(item, "path")).enumerate() {
                    if tokens.contains(file) {
                        let place = format!("{path}.volumes[{index}].projected.sources.{shown}[{item}]");
                        out.push(format!("{place}: has duplicated path with ServiceAccountToken {file:?}"));
                    }
                }
            }
            let file = text(&source["clusterTrustBundle"], "path");
            if tokens.contains(file) {
                let place = format!("{path}.volumes[{index}].projected.sources.ClusterTrustBundle");
                out.push(format!("{place}: has duplicated path with ServiceAccountToken {file:?}"));
            }
        }
    }
}

fn projections(volume: &Value) -> impl Iterator<Item = &Value> {
    list(&volume["projected"], "sources")
}

/// Items of a list that say the same twice.
fn repeated(path: &str, spec: &Value, field: &str, key: &str, out: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, value) in list(spec, field).map(|item| text(item, key)).enumerate() {
        if !seen.insert(value) {
            out.push(format!("{path}.{field}[{index}].{key}: duplicate {key} {value:?}"));
        }
    }
}

fn fractions(path: &dyn Display, amounts: &Value, resources: &[&str], out: &mut Vec<String>) {
    for resource in resources {
        let amount = amounts.get(resource).and_then(|amount| Quantity::from_value(amount).ok());
        if let Some(amount) = amount.filter(|amount| !amount.is_whole()) {
            let shown = amount.canonical();
            out.push(format!("{path}[{resource}]: fractional byte value {shown:?} is invalid, must be an integer"));
        }
    }
}

fn variables(path: &str, container: &Value, out: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in list(container, "env").enumerate() {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if seen.insert(name) {
            continue;
        }
        // A variable that extends its earlier value, as PATH does, is meant to be there twice.
        let own = format!("$({name})");
        if !variable["valueFrom"].is_null() || value == own || !value.contains(&own) {
            out.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// The same port twice is allowed, and nearly always a mistake.
fn ports(path: &str, spec: &Value, out: &mut Vec<String>) {
    let mut seen: BTreeMap<(i64, &str), Vec<(String, &Value)>> = BTreeMap::new();
    for (path, container) in containers(path, spec) {
        for (index, port) in list(container, "ports").enumerate() {
            let place = format!("{path}.ports[{index}]");
            let others = seen.entry((number(port, "containerPort"), text(port, "protocol"))).or_default();
            for (other_place, other) in others.iter() {
                let ips = (text(port, "hostIP"), text(other, "hostIP"));
                let hosts = (number(port, "hostPort"), number(other, "hostPort"));
                let word = if ips.0 == ips.1 && hosts.0 == hosts.1 {
                    "duplicate"
                } else if hosts.0 == 0 || hosts.1 == 0 {
                    "overlapping"
                } else if hosts.0 == hosts.1 && ips.0.is_empty() != ips.1.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                out.push(format!("{place}: {word} port definition with {other_place}"));
            }
            others.push((place, port));
        }
    }
}

fn containers<'a>(path: &str, spec: &'a Value) -> Vec<(String, &'a Value)> {
    let mut out = Vec::new();
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in list(spec, field).enumerate() {
            out.push((format!("{path}.{field}[{index}]"), container));
        }
    }
    out
}

fn number(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}
