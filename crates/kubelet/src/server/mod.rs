//! The kubelet's HTTPS server: what is asked of a node rather than of the API. Logs, exec, attach, port-forward, statistics.
//!
//! Every request is authenticated (client certificate or token) and authorized by the API server before anything else happens.

mod access;
mod answers;
mod channel;
mod connections;
mod container_logs;
mod identity;
mod lists;
pub mod logs;
pub mod metrics;
mod node_logs;
pub mod offered;
mod pass_through;
mod port_forward;
mod remote_command;
mod routes;
pub mod spdy;
mod streaming;
pub mod websocket;

pub use identity::AuthorityError;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use component_base::{Clock, tasks};
use component_helpers::zpages::Flags;
use futures::future::BoxFuture;
use reconcile::Shutdown;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::pods::Pods;
use crate::stats::own::Counters;
use crate::{Config, Error};

/// What the server needs to know of the kubelet's configuration.
#[derive(Clone)]
pub struct Settings {
    pub node_name: String,
    pub bind_address: IpAddr,
    pub port: u16,
    pub serving_certificate: Arc<dyn rustls::server::ResolvesServerCert>,
    pub client_ca: String,
    /// What `/logs/` shows: usually `/var/log`.
    pub node_log_dir: PathBuf,
    /// What `/configz` shows, as a KubeletConfiguration.
    pub configuration: Value,
    /// What `/flagz` and `/statusz` show.
    pub flags: Flags,
    pub version: &'static str,
    pub clock: Clock,
}

/// Answers a question about statistics with text; the argument is the raw query.
pub type Statistic = Arc<dyn Fn(String) -> BoxFuture<'static, Result<Bytes, Error>> + Send + Sync>;

/// The statistics that are shown, made elsewhere.
#[derive(Clone)]
pub struct Statistics {
    /// `/stats/summary`, JSON.
    pub summary: Statistic,
    /// The kubelet's own metrics.
    pub metrics: Statistic,
    pub cadvisor: Statistic,
    pub resource: Statistic,
    pub probes: Statistic,
}

/// What the server works with.
pub struct Server {
    pub settings: Settings,
    pub client: kube::Client,
    pub runtime: Arc<dyn cri::Runtime>,
    pub pods: Arc<Pods>,
    pub statistics: Statistics,
    pub counters: Arc<Counters>,
    pub shutdown: Shutdown,
}

/// Listens; answers with the address when requests can come.
pub async fn start(server: Server) -> Result<SocketAddr, Error> {
    let wanted = SocketAddr::new(server.settings.bind_address, server.settings.port);
    let failed = |source| Error::Io { step: format!("listen on {wanted}"), source };
    let listener = TcpListener::bind(wanted).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let authority = identity::ClientAuthority::new(&server.settings.client_ca)?;
    tasks::spawn(connections::accept(Arc::new(routes::Context::new(server)), listener, Arc::new(authority)));
    Ok(address)
}

impl Settings {
    pub fn of(config: &Config) -> Settings {
        Settings {
            node_name: config.node_name.clone(),
            bind_address: config.bind_address,
            port: config.port,
            serving_certificate: config.serving_certificate.clone(),
            client_ca: config.client_ca.clone(),
            node_log_dir: config.log_dir.parent().map_or_else(|| PathBuf::from("/var/log"), PathBuf::from),
            configuration: configuration(config),
            flags: config.shown.flags.clone(),
            version: config.shown.version,
            clock: config.clock.clone(),
        }
    }
}

fn configuration(config: &Config) -> Value {
    let seconds = |duration: std::time::Duration| format!("{}s", duration.as_secs());
    let soft_grace: serde_json::Map<String, Value> = config
        .eviction_soft_grace_period
        .iter()
        .map(|(signal, period)| (signal.clone(), seconds(*period).into()))
        .collect();
    let shown = &config.shown;
    let x509 = shown.client_ca_file.as_ref().map_or(json!({}), |file| json!({"clientCAFile": file}));
    let mut all = of_managers(config);
    let rest = json!({
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "enableServer": true,
        "address": config.bind_address.to_string(),
        "port": config.port,
        "staticPodPath": config.static_pod_path,
        "podLogsDir": config.log_dir,
        "authentication": {
            "x509": x509, "webhook": {"enabled": true, "cacheTTL": "2m0s"}, "anonymous": {"enabled": false},
        },
        "authorization": {
            "mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"},
        },
        "clusterDomain": config.cluster_domain,
        "clusterDNS": config.cluster_dns,
        "resolvConf": config.resolv_conf,
        "maxPods": config.pods_max,
        "podCIDR": config.pod_cidr,
        "podPidsLimit": config.pod_pids_limit.unwrap_or(-1),
        "cgroupRoot": config.cgroup_root,
        "kubeReserved": config.kube_reserved,
        "systemReserved": config.system_reserved,
        "evictionHard": config.eviction_hard,
        "evictionSoft": config.eviction_soft,
        "evictionSoftGracePeriod": soft_grace,
        "evictionPressureTransitionPeriod": seconds(config.eviction_pressure_transition_period),
        "imageGCHighThresholdPercent": config.image_gc_high_threshold_percent,
        "imageGCLowThresholdPercent": config.image_gc_low_threshold_percent,
        "imageMinimumGCAge": seconds(config.image_minimum_gc_age),
        "containerLogMaxSize": config.container_log_max_size.to_string(),
        "containerLogMaxFiles": config.container_log_max_files,
        "nodeStatusUpdateFrequency": seconds(config.node_status_update_frequency),
        "nodeStatusReportFrequency": seconds(config.node_status_report_frequency),
        "nodeLeaseDurationSeconds": config.node_lease_duration.as_secs(),
        "allowedUnsafeSysctls": config.allowed_unsafe_sysctls,
        "serializeImagePulls": config.image_pulls_max <= 1,
        "maxParallelImagePulls": config.image_pulls_max,
        "rotateCertificates": shown.rotates_certificates,
        "serverTLSBootstrap": shown.bootstraps_server_tls,
        "tlsCertFile": shown.tls_cert_file,
        "tlsMinVersion": "VersionTLS12",
        // There is no such port, and no such default, in this kubelet.
        "readOnlyPort": 0,
        "seccompDefault": false,
    });
    if let (Value::Object(all), Value::Object(rest)) = (&mut all, rest) {
        all.extend(rest);
    }
    all
}

fn of_managers(config: &Config) -> Value {
    let managers = &config.managers;
    json!({
        "cpuManagerPolicy": managers.cpu_policy.name(),
        "cpuManagerReconcilePeriod": format!("{}s", managers.cpu_reconcile_period.as_secs()),
        "reservedSystemCPUs": managers.reserved_cpus.to_string(),
        "memoryManagerPolicy": managers.memory_policy.name(),
        "topologyManagerPolicy": managers.topology_policy.name(),
        "topologyManagerScope": managers.topology_scope.name(),
        "memorySwap": {"swapBehavior": config.swap_behavior.name()},
        "failSwapOn": config.fail_swap_on,
    })
}
