//! Pods that no selector can tell apart: those of one namespace with the same labels, counted by node.
//!
//! Whoever asks how many pods of a kind are where looks at these groups, of which there are about as many as templates, and
//! not at every pod: a decision would else cost more with every pod that is placed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use component_helpers::labels::selects;
use machinery::selector::{LabelSelector, Operator};

use crate::pod_info::{AffinityTerm, Labels, PodInfo};
use crate::snapshot::NodeIndex;

#[cfg(test)]
mod tests;

#[derive(Default)]
pub struct Alike {
    namespaces: HashMap<String, Namespace>,
    /// Pods with terms about other pods, by these terms.
    wishing: HashMap<Arc<str>, Wishing>,
    /// The same wishes by a label that whoever they speak of must have, by its key and value.
    wishing_of: HashMap<String, HashMap<String, BTreeSet<Arc<str>>>>,
    /// Wishes with a term that names no such label: they may speak of anybody.
    wishing_of_any: BTreeSet<Arc<str>>,
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
            if !self.wishing.contains_key(wishes) {
                self.begin_wishing(wishes, pod);
            }
            if let Some(wishing) = self.wishing.get_mut(wishes) {
                *wishing.nodes.entry(node).or_default() += 1;
            }
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
        namespace.into_iter().flat_map(move |namespace| namespace.selected(selector)).map(|(_, group)| group)
    }

    /// The groups that a term may speak of, with their namespaces and labels: those that its selector takes, in the namespaces that it
    /// names. Where it selects namespaces by their labels, which are not known here, in any namespace.
    pub fn spoken_of<'a>(
        &'a self,
        term: &'a AffinityTerm,
    ) -> impl Iterator<Item = (&'a str, &'a Labels, &'a Group)> + use<'a> {
        let named = term.namespaces.iter().filter(move |_| term.namespace_selector.is_none());
        let named = named.filter_map(move |name| self.namespaces.get_key_value(name));
        let all = self.namespaces.iter().filter(move |_| term.namespace_selector.is_some());
        // A term without a selector speaks of nobody.
        term.selector.iter().flat_map(move |selector| {
            named.clone().chain(all.clone()).flat_map(move |(name, namespace)| {
                namespace.selected(selector).map(move |(labels, group)| (name.as_str(), labels, group))
            })
        })
    }

    fn begin_wishing(&mut self, wishes: &Arc<str>, pod: &Arc<PodInfo>) {
        for term in pod.terms() {
            match needed_label(term) {
                Needed::Label(key, value) => {
                    let values = self.wishing_of.entry(key.to_owned()).or_default();
                    values.entry(value.to_owned()).or_default().insert(wishes.clone());
                }
                Needed::None => _ = self.wishing_of_any.insert(wishes.clone()),
                Needed::Nobody => {}
            }
        }
        self.wishing.insert(wishes.clone(), Wishing { example: pod.clone(), nodes: HashMap::new() });
    }

    fn end_wishing(&mut self, wishes: &Arc<str>) {
        let Some(wishing) = self.wishing.remove(wishes) else { return };
        self.wishing_of_any.remove(wishes);
        for term in wishing.example.terms() {
            let Needed::Label(key, value) = needed_label(term) else { continue };
            let Some(values) = self.wishing_of.get_mut(key) else { continue };
            if let Some(all) = values.get_mut(value) {
                all.remove(wishes);
                if all.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.wishing_of.remove(key);
            }
        }
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
            self.end_wishing(wishes);
        }
    }

    /// Pods with terms that may speak of a pod with these labels, those with the same terms together.
    pub(crate) fn wishing_of(&self, labels: Option<&Labels>) -> impl Iterator<Item = &Wishing> {
        let of_label = |(key, value): (&String, &String)| self.wishing_of.get(key).and_then(|values| values.get(value));
        let labelled = labels.into_iter().flatten().filter_map(of_label).flatten();
        let mut found: Vec<&Arc<str>> = labelled.chain(&self.wishing_of_any).collect();
        // Several terms of the same pods may ask for several of the labels.
        found.sort_unstable();
        found.dedup();
        found.into_iter().inspect(|_| looked()).filter_map(|wishes| self.wishing.get(wishes))
    }
}

/// What a pod must have for a term to speak of it.
enum Needed<'a> {
    Label(&'a str, &'a str),
    /// No one label with one value.
    None,
    /// The term speaks of nobody.
    Nobody,
}

fn needed_label(term: &AffinityTerm) -> Needed<'_> {
    let Some(selector) = &term.selector else { return Needed::Nobody };
    let equal = selector.requirements().iter().find(|one| matches!(one.operator, Operator::Equals));
    match equal.and_then(|one| Some((&one.key, one.values.first()?))) {
        Some((key, value)) => Needed::Label(key, value),
        None => Needed::None,
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

    fn selected<'a>(&'a self, selector: &'a LabelSelector) -> impl Iterator<Item = (&'a Labels, &'a Group)> + use<'a> {
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
        selected.filter_map(|labels| self.groups.get(labels).map(|group| (&**labels, group)))
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
