//! Pods and Nodes with most of their fields left out, for what runs on every node beside the kubelet: the routes between
//! nodes and the rules of network policies need addresses and labels of the whole cluster, and nothing else of it.
//!
//! They are read by their own names (`podaddresses`, `nodeaddresses`), so that a role can give them to nodes without giving
//! the objects. Discovery does not show them: who deletes or counts all that a namespace holds would meet pods twice.

use component_helpers::host_ports;
use machinery::kind::{Convert, Kind, Scope};
use serde_json::{Map, Value, json};

pub const GROUP: &str = "network.knarr.dev";

/// Where each whole kind is read, and where its reduced form is.
pub const PATHS: &[(&str, &str)] = &[
    ("/api/v1/pods", "/apis/network.knarr.dev/v1/podaddresses"),
    ("/api/v1/nodes", "/apis/network.knarr.dev/v1/nodeaddresses"),
];

/// Every reduced kind. Each is stored as another kind of the same name.
pub static KINDS: [&Kind; 2] = [&PODS, &NODES];

static PODS: Kind = Kind {
    kind: "Pod",
    plural: "podaddresses",
    singular: "podaddress",
    schema: "io.k8s.api.core.v1.Pod",
    storage: "pods",
    convert: Some(Convert { group: "", version: "v1", to_storage: |object| object, from_storage: pod }),
    ..READ_ONLY
};

static NODES: Kind = Kind {
    kind: "Node",
    plural: "nodeaddresses",
    singular: "nodeaddress",
    scope: Scope::Cluster,
    schema: "io.k8s.api.core.v1.Node",
    storage: "minions",
    convert: Some(Convert { group: "", version: "v1", to_storage: |object| object, from_storage: node }),
    ..READ_ONLY
};

const READ_ONLY: Kind = Kind { group: GROUP, verbs: &["list", "watch"], ..Kind::COMMON };

/// The only annotation of pods that is shown: the node knows a pod of a manifest by this instead of by its uid.
const MANIFEST_HASH: &str = "kubernetes.io/config.hash";

/// The only label of nodes that is shown: the proxy prefers endpoints of its own zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The only taint of nodes that is shown: the proxy of a node that is about to be removed tells load balancers so.
const LEAVING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

fn pod(object: Value) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut reduced = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata(&object["metadata"]),
        "spec": pick(spec, &["nodeName", "hostNetwork"]),
        "status": pick(status, &["phase", "podIP", "podIPs"]),
    });
    for list in ["containers", "initContainers"] {
        reduced["spec"][list] = named_ports(&spec[list]);
    }
    reduced
}

/// The containers that have named ports, as far as these go.
fn named_ports(containers: &Value) -> Value {
    let named = containers.as_array().into_iter().flatten().filter_map(|container| {
        let ports = container["ports"].as_array()?.iter().filter(|port| port["name"].is_string());
        let ports: Vec<Value> = ports.map(|port| pick(port, &["name", "containerPort", "protocol"])).collect();
        (!ports.is_empty()).then(|| json!({"name": "", "ports": ports}))
    });
    named.collect()
}

fn node(object: Value) -> Value {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    // Whether the node has said that its network is there.
    let network = conditions.filter(|condition| condition["type"] == "NetworkUnavailable");
    let network: Vec<Value> = network.map(|condition| pick(condition, &["type", "status"])).collect();
    let addresses = object.pointer("/status/addresses").cloned().unwrap_or_else(|| json!([]));
    let metadata = pick(&object["metadata"], &["name", "uid", "resourceVersion", "deletionTimestamp"]);
    let mut reduced = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata,
        "spec": pick(&object["spec"], &["podCIDR", "podCIDRs"]),
        "status": {"addresses": addresses, "conditions": network},
    });
    if let Some(zone) = object["metadata"].get("labels").and_then(|all| all.get(ZONE)) {
        reduced["metadata"]["labels"] = json!({ZONE: zone});
    }
    let taints = object["spec"]["taints"].as_array().into_iter().flatten();
    if let Some(leaving) = taints.into_iter().find(|taint| taint["key"] == LEAVING_TAINT) {
        reduced["spec"]["taints"] = json!([leaving]);
    }
    // No node gives another node's own ports to a Service.
    if let Some(ports) = object["metadata"].get("annotations").and_then(|all| all.get(host_ports::ANNOTATION)) {
        reduced["metadata"]["annotations"] = json!({host_ports::ANNOTATION: ports});
    }
    if let Some(endpoints) = object["status"].get("daemonEndpoints") {
        reduced["status"]["daemonEndpoints"] = endpoints.clone();
    }
    reduced
}

fn metadata(metadata: &Value) -> Value {
    let mut reduced = pick(metadata, &["name", "namespace", "uid", "resourceVersion", "labels"]);
    if let Some(hash) = metadata.get("annotations").and_then(|all| all.get(MANIFEST_HASH)) {
        reduced["annotations"] = json!({MANIFEST_HASH: hash});
    }
    reduced
}

/// Those fields alone, where they are.
fn pick(object: &Value, fields: &[&str]) -> Value {
    let found = fields.iter().filter_map(|field| Some(((*field).to_owned(), object.get(field)?.clone())));
    Value::Object(found.collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_shows_addresses_labels_and_named_ports_only() {
        let whole = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"app": "a"},
                "annotations": {"secret": "x", MANIFEST_HASH: "h"}, "managedFields": [{"manager": "m"}],
                "ownerReferences": [{"name": "o"}]},
            "spec": {"nodeName": "m", "hostNetwork": true, "serviceAccountName": "sa", "volumes": [{"name": "v"}],
                "containers": [
                    {"name": "c", "image": "i", "env": [{"name": "PASSWORD", "value": "hunter2"}], "ports": [
                        {"name": "web", "containerPort": 80, "protocol": "TCP", "hostPort": 8080}, {"containerPort": 81}]},
                    {"name": "d", "image": "j", "command": ["x"], "ports": [{"containerPort": 82}]}],
                "initContainers": [{"name": "i", "ports": [{"name": "side", "containerPort": 90}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "1.2.3.4",
                "containerStatuses": [{"imageID": "i"}]},
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"app": "a"},
                "annotations": {MANIFEST_HASH: "h"}},
            "spec": {"nodeName": "m", "hostNetwork": true,
                "containers": [{"name": "", "ports": [{"name": "web", "containerPort": 80, "protocol": "TCP"}]}],
                "initContainers": [{"name": "", "ports": [{"name": "side", "containerPort": 90}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        assert_eq!(pod(whole), expected);
        let empty = pod(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}));
        assert_eq!(empty["spec"], json!({"containers": [], "initContainers": []}));
    }

    #[test]
    fn a_node_shows_ranges_addresses_and_what_its_proxy_asks_for() {
        let leaving = json!({"key": LEAVING_TAINT, "effect": "NoSchedule", "value": "1"});
        let whole = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "uid": "u", "labels": {"a": "b", ZONE: "z"}, "deletionTimestamp": "t",
                "annotations": {"c": "d", host_ports::ANNOTATION: "tcp:22"}},
            "spec": {"podCIDR": "10.42.0.0/24", "podCIDRs": ["10.42.0.0/24"], "taints": [{"key": "k"}, leaving]},
            "status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}], "images": [{"names": ["i"]}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "conditions": [{"type": "Ready", "status": "True"},
                    {"type": "NetworkUnavailable", "status": "False", "message": "m"}]},
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "uid": "u", "labels": {ZONE: "z"}, "deletionTimestamp": "t",
                "annotations": {host_ports::ANNOTATION: "tcp:22"}},
            "spec": {"podCIDR": "10.42.0.0/24", "podCIDRs": ["10.42.0.0/24"], "taints": [leaving]},
            "status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "conditions": [{"type": "NetworkUnavailable", "status": "False"}]},
        });
        assert_eq!(node(whole), expected);
    }
}
