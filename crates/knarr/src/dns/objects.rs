//! What the cluster's DNS needs in the API: its Service, and what its accounts may do. As kubeadm makes them, where it does.

use std::net::IpAddr;

use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";
/// That of CoreDNS, which its manifests bring along, has another name: neither may replace the other.
const ROLE: &str = "knarr:dns";
/// What a node may do for the sake of its own DNS.
const NODE_ROLE: &str = "knarr:node-dns";

/// In the order in which they are made.
pub fn objects(addresses: &[IpAddr]) -> Vec<Value> {
    let account = json!({"kind": "ServiceAccount", "name": dns::ACCOUNT, "namespace": NAMESPACE});
    let nodes = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"});
    let read = ["list", "watch"];
    let slices = json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read});
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": dns::ACCOUNT, "namespace": NAMESPACE},
        }),
        role(
            "ClusterRole",
            ROLE,
            json!([
                {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": read},
                slices,
            ]),
        ),
        binding("ClusterRole", ROLE, &[&account]),
        role(
            "ClusterRole",
            NODE_ROLE,
            json!([
                {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": read},
                {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["coredns-custom"], "verbs": read},
                slices,
            ]),
        ),
        binding("ClusterRole", NODE_ROLE, &[&account, &nodes]),
        role(
            "Role",
            NODE_ROLE,
            json!([
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "create", "update", "patch", "delete"]},
            ]),
        ),
        binding("Role", NODE_ROLE, &[&account, &nodes]),
        service(addresses),
    ]
}

fn role(kind: &str, name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata(kind, name), "rules": rules})
}

fn binding(kind: &str, name: &str, subjects: &[&Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{kind}Binding"),
        "metadata": metadata(kind, name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": subjects,
    })
}

fn metadata(kind: &str, name: &str) -> Value {
    match kind {
        "Role" => json!({"name": name, "namespace": NAMESPACE}),
        _ => json!({"name": name}),
    }
}

/// Without a selector: every node writes its own endpoint. One that is there already stays as it is.
fn service(addresses: &[IpAddr]) -> Value {
    let port = |name: &str, protocol: &str, number: u16| json!({"name": name, "port": number, "protocol": protocol, "targetPort": number});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": NAMESPACE,
            "annotations": {"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
            "labels": {
                "k8s-app": "kube-dns",
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            // Pods may be told of others besides; a Service has one of each family, and there is one range of Services.
            "clusterIP": addresses.first(),
            "ports": [port("dns", "UDP", 53), port("dns-tcp", "TCP", 53), port("metrics", "TCP", 9153)],
            "trafficDistribution": "PreferSameNode",
            "type": "ClusterIP",
        },
    })
}
