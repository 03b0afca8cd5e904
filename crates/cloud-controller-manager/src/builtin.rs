//! The provider that is always there: a Service is reached by the addresses of the nodes, whose proxies take what comes in.
//!
//! One address and port can belong to one Service only; the older one has it. What a node's machine itself listens at belongs
//! to no Service: whoever may write one could take the API server's place. There the node's address is left out.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use component_helpers::host_ports::{self, Protocol};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};

use crate::cloud::{Balance, Cloud, CloudError, Instances, LoadBalancers, Routes};
use crate::service::service_of;

pub struct Builtin;

impl Cloud for Builtin {
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
}

#[async_trait]
impl LoadBalancers for Builtin {
    fn checks_health(&self) -> bool {
        false
    }

    fn refusal_withdraws(&self) -> bool {
        true
    }

    async fn ensure(&self, balance: &Balance<'_>) -> Result<LoadBalancerStatus, CloudError> {
        if let Some(problem) = taken_port(balance) {
            return Err(CloudError(problem));
        }
        let mut addresses = free_addresses(balance)?;
        addresses.sort();
        addresses.dedup();
        let ingress = addresses.into_iter().map(|address| LoadBalancerIngress {
            ip: Some(address.to_string()),
            ip_mode: Some("VIP".into()),
            ..LoadBalancerIngress::default()
        });
        Ok(LoadBalancerStatus { ingress: Some(ingress.collect()) })
    }

    async fn delete(&self, _service: &Service) -> Result<(), CloudError> {
        // The status is all there was, and it goes with the Service.
        Ok(())
    }
}

/// Those that others are meant to use if the node has such, otherwise its own.
fn addresses(node: &Node) -> Vec<IpAddr> {
    let all = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let of = |kind: &str| -> Vec<IpAddr> {
        all.iter().filter(|address| address.type_ == kind).filter_map(|address| address.address.parse().ok()).collect()
    };
    let external = of("ExternalIP");
    if external.is_empty() { of("InternalIP") } else { external }
}

/// The addresses of the nodes that do not need the Service's ports themselves. Who listens there may be an endpoint of the
/// Service, as the ingress is: that is what the Service is for.
fn free_addresses(balance: &Balance<'_>) -> Result<Vec<IpAddr>, CloudError> {
    let families = balance.service.spec.as_ref().and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    let wanted = |address: &IpAddr| {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        families.is_empty() || families.iter().any(|wanted| wanted == family)
    };
    let endpoints = endpoints(balance);
    let (mut free, mut needed) = (Vec::new(), None);
    for node in balance.nodes {
        let in_use = host_ports::of(node);
        for address in addresses(node).into_iter().filter(wanted) {
            let taken = |(port, protocol): &(i32, String)| {
                let key = (Protocol::parse(Some(protocol)), u16::try_from(*port));
                let (Some(protocol), Ok(port)) = key else { return false };
                in_use.contains(&(protocol, port)) && !endpoints.contains(&SocketAddr::new(address, port))
            };
            match ports(balance.service).into_iter().find(taken) {
                Some((port, protocol)) => {
                    let name = node.metadata.name.as_deref().unwrap_or_default();
                    needed.get_or_insert_with(|| {
                        format!("port {port}/{protocol} is in use by the machine of node {name}")
                    });
                }
                None => free.push(address),
            }
        }
    }
    match needed {
        Some(problem) if free.is_empty() => Err(CloudError(problem)),
        _ => Ok(free),
    }
}

/// Where the Service's traffic ends up.
fn endpoints(balance: &Balance<'_>) -> BTreeSet<SocketAddr> {
    let own = balance.slices.iter().filter(|slice| service_of(slice) == balance.service.metadata.name.as_deref());
    let mut all = BTreeSet::new();
    for slice in own {
        let ports = slice.ports.iter().flatten().filter_map(|port| u16::try_from(port.port?).ok());
        let ports: Vec<u16> = ports.collect();
        let addresses = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
        for address in addresses.filter_map(|text| text.parse::<IpAddr>().ok()) {
            all.extend(ports.iter().map(|port| SocketAddr::new(address, *port)));
        }
    }
    all
}

fn taken_port(balance: &Balance<'_>) -> Option<String> {
    let age = |service: &Service| {
        let metadata = &service.metadata;
        (metadata.creation_timestamp.as_ref().map(|time| time.0), metadata.namespace.clone(), metadata.name.clone())
    };
    let older = balance.others.iter().filter(|other| age(other) < age(balance.service));
    let ours = ports(balance.service);
    older.into_iter().find_map(|other| {
        let (port, protocol) = ports(other).into_iter().find(|port| ours.contains(port))?;
        let metadata = &other.metadata;
        let (namespace, name) = (metadata.namespace.as_deref().unwrap_or(""), metadata.name.as_deref().unwrap_or(""));
        Some(format!("port {port}/{protocol} of the nodes belongs to Service {namespace}/{name}"))
    })
}

fn ports(service: &Service) -> Vec<(i32, String)> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.map(|port| (port.port, port.protocol.clone().unwrap_or_else(|| "TCP".into()))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn service(name: &str, port: i32, second: i64, families: &[&str]) -> Arc<Service> {
        let created = jiff::Timestamp::from_second(second).unwrap().to_string();
        let metadata = json!({"name": name, "namespace": "a", "creationTimestamp": created});
        let spec = json!({"ports": [{"port": port, "protocol": "TCP"}], "ipFamilies": families});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
    }

    fn node(addresses: &[(&str, &str)]) -> Arc<Node> {
        let addresses: Vec<_> = addresses.iter().map(|(kind, text)| json!({"type": kind, "address": text})).collect();
        Arc::new(serde_json::from_value(json!({"metadata": {}, "status": {"addresses": addresses}})).unwrap())
    }

    #[tokio::test]
    async fn a_service_is_reached_by_its_nodes() {
        let nodes = [
            node(&[("InternalIP", "10.0.0.2"), ("Hostname", "n2")]),
            node(&[("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("ExternalIP", "192.0.2.1")]),
            node(&[("InternalIP", "10.0.0.3"), ("InternalIP", "fd00::3")]),
        ];
        for (families, expected) in [
            (&["IPv4"][..], &["10.0.0.2", "10.0.0.3", "192.0.2.1"][..]),
            (&["IPv6"], &["fd00::3"]),
            (&["IPv4", "IPv6"], &["10.0.0.2", "10.0.0.3", "192.0.2.1", "fd00::3"]),
        ] {
            let service = service("web", 80, 0, families);
            let status =
                Builtin.ensure(&Balance { service: &service, nodes: &nodes, others: &[], slices: &[] }).await.unwrap();
            let ingress = status.ingress.unwrap();
            assert!(ingress.iter().all(|one| one.ip_mode.as_deref() == Some("VIP")));
            let addresses: Vec<&str> = ingress.iter().filter_map(|one| one.ip.as_deref()).collect();
            assert_eq!(addresses, expected);
        }
    }

    #[tokio::test]
    async fn the_older_service_has_the_port() {
        let (old, new) = (service("old", 80, 1, &[]), service("new", 80, 2, &[]));
        let other = service("other", 81, 0, &[]);
        let all = [old.clone(), new.clone(), other];
        let ensure = async |service: &Service| {
            Builtin
                .ensure(&Balance { service, nodes: &[], others: &all, slices: &[] })
                .await
                .map_err(|error| error.to_string())
        };
        assert!(ensure(&old).await.is_ok());
        assert_eq!(ensure(&new).await.unwrap_err(), "port 80/TCP of the nodes belongs to Service a/old");
    }

    #[tokio::test]
    async fn what_a_machine_listens_at_is_given_to_nobody() {
        let listening = |address: &str, ports: &str| {
            let mut listening = node(&[("InternalIP", address)]).as_ref().clone();
            listening.metadata.annotations = Some([(host_ports::ANNOTATION.to_owned(), ports.to_owned())].into());
            listening.metadata.name = Some("n".into());
            Arc::new(listening)
        };
        let server = listening("10.0.0.1", "tcp:22,tcp:80,tcp:6443");
        let nodes = [server.clone(), listening("10.0.0.2", "tcp:22")];
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.0.0.1"]}],
        });
        let slices = [Arc::new(serde_json::from_value(slice).unwrap())];
        let ensure = async |port: i32, nodes: &[Arc<Node>]| {
            let service = service("web", port, 0, &[]);
            let balance = Balance { service: &service, nodes, others: &[], slices: &slices };
            let status = Builtin.ensure(&balance).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(status.ingress.unwrap().into_iter().filter_map(|one| one.ip).collect::<Vec<_>>().join(" "))
        };
        let all = "10.0.0.1 10.0.0.2".to_owned();
        assert_eq!(ensure(8080, &nodes).await, Ok(all.clone()));
        assert_eq!(ensure(6443, &nodes).await, Ok("10.0.0.2".into()));
        assert_eq!(ensure(80, &nodes).await, Ok(all), "its own endpoint listens there");
        let needed = |port: i32| Err(format!("port {port}/TCP is in use by the machine of node n"));
        assert_eq!(ensure(6443, &[server]).await, needed(6443));
        for port in [22, 10250] {
            assert_eq!(ensure(port, &nodes).await, needed(port));
        }
        // A node that says nothing.
        assert!(ensure(10256, &[node(&[("InternalIP", "10.0.0.3")])]).await.is_err());
    }
}
