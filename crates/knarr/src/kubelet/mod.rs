//! `knarr kubelet`: the kubelet by itself, with upstream's flags and configuration file. It asks as `system:node:<name>` and
//! needs nothing that upstream's API server would not let a node do.

mod file;
mod identity;
mod known;
mod serving;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use component_base::tasks;
use reconcile::{Caches, Cluster, Shutdown};
use serde_json::{Map, Value, json};

use self::file::File;
use crate::node::Membership;

const AGENT: &str = concat!("kubelet/v", env!("CARGO_PKG_VERSION"), " (knarr)");

#[derive(clap::Args)]
pub struct Flags {
    /// Kubeconfig of the node. Written after the node got its certificate with --bootstrap-kubeconfig.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig to request the node's first client certificate with.
    #[arg(long)]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// KubeletConfiguration file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Directory of certificates.
    #[arg(long, default_value = "/var/lib/kubelet/pki")]
    cert_dir: PathBuf,
    /// Directory of pod volumes and all other state.
    #[arg(long, default_value = "/var/lib/kubelet")]
    root_dir: PathBuf,
    /// Name of the node (default: the host name).
    #[arg(long)]
    hostname_override: Option<String>,
    /// Addresses of this node.
    #[arg(long, value_delimiter = ',')]
    node_ip: Vec<IpAddr>,
    /// Labels to register the node with, as key=value.
    #[arg(long, value_delimiter = ',')]
    node_labels: Vec<String>,
    /// Taints to register the node with, as key=value:effect.
    #[arg(long, value_delimiter = ',')]
    register_with_taints: Vec<String>,
    /// Use this CRI endpoint, such as unix:///run/containerd/containerd.sock, instead of the built-in runtime.
    #[arg(long)]
    container_runtime_endpoint: Option<String>,
    #[command(flatten)]
    credential_providers: crate::node::CredentialProviders,
    #[command(flatten)]
    fields: Fields,
    #[command(flatten)]
    own_runtime: OwnRuntime,
    /// What `/flagz` shows.
    #[arg(skip)]
    pub shown: component_helpers::zpages::Flags,
}

/// Flags that stand for fields of the configuration, and come before it.
#[derive(clap::Args)]
#[group(skip)]
struct Fields {
    /// Addresses of the cluster's DNS.
    #[arg(long, value_delimiter = ',')]
    cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster.
    #[arg(long)]
    cluster_domain: Option<String>,
    /// Maximum number of pods on the node.
    #[arg(long)]
    max_pods: Option<u32>,
    /// Directory of static pod manifests.
    #[arg(long)]
    pod_manifest_path: Option<PathBuf>,
    /// CA of client certificates.
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// Renew the client certificate before it expires.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    rotate_certificates: Option<bool>,
    /// Serving certificate (default: self-signed).
    #[arg(long)]
    tls_cert_file: Option<PathBuf>,
    #[arg(long)]
    tls_private_key_file: Option<PathBuf>,
    /// Address of the kubelet's server.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Port of the kubelet's server.
    #[arg(long)]
    port: Option<u16>,
    /// Port of /healthz without TLS; 0 disables it.
    #[arg(long)]
    healthz_port: Option<u16>,
    /// Address of /healthz.
    #[arg(long)]
    healthz_bind_address: Option<IpAddr>,
    /// Pod CIDR of this node if none is allocated.
    #[arg(long)]
    pod_cidr: Option<String>,
    /// Parent cgroup of all pods.
    #[arg(long)]
    cgroup_root: Option<String>,
    /// resolv.conf that pods with `dnsPolicy: Default` inherit from.
    #[arg(long)]
    resolv_conf: Option<String>,
    /// Hard eviction thresholds, as signal<quantity.
    #[arg(long, value_delimiter = ',')]
    eviction_hard: Vec<String>,
    /// Set any field of the KubeletConfiguration, as name=JSON.
    #[arg(long, hide = true)]
    field: Vec<String>,
}

/// What our own runtime needs to know, where no endpoint is given.
#[derive(clap::Args)]
#[group(skip)]
struct OwnRuntime {
    /// CIDR of all pods of the cluster.
    #[arg(long, default_value = "10.42.0.0/16")]
    cluster_cidr: ipnet::IpNet,
    /// CIDR of Service addresses.
    #[arg(long, default_value = "10.43.0.0/16")]
    service_cluster_ip_range: ipnet::IpNet,
    /// Kubeconfig with which the built-in network reads other nodes and NetworkPolicies, which a node itself may not
    /// read. Without it, knarr adds no routes to other nodes and does not enforce NetworkPolicies.
    #[arg(long)]
    network_kubeconfig: Option<PathBuf>,
    /// File with mirrors, credentials and CAs of image registries.
    #[arg(long, default_value = "/etc/knarr/registries.yaml")]
    private_registry: PathBuf,
    #[command(flatten)]
    network: crate::network::Flags,
}

const CNI_CONF_DIR: &str = "/etc/cni/net.d";

/// Until it is told to stop. Containers go on running after it.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    crate::alone::run(|shutdown| serve(flags, shutdown))
}

async fn serve(mut flags: Flags, shutdown: Shutdown) -> anyhow::Result<()> {
    // Mounts and kubeconfigs name what is in these folders from elsewhere.
    flags.root_dir = std::path::absolute(&flags.root_dir).context("--root-dir")?;
    flags.cert_dir = std::path::absolute(&flags.cert_dir).context("--cert-dir")?;
    let file = flags.file()?;
    file.apply_oom_score();
    let name = flags.hostname_override.clone().unwrap_or_else(crate::server::host_name);
    // Whoever watches over the kubelet asks here from the start, also while it waits for its certificate.
    if file.healthz_port != 0 {
        let address = SocketAddr::new(file.healthz_bind_address, file.healthz_port);
        crate::health::serve(address, Arc::new(String::new)).await?;
    }
    let Some(kubeconfig) = flags.kubeconfig.clone() else {
        bail!("set --kubeconfig, and --bootstrap-kubeconfig for the first start");
    };
    let files = identity::Files {
        kubeconfig: std::path::absolute(kubeconfig).context("--kubeconfig")?,
        bootstrap_kubeconfig: flags.bootstrap_kubeconfig.clone(),
        cert_dir: flags.cert_dir.clone(),
    };
    let client = tokio::select! {
        client = identity::client(&files, &name, file.rotate_certificates, shutdown.clone()) => client?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let node = flags.node(&file, &name);
    let addresses = node.addresses(flags.own_runtime.service_cluster_ip_range, &shutdown).await;
    let certificate = serving::certificate(&file, &flags.cert_dir, &name, &addresses, &client, &shutdown)?;
    let network = match &flags.own_runtime.network_kubeconfig {
        None => None,
        Some(path) => {
            let client = crate::alone::client(crate::alone::from_file(path).await?, AGENT)?;
            Some(Cluster::with_client(client.clone(), Caches::new(client, shutdown.clone())))
        }
    };
    let membership = Membership {
        client: client.clone(),
        network,
        client_authority: file.client_authority()?,
        // The file of settings says it itself.
        client_authority_file: PathBuf::new(),
        certificate,
        service_cidr: flags.own_runtime.service_cluster_ip_range,
        addresses,
        gives_ranges: true,
        dns_port: Some(dns::PORT),
    };
    std::fs::create_dir_all(&flags.root_dir).with_context(|| format!("make {}", flags.root_dir.display()))?;
    let config = file.config(&flags.root_dir, &node, &membership)?;
    let runtime = crate::node::runtime(&node, &flags.root_dir, &membership, &shutdown).await?;
    tasks::spawn(crate::power_off::listen(&flags.root_dir, config.power_off.clone(), file.power_off_periods())?);
    if let Some(settings) = file.logind() {
        kubelet::logind::start(settings, config.power_off.clone(), shutdown.clone());
    }
    let caches = Caches::new(client.clone(), shutdown.clone());
    tracing::info!(node = name, "started kubelet");
    Ok(kubelet::run(config, Cluster::with_client(client, caches), runtime, shutdown).await?)
}

impl Flags {
    fn file(&self) -> anyhow::Result<File> {
        let mut fields = match &self.config {
            None => Map::new(),
            Some(path) => file::read(path).with_context(|| format!("use {}", path.display()))?,
        };
        self.fields.put_into(&mut fields)?;
        let file = File::of(fields).context(match &self.config {
            Some(path) => format!("use {}", path.display()),
            None => "use the flags".into(),
        })?;
        file.check_machine_swap(kubelet::node::machine::read().swap_bytes)?;
        Ok(file)
    }

    /// The node as a server's or an agent's flags would describe it, for what is the same in all of them.
    fn node(&self, file: &File, name: &str) -> crate::node::Flags {
        let mut network = self.own_runtime.network.clone();
        // As every runtime: plugins where they are configured.
        network.cni_conf_dir = network.cni_conf_dir.or_else(|| Some(CNI_CONF_DIR.into()));
        let mut node = crate::node::Flags {
            node_name: Some(name.into()),
            node_ip: self.node_ip.clone(),
            node_label: self.node_labels.clone(),
            node_taint: self.register_with_taints.clone(),
            cluster_cidr: self.own_runtime.cluster_cidr,
            network,
            container_runtime_endpoint: self.container_runtime_endpoint.clone().or_else(|| file.runtime_endpoint()),
            private_registry: self.own_runtime.private_registry.clone(),
            credential_providers: self.credential_providers.clone(),
            shown: self.shown.clone(),
            ..crate::node::Flags::standard()
        };
        file.describe(&mut node);
        node
    }
}

impl Fields {
    fn put_into(&self, fields: &mut Map<String, Value>) -> anyhow::Result<()> {
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.into(), value);
            }
        };
        for text in &self.field {
            let (name, value) = text.split_once('=').with_context(|| format!("--field={text}: value is missing"))?;
            put(name, Some(serde_json::from_str(value).with_context(|| format!("--field={text}"))?));
        }
        put("clusterDNS", (!self.cluster_dns.is_empty()).then(|| json!(self.cluster_dns)));
        put("clusterDomain", self.cluster_domain.as_ref().map(|value| json!(value)));
        put("maxPods", self.max_pods.map(Value::from));
        put("staticPodPath", self.pod_manifest_path.as_ref().map(|value| json!(value)));
        put("rotateCertificates", self.rotate_certificates.map(Value::from));
        put("tlsCertFile", self.tls_cert_file.as_ref().map(|value| json!(value)));
        put("tlsPrivateKeyFile", self.tls_private_key_file.as_ref().map(|value| json!(value)));
        put("address", self.address.map(|value| json!(value)));
        put("port", self.port.map(Value::from));
        put("healthzPort", self.healthz_port.map(Value::from));
        put("healthzBindAddress", self.healthz_bind_address.map(|value| json!(value)));
        put("podCIDR", self.pod_cidr.as_ref().map(|value| json!(value)));
        put("cgroupRoot", self.cgroup_root.as_ref().map(|value| json!(value)));
        put("resolvConf", self.resolv_conf.as_ref().map(|value| json!(value)));
        if !self.eviction_hard.is_empty() {
            let thresholds = crate::node::thresholds(&self.eviction_hard).context("--eviction-hard")?;
            put("evictionHard", Some(json!(thresholds)));
        }
        if let Some(path) = &self.client_ca_file {
            let authentication = fields.entry("authentication").or_insert_with(|| json!({}));
            ensure!(authentication.is_object(), "authentication: must be an object");
            if authentication["x509"].is_null() {
                authentication["x509"] = json!({});
            }
            authentication["x509"]["clientCAFile"] = json!(path);
        }
        Ok(())
    }
}
