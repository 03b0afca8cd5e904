//! What one object takes of a quota, by the names that quotas know.

use jiff::{SignedDuration, Timestamp};
use machinery::object::Meta;
use machinery::quantity::{Format, Quantity};
use serde_json::Value;

use super::devices::{self, Classes};
use super::pod_resources::{Amounts, Side, of_pod};

const STORAGE_CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";

/// The names among the keys of `hard` that objects of this resource count for. Only what ResourceClaims count for depends on the
/// classes of devices.
pub fn matching_names(group: &str, plural: &str, hard: &Value, classes: &Classes) -> Vec<String> {
    let names = hard.as_object().into_iter().flat_map(|hard| hard.keys());
    let count = count_name(group, plural);
    names.filter(|name| **name == count || counts_for(group, plural, name, classes)).cloned().collect()
}

/// Whether objects of this resource are ResourceClaims, whose usage depends on other objects too ([`Classes::add_extended`]).
pub fn is_device_claim(group: &str, plural: &str) -> bool {
    (group, plural) == ("resource.k8s.io", "resourceclaims")
}

/// `count/deployments.apps`, `count/pods`.
pub(crate) fn count_name(group: &str, plural: &str) -> String {
    match group {
        "" => format!("count/{plural}"),
        _ => format!("count/{plural}.{group}"),
    }
}

/// Names besides `count/...`, which every resource has.
fn counts_for(group: &str, plural: &str, name: &str, classes: &Classes) -> bool {
    if is_device_claim(group, plural) {
        return devices::is_per_class(name) || classes.give(name);
    }
    if !group.is_empty() {
        return false;
    }
    match plural {
        "pods" => is_pod_name(name),
        "services" => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
        "persistentvolumeclaims" => {
            matches!(name, "persistentvolumeclaims" | "requests.storage") || name.contains(STORAGE_CLASS_SUFFIX)
        }
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => name == plural,
        _ => false,
    }
}

fn is_pod_name(name: &str) -> bool {
    let side = name.strip_prefix("requests.").or(name.strip_prefix("limits."));
    match (name, side) {
        ("pods" | "cpu" | "memory" | "ephemeral-storage", _) => true,
        (_, Some("cpu" | "memory" | "ephemeral-storage")) => true,
        (_, Some(resource)) if name.starts_with("requests.") => {
            resource.starts_with("hugepages-") || is_extended(resource) && !resource.contains(STORAGE_CLASS_SUFFIX)
        }
        _ => name.starts_with("hugepages-"),
    }
}

/// A resource of somebody else's domain, such as `example.com/gpu`, or one that a class of devices gives.
fn is_extended(name: &str) -> bool {
    if name.starts_with(devices::IMPLICIT) {
        return true;
    }
    let domain = name.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

/// Everything the object takes, whether or not a quota limits it.
pub fn of_object(group: &str, plural: &str, object: &Value, now: Timestamp) -> Amounts {
    let mut taken = Amounts::new();
    taken.insert(count_name(group, plural), number(1));
    match (group, plural) {
        ("", "pods") if pod_counts(object, now) => add_pod(&mut taken, object),
        ("", "services") => add_service(&mut taken, object),
        ("", "persistentvolumeclaims") => add_claim(&mut taken, object),
        ("resource.k8s.io", "resourceclaims") => devices::add_claim(&mut taken, object),
        ("", "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
            taken.insert(plural.into(), number(1));
        }
        _ => {}
    }
    taken
}

/// What is more now than it was.
pub fn growth(now: &Amounts, before: &Amounts) -> Amounts {
    let grown = now.iter().map(|(name, amount)| (name, before.get(name).map_or(*amount, |before| *amount - *before)));
    grown.filter(|(_, amount)| amount.sign() > 0).map(|(name, amount)| (name.clone(), amount)).collect()
}

pub fn number(count: i64) -> Quantity {
    Quantity::from_int(count, Format::DecimalSi)
}

/// A pod that has ended, or should have long ago, takes nothing but its place in the store.
fn pod_counts(pod: &Value, now: Timestamp) -> bool {
    if matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed")) {
        return false;
    }
    let until = pod.meta("deletionTimestamp").and_then(Value::as_str).and_then(|time| time.parse::<Timestamp>().ok());
    let grace = pod.meta("deletionGracePeriodSeconds").and_then(Value::as_i64);
    match (until, grace) {
        (Some(until), Some(grace)) => now <= until + SignedDuration::from_secs(grace.max(0)),
        _ => true,
    }
}

fn add_pod(taken: &mut Amounts, pod: &Value) {
    taken.insert("pods".into(), number(1));
    for (name, amount) in of_pod(pod, Side::Requests) {
        let plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if plain || is_extended(&name) {
            taken.insert(format!("requests.{name}"), amount);
        }
        if plain {
            taken.insert(name, amount);
        }
    }
    for (name, amount) in of_pod(pod, Side::Limits) {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            taken.insert(format!("limits.{name}"), amount);
        }
    }
}

fn add_service(taken: &mut Amounts, service: &Value) {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let all = ports.len() as i64;
    let (node_ports, balancers) = match spec["type"].as_str() {
        Some("NodePort") => (all, 0),
        // Ports of nodes that were declined count only where they are named all the same.
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            (ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count() as i64, 1)
        }
        Some("LoadBalancer") => (all, 1),
        _ => (0, 0),
    };
    for (name, count) in [("services", 1), ("services.nodeports", node_ports), ("services.loadbalancers", balancers)] {
        taken.insert(name.into(), number(count));
    }
}

fn add_claim(taken: &mut Amounts, claim: &Value) {
    taken.insert("persistentvolumeclaims".into(), number(1));
    let at = |path: &str| claim.pointer(path).and_then(|value| Quantity::from_value(value).ok());
    // While a volume is resized, both what it has and what it will have are spoken for.
    let storage = at("/spec/resources/requests/storage").max(at("/status/allocatedResources/storage"));
    let class = claim.annotation("volume.beta.kubernetes.io/storage-class");
    let class = class.or_else(|| claim.pointer("/spec/storageClassName")?.as_str()).unwrap_or("");
    if !class.is_empty() {
        taken.insert(format!("{class}{STORAGE_CLASS_SUFFIX}persistentvolumeclaims"), number(1));
    }
    if let Some(storage) = storage {
        taken.insert("requests.storage".into(), storage);
        if !class.is_empty() {
            taken.insert(format!("{class}{STORAGE_CLASS_SUFFIX}requests.storage"), storage);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(plural: &str, object: Value, expected: &str) {
        let taken = of_object("", plural, &object, Timestamp::UNIX_EPOCH);
        let shown: Vec<String> = taken.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(shown.join(","), expected);
    }

    #[test]
    fn objects_take_what_they_ask_for() {
        check("configmaps", json!({}), "configmaps=1,count/configmaps=1");
        check("endpoints", json!({}), "count/endpoints=1");
        let resources = json!({"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"memory": "1Gi"}});
        let pod = json!({"spec": {"containers": [{"resources": resources}]}});
        check(
            "pods",
            pod.clone(),
            "count/pods=1,cpu=1,limits.memory=1Gi,pods=1,requests.cpu=1,requests.example.com/gpu=2",
        );
        let resources = json!({"requests": {"deviceclass.resource.kubernetes.io/gpu": "2"}});
        check(
            "pods",
            json!({"spec": {"containers": [{"resources": resources}]}}),
            "count/pods=1,pods=1,requests.deviceclass.resource.kubernetes.io/gpu=2",
        );
        let mut ended = pod;
        ended["status"] = json!({"phase": "Succeeded"});
        check("pods", ended, "count/pods=1");
        let ports = json!([{"port": 1, "nodePort": 30000}, {"port": 2}]);
        let service = |kind: &str, allocate: bool| json!({"spec": {"type": kind, "ports": ports, "allocateLoadBalancerNodePorts": allocate}});
        let rest = |node_ports: i64, balancers: i64| {
            format!("count/services=1,services=1,services.loadbalancers={balancers},services.nodeports={node_ports}")
        };
        check("services", service("ClusterIP", true), &rest(0, 0));
        check("services", service("NodePort", true), &rest(2, 0));
        check("services", service("LoadBalancer", true), &rest(2, 1));
        check("services", service("LoadBalancer", false), &rest(1, 1));
        let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
        check(
            "persistentvolumeclaims",
            claim,
            "count/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             fast.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi",
        );
    }

    #[test]
    fn names_find_their_resource() {
        let hard = json!({"pods": "1", "requests.cpu": "1", "requests.storage": "1", "count/deployments.apps": "1", "secrets": "1",
            "requests.example.com/gpu": "1", "hugepages-2Mi": "1", "gpu.deviceclass.resource.k8s.io/devices": "1", "gold.storageclass.storage.k8s.io/requests.storage": "1"});
        let classes = Classes::new([("gpu".to_owned(), Some("example.com/gpu".to_owned()))]);
        let check = |group: &str, plural: &str, expected: &[&str]| {
            assert_eq!(matching_names(group, plural, &hard, &classes), expected)
        };
        check("", "pods", &["hugepages-2Mi", "pods", "requests.cpu", "requests.example.com/gpu"]);
        check("apps", "deployments", &["count/deployments.apps"]);
        check("", "secrets", &["secrets"]);
        check("", "persistentvolumeclaims", &["gold.storageclass.storage.k8s.io/requests.storage", "requests.storage"]);
        check("apps", "pods", &[]);
        let devices = ["gpu.deviceclass.resource.k8s.io/devices", "requests.example.com/gpu"];
        check("resource.k8s.io", "resourceclaims", &devices);
    }
}
