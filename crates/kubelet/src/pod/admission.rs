//! Pod admission on the node: what the scheduler checked, checked again where the pod will run. Static pods and pods that
//! were bound by hand meet these rules here for the first time.

mod affinity;
pub mod preemption;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Node, Pod, Taint};

use super::memory::ResizeState;
use super::totals::{self, Amounts};
use super::{Shared, security, spec};
use crate::resources::{QosClass, SwapBehavior, swap};

/// Why a pod is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

/// What is free on the node, and whom it takes.
pub struct NodeView {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// In thousandths; empty when it is not known.
    pub allocatable: Amounts,
    pub allowed_unsafe_sysctls: Vec<String>,
    pub taints: Vec<Taint>,
    /// Resources that device plugins give, which are counted by them.
    pub of_plugins: BTreeSet<String>,
    /// Whether the kernel has AppArmor and uses it.
    pub apparmor: bool,
}

impl NodeView {
    pub fn new(node: Option<&Node>, shared: &Shared) -> NodeView {
        let allocatable = node.and_then(|node| node.status.as_ref()).and_then(|status| status.allocatable.as_ref());
        NodeView {
            name: shared.kubelet.config.node_name.clone(),
            labels: node.and_then(|node| node.metadata.labels.clone()).unwrap_or_default(),
            allocatable: totals::milli(allocatable),
            allowed_unsafe_sysctls: shared.kubelet.config.allowed_unsafe_sysctls.clone(),
            taints: node.and_then(|node| node.spec.as_ref()?.taints.clone()).unwrap_or_default(),
            of_plugins: shared.device_plugins.resources(),
            apparmor: security::apparmor_enabled(),
        }
    }
}

/// Sysctls that touch nothing but their own pod.
static SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// Judges a pod beside those that the node has already taken.
pub fn admit(node: &NodeView, pod: &Pod, others: &[&Pod]) -> Result<(), Refusal> {
    sysctls(node, pod)?;
    operating_system(node, pod)?;
    if let Some(name) = spec::wishes(pod).node_name.as_deref().filter(|name| *name != node.name) {
        return refuse(
            "NodeName",
            format!("Predicate NodeName failed: node(s) didn't match the requested node name ({name})"),
        );
    }
    resources(node, pod, others)?;
    if !affinity::fits(&node.labels, &node.name, pod) {
        let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return refuse("NodeAffinity", message.to_owned());
    }
    if others.iter().any(|other| ports_clash(pod, other)) {
        let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        return refuse("NodePorts", message.to_owned());
    }
    taints(node, pod)?;
    if !node.apparmor && security::wants_apparmor(pod) {
        return refuse("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned());
    }
    Ok(())
}

/// Whether a change of these resources fits beside the other pods.
pub fn resize(shared: &Shared, pod: &Pod, changed: &[&str]) -> Result<(), ResizeState> {
    if QosClass::of(pod) == QosClass::Guaranteed
        && let Some(message) = changed.iter().find_map(|resource| shared.managers.forbids_resize(resource))
    {
        return Err(ResizeState::Pending { reason: "Infeasible".to_owned(), message });
    }
    if changed.contains(&"memory") && swaps(shared, pod) {
        let message = "In-place resize of containers with swap is not supported.".to_owned();
        return Err(ResizeState::Pending { reason: "Infeasible".to_owned(), message });
    }
    let states = shared.pods.list();
    let others: Vec<&Pod> = states
        .iter()
        .filter(|state| !state.finished && spec::uid(&state.pod) != spec::uid(pod))
        .map(|state| &*state.pod)
        .collect();
    let allocatable = shared.pods.allocatable();
    let pending = |reason: &str, message: String| Err(ResizeState::Pending { reason: reason.to_owned(), message });
    let wanted = totals::requests(pod);
    for name in ["cpu", "memory"] {
        let Some(capacity) = allocatable.get(name).copied() else { continue };
        let requested = wanted.get(name).copied().unwrap_or(0);
        let used: i128 = others.iter().map(|other| totals::requests(other).get(name).copied().unwrap_or(0)).sum();
        let shown = |amount: i128| if name == "cpu" { amount } else { amount / 1000 };
        if requested > capacity {
            return pending(
                "Infeasible",
                format!(
                    "Node didn't have enough capacity: {name}, requested: {}, capacity: {}",
                    shown(requested),
                    shown(capacity)
                ),
            );
        }
        if requested + used > capacity {
            return pending(
                "Deferred",
                format!(
                    "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
                    shown(requested),
                    shown(used),
                    shown(capacity)
                ),
            );
        }
    }
    Ok(())
}

/// Whether memory of a container that uses swap would change while it runs.
fn swaps(shared: &Shared, pod: &Pod) -> bool {
    let restarts = |container: &Container| {
        let mut policies = container.resize_policy.iter().flatten();
        policies.any(|policy| policy.resource_name == "memory" && policy.restart_policy == "RestartContainer")
    };
    let mut containers = spec::init_containers(pod).chain(spec::regular_containers(pod));
    containers.any(|container| {
        !restarts(container) && swap::behavior(pod, container, &shared.node) == SwapBehavior::LimitedSwap
    })
}

fn refuse(reason: &str, message: String) -> Result<(), Refusal> {
    Err(Refusal { reason: reason.to_owned(), message })
}

fn sysctls(node: &NodeView, pod: &Pod) -> Result<(), Refusal> {
    let wishes = spec::wishes(pod);
    let wished = wishes.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    for sysctl in wished.into_iter().flatten() {
        let name = sysctl.name.replace('/', ".");
        let allowed = SAFE_SYSCTLS.contains(&name.as_str())
            || node.allowed_unsafe_sysctls.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => *pattern == name,
            });
        if !allowed {
            return refuse("SysctlForbidden", format!("forbidden sysctl: \"{name}\" not allowlisted"));
        }
        let network = name.starts_with("net.");
        if network && wishes.host_network == Some(true) {
            return refuse(
                "SysctlForbidden",
                format!("forbidden sysctl: \"{name}\" not allowed with host net enabled"),
            );
        }
        let ipc = name.starts_with("kernel.shm")
            || name.starts_with("kernel.msg")
            || name.starts_with("kernel.sem")
            || name.starts_with("fs.mqueue.");
        if ipc && wishes.host_ipc == Some(true) {
            return refuse(
                "SysctlForbidden",
                format!("forbidden sysctl: \"{name}\" not allowed with host ipc enabled"),
            );
        }
    }
    Ok(())
}

/// A pod of another system never starts here, though a binding by hand may have brought it.
fn operating_system(node: &NodeView, pod: &Pod) -> Result<(), Refusal> {
    let wishes = spec::wishes(pod);
    let selected = wishes.node_selector.as_ref().and_then(|selector| selector.get("kubernetes.io/os"));
    let label = node.labels.get("kubernetes.io/os");
    if selected.is_some_and(|wished| label.is_some_and(|label| wished != label)) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return refuse("PodOSSelectorNodeLabelDoesNotMatch", message.to_owned());
    }
    if wishes.os.as_ref().is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return refuse("PodOSNotSupported", message.to_owned());
    }
    Ok(())
}

/// Only taints that would end a running pod count here; keeping pods away is the scheduler's work.
fn taints(node: &NodeView, pod: &Pod) -> Result<(), Refusal> {
    if spec::is_static(pod) {
        return Ok(());
    }
    let tolerations = spec::wishes(pod).tolerations.as_deref().unwrap_or_default();
    match component_helpers::taints::first_untolerated(&node.taints, tolerations, &["NoExecute"]) {
        Some(_) => {
            let message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
            refuse("TaintToleration", message.to_owned())
        }
        None => Ok(()),
    }
}

fn resources(node: &NodeView, pod: &Pod, others: &[&Pod]) -> Result<(), Refusal> {
    let out_of = |name: &str, requested: i128, used: i128, capacity: i128| {
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        refuse(&format!("OutOf{name}"), message)
    };
    if let Some(capacity) = node.allocatable.get("pods").map(|pods| pods / 1000) {
        let used = others.len() as i128;
        if used + 1 > capacity {
            return out_of("pods", 1, used, capacity);
        }
    }
    for (name, requested) in totals::requests(&without_claimed(pod)) {
        if requested == 0 || node.allocatable.is_empty() || node.of_plugins.contains(&name) {
            continue;
        }
        // What the node does not have at all is somebody else's in the cluster, not this node's to refuse, as upstream.
        if name.contains('/') && !node.allocatable.contains_key(&name) {
            continue;
        }
        let capacity = node.allocatable.get(&name).copied().unwrap_or(0);
        let used: i128 = others.iter().map(|other| totals::requests(other).get(&name).copied().unwrap_or(0)).sum();
        if requested + used > capacity {
            // Processors are counted in thousandths in these messages, all else in units.
            let shown = |amount: i128| if name == "cpu" { amount } else { amount / 1000 };
            return out_of(&name, shown(requested), shown(used), shown(capacity));
        }
    }
    Ok(())
}

/// The pod without the extended resources that the scheduler has claimed devices for: drivers give those, not the node.
fn without_claimed(pod: &Pod) -> Cow<'_, Pod> {
    let status = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    let Some(status) = status else { return Cow::Borrowed(pod) };
    let mut pod = pod.clone();
    let Some(spec) = pod.spec.as_mut() else { return Cow::Owned(pod) };
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let own = status.request_mappings.iter().filter(|mapping| mapping.container_name == container.name);
        let Some(requests) = container.resources.as_mut().and_then(|resources| resources.requests.as_mut()) else {
            continue;
        };
        own.for_each(|mapping| _ = requests.remove(&mapping.resource_name));
    }
    Cow::Owned(pod)
}

fn ports_clash(pod: &Pod, other: &Pod) -> bool {
    let theirs = host_ports(other);
    host_ports(pod).iter().any(|(protocol, ip, port)| {
        theirs.iter().any(|(other_protocol, other_ip, other_port)| {
            let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
            protocol == other_protocol && port == other_port && (any(ip) || any(other_ip) || ip == other_ip)
        })
    })
}

fn host_ports(pod: &Pod) -> Vec<(String, String, i32)> {
    let sidecars = spec::init_containers(pod).filter(|container| spec::is_sidecar(container));
    let ports = sidecars.chain(spec::regular_containers(pod)).flat_map(|container| container.ports.iter().flatten());
    let host = spec::host_network(pod);
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0).or(host.then_some(port.container_port))?;
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((protocol, port.host_ip.clone().unwrap_or_default(), number))
        })
        .collect()
}

#[cfg(test)]
pub(in crate::pod) mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec})).expect("a pod")
    }

    pub fn node() -> NodeView {
        NodeView {
            name: "n1".to_owned(),
            labels: [("disk", "ssd"), ("kubernetes.io/os", "linux")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            allocatable: [("cpu", 2000), ("memory", (1 << 30) * 1000), ("pods", 2000)]
                .map(|(name, amount)| (name.to_owned(), amount))
                .into(),
            allowed_unsafe_sysctls: vec!["net.core.*".to_owned()],
            taints: vec![
                serde_json::from_value(serde_json::json!({"key": "gone", "effect": "NoExecute"})).expect("a taint"),
                serde_json::from_value(serde_json::json!({"key": "full", "effect": "NoSchedule"})).expect("a taint"),
            ],
            of_plugins: BTreeSet::from(["x.test/plugged".to_owned()]),
            apparmor: false,
        }
    }

    fn check(wish: serde_json::Value, others: &[serde_json::Value], expected: Result<(), (&str, &str)>) {
        let others: Vec<Pod> = others.iter().cloned().map(pod).collect();
        let others: Vec<&Pod> = others.iter().collect();
        let expected =
            expected.map_err(|(reason, message)| Refusal { reason: reason.to_owned(), message: message.to_owned() });
        let mut wish = wish;
        if wish["tolerations"].is_null() {
            wish["tolerations"] = serde_json::json!([{"key": "gone", "operator": "Exists"}]);
        }
        assert_eq!(admit(&node(), &pod(wish), &others), expected);
    }

    #[test]
    fn what_does_not_belong_here_is_refused_in_upstreams_words() {
        let plain = |more: serde_json::Value| {
            let mut spec = serde_json::json!({"containers": [{"name": "c"}]});
            spec.as_object_mut().expect("a spec").extend(more.as_object().expect("fields").clone());
            spec
        };
        let taint = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        let one = serde_json::json!([{"key": "other", "operator": "Exists"}]);
        check(plain(serde_json::json!({"tolerations": one})), &[], Err(("TaintToleration", taint)));
        let os = |name: &str| plain(serde_json::json!({"os": {"name": name}}));
        check(os("linux"), &[], Ok(()));
        let field = "Failed to admit pod as the OS field doesn't match node OS";
        check(os("windows"), &[], Err(("PodOSNotSupported", field)));
        let selected = plain(serde_json::json!({"nodeSelector": {"kubernetes.io/os": "windows"}}));
        let label = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        check(selected, &[], Err(("PodOSSelectorNodeLabelDoesNotMatch", label)));
        let armor = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        for (kind, expected) in [("Unconfined", Ok(())), ("RuntimeDefault", Err(("AppArmor", armor)))] {
            let profile = serde_json::json!({"appArmorProfile": {"type": kind}});
            check(plain(serde_json::json!({"securityContext": profile})), &[], expected);
            let own = serde_json::json!([{"name": "c", "securityContext": profile}]);
            check(plain(serde_json::json!({"containers": own})), &[], expected);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_in_upstreams_words() {
        let cpu = |amount: &str| serde_json::json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]});
        check(cpu("2"), &[], Ok(()));
        let device =
            |name: &str| serde_json::json!({"containers": [{"name": "c", "resources": {"requests": {name: "1"}}}]});
        check(device("x.test/plugged"), &[], Ok(()));
        check(device("x.test/of-the-cluster"), &[], Ok(()));
        // What a driver gives is not looked for on the node, which may have had a plugin for it.
        let mut had = node();
        had.allocatable.insert("x.test/gpu".to_owned(), 0);
        let mut claimed = pod(device("x.test/gpu"));
        claimed.spec.as_mut().expect("a spec").tolerations =
            Some(vec![serde_json::from_value(serde_json::json!({"operator": "Exists"})).expect("a toleration")]);
        let refused = admit(&had, &claimed, &[]).expect_err("the node has none");
        assert_eq!(refused.reason, "OutOfx.test/gpu");
        let mapping = |container: &str| {
            let mapping =
                serde_json::json!({"containerName": container, "resourceName": "x.test/gpu", "requestName": "r"});
            let status = serde_json::json!({"resourceClaimName": "x", "requestMappings": [mapping]});
            serde_json::from_value(serde_json::json!({"extendedResourceClaimStatus": status})).ok()
        };
        claimed.status = mapping("other");
        assert!(admit(&had, &claimed, &[]).is_err(), "it is for another container");
        claimed.status = mapping("c");
        assert_eq!(admit(&had, &claimed, &[]), Ok(()));
        check(
            cpu("1500m"),
            &[cpu("1")],
            Err(("OutOfcpu", "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000")),
        );
        check(
            serde_json::json!({"containers": [{"name": "c"}]}),
            &[cpu("0"), cpu("0")],
            Err(("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2")),
        );
        let port = |ip: &str| serde_json::json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": ip}]}]});
        let clash = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        check(port(""), &[port("10.0.0.1")], Err(("NodePorts", clash)));
        check(port("10.0.0.2"), &[port("10.0.0.1")], Ok(()));
        let selector =
            |value: &str| serde_json::json!({"nodeSelector": {"disk": value}, "containers": [{"name": "c"}]});
        check(selector("ssd"), &[], Ok(()));
        let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        check(selector("hdd"), &[], Err(("NodeAffinity", affinity)));
        let sysctl = |name: &str| serde_json::json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}, "containers": [{"name": "c"}]});
        check(sysctl("net.core.somaxconn"), &[], Ok(()));
        check(sysctl("net.ipv4.tcp_syncookies"), &[], Ok(()));
        check(
            sysctl("vm.swappiness"),
            &[],
            Err(("SysctlForbidden", "forbidden sysctl: \"vm.swappiness\" not allowlisted")),
        );
    }
}
