//! This host as a node: the kubelet with our own runtime and network, or with any CRI endpoint.

mod runtime;
mod cri_socket;
mod handlers;
mod shutdown;
mod images;
mod certificate;
pub mod managers;
mod credential_providers;
pub mod usual_root;
mod values;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use component_base::{Clock, tasks};
use k8s_openapi::api::core::v1::Taint;
use kube_apiserver::pki::ServingCertificate;
use kubelet::node::addresses::Addresses;
use reconcile::{Caches, Cluster, Shutdown};

pub use self::certificate::own_certificate;
pub use self::credential_providers::Flags as CredentialProviders;
pub use self::images::built_in_images;
use self::runtime::registries;
pub use self::runtime::{last_bridge_addresses, runtime, runtime_config, state_dir};
use self::values::{grace_periods, seconds};
pub use self::values::{pairs, size, taint, thresholds};

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Name of the node (default: the host name).
    #[arg(long, env = "KNARR_NODE_NAME")]
    pub node_name: Option<String>,
    /// Addresses of this node.
    #[arg(long, env = "KNARR_NODE_IP", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// External addresses of this node, published for load balancers.
    #[arg(long, env = "KNARR_NODE_EXTERNAL_IP", value_delimiter = ',')]
    pub node_external_ip: Vec<IpAddr>,
    /// Labels of this node, as key=value.
    #[arg(long, env = "KNARR_NODE_LABEL", value_delimiter = ',')]
    pub node_label: Vec<String>,
    /// Taints to register the node with, as key=value:effect.
    #[arg(long, env = "KNARR_NODE_TAINT", value_delimiter = ',')]
    pub node_taint: Vec<String>,
    /// CIDR of all pods of the cluster.
    #[arg(long, env = "KNARR_CLUSTER_CIDR", default_value = "10.42.0.0/16")]
    pub cluster_cidr: ipnet::IpNet,
    #[command(flatten)]
    pub network: crate::network::Flags,
    /// Addresses of the cluster's DNS (default: the tenth address of --service-cidr).
    #[arg(long, env = "KNARR_CLUSTER_DNS", value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster.
    #[arg(long, env = "KNARR_CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// Use this CRI endpoint, such as unix:///run/containerd/containerd.sock, instead of the built-in runtime.
    #[arg(long, env = "KNARR_CONTAINER_RUNTIME_ENDPOINT")]
    pub container_runtime_endpoint: Option<String>,
    /// File with mirrors, credentials and CAs of image registries.
    #[arg(long, env = "KNARR_PRIVATE_REGISTRY", default_value = "/etc/knarr/registries.yaml")]
    pub private_registry: PathBuf,
    /// Maximum number of pods on the node.
    #[arg(long, env = "KNARR_MAX_PODS", default_value_t = 110)]
    pub max_pods: u32,
    /// Ignored; accepted for compatibility with k3s. The sandbox process is knarr itself.
    #[arg(long, env = "KNARR_PAUSE_IMAGE")]
    pub pause_image: Option<String>,
    /// Port of the kubelet.
    #[arg(long, env = "KNARR_KUBELET_PORT", default_value_t = 10250)]
    pub kubelet_port: u16,
    /// Directory of static pod manifests (default: <data-dir>/pod-manifests).
    #[arg(long, env = "KNARR_POD_MANIFEST_PATH")]
    pub pod_manifest_path: Option<PathBuf>,
    /// Parent cgroup of all pods.
    #[arg(long, env = "KNARR_CGROUP_ROOT", default_value = "/")]
    pub cgroup_root: String,
    /// resolv.conf that pods with `dnsPolicy: Default` inherit from.
    #[arg(long, env = "KNARR_RESOLV_CONF", default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
    /// Hard eviction thresholds, as signal<quantity.
    #[arg(
        long,
        env = "KNARR_EVICTION_HARD",
        value_delimiter = ',',
        default_value = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%"
    )]
    pub eviction_hard: Vec<String>,
    /// Soft eviction thresholds, which must hold for --eviction-soft-grace-period, as signal<quantity.
    #[arg(long, env = "KNARR_EVICTION_SOFT", value_delimiter = ',')]
    pub eviction_soft: Vec<String>,
    /// Grace periods of soft eviction thresholds, as signal=duration.
    #[arg(long, env = "KNARR_EVICTION_SOFT_GRACE_PERIOD", value_delimiter = ',')]
    pub eviction_soft_grace_period: Vec<String>,
    /// Time to wait before clearing a pressure condition, such as 30s or 5m.
    #[arg(long, env = "KNARR_EVICTION_PRESSURE_TRANSITION_PERIOD", default_value = "5m", value_parser = seconds)]
    pub eviction_pressure_transition_period: Duration,
    /// Interval of node status updates, such as 10s.
    #[arg(long, env = "KNARR_NODE_STATUS_UPDATE_FREQUENCY", default_value = "10s", value_parser = seconds)]
    pub node_status_update_frequency: Duration,
    /// Maximum number of processes of a pod.
    #[arg(long, env = "KNARR_POD_MAX_PIDS")]
    pub pod_max_pids: Option<i64>,
    /// Resources reserved for knarr itself, as cpu=100m,memory=100Mi.
    #[arg(long, env = "KNARR_KUBE_RESERVED", value_delimiter = ',')]
    pub kube_reserved: Vec<String>,
    /// Resources reserved for the rest of the host.
    #[arg(long, env = "KNARR_SYSTEM_RESERVED", value_delimiter = ',')]
    pub system_reserved: Vec<String>,
    #[command(flatten)]
    pub managers: managers::Flags,
    #[command(flatten)]
    pub credential_providers: credential_providers::Flags,
    #[command(flatten)]
    pub handlers: handlers::Flags,
    #[command(flatten)]
    pub shutdown: shutdown::Flags,
    /// Unsafe sysctls that pods may set, such as net.core.*.
    #[arg(long, env = "KNARR_ALLOWED_UNSAFE_SYSCTLS", value_delimiter = ',')]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Remove unused images when disk usage is above this percentage.
    #[arg(long, env = "KNARR_IMAGE_GC_HIGH_THRESHOLD", default_value_t = 85)]
    pub image_gc_high_threshold: u8,
    /// Stop removing images when disk usage is below this percentage.
    #[arg(long, env = "KNARR_IMAGE_GC_LOW_THRESHOLD", default_value_t = 80)]
    pub image_gc_low_threshold: u8,
    /// Minimum age of an unused image before it is removed, such as 2m.
    #[arg(long, env = "KNARR_MINIMUM_IMAGE_TTL_DURATION", default_value = "2m", value_parser = seconds)]
    pub minimum_image_ttl_duration: Duration,
    /// Rotate container logs at this size.
    #[arg(long, env = "KNARR_CONTAINER_LOG_MAX_SIZE", default_value = "10Mi")]
    pub container_log_max_size: String,
    /// Number of log files to keep per container.
    #[arg(long, env = "KNARR_CONTAINER_LOG_MAX_FILES", default_value_t = 5)]
    pub container_log_max_files: u32,
    /// What `/flagz` of the kubelet shows.
    #[arg(skip)]
    pub shown: component_helpers::zpages::Flags,
}

/// What the node needs to know of the cluster it belongs to.
pub struct Membership {
    pub client: kube::Client,
    /// As whom the pod network asks about other nodes and policies; without it, it knows of this node alone.
    pub network: Option<Cluster>,
    /// Whose client certificates the kubelet believes.
    pub client_authority: String,
    /// The file it came from.
    pub client_authority_file: PathBuf,
    /// What the kubelet's server shows.
    pub certificate: Arc<ServingCertificate>,
    pub service_cidr: ipnet::IpNet,
    /// What the node announces.
    pub addresses: Addresses,
    /// Whether a controller gives the node its range of pod addresses; otherwise it takes the cluster's first.
    pub gives_ranges: bool,
    /// Where the cluster's DNS answers on this node, if it does: pods may ask it under any policy.
    pub dns_port: Option<u16>,
}

impl Flags {
    /// What holds where nothing is said.
    pub fn standard() -> Flags {
        #[derive(clap::Parser)]
        struct Nothing {
            #[command(flatten)]
            flags: Flags,
        }
        // The environment is for servers and agents; who asks here has said everything.
        let command = <Nothing as clap::CommandFactory>::command()
            .mut_args(|argument| argument.env(clap::builder::Resettable::Reset));
        let matches = command.get_matches_from(["knarr"]);
        <Flags as clap::FromArgMatches>::from_arg_matches(&matches).expect("no flag of a node is required")
    }

    pub fn name(&self) -> String {
        self.node_name.clone().unwrap_or_else(crate::server::host_name)
    }

    /// Where pods ask for names.
    pub fn cluster_dns(&self, services: &ipnet::IpNet) -> Vec<IpAddr> {
        if self.cluster_dns.is_empty() {
            services.hosts().nth(9).into_iter().collect()
        } else {
            self.cluster_dns.clone()
        }
    }

    /// Refuses what cannot be used, before anything is started.
    pub fn check(&self) -> anyhow::Result<()> {
        pairs(&self.node_label).context("--node-label")?;
        self.taints()?;
        pairs(&self.kube_reserved).context("--kube-reserved")?;
        pairs(&self.system_reserved).context("--system-reserved")?;
        thresholds(&self.eviction_hard).context("--eviction-hard")?;
        grace_periods(&self.eviction_soft, &self.eviction_soft_grace_period)?;
        size(&self.container_log_max_size).context("--container-log-max-size")?;
        self.managers.settings()?;
        self.credential_providers.settings()?;
        self.handlers.programs()?;
        self.shutdown.periods()?;
        registries(&self.private_registry)?;
        Ok(())
    }

    fn taints(&self) -> anyhow::Result<Vec<Taint>> {
        self.node_taint.iter().map(|text| taint(text)).collect::<anyhow::Result<_>>().context("--node-taint")
    }

    /// What was said to no effect is told.
    fn warn(&self) {
        if let Some(image) = &self.pause_image {
            tracing::warn!(image, "ignoring --pause-image: the sandbox process is this program and needs no image");
        }
    }

    /// The addresses to announce: those that were given, or this host's, which are followed.
    pub async fn addresses(&self, services: ipnet::IpNet, shutdown: &Shutdown) -> Addresses {
        if !self.node_ip.is_empty() {
            return Addresses::fixed(self.node_ip.clone());
        }
        self.wait_for_address(services).await;
        Addresses::follow(vec![self.cluster_cidr, services], shutdown.clone())
    }

    /// A host that boots may get its address only after us.
    pub async fn wait_for_address(&self, services: ipnet::IpNet) {
        if self.node_ip.is_empty() {
            kubelet::node::addresses::wait(&[self.cluster_cidr, services]).await;
        }
    }
}

/// Starts the node; the handle ends when it has stopped. Its containers go on running.
pub async fn start(
    flags: Flags,
    data_dir: &Path,
    membership: Membership,
    shutdown: Shutdown,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    flags.warn();
    // Volumes of pods, which no user of the machine has any business in.
    let storage = data_dir.join("storage");
    linux::file::make_private_folder(&storage).with_context(|| format!("create {}", storage.display()))?;
    let config = kubelet_config(&flags, data_dir, &membership)?;
    let runtime = runtime(&flags, data_dir, &membership, &shutdown).await?;
    let periods = flags.shutdown.periods()?;
    tasks::spawn(crate::power_off::listen(data_dir, config.power_off.clone(), periods)?);
    if flags.shutdown.asks_logind().is_some() {
        kubelet::logind::start(crate::power_off::logind(periods), config.power_off.clone(), shutdown.clone());
    }
    let caches = Caches::new(membership.client.clone(), shutdown.clone());
    let cluster = Cluster::with_client(membership.client, caches);
    Ok(tasks::spawn(async move {
        if let Err(error) = kubelet::run(config, cluster, runtime, shutdown).await {
            tracing::error!(%error, "kubelet failed");
        }
    }))
}

fn kubelet_config(flags: &Flags, data_dir: &Path, membership: &Membership) -> anyhow::Result<kubelet::Config> {
    let node_labels = pairs(&flags.node_label).context("--node-label")?;
    let cluster_dns = flags.cluster_dns(&membership.service_cidr);
    let static_pods = flags.pod_manifest_path.clone().unwrap_or_else(|| data_dir.join("pod-manifests"));
    // A folder that the operator named keeps its mode.
    let made = match flags.pod_manifest_path {
        Some(_) => std::fs::create_dir_all(&static_pods),
        None => linux::file::make_private_folder(&static_pods),
    };
    made.with_context(|| format!("create {}", static_pods.display()))?;
    let managers = flags.managers.settings()?;
    let mut kube_reserved = pairs(&flags.kube_reserved).context("--kube-reserved")?;
    let mut system_reserved = pairs(&flags.system_reserved).context("--system-reserved")?;
    managers::reserve_cpus(&managers, &mut kube_reserved, &mut system_reserved);
    Ok(kubelet::Config {
        node_name: flags.name(),
        addresses: membership.addresses.clone(),
        node_external_ips: flags.node_external_ip.clone(),
        node_labels,
        register_with_taints: flags.taints()?,
        root_dir_of_drivers: usual_root::make(data_dir, &data_dir.join("kubelet")),
        root_dir: data_dir.join("kubelet"),
        log_dir: LOG_DIR.into(),
        static_pod_path: Some(static_pods),
        bind_address: IpAddr::from([0, 0, 0, 0]),
        port: flags.kubelet_port,
        serving_certificate: membership.certificate.clone(),
        client_ca: membership.client_authority.clone(),
        cluster_dns,
        cluster_domain: flags.cluster_domain.clone(),
        resolv_conf: flags.resolv_conf.clone(),
        pods_max: flags.max_pods,
        pod_cidr: if membership.gives_ranges {
            None
        } else {
            Some(first_node_range(&flags.cluster_cidr, flags.max_pods)?.to_string())
        },
        cgroup_root: flags.cgroup_root.clone(),
        pod_pids_limit: flags.pod_max_pids,
        kube_reserved,
        system_reserved,
        managers,
        swap_behavior: Default::default(),
        // Machines of users have swap; their pods do not use it.
        fail_swap_on: false,
        eviction_hard: thresholds(&flags.eviction_hard).context("--eviction-hard")?,
        eviction_soft: thresholds(&flags.eviction_soft).context("--eviction-soft")?,
        eviction_soft_grace_period: grace_periods(&flags.eviction_soft, &flags.eviction_soft_grace_period)?,
        eviction_pressure_transition_period: flags.eviction_pressure_transition_period,
        image_gc_high_threshold_percent: flags.image_gc_high_threshold,
        image_gc_low_threshold_percent: flags.image_gc_low_threshold,
        image_minimum_gc_age: flags.minimum_image_ttl_duration,
        container_log_max_size: size(&flags.container_log_max_size).context("--container-log-max-size")?,
        container_log_max_files: flags.container_log_max_files,
        node_status_update_frequency: flags.node_status_update_frequency,
        node_status_report_frequency: Duration::from_secs(5 * 60),
        node_lease_duration: Duration::from_secs(40),
        power_off: Default::default(),
        allowed_unsafe_sysctls: flags.allowed_unsafe_sysctls.clone(),
        credential_providers: flags.credential_providers.settings()?,
        image_pulls_max: IMAGE_PULLS_MAX,
        clock: Clock::system(),
        shown: kubelet::Shown {
            client_ca_file: Some(membership.client_authority_file.clone()),
            tls_cert_file: None,
            rotates_certificates: true,
            bootstraps_server_tls: true,
            flags: flags.shown.clone(),
            version: kube_apiserver::VERSION,
        },
    })
}

pub const LOG_DIR: &str = "/var/log/pods";
const IMAGE_PULLS_MAX: usize = 5;
/// Each node has at least so many pod addresses, 254 pods; more where more pods are allowed.
const NODE_RANGE_PREFIX: u8 = 24;

/// The length of the prefix of a node's range that has room for so many pods.
pub fn node_range_prefix(pods_max: u32) -> u8 {
    // Beside pods there are the range's own address, the bridge's and that of the broadcast.
    let bits = (pods_max.saturating_add(3)).next_power_of_two().trailing_zeros() as u8;
    NODE_RANGE_PREFIX.min(32_u8.saturating_sub(bits))
}

fn first_node_range(cluster: &ipnet::IpNet, pods_max: u32) -> anyhow::Result<ipnet::IpNet> {
    let prefix = node_range_prefix(pods_max).max(cluster.prefix_len());
    cluster
        .subnets(prefix)
        .ok()
        .and_then(|mut ranges| ranges.next())
        .context("--cluster-cidr is too small for the CIDR of a node")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_the_first_part_of_the_clusters_range() {
        let range = |text: &str, pods| first_node_range(&text.parse().unwrap(), pods).unwrap().to_string();
        assert_eq!(range("10.42.0.0/16", 110), "10.42.0.0/24");
        assert_eq!(range("10.42.0.0/16", 253), "10.42.0.0/24");
        assert_eq!(range("10.42.0.0/16", 254), "10.42.0.0/23");
        assert_eq!(range("10.42.0.0/16", 600), "10.42.0.0/22");
        assert_eq!(range("10.42.0.0/26", 110), "10.42.0.0/26");
    }
}
