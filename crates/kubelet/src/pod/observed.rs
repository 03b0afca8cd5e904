//! State of one pod in the container runtime. Filled by [`super::observe`], read by the plan and the status.

use std::borrow::Cow;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::memory::Memory;
use super::spec;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Newest first.
    pub containers: Vec<Container>,
    /// Those that ended before all were restarted together. They are history: everything begins anew. Newest first.
    pub before: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sandbox {
    pub id: String,
    pub attempt: u32,
    pub ready: bool,
    /// Nothing for a pod in the host's network.
    pub ips: Vec<String>,
    pub created_at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Created,
    Running,
    Exited,
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    pub id: String,
    pub name: String,
    pub sandbox: String,
    pub attempt: u32,
    pub state: State,
    pub created_at: Timestamp,
    /// 1970 for one that never came to run.
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub exit_code: i32,
    pub reason: String,
    /// What the runtime says about its end, and its termination message.
    pub message: String,
    pub image: String,
    pub image_id: String,
    pub hash: String,
    pub log_path: String,
    pub resources: Option<v1::LinuxContainerResources>,
    pub user: Option<v1::LinuxContainerUser>,
}

impl Observed {
    /// The newest sandbox, if it is usable.
    pub(crate) fn current_sandbox(&self, host_network: bool) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|sandbox| sandbox.ready && (host_network || !sandbox.ips.is_empty()))
    }

    /// The newest container of that name, in whichever sandbox.
    pub fn latest(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// The newest container of that name in a sandbox.
    pub(crate) fn latest_in(&self, sandbox: &str, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name && container.sandbox == sandbox)
    }

    pub fn running(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| container.state == State::Running)
    }

    pub(crate) fn next_attempt(&self, name: &str) -> u32 {
        let all = self.containers.iter().chain(&self.before);
        let attempts = all.filter(|container| container.name == name).map(|container| container.attempt);
        attempts.max().map_or(0, |attempt| attempt + 1)
    }

    /// The same, with what ended before a restart of all containers put aside.
    pub(crate) fn since_restart(&self, pod: &Pod, memory: &Memory) -> Cow<'_, Observed> {
        let Some(restart) = self.restarted_at(pod, memory) else { return Cow::Borrowed(self) };
        let mut observed = self.clone();
        let is_over = |container: &Container| {
            container.state == State::Exited && container.created_at < restart && is_restarted(pod, container)
        };
        let (over, containers) = observed.containers.into_iter().partition(is_over);
        observed.containers = containers;
        observed.before = over;
        Cow::Owned(observed)
    }

    /// What runs although all containers are to be restarted.
    pub(crate) fn running_since_before_restart<'a>(
        &'a self,
        pod: &'a Pod,
        memory: &Memory,
    ) -> impl Iterator<Item = &'a Container> + use<'a> {
        let restart = self.restarted_at(pod, memory).unwrap_or(Timestamp::MIN);
        self.running().filter(move |container| container.created_at < restart && is_restarted(pod, container))
    }

    /// Whether a container ended before a restart of all and did not begin anew yet.
    pub(crate) fn is_to_begin_anew(&self, name: &str) -> bool {
        self.latest(name).is_none() && self.before.iter().any(|container| container.name == name)
    }

    /// When a container ended whose rules want all restarted, if it did not begin anew yet.
    pub(crate) fn restart_asked_at(&self, pod: &Pod) -> Option<Timestamp> {
        let is_last = |ended: &&Container| self.latest(&ended.name).is_some_and(|last| last.id == ended.id);
        self.asking(pod).filter(is_last).map(|ended| ended.finished_at).max()
    }

    /// What was created before then is to be restarted.
    fn restarted_at(&self, pod: &Pod, memory: &Memory) -> Option<Timestamp> {
        let asked = self.asking(pod).map(|ended| ended.finished_at).max()?;
        Some(memory.restart.filter(|restart| restart.asked_at == asked).map_or(asked, |restart| restart.since))
    }

    /// Those that ended with a code for which their rules want all restarted.
    fn asking<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Container> {
        let ended = self.containers.iter().chain(&self.before).filter(|container| container.state == State::Exited);
        ended.filter(move |ended| {
            let mut containers = spec::init_containers(pod).chain(spec::regular_containers(pod));
            containers.any(|container| container.name == ended.name && spec::restarts_all(container, ended.exit_code))
        })
    }
}

/// Ephemeral containers run once, whatever happens to the others.
fn is_restarted(pod: &Pod, container: &Container) -> bool {
    spec::init_containers(pod).chain(spec::regular_containers(pod)).any(|wished| wished.name == container.name)
}
