//! A server for one test: on a port of its own, with nothing that runs beside it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

pub fn config(data_dir: PathBuf) -> kube_apiserver::Config {
    kube_apiserver::Config {
        credentials: kube_apiserver::Credentials::Managed(kube_apiserver::Managed {
            data_dir,
            tls_sans: Vec::new(),
            kubeconfig_copy: None,
            kubeconfig_mode: 0o600,
            kubelet_insecure_tls: false,
        }),
        bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        https_port: 0,
        advertise_address: None,
        service_cidr: "10.43.0.0/16".parse().expect("a network"),
        cluster_domain: "cluster.local".into(),
        node_ports: 30000..=32767,
        host_name: "test".into(),
        token_auth_file: None,
        event_ttl: Duration::from_secs(60),
        shared_store: false,
        attached: Vec::new(),
        flow: Default::default(),
        audit: Default::default(),
        options: Default::default(),
        flags: Default::default(),
        clock: kube_apiserver::Clock::system(),
    }
}
