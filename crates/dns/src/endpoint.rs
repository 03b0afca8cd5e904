//! This node's part of the Service `kube-dns`: one EndpointSlice per family with the node's own address, for the node's own
//! pods first. It goes when the Node goes, because the Node owns it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use reconcile::{Cache, Key, Shutdown};
use tokio::sync::{Notify, watch};

pub const NAMESPACE: &str = "kube-system";
pub const SERVICE: &str = "kube-dns";
const MANAGER: &str = "knarr-dns";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Between two writes, also when somebody undoes each of them, and after one that failed.
const PAUSE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(5);
const WITHDRAWALS_MAX: u32 = 20;
/// Names of objects are no longer.
const NAME_BYTES_MAX: usize = 253;

/// The slices that should be there.
pub fn slices(node: &Node, addresses: &[SocketAddr], metrics_port: Option<u16>) -> Vec<EndpointSlice> {
    let (Some(name), Some(uid)) = (node.metadata.name.as_deref(), node.metadata.uid.as_deref()) else {
        return Vec::new();
    };
    let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE)).cloned();
    let endpoint = |address: IpAddr| Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) }),
        hints: Some(EndpointHints {
            for_nodes: Some(vec![ForNode { name: name.into() }]),
            for_zones: zone.clone().map(|name| vec![ForZone { name }]),
        }),
        node_name: Some(name.into()),
        zone: zone.clone(),
        ..Endpoint::default()
    };
    let port = |name: &str, protocol: &str, number: u16| EndpointPort {
        name: Some(name.into()),
        protocol: Some(protocol.into()),
        port: Some(number.into()),
        app_protocol: None,
    };
    let mut made = Vec::new();
    for (family, suffix) in [("IPv4", ""), ("IPv6", "-ipv6")] {
        let own: Vec<&SocketAddr> = addresses.iter().filter(|one| one.is_ipv4() == (family == "IPv4")).collect();
        let Some(first) = own.first() else { continue };
        let mut ports = vec![port("dns", "UDP", first.port()), port("dns-tcp", "TCP", first.port())];
        ports.extend(metrics_port.map(|number| port("metrics", "TCP", number)));
        let labels = [
            ("endpointslice.kubernetes.io/managed-by", "dns.knarr.dev"),
            ("k8s-app", SERVICE),
            ("kubernetes.io/service-name", SERVICE),
        ];
        made.push(EndpointSlice {
            metadata: ObjectMeta {
                name: Some(slice_name(name, suffix)),
                namespace: Some(NAMESPACE.into()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".into(),
                    kind: "Node".into(),
                    name: name.into(),
                    uid: uid.into(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            address_type: family.into(),
            endpoints: Some(own.iter().map(|address| endpoint(address.ip())).collect()),
            ports: Some(ports),
        });
    }
    made
}

fn slice_name(node: &str, suffix: &str) -> String {
    let mut name = format!("{SERVICE}-{node}{suffix}");
    name.truncate(NAME_BYTES_MAX);
    name.trim_end_matches(['-', '.']).to_owned()
}

/// Whether what is there says the same as what should be.
fn is_same(there: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let empty = BTreeMap::new();
    let labels = there.metadata.labels.as_ref().unwrap_or(&empty);
    let mut marked = wanted.metadata.labels.iter().flatten();
    there.endpoints == wanted.endpoints
        && there.ports == wanted.ports
        && there.metadata.owner_references == wanted.metadata.owner_references
        && marked.all(|(key, value)| labels.get(key) == Some(value))
}

pub struct Publisher {
    pub node_name: String,
    pub nodes: Arc<Cache<Node>>,
    pub slices: Arc<Cache<EndpointSlice>>,
    pub client: Client,
    pub metrics_port: Option<u16>,
}

impl Publisher {
    /// Keeps the slices as they should be while somebody listens at the addresses.
    pub async fn run(self, mut bound: watch::Receiver<Vec<SocketAddr>>, shutdown: Shutdown) {
        let changed = Arc::new(Notify::new());
        let (names, notify) = (["", "-ipv6"].map(|suffix| slice_name(&self.node_name, suffix)), changed.clone());
        self.slices.listen(move |old, new| {
            let name = old.or(new).and_then(|slice| slice.metadata.name.as_deref());
            if name.is_some_and(|name| names.iter().any(|own| own == name)) {
                notify.notify_one();
            }
        });
        let notify = changed.clone();
        self.nodes.listen(move |_, _| notify.notify_one());
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = async { tokio::join!(self.slices.synced(), self.nodes.synced()); } => {}
        }
        loop {
            let addresses = bound.borrow_and_update().clone();
            let pause = match self.publish(&addresses).await {
                Ok(false) => Duration::ZERO,
                Ok(true) => PAUSE,
                Err(error) => {
                    tracing::warn!(%error, "cannot write DNS EndpointSlice of this node");
                    changed.notify_one();
                    RETRY
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause), if !pause.is_zero() => {}
                () = std::future::ready(()), if pause.is_zero() => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = changed.notified() => {}
                more = bound.changed() => if more.is_err() { return },
            }
        }
    }

    /// Whether something was written.
    async fn publish(&self, addresses: &[SocketAddr]) -> Result<bool, kube::Error> {
        let Some(node) = self.nodes.get(&Key::new("", &self.node_name)) else { return Ok(false) };
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut wrote = false;
        for wanted in slices(&node, addresses, self.metrics_port) {
            let name = wanted.metadata.name.clone().unwrap_or_default();
            let there = self.slices.get(&Key::new(NAMESPACE, &name));
            if there.is_some_and(|there| is_same(&there, &wanted)) {
                continue;
            }
            let parameters = PatchParams::apply(MANAGER).force();
            api.patch(&name, &parameters, &Patch::Apply(&wanted)).await?;
            tracing::info!(slice = name, "wrote DNS EndpointSlice of this node");
            wrote = true;
        }
        Ok(wrote)
    }
}

/// A node whose DNS was switched off has no endpoint any more: its pods shall ask other nodes.
pub async fn withdraw(node_name: &str, client: Client, shutdown: Shutdown) {
    let api: Api<EndpointSlice> = Api::namespaced(client, NAMESPACE);
    for name in ["", "-ipv6"].map(|suffix| slice_name(node_name, suffix)) {
        let mut tries_left = WITHDRAWALS_MAX;
        loop {
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_) => {
                    tracing::info!(slice = name, "deleted DNS EndpointSlice of this node");
                    break;
                }
                Err(error) if reconcile::is_not_found(&error) => break,
                // Where no server has a DNS, nobody may do this, and there is nothing to do.
                Err(error) if tries_left == 0 => {
                    tracing::info!(%error, slice = name, "cannot delete DNS EndpointSlice of this node");
                    break;
                }
                Err(_) => tries_left -= 1,
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }
}

/// Where the node's pods find us, by what the Node says: the first address of each of its ranges, which the bridge has, or the
/// addresses of the node itself.
pub(crate) fn addresses_of(node: &Node, bridge: bool) -> Vec<IpAddr> {
    if !bridge {
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let internal = addresses.filter(|address| address.type_ == "InternalIP");
        return internal.filter_map(|address| address.address.parse().ok()).collect();
    }
    let spec = node.spec.as_ref();
    let ranges = match spec.and_then(|spec| spec.pod_cidrs.as_deref()) {
        Some(ranges) if !ranges.is_empty() => ranges,
        _ => spec.map(|spec| spec.pod_cidr.as_slice()).unwrap_or_default(),
    };
    // The network's own address is no host's, in either family.
    let first = |text: &String| match text.parse::<IpNet>().ok()?.network() {
        IpAddr::V4(network) => u32::from(network).checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(network) => u128::from(network).checked_add(1).map(|next| IpAddr::V6(next.into())),
    };
    ranges.iter().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> Node {
        let labels = json!({"topology.kubernetes.io/zone": "a"});
        serde_json::from_value(json!({
            "metadata": {"name": "node-1", "uid": "u1", "labels": labels},
            "spec": {"podCIDR": "10.42.3.0/24", "podCIDRs": ["10.42.3.0/24", "fd00:1::/64"]},
            "status": {"addresses": [{"type": "Hostname", "address": "x"}, {"type": "InternalIP", "address": "192.0.2.9"}]},
        }))
        .expect("a node")
    }

    #[test]
    fn the_address_is_the_bridges_or_the_nodes() {
        let texts = |bridge| addresses_of(&node(), bridge).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(true), ["10.42.3.1", "fd00:1::1"]);
        assert_eq!(texts(false), ["192.0.2.9"]);
    }

    #[test]
    fn a_slice_for_the_nodes_own_pods() {
        let made = slices(&node(), &["10.42.3.1:253".parse().unwrap()], Some(9153));
        let expected = json!([{
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-node-1",
                "namespace": "kube-system",
                "labels": {
                    "endpointslice.kubernetes.io/managed-by": "dns.knarr.dev",
                    "k8s-app": "kube-dns",
                    "kubernetes.io/service-name": "kube-dns",
                },
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u1"}],
            },
            "addressType": "IPv4",
            "endpoints": [{
                "addresses": ["10.42.3.1"],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "hints": {"forNodes": [{"name": "node-1"}], "forZones": [{"name": "a"}]},
                "nodeName": "node-1",
                "zone": "a",
            }],
            "ports": [
                {"name": "dns", "protocol": "UDP", "port": 253},
                {"name": "dns-tcp", "protocol": "TCP", "port": 253},
                {"name": "metrics", "protocol": "TCP", "port": 9153},
            ],
        }]);
        assert_eq!(serde_json::to_value(&made).unwrap(), expected);
        assert!(is_same(&made[0], &made[0].clone()));
        let moved = slices(&node(), &["10.42.4.1:253".parse().unwrap()], Some(9153));
        assert!(!is_same(&made[0], &moved[0]));
        assert!(slices(&node(), &[], None).is_empty());
    }
}
