//! The columns of `kubectl get services`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use super::strategy::{list, spec_text};
use crate::core::print::{labels, or_none};

pub(super) fn row(service: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &service["spec"];
    let address = list(spec, "clusterIPs").first().and_then(Value::as_str).unwrap_or("<none>");
    vec![
        service.name().into(),
        spec_text(spec, "type").into(),
        address.into(),
        external_address(service).into(),
        or_none(ports(spec)).into(),
        age(service, now),
        labels(spec.get("selector")).into(),
    ]
}

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let mut addresses = texts(list(spec, "externalIPs"));
    match spec_text(spec, "type") {
        "ClusterIP" | "NodePort" => or_none(addresses.join(",")),
        "LoadBalancer" => {
            let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
            let point = |point: &Value| match spec_text(point, "ip") {
                "" => spec_text(point, "hostname").to_string(),
                ip => ip.to_string(),
            };
            let mut points: Vec<String> =
                ingress.into_iter().flatten().map(point).filter(|text| !text.is_empty()).collect();
            points.sort();
            points.dedup();
            points.append(&mut addresses);
            if points.is_empty() { "<pending>".into() } else { points.join(",") }
        }
        "ExternalName" => spec_text(spec, "externalName").into(),
        _ => "<unknown>".into(),
    }
}

fn ports(spec: &Value) -> String {
    let port = |port: &Value| {
        let (number, protocol) = (&port["port"], spec_text(port, "protocol"));
        match port.get("nodePort").and_then(Value::as_i64) {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    };
    list(spec, "ports").iter().map(port).collect::<Vec<_>>().join(",")
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_string).collect()
}
