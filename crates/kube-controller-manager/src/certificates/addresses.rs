//! Which addresses a node may have in its serving certificate: those it proved to be its own by asking from there. What a node
//! says of itself in its status proves nothing, and what others are reached by is never given away.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::Context;

/// Where the API server says which address a request for a serving certificate came from (`spec.extra`, which no client sets).
const SOURCE: &str = "knarr.dev/source-address";

/// What nobody but its owner gets a certificate for.
#[derive(Default)]
pub(super) struct Taken {
    pub addresses: BTreeSet<IpAddr>,
    pub ranges: Vec<IpNet>,
}

/// Whether each of the addresses is the node's own.
pub(super) fn are_own(wanted: &[IpAddr], object: &CertificateSigningRequest, taken: &Taken) -> bool {
    let sources = object.spec.extra.as_ref().and_then(|extra| extra.get(SOURCE));
    let proven: Vec<IpAddr> = sources.into_iter().flatten().filter_map(|text| text.parse().ok()).collect();
    wanted.iter().all(|address| proven.contains(address) && is_of_a_host(*address) && !taken.holds(*address))
}

/// Not one that every machine has, or none.
fn is_of_a_host(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_multicast() || address.is_unspecified() || link_local)
}

impl Taken {
    fn holds(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address) || self.ranges.iter().any(|range| range.contains(&address))
    }

    /// By servers, Services and the nodes but that one.
    pub(crate) fn by_others(cx: &Context, node: &str) -> Taken {
        let mut addresses: BTreeSet<IpAddr> = cx.settings.server_addresses.iter().copied().collect();
        addresses.extend(of_servers(&cx.cache::<EndpointSlice>().in_namespace("default")));
        addresses.extend(cx.cache::<Service>().list().iter().flat_map(|service| of_service(service)));
        let others = cx.cache::<Node>().list();
        let others = others.iter().filter(|other| other.metadata.name.as_deref() != Some(node));
        addresses.extend(others.flat_map(|other| of_node(other)));
        Taken { addresses, ranges: cx.settings.service_cidrs.clone() }
    }
}

fn of_servers(slices: &[Arc<EndpointSlice>]) -> Vec<IpAddr> {
    let name = "kubernetes.io/service-name";
    let of_service = slices.iter().filter(|slice| {
        slice.metadata.labels.as_ref().and_then(|labels| labels.get(name)).is_some_and(|name| name == "kubernetes")
    });
    let endpoints = of_service.flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints.flat_map(|endpoint| &endpoint.addresses).filter_map(|text| text.parse().ok()).collect()
}

fn of_service(service: &Service) -> Vec<IpAddr> {
    let spec = service.spec.as_ref();
    let of_cluster = spec.into_iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
    let external = spec.into_iter().flat_map(|spec| spec.external_ips.iter().flatten());
    of_cluster.chain(external).filter_map(|text| text.parse().ok()).collect()
}

fn of_node(node: &Node) -> Vec<IpAddr> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.filter_map(|address| address.address.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_addresses_that_were_asked_from_are_own() {
        let taken =
            Taken { addresses: ["10.0.0.1".parse().unwrap()].into(), ranges: vec!["10.43.0.0/16".parse().unwrap()] };
        let check = |source: Option<&str>, wanted: &str, expected: bool| {
            let mut spec = json!({"request": "", "signerName": "kubernetes.io/kubelet-serving"});
            if let Some(source) = source {
                spec["extra"] = json!({SOURCE: [source]});
            }
            let object = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            let wanted: Vec<IpAddr> = wanted.split_whitespace().map(|text| text.parse().unwrap()).collect();
            assert_eq!(are_own(&wanted, &object, &taken), expected, "{source:?} {wanted:?}");
        };
        check(Some("10.0.0.2"), "10.0.0.2", true);
        check(Some("10.0.0.2"), "", true);
        check(None, "", true);
        check(None, "10.0.0.2", false);
        check(Some("10.0.0.2"), "10.0.0.3", false);
        check(Some("10.0.0.2"), "10.0.0.2 10.0.0.3", false);
        // Whatever it came from: a server, a Service, this machine itself.
        check(Some("10.0.0.1"), "10.0.0.1", false);
        check(Some("10.43.0.1"), "10.43.0.1", false);
        check(Some("127.0.0.1"), "127.0.0.1", false);
        check(Some("::1"), "::1", false);
        check(Some("::ffff:127.0.0.1"), "::ffff:127.0.0.1", false);
        check(Some("fe80::1"), "fe80::1", false);
    }
}
