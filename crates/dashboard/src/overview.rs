//! The whole cluster on one page: nodes and what they carry, what is not healthy and since when. Pure: tables in, JSON out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::table::health::Health;
use crate::table::row::{Facts, Row};
use crate::table::view::Usages;

const UNHEALTHY_MAX: usize = 200;

/// One list that the overview looks at.
pub(crate) struct Listed {
    pub kind: Kind,
    /// As users call it.
    pub name: &'static str,
    pub rows: Vec<Arc<Row>>,
}

/// Pods and nodes first; what is counted and looked over for trouble.
pub(crate) const LISTS: [(&str, &str, &str, &str); 10] = [
    ("", "v1", "nodes", "Node"),
    ("", "v1", "pods", "Pod"),
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("apps", "v1", "daemonsets", "DaemonSet"),
    ("batch", "v1", "jobs", "Job"),
    ("", "v1", "services", "Service"),
    ("networking.k8s.io", "v1", "ingresses", "Ingress"),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("", "v1", "namespaces", "Namespace"),
];

pub(crate) fn overview(lists: &[Listed], node_usages: &Usages) -> Value {
    let counts: BTreeMap<&str, usize> =
        lists.iter().map(|list| (list.kind.resource.as_str(), list.rows.len())).collect();
    json!({"nodes": nodes(lists, node_usages), "unhealthy": unhealthy(lists), "counts": counts})
}

fn nodes(lists: &[Listed], usages: &Usages) -> Vec<Value> {
    let rows = |resource: &str| {
        let list = lists.iter().find(|list| list.kind.is("", resource));
        list.map(|list| list.rows.as_slice()).unwrap_or_default()
    };
    let mut carried: BTreeMap<&str, (f64, f64, usize)> = BTreeMap::new();
    for pod in rows("pods") {
        if let Facts::Pod { node, cpu, memory, runs: true } = &pod.facts {
            let sums = carried.entry(node).or_default();
            *sums = (sums.0 + cpu, sums.1 + memory, sums.2 + 1);
        }
    }
    let mut shown = Vec::new();
    for row in rows("nodes") {
        let Facts::Node(facts) = &row.facts else { continue };
        let mut node = facts.clone();
        let (cpu, memory, pods) = carried.get(row.name.as_str()).copied().unwrap_or_default();
        let usage = usages.get(&row.key());
        node["cpu"]["requests"] = json!(cpu);
        node["memory"]["requests"] = json!(memory);
        node["pods"]["running"] = json!(pods);
        node["cpu"]["usage"] = json!(usage.map(|usage| usage.0));
        node["memory"]["usage"] = json!(usage.map(|usage| usage.1));
        shown.push(node);
    }
    shown
}

fn since(row: &Row) -> &str {
    row.problem.as_ref().map(|problem| problem.since.as_str()).unwrap_or_default()
}

/// The worst first, of those the one that has been so for longest.
fn unhealthy(lists: &[Listed]) -> Vec<Value> {
    let mut found: Vec<(&Listed, &Arc<Row>)> = Vec::new();
    for list in lists {
        found.extend(list.rows.iter().filter(|row| row.health >= Health::Warning).map(|row| (list, row)));
    }
    found.sort_by(|(_, one), (_, other)| other.health.cmp(&one.health).then_with(|| since(one).cmp(since(other))));
    found.truncate(UNHEALTHY_MAX);
    let shown = found.into_iter().map(|(list, row)| {
        let problem = row.problem.as_ref();
        let since = Some(since(row)).filter(|since| !since.is_empty());
        json!({
            "kind": list.name, "group": list.kind.group, "version": list.kind.version, "resource": list.kind.resource,
            "namespace": row.namespace, "name": row.name, "health": row.health,
            "reason": problem.map(|problem| &problem.reason), "message": problem.map(|problem| &problem.message),
            "since": since,
        })
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_carry_and_what_is_wrong() {
        let list = |resource: &str, name: &'static str, objects: Vec<Value>| {
            let kind = Kind::new("", "v1", resource);
            let rows = objects.iter().map(|object| Arc::new(Row::new(&kind, object, Vec::new()))).collect();
            Listed { kind, name, rows }
        };
        let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let pod = |name: &str, phase: &str, reason: Option<&str>| {
            let waiting = reason.map(|reason| json!([{"state": {"waiting": {"reason": reason}}}]));
            json!({"metadata": {"name": name, "namespace": "a"},
                "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "500m"}}}]},
                "status": {"phase": phase, "containerStatuses": waiting}})
        };
        let pods = vec![
            pod("good", "Running", None),
            pod("done", "Succeeded", None),
            pod("bad", "Running", Some("CrashLoopBackOff")),
        ];
        let shown = overview(&[list("nodes", "Node", vec![node]), list("pods", "Pod", pods)], &Usages::new());
        assert_eq!(shown["nodes"][0]["cpu"]["requests"], 1.0);
        assert_eq!(shown["nodes"][0]["pods"], json!({"allocatable": 110.0, "running": 2}));
        assert_eq!(shown["unhealthy"].as_array().unwrap().len(), 1);
        assert_eq!(shown["unhealthy"][0]["reason"], "CrashLoopBackOff");
        assert_eq!(shown["counts"], json!({"nodes": 1, "pods": 3}));
    }
}
