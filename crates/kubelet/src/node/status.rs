//! Registers the Node and keeps its status: looked at every ten seconds, written when something changed or after five minutes.

use std::sync::Arc;
use std::time::Duration;

use component_helpers::host_ports;
use k8s_openapi::api::core::v1::{Node, NodeStatus, ObjectReference};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use linux::sockets::Listeners;
use reconcile::events::EventType;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::health::Health;
use super::object::{self, Facts};
use super::{Seen, conditions, machine};
use crate::Kubelet;

/// Waits between tries to register, doubled up to the largest, as upstream.
const REGISTER_AFTER: Duration = Duration::from_millis(100);
const REGISTER_AFTER_MAX: Duration = Duration::from_secs(7);
/// The runtime and the API must answer within this, or the check goes on without.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

pub(super) async fn run(kubelet: Arc<Kubelet>, health: Arc<Health>, mut seen: watch::Receiver<Seen>) {
    let mut loop_ = StatusLoop::new(kubelet.clone(), health.clone());
    let (mut changes, mut addresses) = (health.changes(), kubelet.config.addresses.changes());
    kubelet.events.event(
        &node_reference(&kubelet.config.node_name),
        EventType::Normal,
        "Starting",
        "Starting kubelet.",
    );
    let facts = loop_.facts().await;
    loop_.register(facts).await;
    loop {
        loop_.check().await;
        tokio::select! {
            () = sleep(kubelet.config.node_status_update_frequency) => {}
            Ok(()) = changes.changed() => {}
            Ok(()) = addresses.changed() => {}
            Ok(()) = seen.changed() => {
                let now = seen.borrow_and_update().clone();
                loop_.saw(now).await;
            }
        }
    }
}

struct StatusLoop {
    kubelet: Arc<Kubelet>,
    health: Arc<Health>,
    nodes: Api<Node>,
    /// The Node as the API last showed it.
    current: Option<Node>,
    reported: Option<Instant>,
    runtime_version: Option<String>,
    runtime: cri::v1::StatusResponse,
    images: Vec<cri::v1::Image>,
    listeners: Listeners,
    ports_in_use: host_ports::Ports,
}

impl StatusLoop {
    fn new(kubelet: Arc<Kubelet>, health: Arc<Health>) -> StatusLoop {
        StatusLoop {
            nodes: Api::all(kubelet.client.clone()),
            kubelet,
            health,
            current: None,
            reported: None,
            runtime_version: None,
            runtime: Default::default(),
            images: Vec::new(),
            listeners: Listeners::new(None),
            ports_in_use: host_ports::Ports::new(),
        }
    }

    /// Until the Node is there, with the facts as they are at each try.
    async fn register(&mut self, mut facts: Facts) {
        let mut wait = REGISTER_AFTER;
        loop {
            match timeout(ANSWER_WITHIN, self.try_register(&facts)).await {
                Ok(Ok(node)) => {
                    tracing::info!(node = self.kubelet.config.node_name, "registered node");
                    self.say_changes(&NodeStatus::default(), node.status.as_ref());
                    self.current = Some(node);
                    // Whatever its status says may be of an earlier life: it is written anew.
                    self.reported = None;
                    return;
                }
                Ok(Err(error)) => tracing::warn!(%error, "cannot register node; retrying"),
                Err(_) => tracing::warn!("timed out registering node; retrying"),
            }
            sleep(wait).await;
            wait = (wait * 2).min(REGISTER_AFTER_MAX);
            facts = self.facts().await;
        }
    }

    async fn try_register(&self, facts: &Facts) -> Result<Node, kube::Error> {
        let node = object::initial(&self.kubelet.config, facts, self.kubelet.now());
        match self.nodes.create(&PostParams::default(), &node).await {
            Err(error) if reconcile::reason(&error) == "AlreadyExists" => {}
            answer => return answer,
        }
        let existing = self.nodes.get(&self.kubelet.config.node_name).await?;
        match object::metadata_patch(&existing, facts.machine.architecture) {
            Some(patch) => {
                let parameters = PatchParams::default();
                self.nodes.patch(&self.kubelet.config.node_name, &parameters, &Patch::Strategic(&patch)).await
            }
            None => Ok(existing),
        }
    }

    /// The watch shows another Node than before, or none.
    async fn saw(&mut self, seen: Seen) {
        match seen {
            Seen::Unknown => {}
            Seen::Gone => {
                tracing::warn!(node = self.kubelet.config.node_name, "Node object was deleted; registering again");
                let facts = self.facts().await;
                self.register(facts).await;
            }
            Seen::Here(node) => {
                let uid = |node: &Node| node.metadata.uid.clone();
                if self.current.as_ref().and_then(uid) != uid(&node) {
                    self.reported = None;
                }
                self.current = Some((*node).clone());
            }
        }
    }

    async fn check(&mut self) {
        let facts = self.facts().await;
        let Some(node) = self.current.clone() else { return };
        self.say_ports(&node, &facts).await;
        let old = node.status.clone().unwrap_or_default();
        let new = object::status(&self.kubelet.config, &facts, &old, self.kubelet.now());
        let due = self.reported.is_none_or(|at| at.elapsed() >= self.kubelet.config.node_status_report_frequency);
        let Some(patch) = object::status_patch(&old, &new, due) else { return };
        self.say_reboot(&old, &new);
        let parameters = PatchParams::default();
        let patch = Patch::Strategic(&patch);
        let write = self.nodes.patch_status(&self.kubelet.config.node_name, &parameters, &patch);
        match timeout(ANSWER_WITHIN, write).await {
            Ok(Ok(node)) => {
                self.say_changes(&old, Some(&new));
                self.current = Some(node);
                self.reported = Some(Instant::now());
            }
            Ok(Err(error)) if reconcile::is_not_found(&error) => self.register(facts).await,
            Ok(Err(error)) => tracing::warn!(%error, "cannot update node status; retrying"),
            Err(_) => tracing::warn!("timed out updating node status; retrying"),
        }
    }

    /// Those who give ports of this node away must know which ones it needs itself.
    async fn say_ports(&self, node: &Node, facts: &Facts) {
        let Some(patch) = object::ports_patch(node, &facts.ports_in_use) else { return };
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let write = self.nodes.patch(&self.kubelet.config.node_name, &parameters, &patch);
        match timeout(ANSWER_WITHIN, write).await {
            // The watch shows it.
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot update listening ports of node; retrying"),
            Err(_) => tracing::warn!("timed out updating listening ports of node; retrying"),
        }
    }

    /// What the machine listens at, where others can reach it.
    fn look_at_ports(&mut self) {
        let config = &self.kubelet.config;
        let mut addresses = config.addresses.get();
        addresses.extend(&config.node_external_ips);
        match self.listeners.look() {
            Ok(found) => {
                let reached = found.iter().filter(|one| addresses.iter().any(|address| one.answers_at(address)));
                let ports = reached.filter_map(|one| Some((host_ports::Protocol::of_number(one.protocol)?, one.port)));
                self.ports_in_use = ports.collect();
            }
            Err(error) => tracing::warn!(%error, "cannot list listening sockets of this machine"),
        }
    }

    /// Looks around. What does not answer in time is shown as it was last known.
    async fn facts(&mut self) -> Facts {
        let runtime = self.kubelet.runtime.clone();
        if self.runtime_version.is_none()
            && let Ok(Ok(version)) = timeout(ANSWER_WITHIN, runtime.version()).await
        {
            self.runtime_version = Some(format!("{}://{}", version.runtime_name, version.runtime_version));
        }
        match timeout(ANSWER_WITHIN, runtime.status_response()).await {
            Ok(Ok(response)) => {
                self.health.runtime_answered(response.status.as_ref().unwrap_or(&Default::default()));
                self.runtime = response;
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot get status of container runtime"),
            Err(_) => tracing::warn!("timed out getting status of container runtime"),
        }
        match timeout(ANSWER_WITHIN, runtime.list_images()).await {
            Ok(Ok(images)) => self.images = images,
            Ok(Err(error)) => tracing::warn!(%error, "cannot list images of container runtime"),
            Err(_) => tracing::warn!("timed out listing images of container runtime"),
        }
        self.look_at_ports();
        let config = &self.kubelet.config;
        let storage = rustix::fs::statvfs(&config.root_dir);
        Facts {
            machine: machine::read(),
            addresses: config.addresses.get(),
            storage_bytes: storage.map(|storage| storage.f_blocks * storage.f_frsize).unwrap_or(0),
            runtime_version: self.runtime_version.clone().unwrap_or_default(),
            runtime_handlers: self.runtime.runtime_handlers.clone(),
            runtime_features: self.runtime.features,
            images: self.images.clone(),
            volumes_in_use: self.health.volumes_in_use(),
            devices: self.health.devices(),
            port: self.health.port(),
            ports_in_use: self.ports_in_use.clone(),
            pressures: self.health.pressures(),
            problems: self.health.problems(),
        }
    }

    fn say_changes(&self, old: &NodeStatus, new: Option<&NodeStatus>) {
        let conditions = |status: &NodeStatus| status.conditions.clone().unwrap_or_default();
        let name = &self.kubelet.config.node_name;
        for reason in conditions::changes(&conditions(old), &new.map(conditions).unwrap_or_default()) {
            let message = format!("Node {name} status is now: {reason}");
            self.kubelet.events.event(&node_reference(name), EventType::Normal, reason, message);
        }
    }

    fn say_reboot(&self, old: &NodeStatus, new: &NodeStatus) {
        let boot = |status: &NodeStatus| status.node_info.as_ref().map(|info| info.boot_id.clone()).unwrap_or_default();
        let (before, after) = (boot(old), boot(new));
        if !before.is_empty() && before != after {
            let name = &self.kubelet.config.node_name;
            let message = format!("Node {name} has been rebooted, boot id: {after}");
            self.kubelet.events.event(&node_reference(name), EventType::Warning, "Rebooted", message);
        }
    }
}

/// Events about the node carry its name where others carry a uid, as upstream's kubelet writes them.
pub(crate) fn node_reference(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".into()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}
