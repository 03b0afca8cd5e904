//! Strategy of Service: what the server sets, keeps and wipes. The allocator calls these around its work, in this order:
//! `patch_allocated`, `sync_cluster_ips`, `families::choose`, allocation; then `prepare_update` drops what the new type
//! does not have.

use machinery::kind::Selectable;
use serde_json::{Value, json};

pub(super) fn prepare_create(service: &mut Value) {
    service["status"] = json!({"loadBalancer": {}});
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    new["status"] = old.get("status").cloned().unwrap_or_else(|| json!({"loadBalancer": {}}));
    drop_type_dependent(new, old);
}

/// Allocated values that a client left out on update are taken from the stored Service, so that a PUT of the
/// original manifest changes nothing.
pub fn patch_allocated(new: &mut Value, old: &Value) {
    let (before, after) = (&old["spec"], &mut new["spec"]);
    if needs_cluster_ip(before) && needs_cluster_ip(after) {
        if spec_text(after, "clusterIP").is_empty() {
            copy(after, before, "clusterIP");
        }
        if list(after, "clusterIPs").is_empty() && spec_text(after, "clusterIP") == spec_text(before, "clusterIP") {
            copy(after, before, "clusterIPs");
        }
    }
    if needs_node_port(before) && needs_node_port(after) {
        patch_node_ports(after, before);
    }
    if needs_health_check(before) && needs_health_check(after) && number(after, "healthCheckNodePort") == 0 {
        copy(after, before, "healthCheckNodePort");
    }
}

/// Ports are known by name here: the user may have changed anything else about them.
fn patch_node_ports(after: &mut Value, before: &Value) {
    let old_ports = list(before, "ports");
    let taken: Vec<i64> = node_ports(after);
    let mut used: Vec<i64> = node_ports(before).into_iter().filter(|port| taken.contains(port)).collect();
    for port in after.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if number(port, "nodePort") != 0 {
            continue;
        }
        let name = spec_text(port, "name").to_string();
        let same_name = old_ports.iter().rev().find(|old| spec_text(old, "name") == name);
        let node_port = same_name.map_or(0, |old| number(old, "nodePort"));
        if node_port != 0 && !used.contains(&node_port) {
            port["nodePort"] = node_port.into();
            used.push(node_port);
        }
    }
}

/// Clients may know only `clusterIP` or only `clusterIPs`; whichever they changed decides both.
pub fn sync_cluster_ips(new: &mut Value, old: Option<&Value>) {
    let after = &mut new["spec"];
    let address = spec_text(after, "clusterIP").to_string();
    let Some(before) = old.map(|old| &old["spec"]) else {
        if !address.is_empty() && list(after, "clusterIPs").is_empty() {
            after["clusterIPs"] = json!([address]);
        }
        return;
    };
    let old_address = spec_text(before, "clusterIP");
    if address == old_address {
        if list(after, "clusterIPs").is_empty() && !list(before, "clusterIPs").is_empty() {
            copy(after, before, "clusterIPs");
        }
    } else if list(after, "clusterIPs") == list(before, "clusterIPs") {
        if address.is_empty() { remove(after, "clusterIPs") } else { after["clusterIPs"] = json!([address]) }
    }
}

/// On a change of type, fields that the new type does not have are dropped where the user left them as they were.
/// A changed one stays, and validation refuses it.
pub(crate) fn drop_type_dependent(new: &mut Value, old: &Value) {
    let before = &old["spec"];
    let after = &mut new["spec"];
    if needs_cluster_ip(before) && !needs_cluster_ip(after) {
        if list(before, "clusterIPs") == list(after, "clusterIPs") {
            remove(after, "clusterIP");
            remove(after, "clusterIPs");
        }
        drop_unchanged(after, before, &["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if needs_node_port(before) && !needs_node_port(after) {
        let known = node_ports(before);
        if node_ports(after).iter().all(|port| known.contains(port)) {
            for port in after.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                remove(port, "nodePort");
            }
        }
    }
    if needs_health_check(before) && !needs_health_check(after) {
        drop_unchanged(after, before, &["healthCheckNodePort"]);
    }
    if is_load_balancer(before) && !is_load_balancer(after) {
        drop_unchanged(after, before, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if externally_accessible(before) && !externally_accessible(after) {
        drop_unchanged(after, before, &["externalTrafficPolicy"]);
    }
    if !is_load_balancer(after) {
        new["status"]["loadBalancer"] = json!({});
    }
}

fn drop_unchanged(after: &mut Value, before: &Value, fields: &[&str]) {
    for field in fields {
        if after.get(field) == before.get(field) {
            remove(after, field);
        }
    }
}

pub fn needs_cluster_ip(spec: &Value) -> bool {
    matches!(spec_text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Whether ports of this Service may have node ports.
pub fn needs_node_port(spec: &Value) -> bool {
    matches!(spec_text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Whether ports without a node port get one. A load balancer may do without; node ports it has already stay until the
/// user removes them.
pub fn allocates_node_ports(spec: &Value) -> bool {
    let refused = spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    needs_node_port(spec) && !(is_load_balancer(spec) && refused)
}

pub fn needs_health_check(spec: &Value) -> bool {
    is_load_balancer(spec) && spec_text(spec, "externalTrafficPolicy") == "Local"
}

pub fn is_headless(spec: &Value) -> bool {
    match list(spec, "clusterIPs") {
        [] => spec_text(spec, "clusterIP") == "None",
        [only] => *only == "None",
        _ => false,
    }
}

pub(super) fn is_load_balancer(spec: &Value) -> bool {
    spec_text(spec, "type") == "LoadBalancer"
}

pub(super) fn externally_accessible(spec: &Value) -> bool {
    match spec_text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

pub(super) const SELECTABLE: &[Selectable] = &[
    Selectable { field: "spec.clusterIP", read: |service| spec_text(&service["spec"], "clusterIP").into() },
    Selectable { field: "spec.type", read: |service| spec_text(&service["spec"], "type").into() },
];

pub(super) fn spec_text<'a>(spec: &'a Value, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or("")
}

pub(super) fn list<'a>(spec: &'a Value, field: &str) -> &'a [Value] {
    spec.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

fn node_ports(spec: &Value) -> Vec<i64> {
    list(spec, "ports").iter().map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

fn copy(after: &mut Value, before: &Value, field: &str) {
    if let Some(value) = before.get(field) {
        after[field] = value.clone();
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(field);
    }
}
