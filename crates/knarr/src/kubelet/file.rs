//! A KubeletConfiguration, as far as it is about what knarr's kubelet does. What is not set is as upstream has it.

mod managers;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use component_base::Clock;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::known;
use crate::component_config;
use crate::node::Membership;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    address: IpAddr,
    port: u16,
    pub healthz_port: u16,
    pub healthz_bind_address: IpAddr,
    static_pod_path: PathBuf,
    pod_logs_dir: PathBuf,
    authentication: Authentication,
    authorization: Authorization,
    #[serde(rename = "clusterDNS")]
    cluster_dns: Vec<IpAddr>,
    cluster_domain: String,
    resolv_conf: Option<String>,
    max_pods: u32,
    #[serde(rename = "podCIDR")]
    pod_cidr: String,
    pod_pids_limit: i64,
    cgroup_root: String,
    kube_reserved: BTreeMap<String, String>,
    system_reserved: BTreeMap<String, String>,
    eviction_hard: Option<BTreeMap<String, String>>,
    eviction_soft: BTreeMap<String, String>,
    eviction_soft_grace_period: BTreeMap<String, String>,
    eviction_pressure_transition_period: String,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: u8,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: u8,
    #[serde(rename = "imageMinimumGCAge")]
    image_minimum_gc_age: String,
    container_log_max_size: String,
    container_log_max_files: u32,
    node_status_update_frequency: String,
    node_status_report_frequency: String,
    node_lease_duration_seconds: u64,
    allowed_unsafe_sysctls: Vec<String>,
    serialize_image_pulls: Option<bool>,
    max_parallel_image_pulls: Option<usize>,
    register_with_taints: Vec<Taint>,
    pub rotate_certificates: bool,
    #[serde(rename = "serverTLSBootstrap")]
    pub server_tls_bootstrap: bool,
    pub tls_cert_file: PathBuf,
    pub tls_private_key_file: PathBuf,
    shutdown_grace_period: String,
    shutdown_grace_period_critical_pods: String,
    container_runtime_endpoint: String,
    #[serde(rename = "failCgroupV1")]
    fail_cgroup_v1: bool,
    cpu_manager_policy: String,
    cpu_manager_policy_options: BTreeMap<String, String>,
    cpu_manager_reconcile_period: String,
    #[serde(rename = "reservedSystemCPUs")]
    reserved_system_cpus: String,
    memory_manager_policy: String,
    reserved_memory: Vec<managers::Reserved>,
    topology_manager_policy: String,
    topology_manager_scope: String,
    topology_manager_policy_options: BTreeMap<String, String>,
    feature_gates: BTreeMap<String, bool>,
    fail_swap_on: bool,
    memory_swap: managers::MemorySwap,
    oom_score_adj: Option<i32>,
    pods_per_core: u32,
    merge_default_eviction_settings: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Authentication {
    x509: X509,
    webhook: Switch,
    anonymous: Switch,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct X509 {
    #[serde(rename = "clientCAFile")]
    client_ca_file: PathBuf,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Switch {
    enabled: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Authorization {
    mode: String,
}

impl Default for File {
    fn default() -> File {
        File {
            address: IpAddr::from([0, 0, 0, 0]),
            port: 10250,
            healthz_port: 10248,
            healthz_bind_address: IpAddr::from([127, 0, 0, 1]),
            static_pod_path: PathBuf::new(),
            pod_logs_dir: crate::node::LOG_DIR.into(),
            authentication: Authentication::default(),
            authorization: Authorization::default(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: None,
            max_pods: 110,
            pod_cidr: String::new(),
            pod_pids_limit: -1,
            cgroup_root: String::new(),
            kube_reserved: BTreeMap::new(),
            system_reserved: BTreeMap::new(),
            eviction_hard: None,
            eviction_soft: BTreeMap::new(),
            eviction_soft_grace_period: BTreeMap::new(),
            eviction_pressure_transition_period: "5m".into(),
            image_gc_high_threshold_percent: 85,
            image_gc_low_threshold_percent: 80,
            image_minimum_gc_age: "2m".into(),
            container_log_max_size: "10Mi".into(),
            container_log_max_files: 5,
            node_status_update_frequency: "10s".into(),
            node_status_report_frequency: String::new(),
            node_lease_duration_seconds: 40,
            allowed_unsafe_sysctls: Vec::new(),
            serialize_image_pulls: None,
            max_parallel_image_pulls: None,
            register_with_taints: Vec::new(),
            rotate_certificates: false,
            server_tls_bootstrap: false,
            tls_cert_file: PathBuf::new(),
            tls_private_key_file: PathBuf::new(),
            shutdown_grace_period: String::new(),
            shutdown_grace_period_critical_pods: String::new(),
            container_runtime_endpoint: String::new(),
            fail_cgroup_v1: false,
            cpu_manager_policy: String::new(),
            cpu_manager_policy_options: BTreeMap::new(),
            cpu_manager_reconcile_period: String::new(),
            reserved_system_cpus: String::new(),
            memory_manager_policy: String::new(),
            reserved_memory: Vec::new(),
            topology_manager_policy: String::new(),
            topology_manager_scope: String::new(),
            topology_manager_policy_options: BTreeMap::new(),
            feature_gates: BTreeMap::new(),
            fail_swap_on: true,
            memory_swap: Default::default(),
            oom_score_adj: None,
            pods_per_core: 0,
            merge_default_eviction_settings: false,
        }
    }
}

/// The thresholds of a kubelet that was told none.
const EVICTION_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

pub fn read(path: &Path) -> anyhow::Result<Map<String, Value>> {
    component_config::read(path, known::API_VERSION, known::KIND)
}

impl File {
    pub fn of(mut fields: Map<String, Value>) -> anyhow::Result<File> {
        let is_known = |name: &String| known::FIELDS.iter().any(|(known, _)| known == name);
        let (known, mut own): (Map<String, Value>, Map<String, Value>) =
            std::mem::take(&mut fields).into_iter().partition(|(name, _)| is_known(name));
        known::check(&known)?;
        values::check(&own)?;
        // Zero is "not set" for everything but these, where it says something.
        own.retain(|name, value| {
            !component_config::says_nothing(value)
                || (!value.is_null()
                    && matches!(
                        name.as_str(),
                        "resolvConf"
                            | "healthzPort"
                            | "evictionHard"
                            | "oomScoreAdj"
                            | "failSwapOn"
                            | "imageGCLowThresholdPercent"
                    ))
        });
        let file: File = serde_json::from_value(own.into()).context("decode fields")?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.authentication.anonymous.enabled == Some(true) {
            bail!("authentication.anonymous: knarr's kubelet rejects anonymous requests; set enabled to false");
        }
        if self.authentication.webhook.enabled == Some(false) {
            bail!(
                "authentication.webhook: knarr's kubelet always asks the API server about tokens; set enabled to true"
            );
        }
        if !matches!(self.authorization.mode.as_str(), "" | "Webhook") {
            bail!("authorization.mode: knarr's kubelet always asks the API server; set it to Webhook");
        }
        ensure!(
            self.tls_cert_file.as_os_str().is_empty() == self.tls_private_key_file.as_os_str().is_empty(),
            "tlsCertFile and tlsPrivateKeyFile belong together"
        );
        ensure!(
            !self.fail_cgroup_v1 || linux::cgroup::Cgroups::detect().hierarchy == linux::cgroup::Hierarchy::V2,
            "failCgroupV1: this machine has cgroup v1; boot it with systemd.unified_cgroup_hierarchy=1, or set it to false"
        );
        self.check_managers()
    }

    pub fn client_authority(&self) -> anyhow::Result<String> {
        let path = &self.authentication.x509.client_ca_file;
        if path.as_os_str().is_empty() {
            Ok(String::new())
        } else {
            std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
        }
    }

    pub fn runtime_endpoint(&self) -> Option<String> {
        Some(self.container_runtime_endpoint.clone()).filter(|endpoint| !endpoint.is_empty())
    }

    /// How late the kernel ends this program when memory is short, where that is said. What it may not set is told, as upstream.
    pub fn apply_oom_score(&self) {
        let Some(score) = self.oom_score_adj else { return };
        if let Err(error) = std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
            tracing::warn!(%error, score, "cannot set oom_score_adj of the kubelet");
        }
    }

    pub fn power_off_periods(&self) -> crate::power_off::Periods {
        let standard = crate::power_off::Periods::default();
        let said = |text: &str| crate::leader::duration(text).ok();
        match said(&self.shutdown_grace_period) {
            None => standard,
            Some(all) => {
                let critical = said(&self.shutdown_grace_period_critical_pods).unwrap_or_default();
                crate::power_off::Periods { all, critical }
            }
        }
    }

    /// How long logind is asked to wait for the pods, where a grace period is set.
    pub fn logind(&self) -> Option<kubelet::logind::Settings> {
        let said = crate::leader::duration(&self.shutdown_grace_period).ok().filter(|grace| !grace.is_zero());
        said.map(|_| crate::power_off::logind(self.power_off_periods()))
    }

    /// Writes what the runtime and the network must know where a server's flags would have it.
    pub fn describe(&self, node: &mut crate::node::Flags) {
        node.cluster_dns = self.cluster_dns.clone();
        node.cluster_domain = self.cluster_domain.clone();
        node.max_pods = self.pods_max();
        node.kubelet_port = self.port;
        node.container_log_max_size = self.container_log_max_size.clone();
        node.container_log_max_files = self.container_log_max_files;
    }

    /// Those of the flag, or else those of the file.
    fn taints(&self, node: &crate::node::Flags) -> anyhow::Result<Vec<Taint>> {
        let taints =
            node.node_taint.iter().map(|text| crate::node::taint(text)).collect::<anyhow::Result<Vec<Taint>>>();
        let taints = taints.context("--register-with-taints")?;
        Ok(if taints.is_empty() { self.register_with_taints.clone() } else { taints })
    }

    /// How often the node looks at itself, and how often it says so where nothing has changed.
    fn node_status_frequencies(&self) -> anyhow::Result<(Duration, Duration)> {
        let update = duration("nodeStatusUpdateFrequency", &self.node_status_update_frequency)?;
        let report = match self.node_status_report_frequency.as_str() {
            "" if self.node_status_update_frequency == File::default().node_status_update_frequency => {
                Duration::from_secs(5 * 60)
            }
            "" => update,
            text => duration("nodeStatusReportFrequency", text)?,
        };
        Ok((update, report))
    }

    fn soft_grace_periods(&self) -> anyhow::Result<BTreeMap<String, Duration>> {
        let periods = self.eviction_soft_grace_period.iter();
        periods.map(|(signal, text)| Ok((signal.clone(), duration("evictionSoftGracePeriod", text)?))).collect()
    }

    /// At most so many for each processor, where that is said.
    fn pods_max(&self) -> u32 {
        let cpus = u32::try_from(kubelet::node::machine::read().cpus).unwrap_or(u32::MAX);
        match self.pods_per_core {
            0 => self.max_pods,
            each => self.max_pods.min(each.saturating_mul(cpus)),
        }
    }

    /// Thresholds that are said replace all the usual ones, or only those they name.
    fn eviction_hard(&self) -> BTreeMap<String, String> {
        match &self.eviction_hard {
            None => default_eviction_hard(),
            Some(said) if self.merge_default_eviction_settings => {
                let mut all = default_eviction_hard();
                all.extend(said.clone());
                all
            }
            Some(said) => said.clone(),
        }
    }

    fn resolv_conf(&self) -> PathBuf {
        match self.resolv_conf.as_deref() {
            None => "/etc/resolv.conf".into(),
            // Nothing is inherited.
            Some("") => "/dev/null".into(),
            Some(path) => path.into(),
        }
    }

    fn image_pulls_max(&self) -> usize {
        match (self.serialize_image_pulls, self.max_parallel_image_pulls) {
            (Some(false), None) => usize::MAX >> 4,
            (_, pulls) => pulls.unwrap_or(1),
        }
    }

    pub fn config(
        &self,
        root_dir: &Path,
        node: &crate::node::Flags,
        membership: &Membership,
    ) -> anyhow::Result<kubelet::Config> {
        let said = |path: &Path| Some(path.to_path_buf()).filter(|path| !path.as_os_str().is_empty());
        let static_pods = said(&self.static_pod_path);
        if let Some(path) = &static_pods {
            std::fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))?;
        }
        let (update, report) = self.node_status_frequencies()?;
        let managers = self.managers()?;
        let (mut kube_reserved, mut system_reserved) = (self.kube_reserved.clone(), self.system_reserved.clone());
        crate::node::managers::reserve_cpus(&managers, &mut kube_reserved, &mut system_reserved);
        Ok(kubelet::Config {
            node_name: node.name(),
            addresses: membership.addresses.clone(),
            node_external_ips: Vec::new(),
            node_labels: crate::node::pairs(&node.node_label).context("--node-labels")?,
            register_with_taints: self.taints(node)?,
            root_dir: root_dir.to_path_buf(),
            root_dir_of_drivers: root_dir.to_path_buf(),
            log_dir: self.pod_logs_dir.clone(),
            static_pod_path: static_pods,
            bind_address: self.address,
            port: self.port,
            serving_certificate: membership.certificate.clone(),
            client_ca: membership.client_authority.clone(),
            cluster_dns: self.cluster_dns.clone(),
            cluster_domain: self.cluster_domain.clone(),
            resolv_conf: self.resolv_conf(),
            pods_max: self.pods_max(),
            pod_cidr: Some(self.pod_cidr.clone()).filter(|range| !range.is_empty()),
            cgroup_root: match self.cgroup_root.as_str() {
                "" => "/".into(),
                root => root.into(),
            },
            pod_pids_limit: Some(self.pod_pids_limit).filter(|limit| *limit > 0),
            kube_reserved,
            system_reserved,
            managers,
            swap_behavior: self.swap_behavior()?,
            fail_swap_on: self.fail_swap_on,
            eviction_hard: self.eviction_hard(),
            eviction_soft: self.eviction_soft.clone(),
            eviction_soft_grace_period: self.soft_grace_periods()?,
            eviction_pressure_transition_period: duration(
                "evictionPressureTransitionPeriod",
                &self.eviction_pressure_transition_period,
            )?,
            image_gc_high_threshold_percent: self.image_gc_high_threshold_percent,
            image_gc_low_threshold_percent: self.image_gc_low_threshold_percent,
            image_minimum_gc_age: duration("imageMinimumGCAge", &self.image_minimum_gc_age)?,
            container_log_max_size: crate::node::size(&self.container_log_max_size).context("containerLogMaxSize")?,
            container_log_max_files: self.container_log_max_files,
            node_status_update_frequency: update,
            node_status_report_frequency: report,
            node_lease_duration: Duration::from_secs(self.node_lease_duration_seconds),
            power_off: Default::default(),
            allowed_unsafe_sysctls: self.allowed_unsafe_sysctls.clone(),
            credential_providers: node.credential_providers.settings()?,
            image_pulls_max: self.image_pulls_max(),
            clock: Clock::system(),
            shown: kubelet::Shown {
                client_ca_file: said(&self.authentication.x509.client_ca_file),
                tls_cert_file: said(&self.tls_cert_file),
                rotates_certificates: self.rotate_certificates,
                bootstraps_server_tls: self.server_tls_bootstrap,
                flags: node.shown.clone(),
                version: kube_apiserver::VERSION,
            },
        })
    }
}

fn default_eviction_hard() -> BTreeMap<String, String> {
    EVICTION_HARD.iter().map(|(signal, limit)| ((*signal).into(), (*limit).into())).collect()
}

fn duration(field: &str, text: &str) -> anyhow::Result<Duration> {
    crate::leader::duration(text).map_err(|error| anyhow::anyhow!("{field}: {error}"))
}
