//! Configuration of a server's own kube-apiserver.

use std::net::IpAddr;

use kube_apiserver::Clock;
use kube_apiserver::options::Options;
use kube_apiserver::{Credentials, Managed};

use super::Flags;

pub fn config(flags: &Flags, options: Options, runs_etcd: bool) -> anyhow::Result<kube_apiserver::Config> {
    let external_addresses = flags.node.node_external_ip.iter().map(IpAddr::to_string);
    let node_address = || flags.node_address().filter(|_| flags.bind_address.is_unspecified());
    let managed = Managed {
        data_dir: flags.data_dir.clone(),
        tls_sans: flags.tls_san.iter().cloned().chain(external_addresses).collect(),
        kubeconfig_copy: flags.options.write_kubeconfig.clone(),
        kubeconfig_mode: flags.options.write_kubeconfig_mode,
        kubelet_insecure_tls: flags.kubelet_insecure_tls,
    };
    Ok(kube_apiserver::Config {
        credentials: Credentials::Managed(managed),
        bind_address: flags.bind_address,
        https_port: flags.https_port,
        // A node's pods reach the server where they reach the node, unless it listens elsewhere.
        advertise_address: flags.advertise_address.or_else(node_address),
        service_cidr: flags.service_cidr,
        cluster_domain: flags.node.cluster_domain.clone(),
        node_ports: flags.options.service_node_port_range.clone(),
        host_name: super::host_name(),
        token_auth_file: flags.token_auth_file.clone(),
        event_ttl: flags.event_ttl,
        shared_store: !flags.etcd.servers.is_empty(),
        attached: if flags.disables("metrics-server") { Vec::new() } else { vec![metrics_server::API_SERVICE.into()] },
        flow: flags.api.flow(),
        audit: flags.api.audit_of_server(&flags.data_dir)?,
        options,
        flags: flags.shown(runs_etcd),
        clock: Clock::system(),
    })
}
