//! What a decision sees: the nodes with the pods that are, or are assumed to be, on them. Only the scheduling loop changes it,
//! between decisions, so that a decision sees it frozen without a copy.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use component_helpers::resources::Resources;
use k8s_openapi::api::core::v1::{Node, Taint};
use machinery::selector::LabelSelector;

use crate::alike::Alike;
use crate::pod_info::{Labels, PodInfo};

/// Where a node stands in the snapshot. It stays the same as long as the node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIndex(pub u32);

#[derive(Clone, Debug)]
pub struct NodeInfo {
    pub index: NodeIndex,
    pub name: String,
    /// None while only pods speak of it: the node itself is not known, or gone.
    pub node: Option<Arc<Node>>,
    /// What only the node itself changes is shared with the copies that are made to try what if.
    pub labels: Arc<Labels>,
    pub taints: Arc<[Taint]>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    pub requested: Resources,
    /// With the assumed least; used in scores only.
    pub assumed: Resources,
    pub pods: Vec<Arc<PodInfo>>,
    /// Sizes of the images that are there, by each of their names.
    pub images: Arc<HashMap<String, i64>>,
    /// Pods that were promised this node and wait for others to leave it.
    pub nominated: Vec<Arc<PodInfo>>,
}

impl NodeInfo {
    pub fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.assumed.add(&pod.assumed);
        self.pods.push(pod);
    }

    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let place = self.pods.iter().position(|pod| pod.uid == uid)?;
        let pod = self.pods.swap_remove(place);
        self.requested.subtract(&pod.requests);
        self.assumed.subtract(&pod.assumed);
        Some(pod)
    }
}

/// The places that one label divides the nodes into that can be chosen: its values, numbered.
pub struct Domains {
    pub values: Vec<String>,
    /// The number of a node's value, by the node's index.
    of: Vec<Option<u32>>,
    /// Whether every node has the label.
    pub everywhere: bool,
}

impl Domains {
    /// The number of the place that a node is in.
    pub fn of(&self, node: NodeIndex) -> Option<usize> {
        self.of.get(node.0 as usize).copied().flatten().map(|number| number as usize)
    }
}

/// So many labels' places are remembered at a time. Pods may name any label.
const DOMAINS_MAX: usize = 16;

#[derive(Default)]
pub struct Snapshot {
    slots: Vec<Option<NodeInfo>>,
    free: Vec<u32>,
    by_name: HashMap<String, NodeIndex>,
    /// The nodes that can be chosen, those of different zones in turn.
    order: Vec<NodeIndex>,
    order_is_old: bool,
    /// Where each known pod is.
    placed: HashMap<String, NodeIndex>,
    /// On how many nodes an image is.
    pub image_nodes: HashMap<String, usize>,
    pub namespaces: HashMap<String, Labels>,
    /// Where pods were promised a node, by their uid: they wait for others to leave it.
    nominated: HashMap<String, NodeIndex>,
    /// The pods again, counted by what selectors see of them.
    pub alike: Alike,
    /// Places by label, until a node comes, goes or has other labels.
    domains: RwLock<HashMap<String, Arc<Domains>>>,
}

impl Snapshot {
    /// The nodes that can be chosen.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.order.iter().map(|index| self.node(*index))
    }

    pub fn order(&self) -> &[NodeIndex] {
        &self.order
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// How many pods are, or are assumed to be, on nodes.
    pub fn pods(&self) -> usize {
        self.placed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn node(&self, index: NodeIndex) -> &NodeInfo {
        self.slots[index.0 as usize].as_ref().expect("an index is given only for a node that exists")
    }

    pub fn by_name(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|index| self.node(*index)).filter(|info| info.node.is_some())
    }

    pub(crate) fn namespace_labels(&self, namespace: &str) -> Option<&Labels> {
        self.namespaces.get(namespace)
    }

    pub(crate) fn has_pod(&self, uid: &str) -> bool {
        self.placed.contains_key(uid)
    }

    /// The places that a label divides the nodes into.
    pub fn domains(&self, key: &str) -> Arc<Domains> {
        if let Some(known) = self.domains.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return known.clone();
        }
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut domains = Domains { values: Vec::new(), of: vec![None; self.slots.len()], everywhere: true };
        for node in self.nodes() {
            let Some(value) = node.labels.get(key) else {
                domains.everywhere = false;
                continue;
            };
            let number = *numbers.entry(value).or_insert_with(|| {
                domains.values.push(value.clone());
                domains.values.len() as u32 - 1
            });
            domains.of[node.index.0 as usize] = Some(number);
        }
        let domains = Arc::new(domains);
        let mut all = self.domains.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= DOMAINS_MAX {
            all.clear();
        }
        all.insert(key.to_owned(), domains.clone());
        domains
    }

    /// How many pods of a namespace that a selector takes, and that are not about to end, are on each node, by its index.
    pub fn staying(&self, namespace: &str, selector: &LabelSelector) -> Vec<u32> {
        let mut counts = vec![0; self.slots.len()];
        for (node, count) in self.alike.selected(namespace, selector).flat_map(|group| group.nodes()) {
            counts[node.0 as usize] += count.staying;
        }
        counts
    }

    /// The same for a selector that takes nobody.
    pub(crate) fn staying_nowhere(&self) -> Vec<u32> {
        vec![0; self.slots.len()]
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let index = self.index_of(&name);
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let images = status.iter().flat_map(|status| status.images.iter().flatten());
        let images: HashMap<String, i64> = images
            .flat_map(|image| image.names.iter().flatten().map(|name| (name.clone(), image.size_bytes.unwrap_or(0))))
            .collect();
        let info = self.slots[index.0 as usize].as_mut().expect("just made");
        let labels = node.metadata.labels.clone().unwrap_or_default();
        self.order_is_old |= info.node.is_none() || zone(&info.labels) != zone(&labels);
        if info.node.is_none() || *info.labels != labels {
            self.domains.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        }
        info.labels = Arc::new(labels);
        info.taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default().into();
        info.unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
        info.allocatable =
            status.and_then(|status| status.allocatable.as_ref()).map(Resources::from_list).unwrap_or_default();
        let now = Arc::new(images);
        let before = std::mem::replace(&mut info.images, now.clone());
        info.node = Some(node);
        self.count_images(&before, &now);
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(index) = self.by_name.get(name).copied() else { return };
        let info = self.slots[index.0 as usize].as_mut().expect("a named node exists");
        info.node = None;
        let images = std::mem::take(&mut info.images);
        self.order_is_old = true;
        self.domains.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.count_images(&images, &HashMap::new());
        self.drop_if_unused(index);
    }

    /// A pod is, or is assumed to be, on a node.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove_pod(&pod.uid);
        let index = self.index_of(node);
        self.placed.insert(pod.uid.clone(), index);
        self.alike.add(&pod, index);
        self.slots[index.0 as usize].as_mut().expect("just made").add(pod);
    }

    pub fn remove_pod(&mut self, uid: &str) {
        let Some(index) = self.placed.remove(uid) else { return };
        let info = self.slots[index.0 as usize].as_mut().expect("a placed pod has a node");
        let removed = info.remove(uid);
        if let Some(pod) = removed {
            self.alike.remove(&pod, index);
        }
        self.drop_if_unused(index);
    }

    /// A pod is promised a node, and no other any more.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.withdraw(&pod.uid);
        let index = self.index_of(node);
        self.nominated.insert(pod.uid.clone(), index);
        self.slots[index.0 as usize].as_mut().expect("just made").nominated.push(pod);
    }

    /// The pod has its node, or is not promised one any more.
    pub fn withdraw(&mut self, uid: &str) {
        let Some(index) = self.nominated.remove(uid) else { return };
        let info = self.slots[index.0 as usize].as_mut().expect("a promised node is remembered");
        info.nominated.retain(|pod| pod.uid != uid);
        self.drop_if_unused(index);
    }

    /// The name of the node that a pod was promised.
    pub fn nomination(&self, uid: &str) -> Option<&str> {
        self.nominated.get(uid).map(|index| self.node(*index).name.as_str())
    }

    /// Brings the order of nodes up to date; called before a decision.
    pub fn freeze(&mut self) {
        if !std::mem::take(&mut self.order_is_old) {
            return;
        }
        let mut zones: BTreeMap<String, Vec<NodeIndex>> = BTreeMap::new();
        for info in self.slots.iter().flatten().filter(|info| info.node.is_some()) {
            zones.entry(zone(&info.labels)).or_default().push(info.index);
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or(0);
        self.order =
            (0..longest).flat_map(|turn| zones.values().filter_map(move |zone| zone.get(turn).copied())).collect();
        self.domains.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn index_of(&mut self, name: &str) -> NodeIndex {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let index = NodeIndex(slot);
        self.slots[slot as usize] = Some(NodeInfo {
            index,
            name: name.to_owned(),
            node: None,
            labels: Arc::default(),
            taints: Arc::default(),
            unschedulable: false,
            allocatable: Resources::default(),
            requested: Resources::default(),
            assumed: Resources::default(),
            pods: Vec::new(),
            images: Arc::default(),
            nominated: Vec::new(),
        });
        self.by_name.insert(name.to_owned(), index);
        index
    }

    /// A node that is gone is remembered while pods are still said to be on it, or were promised it.
    fn drop_if_unused(&mut self, index: NodeIndex) {
        let slot = &mut self.slots[index.0 as usize];
        if slot.as_ref().is_some_and(|info| info.node.is_none() && info.pods.is_empty() && info.nominated.is_empty()) {
            if let Some(info) = slot.take() {
                self.by_name.remove(&info.name);
            }
            self.free.push(index.0);
        }
    }

    fn count_images(&mut self, gone: &HashMap<String, i64>, there: &HashMap<String, i64>) {
        for image in there.keys() {
            *self.image_nodes.entry(image.clone()).or_default() += 1;
        }
        for image in gone.keys() {
            if let Some(count) = self.image_nodes.get_mut(image) {
                *count -= 1;
                if *count == 0 {
                    self.image_nodes.remove(image);
                }
            }
        }
    }
}

/// Region and zone as one word.
fn zone(labels: &Labels) -> String {
    let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    let region = label("topology.kubernetes.io/region");
    let zone = label("topology.kubernetes.io/zone");
    format!("{region}:\0:{zone}")
}

#[cfg(test)]
mod tests;
