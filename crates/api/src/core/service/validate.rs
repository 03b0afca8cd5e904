//! Validation of Service, on create and on update.

use std::net::IpAddr;

use machinery::field::{Errors, FieldError, Path, Problem, shown};
use machinery::meta::validate_labels;
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::{Value, json};

use super::strategy::{externally_accessible, is_load_balancer, needs_health_check};
use crate::core::check;

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const CLIENT_IP_TIMEOUT_MAX: i64 = 86_400;

pub(super) fn validate(service: &Node, errors: &mut Errors) {
    with_known(service, &Known::default(), errors);
}

/// Addresses and networks that were there before are kept, however they are written.
#[derive(Default)]
struct Known<'a> {
    addresses: Vec<&'a str>,
    cluster_addresses: Vec<&'a str>,
    networks: Vec<&'a str>,
}

fn with_known(service: &Node, known: &Known, errors: &mut Errors) {
    topology_annotations(service, errors);
    let spec = service.at("spec");
    let kind = spec.text("type");
    let ports = spec.at("ports");
    if ports.is_empty() && !is_headless(&spec) && kind != "ExternalName" {
        errors.required(&ports, "");
    }
    by_type(&spec, errors);
    let mut names = Vec::new();
    for item in ports.items() {
        port(&item, ports.len() > 1, &mut names, errors);
    }
    validate_labels(&spec.at("selector"), errors);
    session_affinity(&spec, errors);
    cluster_ips(&spec, &known.cluster_addresses, errors);
    for address in spec.each("externalIPs") {
        if known.addresses.contains(&address.str()) {
            if let Some(ip) = names::lenient_ip(address.str()) {
                check::endpoint_ip(&address, ip, errors);
            }
        } else if let Some(ip) = check::ip(&address, errors) {
            check::endpoint_ip(&address, ip, errors);
        }
    }
    check::required_one_of(&spec.at("type"), &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    port_conflicts(&spec, errors);
    source_ranges(service, known, errors);
    let allocate = spec.at("allocateLoadBalancerNodePorts");
    if allocate.exists() && kind != "LoadBalancer" {
        errors.forbidden(&allocate, LOAD_BALANCER_ONLY);
    }
    if !allocate.exists() && kind == "LoadBalancer" {
        errors.push(FieldError::new(Problem::Required, Path::new("allocateLoadBalancerNodePorts"), "", ""));
    }
    load_balancer_class(&spec, errors);
    traffic_policies(&spec, errors);
}

pub(super) fn validate_update(service: &Node, old_service: &Node, errors: &mut Errors) {
    let (new, old) = (service.at("spec"), old_service.at("spec"));
    if new.text("type") != "ExternalName" && old.text("type") != "ExternalName" {
        cluster_ip_changes(&new, &old, errors);
        family_changes(&new, &old, errors);
    }
    let class = new.at("loadBalancerClass");
    if is_load_balancer(new.value) && is_load_balancer(old.value) && class.value != old.at("loadBalancerClass").value {
        errors.invalid(&class, "may not change once set");
    }
    // Upstream checks the class here and once more with the rest.
    load_balancer_class(&new, errors);
    let health_check = new.at("healthCheckNodePort");
    if needs_health_check(new.value)
        && needs_health_check(old.value)
        && health_check.value != old.at("healthCheckNodePort").value
    {
        errors.forbidden(&health_check, check::IMMUTABLE);
    }
    let ranges = old_service.value.annotation(SOURCE_RANGES).into_iter().flat_map(|text| text.split(','));
    let known = Known {
        addresses: old.each("externalIPs").map(|address| address.str()).collect(),
        cluster_addresses: old.each("clusterIPs").map(|address| address.str()).collect(),
        networks: old.each("loadBalancerSourceRanges").map(|range| range.str()).chain(ranges).map(str::trim).collect(),
    };
    with_known(service, &known, errors);
}

/// Two spellings of one wish must agree.
fn topology_annotations(service: &Node, errors: &mut Errors) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    if let (Some(hints), Some(mode)) = (service.value.annotation(HINTS), service.value.annotation(MODE))
        && hints != mode
    {
        let path = Path::new("metadata").child("annotations").key(MODE);
        let detail = format!("must match annotations[{HINTS}] when both are specified");
        errors.invalid_value(&path, &json!(mode), detail);
    }
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    let load_balancer = new.at("status").at("loadBalancer");
    let ingress = load_balancer.at("ingress");
    if !ingress.is_empty() && !is_load_balancer(new.at("spec").value) {
        errors.forbidden(&ingress, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    for point in ingress.items() {
        let (ip, mode, host) = (point.at("ip"), point.at("ipMode"), point.at("hostname"));
        if !ip.str().is_empty() {
            check::ip(&ip, errors);
        }
        if !ip.str().is_empty() && !mode.exists() {
            errors.required(&mode, "must be specified when `ip` is set");
        } else if ip.str().is_empty() && mode.exists() {
            errors.forbidden(&mode, "may not be specified when `ip` is not set");
        } else if mode.exists() {
            check::one_of(&mode, &["Proxy", "VIP"], errors);
        }
        if !host.str().is_empty() {
            check::text(&host, names::dns_subdomain(host.str()), errors);
            if host.str().parse::<IpAddr>().is_ok() {
                check::invalid_text(&host, "must be a DNS name, not an IP address", errors);
            }
        }
    }
}

/// `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` must agree. The allocator asks this too, before it
/// takes addresses. Those that an older server stored are not looked at again.
pub(super) fn cluster_ips(spec: &Node, known: &[&str], errors: &mut Errors) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let (addresses, families) = (spec.at("clusterIPs"), spec.at("ipFamilies"));
    match (spec.text("clusterIP"), addresses.items().next()) {
        ("", None) => {}
        ("", Some(_)) => errors.invalid(&addresses, "must be empty when `clusterIP` is not specified"),
        (_, None) => errors.required(&addresses, ""),
        (first, Some(plural)) if plural.str() != first => {
            errors.invalid(&addresses, "first value must match `clusterIP`");
        }
        _ => {}
    }
    let mut seen = Vec::new();
    for family in families.items() {
        check::one_of(&family, &["IPv4", "IPv6"], errors);
        if seen.contains(&family.str()) {
            errors.duplicate(&family);
        }
        seen.push(family.str());
    }
    let policy = spec.at("ipFamilyPolicy");
    if policy.exists() {
        check::one_of(&policy, &["PreferDualStack", "RequireDualStack", "SingleStack"], errors);
    }
    let before = errors.0.len();
    for (index, address) in addresses.items().enumerate() {
        if index == 0 && address.str() == "None" {
            if addresses.len() > 1 {
                errors.invalid(&addresses, "'None' must be the first and only value");
            }
        } else if !known.contains(&address.str()) {
            check::ip(&address, errors);
        }
    }
    // Bad addresses would make what follows misleading.
    let sound = errors.0.len() == before;
    if addresses.len() > 2 {
        errors.invalid(&addresses, "may only hold up to 2 values");
    }
    if sound {
        families_match(spec, &addresses, &families, errors);
    }
}

fn families_match(spec: &Node, addresses: &Node, families: &Node, errors: &mut Errors) {
    let is_v6 = |text: &str| text.contains(':');
    if addresses.len() > 1 {
        let v6 = addresses.items().filter(|address| is_v6(address.str())).count();
        if v6 == 0 || v6 == addresses.len() {
            errors.invalid(addresses, "may specify no more than one IP for each IP family");
        }
    }
    if is_headless(spec) {
        return;
    }
    for (index, (address, family)) in addresses.items().zip(families.items()).enumerate() {
        let wrong = match family.str() {
            "IPv4" => is_v6(address.str()),
            "IPv6" => !is_v6(address.str()),
            _ => false,
        };
        if wrong {
            let detail = format!("expected an {} value as indicated by `ipFamilies[{index}]`", family.str());
            errors.invalid(&address, detail);
        }
    }
}

/// After the server has filled in `clusterIPs`, that list alone tells.
fn is_headless(spec: &Node) -> bool {
    super::strategy::is_headless(spec.value)
}

fn by_type(spec: &Node, errors: &mut Errors) {
    match spec.text("type") {
        kind @ ("LoadBalancer" | "NodePort") if is_headless(spec) => {
            let path = spec.at("clusterIPs").path.index(0);
            errors.invalid_value(&path, &json!("None"), format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let node = spec.at(field);
                if node.exists() && !(node.value.is_array() && node.is_empty()) {
                    errors.forbidden(&node, "may not be set for ExternalName services");
                }
            }
            let name = spec.at("externalName");
            match name.str().strip_suffix('.').unwrap_or(name.str()) {
                "" => errors.required(&name, ""),
                host => {
                    for sentence in names::dns_subdomain(host) {
                        errors.invalid_value(&name.path, &json!(host), sentence);
                    }
                }
            }
        }
        _ => {}
    }
}

fn port<'a>(port: &Node<'a>, name_required: bool, names_seen: &mut Vec<&'a str>, errors: &mut Errors) {
    let name = port.at("name");
    match name.str() {
        "" if name_required => errors.required(&name, ""),
        "" => {}
        text => {
            check::text(&name, names::dns_label(text), errors);
            if names_seen.contains(&text) { errors.duplicate(&name) } else { names_seen.push(text) }
        }
    }
    check::port(&port.at("port"), errors);
    check::required_one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"], errors);
    check::port_or_name(&port.at("targetPort"), errors);
    let protocol = port.at("appProtocol");
    if protocol.exists() {
        check::text(&protocol, names::qualified_name(protocol.str()), errors);
    }
}

fn session_affinity(spec: &Node, errors: &mut Errors) {
    let (affinity, config) = (spec.at("sessionAffinity"), spec.at("sessionAffinityConfig"));
    check::required_one_of(&affinity, &["ClientIP", "None"], errors);
    match affinity.str() {
        "ClientIP" => {
            let (client, why) = (config.at("clientIP"), "when session affinity type is ClientIP");
            let timeout = client.at("timeoutSeconds");
            if !config.exists() {
                errors.required(&config, why);
            } else if !client.exists() {
                errors.required(&client, why);
            } else if let Some(seconds) = timeout.int() {
                if seconds <= 0 || seconds > CLIENT_IP_TIMEOUT_MAX {
                    let detail = format!("must be greater than 0 and less than {CLIENT_IP_TIMEOUT_MAX}");
                    errors.invalid(&timeout, detail);
                }
            } else {
                errors.required(&timeout, why);
            }
        }
        "None" if config.exists() => errors.forbidden(&config, "must not be set when session affinity is None"),
        _ => {}
    }
}

/// Node ports and ports must be unique per protocol.
fn port_conflicts(spec: &Node, errors: &mut Errors) {
    let node_port = |port: &Node| port.number("nodePort").unwrap_or(0);
    if spec.text("type") == "ClusterIP" {
        for port in spec.each("ports").filter(|port| node_port(port) != 0) {
            errors.forbidden(&port.at("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut seen = Vec::new();
    for port in spec.each("ports").filter(|port| node_port(port) != 0) {
        let key = (port.text("protocol"), node_port(&port));
        if seen.contains(&key) {
            errors.duplicate(&port.at("nodePort"));
        }
        seen.push(key);
    }
    seen.clear();
    for port in spec.each("ports") {
        let key = (port.text("protocol"), port.number("port").unwrap_or(0));
        if seen.contains(&key) {
            // Upstream shows its internal struct, field by field in Go's names and order.
            let value = format!(
                r#"{{"Name":"","Protocol":{},"AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
                shown(&json!(key.0)),
                key.1
            );
            errors.push(FieldError::new(Problem::Duplicate, &port.path, value, ""));
        }
        seen.push(key);
    }
}

/// The field, or the annotation it once was. Both may have spaces around the networks.
fn source_ranges(service: &Node, known: &Known, errors: &mut Errors) {
    let spec = service.at("spec");
    let ranges = spec.at("loadBalancerSourceRanges");
    let annotation = service.value.annotation(SOURCE_RANGES);
    let (path, networks): (Path, Vec<&str>) = match (ranges.is_empty(), annotation) {
        (false, _) => (spec.path.child("LoadBalancerSourceRanges"), ranges.items().map(|range| range.str()).collect()),
        (true, Some(text)) if text.trim().is_empty() => (annotation_path(), Vec::new()),
        (true, Some(text)) => (annotation_path(), text.split(',').collect()),
        (true, None) => return,
    };
    if !is_load_balancer(spec.value) {
        errors.push(FieldError::new(Problem::Forbidden, &path, "", LOAD_BALANCER_ONLY));
    }
    for (index, network) in networks.into_iter().enumerate() {
        let network = network.trim();
        if known.networks.contains(&network) {
            continue;
        }
        let path = if ranges.is_empty() { path.clone() } else { path.index(index) };
        for problem in names::cidr(network) {
            errors.invalid_value(&path, &json!(network), problem);
        }
    }
}

fn annotation_path() -> Path {
    Path::new("metadata").child("annotations").key(SOURCE_RANGES)
}

fn load_balancer_class(spec: &Node, errors: &mut Errors) {
    let class = spec.at("loadBalancerClass");
    if class.exists() {
        if is_load_balancer(spec.value) {
            check::text(&class, names::qualified_name(class.str()), errors)
        } else {
            errors.forbidden(&class, LOAD_BALANCER_ONLY)
        }
    }
}

fn traffic_policies(spec: &Node, errors: &mut Errors) {
    let external = spec.at("externalTrafficPolicy");
    if externally_accessible(spec.value) {
        check::required_one_of(&external, &["Cluster", "Local"], errors);
    } else if !external.str().is_empty() {
        errors.invalid(&external, "may only be set for externally-accessible services");
    }
    let health_check = spec.at("healthCheckNodePort");
    match (needs_health_check(spec.value), health_check.int().unwrap_or(0)) {
        (true, 0) => errors.required(&health_check, ""),
        (true, _) => check::port(&health_check, errors),
        (false, 0) => {}
        (false, _) => errors.invalid(
            &health_check,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ),
    }
    let internal = spec.at("internalTrafficPolicy");
    if internal.exists() {
        check::one_of(&internal, &["Cluster", "Local"], errors);
    } else if matches!(spec.text("type"), "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.required(&internal, "");
    }
    let distribution = spec.at("trafficDistribution");
    if distribution.exists() {
        check::one_of(&distribution, &["PreferClose", "PreferSameZone", "PreferSameNode"], errors);
    }
}

/// A second address may come and go; the first one stays for the Service's life.
fn cluster_ip_changes(new: &Node, old: &Node, errors: &mut Errors) {
    if is_headless(new) && is_headless(old) {
        return;
    }
    let (after, before) = (items(new, "clusterIPs"), items(old, "clusterIPs"));
    let path = new.at("clusterIPs").path;
    let shown = Value::Array(after.to_vec());
    let compared = if after.len() == before.len() { after.len() } else { 1 };
    if after.is_empty() && !before.is_empty() {
        errors.invalid_value(&path.index(0), &Value::Null, "primary clusterIP can not be unset");
    }
    for index in 0..compared.min(after.len()).min(before.len()) {
        if after[index] != before[index] {
            errors.invalid_value(&path.index(index), &shown, "may not change once set");
        }
    }
    if before.len() > after.len() && after.len() == 1 {
        must_be_single_stack(new, "clusterIP", errors);
    }
}

fn family_changes(new: &Node, old: &Node, errors: &mut Errors) {
    if is_headless(new) || is_headless(old) {
        return;
    }
    let (after, before) = (items(new, "ipFamilies"), items(old, "ipFamilies"));
    let path = new.at("ipFamilies").path.index(0);
    if after.len() == before.len() {
        for _ in after.iter().zip(before).filter(|(after, before)| after != before) {
            errors.invalid_value(&path, new.at("ipFamilies").value, "may not change once set");
        }
        return;
    }
    if before.len() > after.len() && items(new, "clusterIPs").is_empty() {
        errors.invalid_value(&path, new.at("ipFamilies").value, "primary ipFamily can not be unset");
    }
    // Upstream shows the addresses here, not the families.
    if let (Some(first), Some(was)) = (after.first(), before.first())
        && first != was
    {
        errors.invalid_value(&path, new.at("clusterIPs").value, "may not change once set");
    }
    if before.len() > after.len() && after.len() == 1 {
        must_be_single_stack(new, "ipFamily", errors);
    }
}

fn must_be_single_stack(spec: &Node, what: &str, errors: &mut Errors) {
    let policy = spec.at("ipFamilyPolicy");
    if policy.str() != "SingleStack" {
        errors.invalid(&policy, format!("must be set to 'SingleStack' when releasing the secondary {what}"));
    }
}

fn items<'a>(spec: &Node<'a>, field: &'static str) -> &'a [Value] {
    spec.value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
