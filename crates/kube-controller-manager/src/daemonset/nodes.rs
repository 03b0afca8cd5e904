//! On which nodes a DaemonSet wants a pod, and how the pod for one node looks.

use component_helpers::labels::Labels;
use component_helpers::node_affinity::Required;
use component_helpers::taints::first_untolerated;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};

use crate::common::history::REVISION_HASH;
use crate::common::template::pod_of;

pub(super) const GENERATION: &str = "deprecated.daemonset.template.generation";
pub(super) const GENERATION_LABEL: &str = "pod-template-generation";

const NODE_NAME: &str = "metadata.name";

/// What a node is to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub should_run: bool,
    /// A pod that is there may stay.
    pub may_stay: bool,
}

pub(super) fn fit(set: &DaemonSet, node: &Node) -> Fit {
    const NO: Fit = Fit { should_run: false, may_stay: false };
    let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()) else { return NO };
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if template.node_name.as_deref().is_some_and(|wanted| !wanted.is_empty() && wanted != name) {
        return NO;
    }
    let none = Labels::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    // What the template itself demands; that the pod is for this node is true for every node.
    let wish = Pod { spec: Some(template.clone()), ..Pod::default() };
    if !Required::of(&wish).allows(name, labels) {
        return NO;
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let tolerations = tolerations(template);
    let untolerated = |effects: &[&str]| first_untolerated(taints, &tolerations, effects).is_some();
    Fit { should_run: !untolerated(&["NoExecute", "NoSchedule"]), may_stay: !untolerated(&["NoExecute"]) }
}

/// The pod of the set for one node. It is bound to the node by its affinity, and the scheduler lets it go there when it fits.
pub(super) fn pod_for(set: &DaemonSet, hash: &str, node: &str) -> Option<Pod> {
    let template = &set.spec.as_ref()?.template;
    let mut pod = pod_of(set, template);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_HASH.into(), hash.to_owned());
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION_LABEL.into(), generation.to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    bind_to(spec.affinity.get_or_insert_default(), node);
    Some(pod)
}

pub(super) fn generation(set: &DaemonSet) -> Option<&str> {
    set.metadata.annotations.as_ref()?.get(GENERATION).map(String::as_str)
}

/// The node a pod is on, or is meant for.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    if let Some(node) = component_helpers::pods::node(pod) {
        return Some(node);
    }
    match Required::of(pod).names()?[..] {
        [name] => Some(name),
        _ => None,
    }
}

/// What a daemon bears wherever it is, besides what its template says: trouble of the node is no reason to leave it.
fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let always = [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    let on_host = (spec.host_network == Some(true)).then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    let mut tolerations = spec.tolerations.clone().unwrap_or_default();
    for (key, effect) in always.into_iter().chain(on_host) {
        let own = Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        let same = |one: &&mut Toleration| {
            one.key == own.key
                && one.effect == own.effect
                && one.operator == own.operator
                && one.value.as_deref().unwrap_or_default().is_empty()
        };
        // The template's own may be limited in time; a daemon's is not.
        match tolerations.iter_mut().find(same) {
            Some(place) => *place = own,
            None => tolerations.push(own),
        }
    }
    tolerations
}

/// The only node it may go to. What else the template demanded was checked when the node was chosen.
fn bind_to(affinity: &mut Affinity, node: &str) {
    let requirement =
        NodeSelectorRequirement { key: NODE_NAME.into(), operator: "In".into(), values: Some(vec![node.to_owned()]) };
    let only = NodeSelectorTerm { match_fields: Some(vec![requirement]), ..NodeSelectorTerm::default() };
    let required =
        &mut affinity.node_affinity.get_or_insert_default().required_during_scheduling_ignored_during_execution;
    *required = Some(NodeSelector { node_selector_terms: vec![only] });
}
