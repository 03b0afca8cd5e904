//! The map of a namespace: from Ingress to Service to pods, from workloads to their pods, from pods to nodes and volumes.
//! Pure: objects in, nodes and edges out.

use std::collections::{BTreeMap, BTreeSet};

use machinery::selector::LabelSelector;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::table::health::judge;
use crate::table::row::each;

/// A picture with more is not looked at.
const NODES_MAX: usize = 600;

/// What is drawn, in the order in which it is kept when there is too much.
pub(crate) const KINDS: [(&str, &str, &str, &str); 10] = [
    ("networking.k8s.io", "v1", "ingresses", "Ingress"),
    ("", "v1", "services", "Service"),
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("apps", "v1", "daemonsets", "DaemonSet"),
    ("batch", "v1", "jobs", "Job"),
    ("apps", "v1", "replicasets", "ReplicaSet"),
    ("", "v1", "pods", "Pod"),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("", "v1", "nodes", "Node"),
];

/// Objects by their resource.
pub(crate) type Objects = BTreeMap<&'static str, Vec<Value>>;

#[derive(Default)]
struct Drawing {
    nodes: Vec<Value>,
    known: BTreeSet<String>,
    edges: Vec<Value>,
    truncated: bool,
}

pub(crate) fn draw(objects: &Objects, labels: &LabelSelector) -> Value {
    let mut drawing = Drawing::default();
    let pods: Vec<&Value> = of(objects, "pods").filter(|pod| labels.matches_object(pod)).collect();
    let used_nodes: BTreeSet<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    for (group, version, resource, kind) in KINDS {
        for object in of(objects, resource) {
            let wanted = match resource {
                // A node is drawn for its pods; an old ReplicaSet without any would only be in the way.
                "nodes" => used_nodes.contains(name(object)),
                "replicasets" => object["spec"]["replicas"] != 0 && labels.matches_object(object),
                _ => labels.matches_object(object),
            };
            if wanted {
                drawing.node(&Kind::new(group, version, resource), kind, object);
            }
        }
    }
    for ingress in of(objects, "ingresses") {
        let default = &ingress["spec"]["defaultBackend"];
        let paths = each(&ingress["spec"]["rules"]).flat_map(|rule| {
            each(&rule["http"]["paths"])
                .map(move |path| (&path["backend"], format!("{}{}", text(&rule["host"]), text(&path["path"]))))
        });
        for (backend, label) in paths.chain((!default.is_null()).then_some((default, String::new()))) {
            if let Some(service) = backend["service"]["name"].as_str() {
                drawing.edge(id("Ingress", ingress), format!("Service/{}/{service}", namespace(ingress)), &label);
            }
        }
    }
    for service in of(objects, "services") {
        let Some(selector) = service["spec"]["selector"].as_object().filter(|selector| !selector.is_empty()) else {
            continue;
        };
        let selector = LabelSelector::from_labels(selector);
        for pod in pods.iter().filter(|pod| namespace(pod) == namespace(service) && selector.matches_object(pod)) {
            drawing.edge(id("Service", service), id("Pod", pod), "");
        }
    }
    for (resource, kind) in [("replicasets", "ReplicaSet"), ("pods", "Pod"), ("jobs", "Job")] {
        for object in of(objects, resource) {
            for owner in each(&object["metadata"]["ownerReferences"]) {
                let from = format!("{}/{}/{}", text(&owner["kind"]), namespace(object), text(&owner["name"]));
                drawing.edge(from, id(kind, object), "");
            }
        }
    }
    for pod in &pods {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            drawing.edge(id("Pod", pod), format!("Node//{node}"), "");
        }
        for volume in each(&pod["spec"]["volumes"]) {
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                drawing.edge(
                    id("Pod", pod),
                    format!("PersistentVolumeClaim/{}/{claim}", namespace(pod)),
                    text(&volume["name"]),
                );
            }
        }
    }
    json!({"nodes": drawing.nodes, "edges": drawing.edges, "truncated": drawing.truncated})
}

impl Drawing {
    fn node(&mut self, kind: &Kind, shown: &str, object: &Value) {
        if self.nodes.len() >= NODES_MAX {
            self.truncated = true;
            return;
        }
        let id = id(shown, object);
        let (health, problem) = judge(kind, object);
        let summary = problem.map(|problem| problem.reason).unwrap_or_else(|| summary(&kind.resource, object));
        self.known.insert(id.clone());
        self.nodes.push(json!({
            "id": id, "kind": shown, "group": kind.group, "version": kind.version, "resource": kind.resource,
            "namespace": namespace(object), "name": name(object), "health": health, "summary": summary,
        }));
    }

    /// Between what is drawn only.
    fn edge(&mut self, from: String, to: String, label: &str) {
        if self.known.contains(&from) && self.known.contains(&to) {
            self.edges.push(json!({"from": from, "to": to, "label": label}));
        }
    }
}

fn summary(resource: &str, object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    match resource {
        "services" => format!("{} {}", text(&spec["type"]), text(&spec["clusterIP"])),
        "pods" => text(&status["podIP"]).to_string(),
        "persistentvolumeclaims" => text(&status["capacity"]["storage"]).to_string(),
        "deployments" | "statefulsets" | "replicasets" => {
            format!("{}/{}", status["readyReplicas"].as_i64().unwrap_or(0), spec["replicas"].as_i64().unwrap_or(1))
        }
        "daemonsets" => format!(
            "{}/{}",
            status["numberReady"].as_i64().unwrap_or(0),
            status["desiredNumberScheduled"].as_i64().unwrap_or(0)
        ),
        "ingresses" => each(&spec["rules"]).filter_map(|rule| rule["host"].as_str()).collect::<Vec<_>>().join(", "),
        _ => String::new(),
    }
}

fn of<'a>(objects: &'a Objects, resource: &str) -> impl Iterator<Item = &'a Value> {
    objects.get(resource).into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn namespace(object: &Value) -> &str {
    text(&object["metadata"]["namespace"])
}

fn id(kind: &str, object: &Value) -> String {
    format!("{kind}/{}/{}", namespace(object), name(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_door_to_the_disk() {
        let meta = |name: &str| json!({"name": name, "namespace": "a", "labels": {"app": "web"}});
        let mut pod = json!({"metadata": meta("web-1"), "spec": {"nodeName": "n1",
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]}});
        pod["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "name": "web"}]);
        let objects: Objects = [
            (
                "ingresses",
                vec![json!({"metadata": meta("door"), "spec": {"rules": [{"host": "h", "http": {"paths": [
                {"path": "/", "backend": {"service": {"name": "web"}}},
                {"path": "/gone", "backend": {"service": {"name": "gone"}}}]}}]}})],
            ),
            ("services", vec![json!({"metadata": meta("web"), "spec": {"selector": {"app": "web"}}})]),
            (
                "replicasets",
                vec![
                    json!({"metadata": meta("web"), "spec": {"replicas": 1}}),
                    json!({"metadata": meta("old"), "spec": {"replicas": 0}}),
                ],
            ),
            ("pods", vec![pod]),
            ("persistentvolumeclaims", vec![json!({"metadata": meta("disk")})]),
            ("nodes", vec![json!({"metadata": {"name": "n1"}}), json!({"metadata": {"name": "n2"}})]),
        ]
        .into();
        let drawn = draw(&objects, &LabelSelector::default());
        let edges: Vec<String> =
            each(&drawn["edges"]).map(|edge| format!("{} {}", text(&edge["from"]), text(&edge["to"]))).collect();
        assert_eq!(
            edges,
            [
                "Ingress/a/door Service/a/web",
                "Service/a/web Pod/a/web-1",
                "ReplicaSet/a/web Pod/a/web-1",
                "Pod/a/web-1 Node//n1",
                "Pod/a/web-1 PersistentVolumeClaim/a/disk",
            ]
        );
        assert_eq!(drawn["nodes"].as_array().unwrap().len(), 6);
        assert_eq!(drawn["truncated"], false);
    }
}
