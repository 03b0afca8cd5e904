//! Which address stands behind a Service: a ready endpoint that is a pod of its namespace.

use std::net::IpAddr;

use machinery::status::Status;
use rand::seq::SliceRandom;
use serde_json::Value;

use super::proxy::is_allowed;
use crate::authn::Objects;

/// An address and a port of one endpoint; `port` is a name or a number of the Service's, or empty for its nameless port.
pub fn endpoint(
    objects: &dyn Objects,
    namespace: &str,
    name: &str,
    port: &str,
    asked: &str,
) -> Result<(String, u16), Status> {
    let port = match port.parse::<u64>() {
        Err(_) => port.to_string(),
        Ok(number) => port_name(objects, namespace, name, number)?,
    };
    let mut found = from_slices(objects, namespace, name, &port);
    if found.is_empty() {
        found = from_endpoints(objects, namespace, name, &port);
    }
    found.shuffle(&mut rand::rng());
    let usable = found.into_iter().find(|endpoint| is_pod_of(objects, namespace, endpoint));
    usable
        .map(|endpoint| (endpoint.address, endpoint.port))
        .ok_or_else(|| Status::unavailable(format!("no endpoints available for service \"{asked}\"")))
}

struct Endpoint {
    address: String,
    port: u16,
    /// The pod it claims to be.
    pod: String,
}

/// A number stands for the port of the Service that has it.
fn port_name(objects: &dyn Objects, namespace: &str, name: &str, number: u64) -> Result<String, Status> {
    let service = objects.get("services", namespace, name);
    let Some(service) = service else {
        let services = machinery::status::GroupResource { group: "", resource: "services" };
        return Err(Status::not_found(services, name));
    };
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let found = ports.into_iter().flatten().find(|port| port["port"].as_u64() == Some(number));
    match found {
        Some(port) => Ok(port["name"].as_str().unwrap_or("").to_string()),
        None => Err(Status::unavailable(format!("no service port {number} found for service \"{name}\""))),
    }
}

fn from_slices(objects: &dyn Objects, namespace: &str, name: &str, port: &str) -> Vec<Endpoint> {
    let mut found = Vec::new();
    for slice in objects.list("endpointslices", namespace) {
        if slice.pointer("/metadata/labels/kubernetes.io~1service-name").and_then(Value::as_str) != Some(name) {
            continue;
        }
        let Some(number) = port_number(slice["ports"].as_array(), port) else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            // Not said means ready.
            if endpoint.pointer("/conditions/ready").and_then(Value::as_bool) == Some(false) {
                continue;
            }
            let address = endpoint.pointer("/addresses/0").and_then(Value::as_str);
            found.extend(address.and_then(|address| as_endpoint(namespace, address, number, &endpoint["targetRef"])));
        }
    }
    found
}

fn from_endpoints(objects: &dyn Objects, namespace: &str, name: &str, port: &str) -> Vec<Endpoint> {
    let mut found = Vec::new();
    let Some(endpoints) = objects.get("endpoints", namespace, name) else { return found };
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let Some(number) = port_number(subset["ports"].as_array(), port) else { continue };
        for address in subset["addresses"].as_array().into_iter().flatten() {
            let text = address["ip"].as_str();
            found.extend(text.and_then(|text| as_endpoint(namespace, text, number, &address["targetRef"])));
        }
    }
    found
}

fn port_number(ports: Option<&Vec<Value>>, name: &str) -> Option<u16> {
    let port = ports?.iter().find(|port| port["name"].as_str().unwrap_or("") == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}

fn as_endpoint(namespace: &str, address: &str, port: u16, target: &Value) -> Option<Endpoint> {
    // Others could be anywhere: a user who writes endpoints must not get this server to reach them.
    let is_pod = target["kind"] == "Pod" && target["namespace"].as_str().unwrap_or(namespace) == namespace;
    let pod = target["name"].as_str().filter(|_| is_pod)?.to_string();
    Some(Endpoint { address: address.into(), port, pod })
}

fn is_pod_of(objects: &dyn Objects, namespace: &str, endpoint: &Endpoint) -> bool {
    let Some(pod) = objects.get("pods", namespace, &endpoint.pod) else { return false };
    let addresses = pod.pointer("/status/podIPs").and_then(Value::as_array);
    let has = addresses.into_iter().flatten().any(|address| address["ip"] == *endpoint.address);
    has && endpoint.address.parse::<IpAddr>().is_ok_and(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    struct Fixed(Vec<(&'static str, Value)>);

    impl Objects for Fixed {
        fn get(&self, resource: &str, _: &str, name: &str) -> Option<Arc<Value>> {
            self.list(resource, "").into_iter().find(|object| object["metadata"]["name"] == name)
        }

        fn list(&self, resource: &str, _: &str) -> Vec<Arc<Value>> {
            let found = self.0.iter().filter(|(kind, _)| *kind == resource);
            found.map(|(_, object)| Arc::new(object.clone())).collect()
        }

        fn last_changed(&self, _: &str) -> u64 {
            0
        }
    }

    #[test]
    fn only_ready_pods_of_the_namespace_are_reached() {
        let slice = |ready: bool, address: &str, target: Value| {
            (
                "endpointslices",
                json!({
                    "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
                    "ports": [{"name": "web", "port": 8080}],
                    "endpoints": [{"addresses": [address], "conditions": {"ready": ready}, "targetRef": target}],
                }),
            )
        };
        let pod = || json!({"kind": "Pod", "namespace": "n", "name": "p"});
        let objects = |slice| {
            let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
            let pod =
                json!({"metadata": {"name": "p"}, "status": {"podIPs": [{"ip": "10.0.0.5"}, {"ip": "127.0.0.1"}]}});
            Fixed(vec![("services", service), ("pods", pod), slice])
        };
        let check = |slice, port: &str, expected: Result<(&str, u16), &str>| {
            let found = endpoint(&objects(slice), "n", "s", port, "s").map_err(|status| status.message);
            assert_eq!(found.as_ref().map(|(a, p)| (a.as_str(), *p)).map_err(String::as_str), expected);
        };
        check(slice(true, "10.0.0.5", pod()), "80", Ok(("10.0.0.5", 8080)));
        check(slice(true, "10.0.0.5", pod()), "web", Ok(("10.0.0.5", 8080)));
        let none = Err("no endpoints available for service \"s\"");
        check(slice(true, "10.0.0.5", pod()), "other", none);
        check(slice(true, "10.0.0.5", pod()), "81", Err("no service port 81 found for service \"s\""));
        check(slice(false, "10.0.0.5", pod()), "web", none);
        check(slice(true, "10.0.0.6", pod()), "web", none);
        check(slice(true, "127.0.0.1", pod()), "web", none);
        check(slice(true, "10.0.0.5", Value::Null), "web", none);
    }
}
