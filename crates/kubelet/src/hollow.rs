//! Hollow nodes: nodes and kubelets without containers, many in one process, so that clusters of any size can be tried.
//!
//! They register, renew their leases, say that the pods bound to them run and are ready, and let go of those that end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use component_base::{Clock, tasks};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use reconcile::{Seen, Shutdown, Watching, is_not_found, reason};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::Error;

#[derive(Clone)]
pub struct Config {
    pub count: usize,
    /// Nodes are named after it and their number.
    pub prefix: String,
    pub cpu: String,
    pub memory: String,
    pub pods_max: u32,
    /// The nodes are spread over so many zones.
    pub zones: usize,
    /// Every lease is renewed once in this time.
    pub renew_every: Duration,
    /// Requests that are under way at the same time.
    pub requests_max: usize,
    pub pods: Pods,
    pub clock: Clock,
}

/// How the nodes hear of the pods that are bound to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// All nodes together by one watch, which is the least load.
    OneWatch,
    /// Every node by a watch on a connection of its own, as kubelets do.
    OwnWatches,
    /// Not at all: pods stay as the scheduler left them.
    Ignored,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            count: 1,
            prefix: "hollow-".into(),
            cpu: "32".into(),
            memory: "128Gi".into(),
            pods_max: 110,
            zones: 3,
            renew_every: Duration::from_secs(15),
            requests_max: 64,
            pods: Pods::OneWatch,
            clock: Clock::system(),
        }
    }
}

impl Config {
    fn name(&self, number: usize) -> String {
        format!("{}{number}", self.prefix)
    }

    fn is_ours(&self, node: &str) -> bool {
        let number = node.strip_prefix(&self.prefix).and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number < self.count)
    }
}

/// Registers the nodes, says so, and keeps them until told to stop.
pub async fn run(config: Config, client: Client, shutdown: Shutdown) -> Result<(), Error> {
    let numbers = stream::iter((0..config.count).map(|number| register(&config, &client, number)));
    let mut registering = numbers.buffer_unordered(config.requests_max);
    while let Some(outcome) = registering.next().await {
        outcome?;
        if shutdown.is_cancelled() {
            return Ok(());
        }
    }
    drop(registering);
    tracing::info!(nodes = config.count, "hollow nodes are ready");
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = renew(&config, &client) => {}
        () = tend(&config, &client) => {}
        () = stay_ready(&config, &client) => {}
    }
    Ok(())
}

const LEASES: &str = "kube-node-lease";
const LEASE_SECONDS: i32 = 40;

async fn register(config: &Config, client: &Client, number: usize) -> Result<(), Error> {
    let name = config.name(number);
    let nodes: Api<Node> = Api::all(client.clone());
    let failed = |source: kube::Error| Error::Api { step: format!("register node {name}"), source };
    let node = decoded(node(config, number));
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(error) if reason(&error) == "AlreadyExists" => {
            let status = json!({"status": node.status});
            nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let lease = decoded(json!({
        "metadata": {"name": name, "namespace": LEASES},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micros(config.clock.now())},
    }));
    match leases.create(&PostParams::default(), &lease).await {
        Err(error) if reason(&error) != "AlreadyExists" => Err(failed(error)),
        _ => Ok(()),
    }
}

fn node(config: &Config, number: usize) -> Value {
    let name = config.name(number);
    let now = seconds(config.clock.now());
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "a hollow node",
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let resources = json!({"cpu": config.cpu, "memory": config.memory, "pods": config.pods_max.to_string(), "ephemeral-storage": "100Gi"});
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{}", number % config.zones.max(1)),
            "knarr.dev/hollow": "true",
        }},
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [{"type": "Hostname", "address": name}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {"machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "hollow", "osImage": "hollow",
                "containerRuntimeVersion": "hollow://1", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

/// One lease after the other, so that the load is even; but none waits for the answer to another's renewal, as no kubelet does:
/// a server that answers slowly would see nodes die that are well.
async fn renew(config: &Config, client: &Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let pause = config.renew_every / u32::try_from(config.count.max(1)).unwrap_or(u32::MAX);
    let mut tick = tokio::time::interval(pause.max(Duration::from_micros(100)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let slots = Arc::new(Semaphore::new(config.requests_max));
    loop {
        for number in 0..config.count {
            tick.tick().await;
            let slot = slots.clone().acquire_owned().await.expect("the slots are never closed");
            let (name, leases, clock) = (config.name(number), leases.clone(), config.clock.clone());
            tasks::spawn(async move {
                let patch = json!({"spec": {"renewTime": micros(clock.now())}});
                if let Err(error) = leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                    tracing::warn!(node = name, %error, "cannot renew lease of node");
                }
                drop(slot);
            });
        }
    }
}

/// Says again that a node is well when somebody says otherwise, say because its lease was not renewed for a while.
async fn stay_ready(config: &Config, client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut watching = Watching::<Node>::labels(client.clone(), None, "knarr.dev/hollow=true");
    while let Some(seen) = watching.next().await {
        let (Seen::Put(node) | Seen::Listed(node)) = seen else { continue };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
        let number = name.strip_prefix(&config.prefix).and_then(|number| number.parse().ok());
        let (false, true, Some(number)) = (is_ready, config.is_ours(name), number) else { continue };
        let status = json!({"status": self::node(config, number)["status"]});
        if let Err(error) = nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await {
            tracing::warn!(node = name, %error, "cannot update status of node");
        }
    }
}

/// Follows the pods of all nodes.
async fn tend(config: &Config, client: &Client) {
    let slots = Arc::new(Semaphore::new(config.requests_max));
    let addresses = Arc::new(AtomicU32::new(1));
    let tending = |fields: String| Tending {
        client: client.clone(),
        slots: slots.clone(),
        addresses: addresses.clone(),
        clock: config.clock.clone(),
        watching: Watching::<Pod>::fields(client.clone(), None, fields),
        done: HashMap::new(),
    };
    match config.pods {
        Pods::Ignored => std::future::pending().await,
        Pods::OneWatch => tending("spec.nodeName!=".into()).run(|node| config.is_ours(node)).await,
        Pods::OwnWatches => {
            let nodes = (0..config.count).map(|number| {
                let node = config.name(number);
                let mut tending = tending(format!("spec.nodeName={node}"));
                async move { tending.run(|name| name == node).await }
            });
            futures::future::join_all(nodes).await;
        }
    }
}

/// What one watch of pods needs.
struct Tending {
    client: Client,
    slots: Arc<Semaphore>,
    addresses: Arc<AtomicU32>,
    clock: Clock,
    watching: Watching<Pod>,
    /// What was done last for a pod, so that an event that comes late does not do it again.
    done: HashMap<String, bool>,
}

impl Tending {
    async fn run(&mut self, is_ours: impl Fn(&str) -> bool) {
        while let Some(seen) = self.watching.next().await {
            let pod = match seen {
                Seen::Put(pod) | Seen::Listed(pod) => pod,
                Seen::Gone(pod) => {
                    self.done.remove(pod.metadata.uid.as_deref().unwrap_or_default());
                    continue;
                }
                Seen::Listing | Seen::Complete => continue,
                Seen::Failed(error) => {
                    tracing::warn!(error, "watch of pods failed; retrying");
                    // What was under way may have been lost with it.
                    self.done.clear();
                    continue;
                }
            };
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            if is_ours(node) {
                self.take(pod).await;
            }
        }
    }

    async fn take(&mut self, pod: Pod) {
        let ends = pod.metadata.deletion_timestamp.is_some();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if !ends && is_as_it_should_be(&pod) {
            self.done.remove(&uid);
            return;
        }
        if self.done.insert(uid, ends) == Some(ends) {
            return;
        }
        let slot = self.slots.clone().acquire_owned().await.expect("the slots are never closed");
        let (client, addresses, now) = (self.client.clone(), self.addresses.clone(), self.clock.now());
        tasks::spawn(async move {
            let outcome = if ends { finish(&client, &pod).await } else { begin(&client, &pod, &addresses, now).await };
            if let Err(error) = outcome
                && !is_not_found(&error)
                && reason(&error) != "Conflict"
            {
                tracing::warn!(pod = crate::pod::spec::full_name(&pod), %error, "cannot update status of pod");
            }
            drop(slot);
        });
    }
}

/// Whether nothing is to be said of a pod: it runs and is ready, or has ended. One that runs but is called unready was on a node
/// that others believed lost.
fn is_as_it_should_be(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    match status.and_then(|status| status.phase.as_deref()).unwrap_or_default() {
        "" | "Pending" => false,
        "Running" => {
            let conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
        }
        _ => true,
    }
}

async fn finish(client: &Client, pod: &Pod) -> Result<(), kube::Error> {
    let uid = Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() };
    let options = DeleteParams { grace_period_seconds: Some(0), preconditions: Some(uid), ..DeleteParams::default() };
    api(client, pod).delete(pod.metadata.name.as_deref().unwrap_or_default(), &options).await?;
    Ok(())
}

async fn begin(client: &Client, pod: &Pod, addresses: &AtomicU32, now: Timestamp) -> Result<(), kube::Error> {
    let number = addresses.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
    let new = || std::net::Ipv4Addr::from(0x0a00_0000 | number).to_string();
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_else(new);
    let patch = running(pod, &address, now);
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    api(client, pod).patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

fn api(client: &Client, pod: &Pod) -> Api<Pod> {
    Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
}

/// The status of a pod that runs and is ready.
fn running(pod: &Pod, address: &str, now: Timestamp) -> Value {
    let now = seconds(now);
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"].map(condition);
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        json!({
            "name": container.name, "image": container.image, "imageID": container.image, "ready": true, "started": true,
            "restartCount": 0, "containerID": format!("hollow://{uid}/{}", container.name),
            "state": {"running": {"startedAt": now}},
        })
    });
    json!({
        "metadata": {"uid": uid},
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now,
            "conditions": conditions,
            "containerStatuses": containers.collect::<Vec<Value>>(),
        },
    })
}

fn decoded<K: serde::de::DeserializeOwned>(object: Value) -> K {
    machinery::codec::typed(&object).expect("an object of this module is one of its kind")
}

fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_known_by_their_names() {
        let config = Config { count: 3, ..Config::default() };
        let ours: Vec<bool> =
            ["hollow-0", "hollow-2", "hollow-3", "hollow-", "other"].iter().map(|name| config.is_ours(name)).collect();
        assert_eq!(ours, [true, true, false, false, false]);
        let node: Node = decoded(node(&config, 1));
        assert_eq!(node.metadata.name.as_deref(), Some("hollow-1"));
    }

    #[test]
    fn a_pod_that_runs_is_ready() {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let status = running(&pod, "10.0.0.1", Timestamp::UNIX_EPOCH);
        assert_eq!(status["status"]["containerStatuses"][0]["containerID"], "hollow://u/c");
        assert_eq!(status["status"]["conditions"].as_array().map(Vec::len), Some(4));
        assert_eq!(micros(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
