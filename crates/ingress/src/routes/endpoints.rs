//! Selects the endpoints of a Service that get its requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};

/// The addresses of a Service's port, in order. Endpoints that are ready, or where there is none, those that end but still
/// answer. Of a Service with two families the first one that has endpoints is taken: the others are the same pods again.
pub fn endpoints(service: &Service, port: &str, slices: &[Arc<EndpointSlice>]) -> Vec<SocketAddr> {
    let not_ready_too = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false);
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    let mut order: Vec<&str> = families.iter().map(String::as_str).collect();
    order.extend(["IPv4", "IPv6"]);
    for family in order {
        let of_family: Vec<&EndpointSlice> =
            slices.iter().map(Arc::as_ref).filter(|slice| slice.address_type == family).collect();
        for wanted in [is_ready, is_last_resort] {
            let found = collect(&of_family, port, |conditions| wanted(conditions) || not_ready_too);
            if !found.is_empty() {
                return found;
            }
        }
    }
    Vec::new()
}

fn collect(slices: &[&EndpointSlice], port: &str, wanted: impl Fn(&EndpointConditions) -> bool) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for slice in slices {
        let ports = slice.ports.as_deref().unwrap_or_default();
        let matching = ports
            .iter()
            .find(|one| one.name.as_deref().unwrap_or("") == port && one.protocol.as_deref().unwrap_or("TCP") == "TCP");
        let Some(number) = matching.and_then(|one| u16::try_from(one.port?).ok()) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            // An endpoint's addresses are one pod; the first is meant.
            let address = endpoint.addresses.first().and_then(|text| text.parse::<IpAddr>().ok());
            if let Some(address) = address.filter(|_| wanted(&conditions)) {
                found.push(SocketAddr::new(address, number));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// What is not said counts as ready.
fn is_ready(conditions: &EndpointConditions) -> bool {
    conditions.ready.unwrap_or(true)
}

fn is_last_resort(conditions: &EndpointConditions) -> bool {
    conditions.serving.unwrap_or(false) && conditions.terminating.unwrap_or(false)
}
