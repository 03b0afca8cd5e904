//! Pods as what Services lead to: which count, by which ports and names they are reached.

use component_helpers::pods::{has_ended, is_ready};
use k8s_openapi::api::core::v1::{Container, Node, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The label that says that a Service has no address of its own.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// When the pod or the Service changed that made the endpoints change.
pub(crate) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// Whether a Service may lead to the pod at all: it has an address and has not ended.
pub(crate) fn is_reachable(pod: &Pod) -> bool {
    !has_ended(pod) && addresses(pod).next().is_some()
}

pub(crate) fn addresses(pod: &Pod) -> impl Iterator<Item = &str> {
    let status = pod.status.as_ref();
    let many = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let one = status.and_then(|status| status.pod_ip.as_deref()).filter(|_| many.is_empty());
    many.iter().map(|address| address.ip.as_str()).chain(one).filter(|address| !address.is_empty())
}

pub(crate) fn is_ipv6(address: &str) -> bool {
    address.contains(':')
}

pub(crate) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false)
}

/// The number of the port on that pod; a name is looked up among the ports of its containers.
pub(crate) fn port_number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten().filter(sidecar));
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let found =
        ports.find(|one| one.name.as_ref() == Some(name) && one.protocol.as_deref().unwrap_or("TCP") == protocol);
    found.map(|port| port.container_port)
}

/// The name under which the pod is found below the Service's own, if the pod asks for one.
pub(crate) fn host_name(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let name = spec.hostname.clone().filter(|name| !name.is_empty())?;
    (spec.subdomain.is_some() && spec.subdomain == service.metadata.name).then_some(name)
}

pub(crate) fn reference_to(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

pub(crate) fn zone_of(node: &Node) -> Option<&String> {
    node.metadata.labels.as_ref()?.get(ZONE)
}

/// Whether a change of a pod changes what leads to it.
pub(crate) fn matters(old: &Pod, new: &Pod) -> bool {
    let told = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        let node = spec.and_then(|spec| spec.node_name.clone());
        let ending = pod.metadata.deletion_timestamp.is_some();
        (has_ended(pod), is_ready(pod), ending, node, pod.metadata.uid.clone())
    };
    told(old) != told(new) || old.metadata.labels != new.metadata.labels || !addresses(old).eq(addresses(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_are_found_by_number_and_by_name() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": {
            "containers": [{"name": "a", "ports": [{"name": "web", "containerPort": 80}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]}],
            "initContainers": [{"name": "side", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 9}]},
                {"name": "init", "ports": [{"name": "init", "containerPort": 8}]}],
        }})).expect("a pod");
        let check = |target: serde_json::Value, protocol: &str, expected: Option<i32>| {
            let port = json!({"port": 1, "targetPort": target, "protocol": protocol});
            let port: ServicePort = serde_json::from_value(port).expect("a port");
            assert_eq!(port_number(&pod, &port), expected, "{target} {protocol}");
        };
        check(json!(7), "TCP", Some(7));
        check(json!("web"), "TCP", Some(80));
        check(json!("web"), "UDP", None);
        check(json!("dns"), "UDP", Some(53));
        check(json!("side"), "TCP", Some(9));
        check(json!("init"), "TCP", None);
    }
}
