//! The node of a server's own machine.

use anyhow::Context;
use component_base::tasks;
use kube_apiserver::local::Advertised;
use kubelet::node::addresses::Addresses;
use reconcile::Cluster;

use super::{AGENT, Server};

/// Starts the kubelet, its runtime and its network, and keeps the roles of the Node.
pub async fn start(server: &mut Server) -> anyhow::Result<()> {
    let (flags, local, stop) = (&server.flags, &server.local, &server.stop);
    let node = flags.node.clone();
    let addresses = node.addresses(flags.service_cidr, stop).await;
    if flags.advertise_address.is_none() && flags.bind_address.is_unspecified() {
        let advertised = server.api.app.settings.advertise_address.clone();
        tasks::spawn(follow_address(advertised, addresses.clone()));
    }
    let authority = &server.issued.cluster_authority;
    let membership = crate::node::Membership {
        client: local.node_client(&node.name()),
        network: Some(Cluster::with_client(local.node_client(&node.name()), local.caches())),
        client_authority: authority.certificate_pem.clone(),
        client_authority_file: flags.data_dir.join("tls/ca.crt"),
        certificate: crate::node::own_certificate(&node, &addresses, authority, stop.clone())?,
        service_cidr: flags.service_cidr,
        addresses,
        gives_ranges: server.gives_ranges,
        dns_port: flags.parts.dns_port(&flags.disable),
    };
    tasks::spawn(crate::roles::keep(local.administrator(AGENT), node.name(), flags.runs_etcd, stop.clone()));
    let started = crate::node::start(node, &flags.data_dir, membership, stop.clone());
    let started = started.await.context("start kubelet")?;
    server.progress("started kubelet");
    server.running.push(started);
    Ok(())
}

/// A server without an address of its own is reached where its node is.
async fn follow_address(advertised: Advertised, addresses: Addresses) {
    let mut changes = addresses.changes();
    while changes.changed().await.is_ok() {
        if let Some(address) = addresses.get().first() {
            advertised.set(*address);
        }
    }
}
