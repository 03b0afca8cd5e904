//! State that a pod worker keeps between two syncs. All of it may be lost with a restart: nothing here is needed to know the
//! pod's containers again.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceRequirements;

use super::backoff::Backoffs;
use crate::pods::EvictionCondition;
use crate::probe::Results;

#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub backoffs: Backoffs,
    /// Why a container waits, by its name: the last try to start it failed, or it must wait before the next.
    pub waiting: BTreeMap<String, Waiting>,
    /// When what failed may be tried again, by the container's name.
    pub retry_at: HashMap<String, Timestamp>,
    /// When making a sandbox may be tried again.
    pub sandbox_retry_at: Option<Timestamp>,
    /// By the container's id.
    pub probes: HashMap<String, Results>,
    /// The containers that are being ended, by id.
    pub killing: HashSet<String>,
    /// Containers that are ended only to be started anew, by name, and until when their end goes untold once it is seen.
    pub replacing: BTreeMap<String, Option<Timestamp>>,
    /// The container that is being started, by name. One at a time, in the pod's order.
    pub starting: Option<String>,
    /// All containers are or were restarted together.
    pub restart: Option<Restart>,
    /// A sandbox is being made or ended.
    pub sandbox_busy: bool,
    /// Why the pod is to end although its object does not say so.
    pub failed: Option<Failed>,
    /// The pod has succeeded or failed; nothing is started any more.
    pub over: bool,
    /// When ending the pod began.
    pub ending_since: Option<Timestamp>,
    /// Volumes are there.
    pub volumes_ready: bool,
    pub volumes_retry_at: Option<Timestamp>,
    /// What the node has granted to each container, by name.
    pub allocated: HashMap<String, ResourceRequirements>,
    /// What the running containers were last told, by id.
    pub actuated: HashMap<String, ResourceRequirements>,
    /// What the node has granted to the pod as a whole.
    pub pod_allocated: ResourceRequirements,
    /// What of it each running container was last told, by id: one without limits of its own is held by its pod's.
    pub pod_actuated: HashMap<String, ResourceRequirements>,
    pub resize: Option<ResizeState>,
    pub start_time: Option<Timestamp>,
    /// Each container's hash of the wish that was waited for; a new wish is tried at once.
    pub hashes: HashMap<String, String>,
}

/// All containers of the pod are restarted because the rules of one say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// When the one that asks for it ended.
    pub asked_at: Timestamp,
    /// Later than that where another one was just being started: it is to be restarted too.
    pub since: Timestamp,
}

impl Memory {
    /// Takes note that all are to be restarted, as soon as none is being started.
    pub fn note_restart(&mut self, asked_at: Option<Timestamp>, now: Timestamp) {
        if let Some(asked_at) = asked_at
            && self.starting.is_none()
            && self.restart.is_none_or(|restart| restart.asked_at != asked_at)
        {
            self.restart = Some(Restart { asked_at, since: now });
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: String,
    pub message: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Failed {
    pub reason: String,
    pub message: String,
    pub condition: Option<EvictionCondition>,
    pub grace_seconds: Option<i64>,
    /// Whether the node never took it: its containers are then not shown.
    pub refused: bool,
}

/// How far a change of resources is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeState {
    /// Not granted: `Deferred` or `Infeasible`.
    Pending { reason: String, message: String },
    /// Granted, not yet in effect; the message is set when the last try failed.
    InProgress { error: Option<String> },
}
