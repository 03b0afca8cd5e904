//! One object as a list shows it: the server's own cells, and of the object only what filters, sorting and search need.
//! The object itself is not kept: thirty thousand pods would be hundreds of megabytes.

use std::collections::BTreeMap;

use machinery::quantity::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::health::{self, Health, Problem};
use crate::kinds::Kind;

/// A message longer than this is cut: it is for finding and for one line of text.
const TEXT_BYTES_MAX: usize = 512;
/// So many texts of an object can be found.
const TEXTS_MAX: usize = 48;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub priority: i64,
    pub description: String,
}

/// Where a text of an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Field {
    Name,
    Label,
    Image,
    Address,
    Message,
    Annotation,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub cells: Vec<Value>,
    pub labels: BTreeMap<String, String>,
    pub created: String,
    pub deleted: bool,
    pub health: Health,
    pub problem: Option<Problem>,
    pub texts: Vec<(Field, String)>,
    /// What the overview adds up; only pods and nodes have it.
    pub facts: Facts,
    /// All that can be found, in small letters.
    pub lower: String,
    /// About how much memory it takes.
    pub bytes: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Facts {
    #[default]
    None,
    Pod {
        node: String,
        cpu: f64,
        memory: f64,
        /// Whether it uses its node.
        runs: bool,
    },
    Node(Value),
    /// An event, without what nobody reads.
    Event(Value),
    /// What something uses now: cores and bytes.
    Usage {
        cpu: f64,
        memory: f64,
    },
}

impl Row {
    /// From the object and the cells that the server printed for it.
    pub fn new(kind: &Kind, object: &Value, cells: Vec<Value>) -> Row {
        let meta = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let labels: BTreeMap<String, String> =
            meta["labels"].as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect();
        let (health, problem) = health::judge(kind, object);
        let mut row = Row {
            uid: text(&meta["uid"]),
            namespace: text(&meta["namespace"]),
            name: text(&meta["name"]),
            labels,
            created: text(&meta["creationTimestamp"]),
            deleted: meta["deletionTimestamp"].is_string(),
            health,
            problem,
            texts: texts(kind, object),
            facts: facts(kind, object),
            cells: cells.into_iter().map(cut).collect(),
            lower: String::new(),
            bytes: 0,
        };
        row.lower = row.lower_text();
        row.bytes = row.weight();
        row
    }

    /// Texts are told exactly, what they stand in by a rule of thumb.
    fn weight(&self) -> usize {
        const EACH: usize = size_of::<String>() + 16;
        let texts = self.texts.iter().map(|(_, text)| text.len() + EACH);
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len() + 2 * EACH);
        let cells = self.cells.iter().map(|cell| cell.as_str().map_or(0, str::len) + EACH);
        let facts = match &self.facts {
            Facts::None | Facts::Usage { .. } => 0,
            Facts::Pod { node, .. } => node.len(),
            // As JSON in memory: some times its text.
            Facts::Node(value) | Facts::Event(value) => 4 * value.to_string().len(),
        };
        let problem = self.problem.as_ref().map_or(0, |one| one.reason.len() + one.message.len() + one.since.len());
        // Its key in the table once more.
        let names = self.uid.len() + 2 * (self.namespace.len() + self.name.len()) + self.created.len();
        let parts = texts.chain(labels).chain(cells).sum::<usize>();
        size_of::<Row>() + EACH + names + self.lower.len() + parts + facts + problem
    }

    pub fn key(&self) -> String {
        format!("{}\0{}", self.namespace, self.name)
    }

    pub fn event(&self) -> Option<&Value> {
        match &self.facts {
            Facts::Event(event) => Some(event),
            _ => None,
        }
    }

    /// When an event happened last; nothing else has it.
    pub fn seen(&self) -> &str {
        self.event().map(crate::event::time).unwrap_or_default()
    }

    fn lower_text(&self) -> String {
        let mut text = format!("{}\n{}", self.name, self.namespace);
        for (key, value) in &self.labels {
            text += &format!("\n{key}={value}");
        }
        for cell in self.cells.iter().filter_map(Value::as_str) {
            text += &format!("\n{cell}");
        }
        for (_, found) in &self.texts {
            text += &format!("\n{found}");
        }
        text.to_lowercase()
    }

    pub fn shown(&self, usage: Option<(f64, f64)>) -> Value {
        json!({
            "uid": self.uid, "namespace": self.namespace, "name": self.name, "cells": self.cells, "labels": self.labels,
            "created": self.created, "deleted": self.deleted, "health": self.health,
            // Cells are as old as the row: how long ago that was is reckoned by the page.
            "seen": self.event().map(|_| format!("{}Z", self.seen())),
            "usage": usage.map(|(cpu, memory)| json!({"cpu": cpu, "memory": memory})),
        })
    }
}

fn cut(cell: Value) -> Value {
    match cell {
        Value::String(text) => Value::String(shortened(&text)),
        other => other,
    }
}

pub(crate) fn shortened(text: &str) -> String {
    if text.len() > TEXT_BYTES_MAX {
        format!("{}…", &text[..text.floor_char_boundary(TEXT_BYTES_MAX)])
    } else {
        text.to_string()
    }
}

/// What can be found of an object besides its names and labels.
fn texts(kind: &Kind, object: &Value) -> Vec<(Field, String)> {
    let mut found = Vec::new();
    let mut put = |field: Field, value: &Value| {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty())
            && found.len() < TEXTS_MAX
        {
            found.push((field, shortened(text)));
        }
    };
    let (spec, status) = (&object["spec"], &object["status"]);
    for template in [spec, &spec["template"]["spec"], &spec["jobTemplate"]["spec"]["template"]["spec"]] {
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            each(&template[list]).for_each(|container| put(Field::Image, &container["image"]));
        }
    }
    for value in [&status["podIP"], &status["hostIP"], &spec["clusterIP"], &spec["loadBalancerIP"]] {
        put(Field::Address, value);
    }
    for list in [&status["podIPs"], &status["loadBalancer"]["ingress"]] {
        each(list).for_each(|one| [&one["ip"], &one["hostname"]].iter().for_each(|value| put(Field::Address, value)));
    }
    each(&status["addresses"]).for_each(|one| put(Field::Address, &one["address"]));
    each(&spec["rules"]).for_each(|rule| put(Field::Address, &rule["host"]));
    each(&spec["externalIPs"]).for_each(|one| put(Field::Address, one));
    each(&object["endpoints"]).for_each(|one| each(&one["addresses"]).for_each(|address| put(Field::Address, address)));
    put(Field::Message, &status["message"]);
    put(Field::Message, &status["reason"]);
    if kind.resource == "events" {
        [&object["message"], &object["note"], &object["reason"]].iter().for_each(|value| put(Field::Message, value));
    }
    for condition in each(&status["conditions"]).filter(|condition| condition["status"] != "True") {
        put(Field::Message, &condition["message"]);
    }
    for container in each(&status["containerStatuses"]) {
        for state in ["waiting", "terminated"] {
            [&container["state"][state]["reason"], &container["state"][state]["message"]]
                .iter()
                .for_each(|value| put(Field::Message, value));
        }
    }
    for (key, value) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        // It holds the whole object once more.
        if key != "kubectl.kubernetes.io/last-applied-configuration" {
            put(Field::Annotation, &json!(format!("{key}={}", value.as_str().unwrap_or_default())));
        }
    }
    found
}

fn facts(kind: &Kind, object: &Value) -> Facts {
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "pods") => {
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            Facts::Pod {
                node: object["spec"]["nodeName"].as_str().unwrap_or_default().into(),
                cpu: requested(&object["spec"], "cpu"),
                memory: requested(&object["spec"], "memory"),
                runs: !matches!(phase, "Succeeded" | "Failed"),
            }
        }
        ("", "nodes") => Facts::Node(node_facts(object)),
        ("" | "events.k8s.io", "events") => Facts::Event(event_facts(object)),
        ("metrics.k8s.io", _) => {
            let of = |resource: &str| {
                let containers: f64 = each(&object["containers"]).map(|one| quantity(&one["usage"][resource])).sum();
                containers + quantity(&object["usage"][resource])
            };
            Facts::Usage { cpu: of("cpu"), memory: of("memory") }
        }
        _ => Facts::None,
    }
}

/// What a pod asks for: its containers together or the largest init container, whichever is more, as the scheduler counts.
fn requested(spec: &Value, resource: &str) -> f64 {
    let of = |container: &Value| quantity(&container["resources"]["requests"][resource]);
    if let Some(whole) = spec["resources"]["requests"].get(resource) {
        return quantity(whole) + quantity(&spec["overhead"][resource]);
    }
    let stays = |container: &&Value| container["restartPolicy"] == "Always";
    let sum: f64 = each(&spec["containers"]).map(of).sum();
    let sidecars: f64 = each(&spec["initContainers"]).filter(stays).map(of).sum();
    let largest = each(&spec["initContainers"]).filter(|one| !stays(one)).map(of).fold(0.0, f64::max);
    (sum + sidecars).max(largest) + quantity(&spec["overhead"][resource])
}

fn event_facts(event: &Value) -> Value {
    let meta = &event["metadata"];
    json!({
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "creationTimestamp": meta["creationTimestamp"]},
        "involvedObject": event["involvedObject"], "reason": event["reason"], "type": event["type"],
        "message": shortened(event["message"].as_str().unwrap_or_default()), "count": event["count"],
        "firstTimestamp": event["firstTimestamp"], "lastTimestamp": event["lastTimestamp"],
        "deprecatedLastTimestamp": event["deprecatedLastTimestamp"], "eventTime": event["eventTime"], "series": event["series"],
    })
}

fn node_facts(node: &Value) -> Value {
    let status = &node["status"];
    let condition = |name: &str| each(&status["conditions"]).find(|one| one["type"] == name);
    let roles: Vec<&str> = node["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let pressure: Vec<&str> = each(&status["conditions"])
        .filter(|one| one["type"] != "Ready" && one["status"] == "True")
        .filter_map(|one| one["type"].as_str())
        .collect();
    let amounts = |resource: &str| {
        json!({
            "capacity": quantity(&status["capacity"][resource]),
            "allocatable": quantity(&status["allocatable"][resource]),
        })
    };
    json!({
        "name": node["metadata"]["name"],
        "ready": condition("Ready").is_some_and(|one| one["status"] == "True"),
        "unschedulable": node["spec"]["unschedulable"] == true,
        "roles": roles, "pressure": pressure,
        "cpu": amounts("cpu"), "memory": amounts("memory"),
        "pods": {"allocatable": quantity(&status["allocatable"]["pods"])},
        "version": status["nodeInfo"]["kubeletVersion"],
    })
}

pub(crate) fn quantity(value: &Value) -> f64 {
    Quantity::from_value(value).map(|quantity| quantity.as_f64()).unwrap_or(0.0)
}

pub(crate) fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_pod() {
        let pod = json!({
            "metadata": {"uid": "u", "name": "web-1", "namespace": "shop", "labels": {"app": "Web"},
                "annotations": {"note": "<b>x</b>", "kubectl.kubernetes.io/last-applied-configuration": "{secret}"}},
            "spec": {"nodeName": "n1", "containers": [
                {"image": "registry/web:1", "resources": {"requests": {"cpu": "250m", "memory": "1Ki"}}},
                {"image": "side", "resources": {"requests": {"cpu": "0.25"}}},
            ], "initContainers": [{"image": "init", "resources": {"requests": {"cpu": "2"}}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        let row = Row::new(&Kind::new("", "v1", "pods"), &pod, vec![json!("web-1"), json!("x".repeat(2000))]);
        let Facts::Pod { node, cpu, memory, runs } = &row.facts else { panic!("{:?}", row.facts) };
        assert_eq!((node.as_str(), *cpu, *memory, *runs), ("n1", 2.0, 1024.0, true));
        assert!(
            row.lower.contains("app=web") && row.lower.contains("registry/web:1") && row.lower.contains("10.0.0.1")
        );
        assert!(row.lower.contains("note=<b>x</b>") && !row.lower.contains("secret"));
        assert!(row.cells[1].as_str().unwrap().len() < 600);
    }
}
