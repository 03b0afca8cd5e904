//! Pods that no selector can tell apart: those of one namespace with the same labels, counted by node.
//!
//! Whoever asks how many pods of a kind are where looks at these groups, of which there are about as many as templates, and
//! not at every pod: a decision would else cost more with every pod that is placed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use component_helpers::labels::selects;
use machinery::selector::{LabelSelector, Operator};

use crate::pod_info::{Labels, PodInfo};
use crate::snapshot::NodeIndex;

#[cfg(test)]
mod tests;

#[derive(Default)]
pub struct Alike {
    namespaces: HashMap<String, Namespace>,
    /// Pods with terms about other pods, by these terms.
    wishing: HashMap<Arc<str>, Wishing>,
}

/// Pods that wish the same of other pods, and so are alike to whoever is judged by their wishes.
pub struct Wishing {
    /// Any one of them.
    pub example: Arc<PodInfo>,
    nodes: HashMap<NodeIndex, u32>,
}

impl Wishing {
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIndex, i64)> + Clone {
        self.nodes.iter().map(|(node, count)| (*node, i64::from(*count)))
    }
}

#[derive(Default)]
struct Namespace {
    groups: HashMap<Arc<Labels>, Group>,
    /// The groups that have a label, by its key and value.
    by_label: HashMap<String, HashMap<String, BTreeSet<Arc<Labels>>>>,
}

/// Pods of one namespace with the same labels.
#[derive(Default)]
pub struct Group {
    nodes: HashMap<NodeIndex, Count>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub pods: u32,
    /// Those of them that are not about to end.
    pub staying: u32,
}

impl Group {
    pub fn nodes(&self) -> impl Iterator<Item = (NodeIndex, Count)> + Clone {
        self.nodes.iter().map(|(node, count)| (*node, *count))
    }
}

impl Alike {
    pub fn add(&mut self, pod: &Arc<PodInfo>, node: NodeIndex) {
        if let Some(wishes) = &pod.wishes {
            let new = || Wishing { example: pod.clone(), nodes: HashMap::new() };
            *self.wishing.entry(wishes.clone()).or_insert_with(new).nodes.entry(node).or_default() += 1;
        }
        let empty = Labels::new();
        let labels = pod.labels().unwrap_or(&empty);
        if !self.namespaces.contains_key(&pod.key.namespace) {
            self.namespaces.insert(pod.key.namespace.clone(), Namespace::default());
        }
        let Some(namespace) = self.namespaces.get_mut(&pod.key.namespace) else { return };
        if !namespace.groups.contains_key(labels) {
            namespace.begin(labels);
        }
        let Some(group) = namespace.groups.get_mut(labels) else { return };
        let count = group.nodes.entry(node).or_default();
        count.pods += 1;
        count.staying += u32::from(stays(pod));
    }

    /// The pod must be as it was when it was added.
    pub fn remove(&mut self, pod: &PodInfo, node: NodeIndex) {
        self.wish_no_more(pod, node);
        let empty = Labels::new();
        let labels = pod.labels().unwrap_or(&empty);
        let Some(namespace) = self.namespaces.get_mut(&pod.key.namespace) else { return };
        let Some(group) = namespace.groups.get_mut(labels) else { return };
        let Some(count) = group.nodes.get_mut(&node) else { return };
        count.pods = count.pods.saturating_sub(1);
        count.staying = count.staying.saturating_sub(u32::from(stays(pod)));
        if count.pods == 0 {
            group.nodes.remove(&node);
        }
        if group.nodes.is_empty() {
            namespace.end(labels);
            if namespace.groups.is_empty() {
                self.namespaces.remove(&pod.key.namespace);
            }
        }
    }

    /// The groups of a namespace whose pods a selector takes.
    pub fn selected<'a>(
        &'a self,
        namespace: &str,
        selector: &'a LabelSelector,
    ) -> impl Iterator<Item = &'a Group> + use<'a> {
        let namespace = self.namespaces.get(namespace);
        namespace.into_iter().flat_map(move |namespace| namespace.selected(selector))
    }

    fn wish_no_more(&mut self, pod: &PodInfo, node: NodeIndex) {
        let Some(wishes) = &pod.wishes else { return };
        let Some(wishing) = self.wishing.get_mut(wishes) else { return };
        if let Some(count) = wishing.nodes.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                wishing.nodes.remove(&node);
            }
        }
        if wishing.nodes.is_empty() {
            self.wishing.remove(wishes);
        }
    }

    /// Pods with terms about other pods, those with the same terms together.
    pub(crate) fn wishing(&self) -> impl Iterator<Item = &Wishing> {
        self.wishing.values().inspect(|_| looked())
    }

    /// Every group, with its namespace and labels.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Labels, &Group)> {
        self.namespaces.iter().flat_map(|(name, namespace)| {
            namespace.groups.iter().inspect(|_| looked()).map(move |(labels, group)| (name.as_str(), &**labels, group))
        })
    }
}

impl Namespace {
    fn begin(&mut self, labels: &Labels) {
        let labels = Arc::new(labels.clone());
        for (key, value) in labels.iter() {
            let values = self.by_label.entry(key.clone()).or_default();
            values.entry(value.clone()).or_default().insert(labels.clone());
        }
        self.groups.insert(labels, Group::default());
    }

    fn end(&mut self, labels: &Labels) {
        self.groups.remove(labels);
        for (key, value) in labels {
            let Some(values) = self.by_label.get_mut(key) else { continue };
            if let Some(groups) = values.get_mut(value) {
                groups.remove(labels);
                if groups.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.by_label.remove(key);
            }
        }
    }

    fn selected<'a>(&'a self, selector: &'a LabelSelector) -> impl Iterator<Item = &'a Group> + use<'a> {
        // Of the labels that must be there, the one that fewest groups have; without any, all groups are asked.
        let wanted = selector.requirements().iter().filter(|one| matches!(one.operator, Operator::Equals));
        let having = wanted.filter_map(|one| Some((&one.key, one.values.first()?)));
        let having = having.map(|(key, value)| self.by_label.get(key).and_then(|values| values.get(value)));
        let fewest = having.min_by_key(|groups| groups.map_or(0, BTreeSet::len));
        let (few, all) = match fewest {
            Some(groups) => (groups, None),
            None => (None, Some(self.groups.keys())),
        };
        let candidates = few.into_iter().flatten().chain(all.into_iter().flatten());
        let selected = candidates.inspect(|_| looked()).filter(|labels| selects(selector, Some(labels)));
        selected.filter_map(|labels| self.groups.get(labels))
    }
}

fn stays(pod: &PodInfo) -> bool {
    pod.pod.metadata.deletion_timestamp.is_none()
}

#[cfg(not(test))]
pub(crate) fn looked() {}

#[cfg(test)]
pub(crate) use counting::looked;

/// How many groups were looked at, so that tests see what a decision costs without measuring time.
#[cfg(test)]
pub(crate) mod counting {
    use std::cell::Cell;

    thread_local! {
        static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn looked() {
        LOOKS.with(|looks| looks.set(looks.get() + 1));
    }

    pub(crate) fn taken() -> usize {
        LOOKS.with(|looks| looks.replace(0))
    }
}
