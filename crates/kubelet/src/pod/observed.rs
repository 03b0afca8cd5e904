//! State of one pod in the container runtime. Filled by [`super::observe`], read by the plan and the status.

use cri::v1;
use jiff::Timestamp;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Newest first.
    pub containers: Vec<Container>,
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
        let attempts =
            self.containers.iter().filter(|container| container.name == name).map(|container| container.attempt);
        attempts.max().map_or(0, |attempt| attempt + 1)
    }
}
