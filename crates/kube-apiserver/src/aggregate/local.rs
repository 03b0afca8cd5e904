//! The APIServices of what this server itself serves: they are made and taken away with the kinds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::resources::Table;

/// Marks the objects that are the server's own.
pub const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Custom groups come and go while the server runs.
pub const ALWAYS: &str = "true";
pub(crate) const ON_START: &str = "onstart";

/// The versions of a group and the priority of each.
type Versions = &'static [(&'static str, i64)];

/// Upstream's order of the built-in groups, and of the versions of each; who is asked first for a kind of several groups
/// depends on it.
const PRIORITIES: &[(&str, i64, Versions)] = &[
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events.k8s.io", 17750, &[("v1", 15), ("v1beta1", 5)]),
    ("authentication.k8s.io", 17700, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("authorization.k8s.io", 17600, &[("v1", 15)]),
    ("autoscaling", 17500, &[("v1", 15), ("v2", 30), ("v2beta1", 9), ("v2beta2", 1)]),
    ("batch", 17400, &[("v1", 15), ("v1beta1", 9), ("v2alpha1", 9)]),
    ("certificates.k8s.io", 17300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("networking.k8s.io", 17200, &[("v1", 15), ("v1beta1", 9)]),
    ("policy", 17100, &[("v1", 15), ("v1beta1", 9)]),
    ("rbac.authorization.k8s.io", 17000, &[("v1", 15)]),
    ("storage.k8s.io", 16800, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("apiextensions.k8s.io", 16700, &[("v1", 15)]),
    ("admissionregistration.k8s.io", 16700, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]),
    ("scheduling.k8s.io", 16600, &[("v1", 15), ("v1alpha2", 2)]),
    ("coordination.k8s.io", 16500, &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)]),
    ("node.k8s.io", 16300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("discovery.k8s.io", 16200, &[("v1", 15), ("v1beta1", 12)]),
    ("resource.k8s.io", 16200, &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)]),
    ("flowcontrol.apiserver.k8s.io", 16100, &[("v1", 21), ("v1beta3", 18), ("v1beta2", 15)]),
    ("internal.apiserver.k8s.io", 16000, &[("v1alpha1", 9)]),
    ("storagemigration.k8s.io", 15800, &[("v1beta1", 9)]),
];
const OTHER_PRIORITY: i64 = 15000;
/// What upstream gives a version that has room around it.
const OTHER_VERSION_PRIORITY: i64 = 9;
const CUSTOM: (i64, i64) = (1000, 100);

/// The group itself has no APIService: it is there to manage them.
pub(crate) fn group_priority(group: &str, custom: bool) -> i64 {
    match PRIORITIES.iter().find(|(name, ..)| *name == group) {
        Some((_, priority, _)) => *priority,
        None if group == super::GROUP => 20000,
        None if custom => CUSTOM.0,
        None => OTHER_PRIORITY,
    }
}

/// Whether upstream has the group or the version, served or not.
pub(crate) fn is_known_group(group: &str) -> bool {
    PRIORITIES.iter().any(|(name, ..)| *name == group)
}

pub(crate) fn is_known_version(group: &str, version: &str) -> bool {
    let versions = PRIORITIES.iter().find(|(name, ..)| *name == group).map_or(&[][..], |(_, _, versions)| versions);
    versions.iter().any(|(name, _)| *name == version)
}

fn version_priority(group: &str, version: &str) -> i64 {
    let known = PRIORITIES.iter().find(|(name, ..)| *name == group).map_or(&[][..], |(_, _, versions)| versions);
    known.iter().find(|(name, _)| *name == version).map_or(OTHER_VERSION_PRIORITY, |(_, priority)| *priority)
}

/// The objects that should be there, by name.
pub fn wanted(table: &Table) -> BTreeMap<String, Value> {
    let mut wanted = BTreeMap::new();
    for resource in table.resources() {
        let (group, version, custom) = (resource.kind.group, resource.kind.version, resource.custom.is_some());
        let name = format!("{version}.{group}");
        if group == super::GROUP || wanted.contains_key(&name) {
            continue;
        }
        let (priority, managed) = if custom {
            (CUSTOM, ALWAYS)
        } else {
            ((group_priority(group, false), version_priority(group, version)), ON_START)
        };
        wanted.insert(name.clone(), object(&name, group, version, priority, managed));
    }
    wanted
}

/// An APIService without a Service: what it names is served here.
pub fn object(
    name: &str,
    group: &str,
    version: &str,
    (group_priority, version_priority): (i64, i64),
    managed: &str,
) -> Value {
    let mut spec =
        json!({"version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority});
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": name, "labels": {MANAGED: managed}}, "spec": spec,
    })
}

/// What is to be done about one object of ours.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Nothing,
    Create,
    Update,
    Delete,
}

/// Objects without our mark are somebody else's, and those that name a Service were taken over. Built-in groups differ
/// between servers of different versions, so their objects change only when a server starts: two would argue otherwise.
pub fn next(current: Option<&Value>, wanted: Option<&Value>, first: bool) -> Next {
    let Some(current) = current else { return if wanted.is_some() { Next::Create } else { Next::Nothing } };
    let managed = current["metadata"]["labels"][MANAGED].as_str();
    let ours = managed == Some(ALWAYS) || (managed == Some(ON_START) && first);
    if !ours || !current["spec"]["service"].is_null() {
        return Next::Nothing;
    }
    match wanted {
        None => Next::Delete,
        Some(wanted)
            if current["spec"] != wanted["spec"]
                || current["metadata"]["labels"][MANAGED] != wanted["metadata"]["labels"][MANAGED] =>
        {
            Next::Update
        }
        Some(_) => Next::Nothing,
    }
}
