//! What is said about the CPU, memory and topology managers, by flags of a node or by fields of a KubeletConfiguration.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kubelet::managers::{CpuPolicy, CpuSet, MemoryPolicy, Settings, align, cpu, memory};

use super::values::pairs;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Give containers of Guaranteed pods that ask for whole CPUs CPUs of their own: none or static.
    #[arg(long, env = "KNARR_CPU_MANAGER_POLICY", default_value = "none")]
    cpu_manager_policy: String,
    /// Options of the static CPU manager policy, as full-pcpus-only=true.
    #[arg(long, env = "KNARR_CPU_MANAGER_POLICY_OPTIONS", value_delimiter = ',')]
    cpu_manager_policy_options: Vec<String>,
    /// CPUs reserved for the host and knarr, as 0-1,8. Replaces the cpu of --kube-reserved and --system-reserved.
    #[arg(long, env = "KNARR_RESERVED_CPUS")]
    reserved_cpus: Option<String>,
    /// Give Guaranteed pods memory of NUMA nodes of their own: None or Static.
    #[arg(long, env = "KNARR_MEMORY_MANAGER_POLICY", default_value = "None")]
    memory_manager_policy: String,
    /// Memory that each NUMA node reserves for the host, as 0:memory=1Gi,hugepages-1Gi=2Gi.
    #[arg(long, env = "KNARR_RESERVED_MEMORY", value_delimiter = ';')]
    reserved_memory: Vec<String>,
    /// Align CPUs, memory and devices to NUMA nodes: none, best-effort, restricted or single-numa-node.
    #[arg(long, env = "KNARR_TOPOLOGY_MANAGER_POLICY", default_value = "none")]
    topology_manager_policy: String,
    /// Align each container or the pod as a whole.
    #[arg(long, env = "KNARR_TOPOLOGY_MANAGER_SCOPE", default_value = "container")]
    topology_manager_scope: String,
    /// Options of the topology manager, as prefer-closest-numa-nodes=true.
    #[arg(long, env = "KNARR_TOPOLOGY_MANAGER_POLICY_OPTIONS", value_delimiter = ',')]
    topology_manager_policy_options: Vec<String>,
}

impl Flags {
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let words = Words {
            cpu_policy: self.cpu_manager_policy.clone(),
            cpu_options: pairs(&self.cpu_manager_policy_options).context("--cpu-manager-policy-options")?,
            reserved_cpus: self.reserved_cpus.clone().unwrap_or_default(),
            memory_policy: self.memory_manager_policy.clone(),
            reserved_memory: reservations(&self.reserved_memory).context("--reserved-memory")?,
            topology_policy: self.topology_manager_policy.clone(),
            topology_scope: self.topology_manager_scope.clone(),
            topology_options: pairs(&self.topology_manager_policy_options)
                .context("--topology-manager-policy-options")?,
            ..Words::default()
        };
        words.settings()
    }
}

/// As they are written. Empty words are upstream's defaults.
#[derive(Clone, Debug, Default)]
pub struct Words {
    pub cpu_policy: String,
    pub cpu_options: BTreeMap<String, String>,
    /// The feature gate CPUManagerPolicyAlphaOptions.
    pub cpu_alpha_options: bool,
    pub cpu_reconcile_period: Option<Duration>,
    pub reserved_cpus: String,
    pub memory_policy: String,
    pub reserved_memory: Vec<memory::Reservation>,
    pub topology_policy: String,
    pub topology_scope: String,
    pub topology_options: BTreeMap<String, String>,
}

impl Words {
    pub fn settings(self) -> anyhow::Result<Settings> {
        let standard = Settings::default();
        let cpu_policy = match self.cpu_policy.as_str() {
            "" | "none" => CpuPolicy::None,
            "static" => CpuPolicy::Static,
            other => bail!("unknown CPU manager policy {other:?}: none and static are supported"),
        };
        let options = || cpu::Options::parse(&self.cpu_options, self.cpu_alpha_options);
        let memory_policy = match self.memory_policy.as_str() {
            "" | "None" => MemoryPolicy::None,
            "Static" => MemoryPolicy::Static,
            other => bail!("unknown memory manager policy {other:?}: None and Static are supported on Linux"),
        };
        let topology_policy = match self.topology_policy.as_str() {
            "" | "none" => align::Policy::None,
            "best-effort" => align::Policy::BestEffort,
            "restricted" => align::Policy::Restricted,
            "single-numa-node" => align::Policy::SingleNumaNode,
            other => bail!("unknown topology manager policy {other:?}"),
        };
        let topology_scope = match self.topology_scope.as_str() {
            "" | "container" => align::Scope::Container,
            "pod" => align::Scope::Pod,
            other => bail!("unknown topology manager scope {other:?}: container and pod are supported"),
        };
        ensure!(
            cpu_policy == CpuPolicy::Static || self.cpu_options.is_empty(),
            "CPU manager policy options need the policy static"
        );
        Ok(Settings {
            cpu_policy,
            cpu_options: options().context("CPU manager policy options")?,
            cpu_reconcile_period: self.cpu_reconcile_period.unwrap_or(standard.cpu_reconcile_period),
            reserved_cpus: self.reserved_cpus.parse::<CpuSet>().context("reserved CPUs")?,
            memory_policy,
            reserved_memory: self.reserved_memory,
            topology_policy,
            topology_scope,
            topology_options: align::Options::parse(&self.topology_options)
                .context("topology manager policy options")?,
        })
    }
}

/// Reserved processors replace what was said about cpu otherwise, as upstream.
pub fn reserve_cpus(settings: &Settings, kube: &mut BTreeMap<String, String>, system: &mut BTreeMap<String, String>) {
    if !settings.reserved_cpus.is_empty() {
        kube.remove("cpu");
        system.insert("cpu".into(), settings.reserved_cpus.len().to_string());
    }
}

/// `0:memory=1Gi,hugepages-1Gi=2Gi`, one text for each node.
pub fn reservations(texts: &[String]) -> anyhow::Result<Vec<memory::Reservation>> {
    let reservation = |text: &String| {
        let (node, limits) = text.split_once(':').with_context(|| format!("{text:?} has no ':'"))?;
        let limits: Vec<String> = limits.split(',').map(str::to_owned).collect();
        let numa_node = node.trim().parse().with_context(|| format!("{node:?} is no NUMA node"))?;
        anyhow::Ok(memory::Reservation { numa_node, limits: pairs(&limits)? })
    };
    texts.iter().filter(|text| !text.is_empty()).map(reservation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(change: impl Fn(&mut Words)) -> Result<Settings, String> {
        let mut words = Words::default();
        change(&mut words);
        words.settings().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn words_become_settings() {
        assert_eq!(words(|_| ()), Ok(Settings::default()));
        let full = words(|words| {
            words.cpu_policy = "static".into();
            words.cpu_options.insert("full-pcpus-only".into(), "true".into());
            words.reserved_cpus = "0-1".into();
            words.topology_scope = "pod".into();
        });
        let full = full.unwrap();
        assert!(full.cpu_options.full_pcpus_only && full.topology_scope == align::Scope::Pod);
        let (mut kube, mut system) = (BTreeMap::from([("cpu".into(), "1".into())]), BTreeMap::new());
        reserve_cpus(&full, &mut kube, &mut system);
        assert_eq!((kube.len(), system["cpu"].as_str()), (0, "2"));
        let refused = |change: fn(&mut Words)| words(change).unwrap_err();
        assert!(refused(|words| words.cpu_policy = "dynamic".into()).contains("unknown CPU manager policy"));
        assert!(refused(|words| words.reserved_cpus = "x".into()).contains("reserved CPUs"));
        let alpha = refused(|words| {
            words.cpu_policy = "static".into();
            words.cpu_options.insert("align-by-socket".into(), "true".into());
        });
        assert!(alpha.contains("Alpha-level Options not enabled"), "{alpha}");
    }

    #[test]
    fn memory_of_nodes_is_read() {
        let read = reservations(&["0:memory=1Gi,hugepages-1Gi=2Gi".into(), "1:memory=512Mi".into()]).unwrap();
        assert_eq!((read[0].limits.len(), read[1].numa_node, read[1].limits["memory"].as_str()), (2, 1, "512Mi"));
        assert!(reservations(&["memory=1Gi".into()]).is_err() && reservations(&["x:memory=1Gi".into()]).is_err());
    }
}
