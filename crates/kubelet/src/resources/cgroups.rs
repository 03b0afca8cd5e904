//! The cgroups above containers: `kubepods` for all pods, one below it for each lesser class, and one per pod.
//!
//! Names are those of upstream's cgroupfs driver. A runtime with a driver of its own (systemd) makes its groups elsewhere;
//! then these are not made at all.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use linux::cgroup::{Cgroups, Error, Group, Resources};

use super::amounts::{self, Side, amount};
use super::node::Node;
use super::{CpuQuota, QosClass, cpu, pod};

pub struct PodCgroups {
    cgroups: Option<Cgroups>,
    root: PathBuf,
    pids_max: Option<i64>,
    node: Node,
}

/// What all pods together may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    pub milli_cpu: i64,
    pub memory_bytes: i64,
}

impl PodCgroups {
    /// Below `cgroup_root`, which is `/` unless told otherwise.
    pub fn new(cgroups: Cgroups, cgroup_root: &str, pids_max: Option<i64>, node: Node) -> PodCgroups {
        let root = Path::new("/").join(cgroup_root.trim_matches('/')).join("kubepods");
        PodCgroups { cgroups: Some(cgroups), root, pids_max, node }
    }

    /// For a runtime that does not use the cgroupfs driver: pods have no groups of the kubelet's making.
    pub fn foreign() -> PodCgroups {
        PodCgroups { cgroups: None, root: PathBuf::new(), pids_max: None, node: Node::default() }
    }

    /// What the runtime is told as the parent of a pod's containers; empty lets it choose.
    pub fn name(&self, pod: &Pod) -> String {
        if self.cgroups.is_none() {
            return String::new();
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.class_path(QosClass::of(pod)).join(format!("pod{uid}")).to_string_lossy().into_owned()
    }

    /// Makes the groups of the node and of the classes, and sets what they may use. Called at the start and whenever pods
    /// come and go: the burstable pods together weigh what they request together.
    pub fn ensure<'a>(&self, allocatable: Allocatable, pods: impl IntoIterator<Item = &'a Pod>) -> Result<(), Error> {
        let Some(cgroups) = &self.cgroups else { return Ok(()) };
        let all = cgroups.group(&self.root)?;
        all.create()?;
        all.apply(&Resources {
            cpu_shares: Some(cpu::shares(allocatable.milli_cpu) as u64),
            memory_max: Some(allocatable.memory_bytes).filter(|bytes| *bytes > 0),
            ..Resources::default()
        })?;
        for (class, shares) in [(QosClass::Burstable, burstable_shares(pods)), (QosClass::BestEffort, cpu::SHARES_MIN)]
        {
            let group = cgroups.group(self.class_path(class))?;
            group.create()?;
            group.apply(&Resources { cpu_shares: Some(shares as u64), ..Resources::default() })?;
        }
        Ok(())
    }

    /// Before the pod's first container, and again when its resources were changed.
    pub(crate) fn create_or_update(&self, pod: &Pod, quota: CpuQuota) -> Result<(), Error> {
        let Some(group) = self.group(pod)? else { return Ok(()) };
        group.create()?;
        group.apply(&pod::limits(pod, &self.node, self.pids_max, quota))
    }

    pub fn exists(&self, pod: &Pod) -> Result<bool, Error> {
        Ok(self.group(pod)?.is_some_and(|group| group.exists()))
    }

    /// Ends whatever still runs in the pod's group, and removes it.
    pub fn remove(&self, pod: &Pod) -> Result<(), Error> {
        match self.group(pod)? {
            Some(group) => end(&group),
            None => Ok(()),
        }
    }

    /// Groups of pods that are not known any more, left by a kubelet that ended in between. Gives the uids it removed.
    pub(crate) fn remove_unknown(&self, known: impl Fn(&str) -> bool) -> Result<Vec<String>, Error> {
        let Some(cgroups) = &self.cgroups else { return Ok(Vec::new()) };
        let mut removed = Vec::new();
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            let parent = cgroups.group(self.class_path(class))?;
            for name in parent.children() {
                let Some(uid) = name.strip_prefix("pod") else { continue };
                if !known(uid) {
                    end(&parent.child(&name)?)?;
                    removed.push(uid.to_owned());
                }
            }
        }
        Ok(removed)
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// What a pod uses as a whole.
    pub fn group(&self, pod: &Pod) -> Result<Option<Group>, Error> {
        self.cgroups.as_ref().map(|cgroups| cgroups.group(self.name(pod))).transpose()
    }

    /// Guaranteed pods stand directly below `kubepods`.
    fn class_path(&self, class: QosClass) -> PathBuf {
        match class {
            QosClass::Guaranteed => self.root.clone(),
            QosClass::Burstable => self.root.join("burstable"),
            QosClass::BestEffort => self.root.join("besteffort"),
        }
    }
}

fn end(group: &Group) -> Result<(), Error> {
    group.kill()?;
    group.remove()
}

fn burstable_shares<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> i64 {
    let milli_cpu = pods
        .into_iter()
        .filter(|pod| QosClass::of(pod) == QosClass::Burstable)
        .map(|pod| amount(&amounts::of_pod(pod, Side::Requests), "cpu").milli_value())
        .sum();
    cpu::shares(milli_cpu)
}
