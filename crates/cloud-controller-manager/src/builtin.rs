//! The provider that is always there: a Service is reached by the addresses of the nodes, whose proxies take what comes in.
//!
//! One address and port can belong to one Service only; the older one has it.

use std::net::IpAddr;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};

use crate::cloud::{Balance, Cloud, CloudError, Instances, LoadBalancers, Routes};

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

    async fn ensure(&self, balance: &Balance<'_>) -> Result<LoadBalancerStatus, CloudError> {
        if let Some(problem) = taken_port(balance) {
            return Err(CloudError(problem));
        }
        let families = balance.service.spec.as_ref().and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
        let addresses = balance.nodes.iter().flat_map(|node| addresses(node)).filter(|address| {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            families.is_empty() || families.iter().any(|wanted| wanted == family)
        });
        let mut addresses: Vec<IpAddr> = addresses.collect();
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
            let status = Builtin.ensure(&Balance { service: &service, nodes: &nodes, others: &[] }).await.unwrap();
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
            Builtin.ensure(&Balance { service, nodes: &[], others: &all }).await.map_err(|error| error.to_string())
        };
        assert!(ensure(&old).await.is_ok());
        assert_eq!(ensure(&new).await.unwrap_err(), "port 80/TCP of the nodes belongs to Service a/old");
    }
}
