//! Strategy of Pod: what the server sets or protects.

use machinery::kind::Selectable;
use serde_json::{Value, json};

use super::qos;
use crate::common::pod_spec::warnings as spec_warnings;
use crate::common::workload;
use machinery::names;

pub(super) fn prepare_create(pod: &mut Value) {
    let mut status = json!({ "phase": "Pending", "qosClass": qos::class(&pod["spec"]) });
    if pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": null,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod["status"] = status;
    app_armor_from_annotations(pod);
    let labels = pod.pointer("/metadata/labels").cloned().unwrap_or(Value::Null);
    selectors_from_label_keys(&mut pod["spec"], &labels);
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    workload::keep_status(new, old);
}

/// One that runs nowhere, or has ended, goes at once.
pub(super) fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("").is_empty();
    let ended = matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    if unscheduled || ended {
        return 0;
    }
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    match asked.unwrap_or(own) {
        // Upstream reads a negative period as one second.
        ..0 => 1,
        seconds => seconds,
    }
}

/// The class was decided when the pod was made; a status without it does not take it away.
pub(super) fn prepare_status(new: &mut Value, old: &Value) {
    let class = old.pointer("/status/qosClass").cloned();
    if let (Some(class), Some(status)) = (class, new.get_mut("status").and_then(Value::as_object_mut)) {
        status.entry("qosClass").or_insert(class);
    }
}

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The annotations of older clients become fields, unless the container or the whole pod says the same or more.
fn app_armor_from_annotations(pod: &mut Value) {
    if pod.pointer("/spec/os/name").is_some_and(|name| name == "windows") {
        return;
    }
    let annotations = pod.pointer("/metadata/annotations").cloned().unwrap_or_default();
    let of_pod = pod.pointer("/spec/securityContext/appArmorProfile").cloned();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default();
            let wanted = annotations.get(format!("{APP_ARMOR_ANNOTATION}{name}")).and_then(Value::as_str);
            let has_own = container.pointer("/securityContext/appArmorProfile").is_some();
            let Some(profile) = wanted.and_then(app_armor_profile).filter(|_| !has_own) else { continue };
            if of_pod.as_ref() != Some(&profile) {
                machinery::object::child_mut(container, "securityContext").insert("appArmorProfile".into(), profile);
            }
        }
    }
}

/// By now the field says the same as the annotation, so a client that sent both is told, too, whom upstream would not tell.
fn app_armor_warnings(pod: &Value) -> Vec<String> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers = lists.iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    let keys = containers.filter_map(|container| {
        let key = format!("{APP_ARMOR_ANNOTATION}{}", container["name"].as_str()?);
        let profile = app_armor_profile(pod.pointer("/metadata/annotations")?.get(&key)?.as_str()?)?;
        (container.pointer("/securityContext/appArmorProfile")? == &profile).then_some(key)
    });
    keys.map(|key| format!("metadata.annotations[{key}]: {}", spec_warnings::APPARMOR_ADVICE)).collect()
}

fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let profile =
                annotation.strip_prefix("localhost/").filter(|name| !name.is_empty() && *name == name.trim())?;
            Some(json!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
}

/// `matchLabelKeys` and `mismatchLabelKeys` become requirements on the pod's own values.
fn selectors_from_label_keys(spec: &mut Value, labels: &Value) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.pointer_mut(&format!("/affinity/{kind}")) else { continue };
        let required = affinity.get_mut("requiredDuringSchedulingIgnoredDuringExecution");
        for term in required.and_then(Value::as_array_mut).into_iter().flatten() {
            add_requirements(term, labels);
        }
        let preferred = affinity.get_mut("preferredDuringSchedulingIgnoredDuringExecution");
        for term in preferred.and_then(Value::as_array_mut).into_iter().flatten() {
            add_requirements(&mut term["podAffinityTerm"], labels);
        }
    }
    let constraints = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten() {
        add_requirements(constraint, labels);
    }
}

fn add_requirements(term: &mut Value, labels: &Value) {
    if !term["labelSelector"].is_object() {
        return;
    }
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term[keys].as_array().cloned().into_iter().flatten() {
            let Some(value) = key.as_str().and_then(|key| labels.get(key)) else { continue };
            let requirement = json!({ "key": key, "operator": operator, "values": [value] });
            let selector = &mut term["labelSelector"];
            match selector["matchExpressions"].as_array_mut() {
                Some(list) => list.push(requirement),
                None => selector["matchExpressions"] = json!([requirement]),
            }
        }
    }
}

pub(super) fn warnings(pod: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let mut out = Vec::new();
    let problems = names::dns_label(machinery::object::Meta::name(pod));
    if !problems.is_empty() {
        out.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            problems.join(" ")
        ));
    }
    out.extend(app_armor_warnings(pod));
    out.extend(spec_warnings::pod("", pod));
    out
}

fn text(pod: &Value, pointer: &str) -> String {
    pod.pointer(pointer).and_then(Value::as_str).unwrap_or("").into()
}

pub(super) const SELECTABLE: &[Selectable] = &[
    Selectable { field: "spec.nodeName", read: |pod| text(pod, "/spec/nodeName") },
    Selectable { field: "spec.restartPolicy", read: |pod| text(pod, "/spec/restartPolicy") },
    Selectable { field: "spec.schedulerName", read: |pod| text(pod, "/spec/schedulerName") },
    Selectable { field: "spec.serviceAccountName", read: |pod| text(pod, "/spec/serviceAccountName") },
    Selectable {
        field: "spec.hostNetwork",
        read: |pod| (pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true))).to_string(),
    },
    Selectable { field: "status.phase", read: |pod| text(pod, "/status/phase") },
    Selectable {
        field: "status.podIP",
        read: |pod| match text(pod, "/status/podIP") {
            address if address.is_empty() => text(pod, "/status/podIPs/0/ip"),
            address => address,
        },
    },
    Selectable {
        field: "status.podIPs",
        read: |pod| {
            let list = pod.pointer("/status/podIPs").and_then(Value::as_array);
            let addresses = list.into_iter().flatten().filter_map(|address| address["ip"].as_str());
            addresses.collect::<Vec<_>>().join(",")
        },
    },
    Selectable { field: "status.nominatedNodeName", read: |pod| text(pod, "/status/nominatedNodeName") },
];
