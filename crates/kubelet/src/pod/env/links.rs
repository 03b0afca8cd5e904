//! Variables that tell where services are, in the form of upstream and of Docker's links.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};

/// Every pod is told where the API is, whatever it wishes.
const API_SERVICE: (&str, &str) = ("default", "kubernetes");

pub(super) fn variables(pod: &Pod, services: &[Arc<Service>]) -> BTreeMap<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services.iter().filter(|service| address(service).is_some()) {
        let place = service.metadata.namespace.as_deref().unwrap_or_default();
        let name = service.metadata.name.as_deref().unwrap_or_default();
        if (place, name) == API_SERVICE {
            // A service of that name in the pod's own namespace comes first.
            chosen.entry(name).or_insert(service);
        } else if place == namespace && links {
            chosen.insert(name, service);
        }
    }
    chosen.into_iter().flat_map(|(name, service)| of_service(name, service)).collect()
}

/// Its address, when it has one of its own.
fn address(service: &Service) -> Option<&str> {
    let address = service.spec.as_ref()?.cluster_ip.as_deref()?;
    (!address.is_empty() && address != "None").then_some(address)
}

fn of_service(name: &str, service: &Service) -> Vec<(String, String)> {
    let prefix = variable_name(name);
    let address = address(service).unwrap_or_default();
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let mut variables = vec![(format!("{prefix}_SERVICE_HOST"), address.to_owned())];
    for (index, port) in ports.iter().enumerate() {
        let number = port.port.to_string();
        if index == 0 {
            variables.push((format!("{prefix}_SERVICE_PORT"), number.clone()));
            variables.push((format!("{prefix}_PORT"), url(address, port)));
        }
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            variables.push((format!("{prefix}_SERVICE_PORT_{}", variable_name(name)), number.clone()));
        }
        let protocol = protocol(port);
        let link = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        variables.push((link.clone(), url(address, port)));
        variables.push((format!("{link}_PROTO"), protocol.to_lowercase()));
        variables.push((format!("{link}_PORT"), number));
        variables.push((format!("{link}_ADDR"), address.to_owned()));
    }
    variables
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().filter(|protocol| !protocol.is_empty()).unwrap_or("TCP")
}

fn url(address: &str, port: &ServicePort) -> String {
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    format!("{}://{host}:{}", protocol(port).to_lowercase(), port.port)
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}
