//! One pod: deciding ([`plan`]) and doing (`worker`).

pub mod spec;
pub mod labels;
pub mod observed;
pub mod memory;
pub mod plan;
pub mod status;
pub mod worker;
pub mod source;
pub mod admission;
pub mod env;
pub mod files;
pub mod backoff;
pub mod totals;
pub mod terminations;
pub mod metrics;
pub mod startup;
pub mod user_ranges;
mod conditions;
mod container;
mod container_logs;
mod hooks;
mod kill;
mod observe;
mod resize;
mod sandbox;
mod security;
mod start;
mod writer;
#[cfg(test)]
pub(crate) mod fake_runtime;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, ResourceStatus};
use reconcile::events::{EventType, reference};

use crate::claims::Claims;
use crate::device_plugins::DevicePlugins;
use crate::images::Images;
use crate::managers::Managers;
use crate::pods::Pods;
use crate::stats::own::Counters;
use crate::volumes::Volumes;
use crate::{Kubelet, resources};

/// What all pods' workers share.
pub struct Shared {
    pub kubelet: Arc<Kubelet>,
    pub pods: Arc<Pods>,
    pub volumes: Arc<Volumes>,
    pub device_plugins: Arc<DevicePlugins>,
    pub claims: Arc<Claims>,
    pub managers: Arc<Managers>,
    pub images: Arc<Images>,
    pub users: user_ranges::UserRanges,
    /// The scheme of container ids.
    pub runtime_name: String,
    /// What rules about resources need to know of the machine.
    pub node: resources::Node,
    pub cgroups: resources::PodCgroups,
    /// What all pods together may use.
    pub allocatable: resources::cgroups::Allocatable,
    pub counters: Arc<Counters>,
}

impl Shared {
    pub async fn new(
        kubelet: Arc<Kubelet>,
        pods: Arc<Pods>,
        volumes: Arc<Volumes>,
        counters: Arc<Counters>,
        (device_plugins, claims, managers): (Arc<DevicePlugins>, Arc<Claims>, Arc<Managers>),
    ) -> Result<Shared, crate::Error> {
        let version = kubelet.runtime.version().await;
        let version =
            version.map_err(|source| crate::Error::Runtime { step: "ask for the runtime's version".into(), source })?;
        let config = &kubelet.config;
        let machine = crate::node::machine::read();
        let capacity = crate::node::capacity::capacity(&machine, 0, config.pods_max);
        let unreserved = crate::node::capacity::unreserved(&capacity, config);
        let amount = |name: &str| unreserved.get(name);
        let allocatable = resources::cgroups::Allocatable {
            milli_cpu: amount("cpu").map_or(0, |cpu| cpu.milli_value()),
            memory_bytes: amount("memory").map_or(0, |memory| memory.value()),
        };
        let node = resources::Node::detect(config.swap_behavior);
        let cgroups = linux::cgroup::Cgroups::detect();
        let cgroups = resources::PodCgroups::new(cgroups, &config.cgroup_root, config.pod_pids_limit, node.clone());
        Ok(Shared {
            images: Arc::new(Images::new(kubelet.clone())),
            users: user_ranges::UserRanges::load(&config.root_dir),
            runtime_name: version.runtime_name,
            pods,
            volumes,
            device_plugins,
            claims,
            managers,
            node,
            cgroups,
            allocatable,
            counters,
            kubelet,
        })
    }

    /// The node's addresses, as they are now.
    pub(crate) fn host_ips(&self) -> Vec<String> {
        self.kubelet.config.addresses.get().iter().map(ToString::to_string).collect()
    }

    /// How the devices of each container are.
    fn device_health(&self, pod: &Pod) -> BTreeMap<String, Vec<ResourceStatus>> {
        let mut health = BTreeMap::new();
        for container in spec::regular_containers(pod) {
            let mut devices = self.device_plugins.health_of(spec::uid(pod), &container.name);
            devices.extend(self.claims.health_of(pod, container));
            if !devices.is_empty() {
                health.insert(container.name.clone(), devices);
            }
        }
        health
    }

    /// Whether processors that a pod's containers have for themselves are without a quota.
    fn cpu_quota(&self, pod: &Pod) -> resources::CpuQuota {
        if self.managers.has_exclusive_cpus(pod) {
            resources::CpuQuota::Unlimited
        } else {
            resources::CpuQuota::Limited
        }
    }

    /// An event about a pod, or about one of its containers.
    fn tell(&self, pod: &Pod, field_path: Option<String>, kind: EventType, reason: &str, message: String) {
        let about = ObjectReference { field_path, ..pod_reference(pod) };
        self.kubelet.events.event(&about, kind, reason, message);
    }
}

/// Events about a static pod are about its object in the API, which carries the file's hash as its uid in events, as upstream.
fn pod_reference(pod: &Pod) -> ObjectReference {
    reference(pod)
}
