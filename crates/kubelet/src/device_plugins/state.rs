//! What is known of devices: which plugins offer, which of them are well, and which containers have them. Pure, but for the connection
//! that each resource's entry holds.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use devices::v1beta1::{self, ContainerAllocateResponse, DevicePluginOptions};
use tokio::time::Instant;

/// A plugin that is gone for so long does not come back, as upstream believes.
pub(super) const STOPPED_MAX: Duration = Duration::from_secs(5 * 60);
/// Devices that are near no processor in particular, as in upstream's file.
const NO_NODE: i64 = -1;

pub(super) type Ids = BTreeSet<String>;
/// By pod, container and resource.
pub(super) type PodDevices = BTreeMap<String, BTreeMap<String, BTreeMap<String, Allocation>>>;

/// What a container has of a resource, and what its plugin said about using it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Allocation {
    /// By the memory node that they are near to.
    pub devices: BTreeMap<i64, Vec<String>>,
    pub response: ContainerAllocateResponse,
}

impl Allocation {
    pub fn ids(&self) -> Ids {
        self.devices.values().flatten().cloned().collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub healthy: bool,
    /// As its plugin said last; it stays shown so when the plugin goes, as upstream.
    pub reported_healthy: bool,
    pub nodes: Vec<i64>,
}

/// A plugin that serves a resource now.
#[derive(Clone, Debug)]
pub(super) struct Connected {
    pub plugin: devices::Plugin,
    pub options: DevicePluginOptions,
    /// Tells it from those that served the resource before.
    pub number: u64,
}

pub(super) struct Resource {
    pub devices: BTreeMap<String, Device>,
    pub connected: Option<Connected>,
    /// When its plugin went.
    stopped_at: Instant,
    /// Whether a plugin has served it since this kubelet started.
    pub was_connected: bool,
}

impl Resource {
    fn new(now: Instant) -> Resource {
        Resource { devices: BTreeMap::new(), connected: None, stopped_at: now, was_connected: false }
    }

    pub fn healthy(&self) -> Ids {
        self.devices.iter().filter(|(_, device)| device.healthy).map(|(id, _)| id.clone()).collect()
    }
}

/// How many devices of a resource the node has, and how many pods may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub capacity: u64,
    pub allocatable: u64,
}

#[derive(Default)]
pub(super) struct State {
    pub resources: BTreeMap<String, Resource>,
    pub pods: PodDevices,
    /// Chosen for a container whose plugin is being asked.
    reserved: BTreeMap<String, Ids>,
    /// Resources whose plugins have gone for good. They are shown with nothing, which tells them from resources that no plugin ever had.
    removed: BTreeSet<String>,
}

impl State {
    /// As the last kubelet left it: resources have no devices until their plugins come back.
    pub fn restored(pods: PodDevices, resources: Vec<String>, now: Instant) -> State {
        let resources = resources.into_iter().map(|name| (name, Resource::new(now))).collect();
        State { resources, pods, ..State::default() }
    }

    pub fn connect(&mut self, resource: &str, connected: Connected, now: Instant) {
        let entry = self.resources.entry(resource.to_owned()).or_insert_with(|| Resource::new(now));
        entry.connected = Some(connected);
        entry.was_connected = true;
        self.removed.remove(resource);
    }

    /// The plugin is gone: its devices stay counted, but nobody gets them. Whether it was the one that served the resource.
    pub fn disconnect(&mut self, resource: &str, number: u64, now: Instant) -> bool {
        let Some(entry) = self.resources.get_mut(resource) else { return false };
        if entry.connected.as_ref().is_none_or(|connected| connected.number != number) {
            return false;
        }
        entry.connected = None;
        entry.stopped_at = now;
        entry.devices.values_mut().for_each(|device| device.healthy = false);
        true
    }

    /// What the plugin says of its devices. If that is anything new, which of them are in another state than before.
    pub fn list(&mut self, resource: &str, number: u64, list: Vec<v1beta1::Device>) -> Option<Ids> {
        let entry = self.resources.get_mut(resource)?;
        if entry.connected.as_ref().is_none_or(|connected| connected.number != number) {
            return None;
        }
        let device = |device: v1beta1::Device| {
            let nodes = device.topology.map(|topology| topology.nodes.iter().map(|node| node.id).collect());
            let healthy = device.health == "Healthy";
            (device.id, Device { healthy, reported_healthy: healthy, nodes: nodes.unwrap_or_default() })
        };
        let devices: BTreeMap<String, Device> = list.into_iter().map(device).collect();
        let is_new = entry.devices != devices;
        let before = |id: &String| entry.devices.get(id).map(|device| device.reported_healthy);
        let changed = devices.iter().filter(|(id, device)| before(id) != Some(device.reported_healthy));
        let changed = changed.map(|(id, _)| id.clone()).collect();
        entry.devices = devices;
        is_new.then_some(changed)
    }

    /// Pods that have one of these devices.
    pub fn holders(&self, resource: &str, ids: &Ids) -> Vec<String> {
        let has = |resources: &BTreeMap<String, Allocation>| {
            resources.get(resource).is_some_and(|allocation| !allocation.ids().is_disjoint(ids))
        };
        let pods = self.pods.iter().filter(|(_, containers)| containers.values().any(has));
        pods.map(|(uid, _)| uid.clone()).collect()
    }

    /// Forgets resources whose plugins are gone for too long; the next look is due then.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        let is_over = |entry: &Resource| entry.connected.is_none() && now >= entry.stopped_at + STOPPED_MAX;
        let over: Vec<String> =
            self.resources.iter().filter(|(_, entry)| is_over(entry)).map(|(name, _)| name.clone()).collect();
        for name in over {
            self.resources.remove(&name);
            self.removed.insert(name);
        }
        let stopped = self.resources.values().filter(|entry| entry.connected.is_none());
        stopped.map(|entry| entry.stopped_at + STOPPED_MAX).min()
    }

    pub fn counts(&self) -> BTreeMap<String, Count> {
        let mut counts: BTreeMap<String, Count> =
            self.removed.iter().map(|name| (name.clone(), Count::default())).collect();
        for (name, entry) in &self.resources {
            let allocatable = entry.healthy().len() as u64;
            counts.insert(name.clone(), Count { capacity: entry.devices.len() as u64, allocatable });
        }
        counts
    }

    pub fn registered(&self) -> BTreeMap<String, Vec<String>> {
        self.resources.iter().map(|(name, entry)| (name.clone(), entry.healthy().into_iter().collect())).collect()
    }

    /// Whether plugins have a say in a resource, or had.
    pub fn knows(&self, resource: &str) -> bool {
        let has = |containers: &BTreeMap<String, BTreeMap<String, Allocation>>| {
            containers.values().any(|resources| resources.contains_key(resource))
        };
        self.resources.contains_key(resource) || self.pods.values().any(has)
    }

    pub fn known(&self) -> BTreeSet<String> {
        let had = self.pods.values().flat_map(BTreeMap::values).flat_map(BTreeMap::keys);
        self.resources.keys().chain(had).cloned().collect()
    }

    pub fn of_container(&self, uid: &str, container: &str) -> Option<&BTreeMap<String, Allocation>> {
        self.pods.get(uid)?.get(container)
    }

    pub fn ids(&self, uid: &str, container: &str, resource: &str) -> Option<Ids> {
        self.of_container(uid, container)?.get(resource).map(Allocation::ids)
    }

    /// Devices of a resource that somebody has or is about to have.
    pub fn in_use(&self, resource: &str) -> Ids {
        let had = self.pods.values().flat_map(BTreeMap::values).filter_map(|resources| resources.get(resource));
        let mut ids: Ids = had.flat_map(|allocation| allocation.ids()).collect();
        ids.extend(self.reserved.get(resource).into_iter().flatten().cloned());
        ids
    }

    pub fn reserve(&mut self, resource: &str, ids: &Ids) {
        self.reserved.entry(resource.to_owned()).or_default().extend(ids.iter().cloned());
    }

    pub fn release(&mut self, resource: &str, ids: &Ids) {
        if let Some(reserved) = self.reserved.get_mut(resource) {
            reserved.retain(|id| !ids.contains(id));
        }
    }

    /// The container has them from now on.
    pub fn commit(
        &mut self,
        uid: &str,
        container: &str,
        resource: &str,
        ids: &Ids,
        response: ContainerAllocateResponse,
    ) {
        self.release(resource, ids);
        let known = self.resources.get(resource).map(|entry| &entry.devices);
        let mut devices: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for id in ids {
            let nodes = known.and_then(|known| known.get(id)).map(|device| device.nodes.clone()).unwrap_or_default();
            let nodes = if nodes.is_empty() { vec![NO_NODE] } else { nodes };
            nodes.into_iter().for_each(|node| devices.entry(node).or_default().push(id.clone()));
        }
        let containers = self.pods.entry(uid.to_owned()).or_default();
        let resources = containers.entry(container.to_owned()).or_default();
        resources.insert(resource.to_owned(), Allocation { devices, response });
    }

    /// Only these pods have anything; what others had is free.
    pub fn retain(&mut self, active: &HashSet<String>) {
        self.pods.retain(|uid, _| active.contains(uid));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn device(id: &str, healthy: bool) -> v1beta1::Device {
        let health = if healthy { "Healthy" } else { "Unhealthy" };
        v1beta1::Device { id: id.to_owned(), health: health.to_owned(), topology: None }
    }

    pub fn connected(number: u64) -> Connected {
        let plugin = devices::Plugin::new(std::path::Path::new("/none"));
        Connected { plugin, options: DevicePluginOptions::default(), number }
    }

    #[tokio::test]
    async fn plugins_come_and_go() {
        let now = Instant::now();
        let mut state = State::default();
        let count = |state: &State| state.counts().get("x.test/r").map(|count| (count.capacity, count.allocatable));
        state.connect("x.test/r", connected(1), now);
        let ids = |list: &[&str]| Some(list.iter().map(ToString::to_string).collect::<Ids>());
        assert_eq!(state.list("x.test/r", 1, vec![device("a", true), device("b", false)]), ids(&["a", "b"]));
        assert_eq!(state.list("x.test/r", 1, vec![device("b", false), device("a", true)]), None, "the same again");
        state.commit("uid-1", "c", "x.test/r", &Ids::from(["a".to_owned()]), ContainerAllocateResponse::default());
        assert_eq!(state.list("x.test/r", 1, vec![device("a", false), device("b", false)]), ids(&["a"]));
        assert_eq!(state.holders("x.test/r", &Ids::from(["a".to_owned()])), ["uid-1"]);
        assert!(state.holders("x.test/r", &Ids::from(["b".to_owned()])).is_empty());
        assert_eq!(state.list("x.test/r", 1, vec![device("a", true), device("b", false)]), ids(&["a"]));
        assert_eq!(count(&state), Some((2, 1)));
        state.connect("x.test/r", connected(2), now);
        assert!(!state.disconnect("x.test/r", 1, now), "another serves it");
        assert_eq!(state.list("x.test/r", 1, vec![]), None);
        assert!(state.disconnect("x.test/r", 2, now));
        assert_eq!(count(&state), Some((2, 0)));
        state.retain(&HashSet::new());
        assert_eq!(state.expire(now), Some(now + STOPPED_MAX));
        assert_eq!(state.expire(now + STOPPED_MAX), None);
        assert_eq!((count(&state), state.knows("x.test/r")), (Some((0, 0)), false));
        state.connect("x.test/r", connected(3), now);
        state.list("x.test/r", 3, vec![device("a", true)]);
        assert_eq!(count(&state), Some((1, 1)));
    }
}
