//! A pod as the scheduler reads it: everything a decision needs, worked out once when the pod is first seen.

use std::collections::BTreeSet;
use std::sync::Arc;

use component_helpers::labels::{compiled, selects};
use component_helpers::resources::{self, Resources};
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use machinery::selector::LabelSelector;
use reconcile::Key;

pub use component_helpers::labels::Labels;

#[derive(Clone, Debug)]
pub struct PodInfo {
    pub pod: Arc<Pod>,
    pub key: Key,
    pub uid: String,
    pub priority: i32,
    /// What it asks for: the larger of all regular containers together and each init container, plus overhead.
    pub requests: Resources,
    /// The same with upstream's assumed least for containers that ask for nothing; used in scores only.
    pub assumed: Resources,
    pub host_ports: Vec<HostPort>,
    pub affinity: Vec<AffinityTerm>,
    pub anti_affinity: Vec<AffinityTerm>,
    pub preferred_affinity: Vec<(i64, AffinityTerm)>,
    pub preferred_anti_affinity: Vec<(i64, AffinityTerm)>,
    /// The four lists above as one text, if they have any terms: the same for pods that wish the same.
    pub wishes: Option<Arc<str>>,
}

/// A port the pod wants on the node itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub protocol: String,
    /// `0.0.0.0` for all.
    pub ip: String,
    pub port: i32,
}

impl HostPort {
    pub fn conflicts_with(&self, other: &HostPort) -> bool {
        const ALL: &str = "0.0.0.0";
        let same_ip = self.ip == other.ip || self.ip == ALL || other.ip == ALL;
        same_ip && self.port == other.port && self.protocol == other.protocol
    }
}

/// Which pods a term speaks of, and what counts as the same place.
#[derive(Clone, Debug)]
pub struct AffinityTerm {
    /// The names in the term, or the pod's own namespace when it names none and selects none.
    pub namespaces: BTreeSet<String>,
    pub namespace_selector: Option<LabelSelector>,
    /// None matches nothing, as an absent selector does.
    pub selector: Option<LabelSelector>,
    pub topology_key: String,
}

impl AffinityTerm {
    /// Whether the term speaks of that pod. The labels are those of the pod's namespace.
    pub fn matches(&self, pod: &Pod, namespace_labels: Option<&Labels>) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        self.speaks_of(namespace, pod.metadata.labels.as_ref(), namespace_labels)
    }

    /// Whether the term speaks of pods with these labels in that namespace, which has those labels.
    pub fn speaks_of(&self, namespace: &str, labels: Option<&Labels>, namespace_labels: Option<&Labels>) -> bool {
        let in_namespace = self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| match namespace_labels {
                Some(labels) => selector.matches(|key| labels.get(key).map(String::as_str)),
                None => selector.matches_everything(),
            });
        in_namespace && self.selector.as_ref().is_some_and(|selector| selects(selector, labels))
    }
}

impl PodInfo {
    pub fn new(pod: Arc<Pod>) -> PodInfo {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let term = |term: &PodAffinityTerm| affinity_term(term, &namespace, pod.metadata.labels.as_ref());
        let affinity = spec.affinity.as_ref();
        let with = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let against = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let mut info = PodInfo {
            key: Key::of(&pod.metadata),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            requests: resources::requests(&pod),
            assumed: resources::assumed_requests(&pod),
            host_ports: host_ports(spec),
            affinity: with
                .and_then(|with| with.required_during_scheduling_ignored_during_execution.as_ref())
                .map(|terms| terms.iter().map(term).collect())
                .unwrap_or_default(),
            anti_affinity: against
                .and_then(|against| against.required_during_scheduling_ignored_during_execution.as_ref())
                .map(|terms| terms.iter().map(term).collect())
                .unwrap_or_default(),
            preferred_affinity: with
                .and_then(|with| with.preferred_during_scheduling_ignored_during_execution.as_ref())
                .map(|terms| terms.iter().map(|each| (each.weight.into(), term(&each.pod_affinity_term))).collect())
                .unwrap_or_default(),
            preferred_anti_affinity: against
                .and_then(|against| against.preferred_during_scheduling_ignored_during_execution.as_ref())
                .map(|terms| terms.iter().map(|each| (each.weight.into(), term(&each.pod_affinity_term))).collect())
                .unwrap_or_default(),
            wishes: None,
            pod,
        };
        if info.has_affinity() {
            let lists = (&info.affinity, &info.anti_affinity, &info.preferred_affinity, &info.preferred_anti_affinity);
            info.wishes = Some(format!("{lists:?}").into());
        }
        info
    }

    pub fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
        self.pod.spec.as_ref().unwrap_or(&EMPTY)
    }

    pub fn labels(&self) -> Option<&Labels> {
        self.pod.metadata.labels.as_ref()
    }

    pub fn scheduler_name(&self) -> &str {
        self.spec().scheduler_name.as_deref().unwrap_or("default-scheduler")
    }

    /// Its terms about other pods, required and preferred.
    pub(crate) fn terms(&self) -> impl Iterator<Item = &AffinityTerm> {
        let preferred = self.preferred_affinity.iter().chain(&self.preferred_anti_affinity).map(|(_, term)| term);
        self.affinity.iter().chain(&self.anti_affinity).chain(preferred)
    }

    pub(crate) fn has_affinity(&self) -> bool {
        self.terms().next().is_some()
    }
}

fn affinity_term(term: &PodAffinityTerm, namespace: &str, labels: Option<&Labels>) -> AffinityTerm {
    let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
    if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespaces.insert(namespace.to_owned());
    }
    AffinityTerm {
        namespaces,
        namespace_selector: compiled(term.namespace_selector.as_ref()),
        selector: compiled(with_label_keys(term, labels).as_ref()),
        topology_key: term.topology_key.clone(),
    }
}

/// `matchLabelKeys` and `mismatchLabelKeys` stand for requirements with the pod's own values. The API server writes them
/// into the selector of new pods; pods of older servers have them only here.
fn with_label_keys(term: &PodAffinityTerm, labels: Option<&Labels>) -> Option<meta::LabelSelector> {
    let mut selector = term.label_selector.clone()?;
    let value = |key: &String| labels.and_then(|labels| labels.get(key)).cloned();
    let keys = term.match_label_keys.iter().flatten().map(|key| (key, "In"));
    let keys = keys.chain(term.mismatch_label_keys.iter().flatten().map(|key| (key, "NotIn")));
    for (key, operator) in keys {
        let Some(value) = value(key) else { continue };
        let requirement = meta::LabelSelectorRequirement {
            key: key.clone(),
            operator: operator.to_owned(),
            values: Some(vec![value]),
        };
        let expressions = selector.match_expressions.get_or_insert_default();
        if !expressions.contains(&requirement) {
            expressions.push(requirement);
        }
    }
    Some(selector)
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(sidecars);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let wanted = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        Some(HostPort {
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".into()),
            port: number,
        })
    });
    wanted.collect()
}

#[cfg(test)]
mod tests;
