//! Configuration of the kubelet. Only `knarr` fills it, from flags and files.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component_base::Clock;
use k8s_openapi::api::core::v1::Taint;

use crate::node::addresses::Addresses;

#[derive(Clone)]
pub struct Config {
    pub node_name: String,
    /// The addresses to announce; the first is the node's InternalIP.
    pub addresses: Addresses,
    /// Announced as ExternalIP.
    pub node_external_ips: Vec<IpAddr>,
    pub node_labels: BTreeMap<String, String>,
    /// Given when the node registers for the first time.
    pub register_with_taints: Vec<Taint>,
    /// Pods' directories, volumes and what must be remembered: `<data>/kubelet`. Pods see paths below it as `/var/lib/kubelet`.
    pub root_dir: PathBuf,
    /// The same folder by the name that storage drivers know: they see it where their manifests mount it.
    pub root_dir_of_drivers: PathBuf,
    /// Container logs: `/var/log/pods` unless told otherwise.
    pub log_dir: PathBuf,
    /// Manifests of static pods.
    pub static_pod_path: Option<PathBuf>,
    pub bind_address: IpAddr,
    /// The port of the kubelet's own HTTPS server, 10250; 0 picks a free one.
    pub port: u16,
    /// Serves with the certificate it gives; asked for every connection, so that a renewed one is used at once.
    pub serving_certificate: Arc<dyn rustls::server::ResolvesServerCert>,
    /// The authority of client certificates, PEM; empty where none are believed.
    pub client_ca: String,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// The file that `dnsPolicy: Default` pods inherit from.
    pub resolv_conf: PathBuf,
    pub pods_max: u32,
    /// Used when nobody writes `spec.podCIDR` of the node.
    pub pod_cidr: Option<String>,
    /// The cgroup under which `kubepods` is made; `/` unless told otherwise.
    pub cgroup_root: String,
    pub pod_pids_limit: Option<i64>,
    pub kube_reserved: BTreeMap<String, String>,
    pub system_reserved: BTreeMap<String, String>,
    /// Signals and limits such as `memory.available` and `100Mi`, `nodefs.available` and `10%`.
    pub eviction_hard: BTreeMap<String, String>,
    /// The CPU, memory and topology managers.
    pub managers: crate::managers::Settings,
    /// How containers use the machine's swap.
    pub swap_behavior: crate::resources::SwapBehavior,
    /// Whether swap on the machine was a reason not to start.
    pub fail_swap_on: bool,
    pub eviction_soft: BTreeMap<String, String>,
    pub eviction_soft_grace_period: BTreeMap<String, Duration>,
    pub eviction_pressure_transition_period: Duration,
    pub image_gc_high_threshold_percent: u8,
    pub image_gc_low_threshold_percent: u8,
    pub image_minimum_gc_age: Duration,
    pub container_log_max_size: u64,
    pub container_log_max_files: u32,
    pub node_status_update_frequency: Duration,
    pub node_status_report_frequency: Duration,
    pub node_lease_duration: Duration,
    pub power_off: Arc<crate::shutdown::PowerOff>,
    /// Sysctls beyond the safe ones that pods may set, such as `net.core.*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Programs that give credentials for images.
    pub credential_providers: Option<crate::images::providers::Settings>,
    /// Pulls that run at the same time.
    pub image_pulls_max: usize,
    pub shown: Shown,
    /// What objects are stamped with, and what pods are given time by.
    pub clock: Clock,
}

/// What `/configz`, `/flagz` and `/statusz` say of things that whoever starts the kubelet looks after.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub client_ca_file: Option<PathBuf>,
    pub tls_cert_file: Option<PathBuf>,
    /// The certificate with which the kubelet asks the API server is renewed.
    pub rotates_certificates: bool,
    /// The certificate of its own server comes from the cluster, and is renewed.
    pub bootstraps_server_tls: bool,
    pub flags: component_helpers::zpages::Flags,
    pub version: &'static str,
}
