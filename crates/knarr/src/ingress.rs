//! The ingress controller: beside the node of the server's process, or alone against any Kubernetes API.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use component_base::tasks;
use reconcile::{Cluster, Shutdown};
use serde_json::{Value, json};

const AGENT: &str = concat!("ingress/v", env!("CARGO_PKG_VERSION"), " (knarr)");

/// As whom it asks within the server's process.
pub const COMPONENT: &str = "system:knarr:ingress";

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// HTTP port of Ingresses.
    #[arg(long, env = "KNARR_INGRESS_HTTP_PORT", default_value_t = 80)]
    ingress_http_port: u16,
    /// HTTPS port of Ingresses.
    #[arg(long, env = "KNARR_INGRESS_HTTPS_PORT", default_value_t = 443)]
    ingress_https_port: u16,
    /// Address to listen on for Ingresses (default: all of the node's).
    #[arg(long, env = "KNARR_INGRESS_BIND_ADDRESS")]
    ingress_bind_address: Option<IpAddr>,
    /// Serve /healthz and /metrics of the ingress on this address without TLS, such as 127.0.0.1:10254.
    #[arg(long, env = "KNARR_INGRESS_METRICS_ADDRESS")]
    ingress_metrics_address: Option<SocketAddr>,
    /// Write an access log to this file; `-` is standard output.
    #[arg(long, env = "KNARR_INGRESS_ACCESS_LOG")]
    ingress_access_log: Option<PathBuf>,
    /// Trust X-Forwarded headers of these proxies.
    #[arg(long, env = "KNARR_INGRESS_TRUSTED_PROXY", value_delimiter = ',')]
    ingress_trusted_proxy: Vec<ipnet::IpNet>,
    /// Publish these addresses or names in the status of Ingresses instead of those of the nodes.
    #[arg(long, env = "KNARR_INGRESS_PUBLISH", value_delimiter = ',')]
    ingress_publish: Vec<String>,
    /// Maximum size of a request body in bytes, unless set by the Ingress; 0 is no limit.
    #[arg(long, env = "KNARR_INGRESS_BODY_MAX", default_value_t = 0)]
    ingress_body_max: u64,
    /// Number of worker threads; 0 is one per CPU.
    #[arg(long, env = "KNARR_INGRESS_THREADS", default_value_t = 0)]
    ingress_threads: usize,
}

#[derive(clap::Args)]
pub struct AloneFlags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    /// Name of this node, whose addresses are published in the status of Ingresses.
    #[arg(long, env = "KNARR_NODE_NAME")]
    node_name: Option<String>,
    #[command(flatten)]
    ingress: Flags,
}

impl Flags {
    fn config(&self, node_name: Option<String>) -> ingress::Config {
        let address = self.ingress_bind_address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        ingress::Config {
            http: SocketAddr::new(address, self.ingress_http_port),
            https: SocketAddr::new(address, self.ingress_https_port),
            monitoring: self.ingress_metrics_address,
            node_name,
            publish: self.ingress_publish.clone(),
            trusted_proxies: self.ingress_trusted_proxy.clone(),
            access_log: self.ingress_access_log.clone(),
            body_bytes_max: self.ingress_body_max,
            worker_threads: self.ingress_threads,
            ..ingress::Config::default()
        }
    }
}

/// `knarr ingress`, until it is told to stop.
pub fn run(flags: AloneFlags) -> anyhow::Result<()> {
    crate::alone::run_small(async move |shutdown| {
        let cluster = flags.cluster.cluster(AGENT).await?;
        Ok(ingress::run(flags.ingress.config(flags.node_name), cluster, shutdown).await?)
    })
}

/// Starts it beside a node; the handle ends when it has stopped. Should it not run, the node does.
pub fn start(flags: &Flags, node_name: String, cluster: Cluster, shutdown: Shutdown) -> tokio::task::JoinHandle<()> {
    let config = ingress::Config { service: true, ..flags.config(Some(node_name)) };
    tasks::spawn(async move {
        if let Err(error) = ingress::run(config, cluster, shutdown).await {
            tracing::error!(error = format!("{:#}", anyhow::Error::from(error)), "ingress failed");
        }
    })
}

/// What it may do, and that it may: everything it reads, the state of Ingresses, its mark on nodes, and
/// the Service that leads to it.
pub fn permissions() -> [Value; 2] {
    let metadata = json!({
        "name": COMPONENT,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    });
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let read = ["get", "list", "watch"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": [
            rule(&["networking.k8s.io"], &["ingresses", "ingressclasses"], &read),
            rule(&["networking.k8s.io"], &["ingressclasses"], &["create"]),
            rule(&["networking.k8s.io"], &["ingresses/status"], &["patch", "update"]),
            rule(&[""], &["services", "secrets", "nodes"], &read),
            rule(&[""], &["nodes"], &["patch"]),
            rule(&["discovery.k8s.io"], &["endpointslices"], &read),
            rule(&[""], &["services"], &["create", "patch"]),
            rule(&["discovery.k8s.io"], &["endpointslices"], &["create", "patch"]),
            rule(&["", "events.k8s.io"], &["events"], &["create", "patch", "update"]),
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": COMPONENT},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": COMPONENT}],
    });
    [role, binding]
}
