//! Rows of `kubectl get`, as upstream's printers write them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::KINDS;

fn check(kind: &str, object: Value, expected: Value) {
    let kind = KINDS
        .iter()
        .find(|entry| {
            entry.kind == kind && (object["apiVersion"].is_null() || object["apiVersion"] == entry.api_version())
        })
        .expect("the kind is served");
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
    let row = (kind.row)(&object, now);
    assert_eq!(row.len(), kind.columns.len(), "one cell per column of {}", kind.kind);
    assert_eq!(Value::Array(row), expected);
}

const CREATED: &str = "2026-01-01T00:00:00Z";

#[test]
fn services() {
    check(
        "Service",
        json!({
            "metadata": {"name": "s", "creationTimestamp": CREATED},
            "spec": {
                "type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "selector": {"b": "2", "a": "1"},
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}, {"port": 53, "protocol": "UDP"}]
            },
            "status": {"loadBalancer": {}}
        }),
        json!(["s", "LoadBalancer", "10.0.0.1", "<pending>", "80:30000/TCP,53/UDP", "60m", "a=1,b=2"]),
    );
    check(
        "Service",
        json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "a.b"}}),
        json!(["s", "ExternalName", "<none>", "a.b", "<none>", "<unknown>", "<none>"]),
    );
}

#[test]
fn endpoints_and_slices() {
    let addresses: Vec<Value> = (1..=5).map(|last| json!({"ip": format!("10.0.0.{last}")})).collect();
    check(
        "Endpoints",
        json!({
            "metadata": {"name": "e", "creationTimestamp": CREATED},
            "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]
        }),
        json!(["e", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...", "60m"]),
    );
    check(
        "EndpointSlice",
        json!({
            "metadata": {"name": "e", "creationTimestamp": CREATED}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": []
        }),
        json!(["e", "IPv4", "<unset>", "10.0.0.1", "60m"]),
    );
}

#[test]
fn nodes() {
    check(
        "Node",
        json!({
            "metadata": {
                "name": "n1", "creationTimestamp": CREATED, "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "db"}
            },
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "False"}],
                "addresses": [{"type": "InternalIP", "address": "192.168.0.2"}],
                "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Linux"}
            }
        }),
        json!([
            "n1",
            "NotReady,SchedulingDisabled",
            "db,worker",
            "60m",
            "v1.36.4",
            "192.168.0.2",
            "<none>",
            "Linux",
            "<unknown>",
            "<unknown>"
        ]),
    );
}

#[test]
fn storage() {
    check(
        "PersistentVolume",
        json!({
            "metadata": {"name": "v", "creationTimestamp": CREATED},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"},
                "storageClassName": "fast", "volumeMode": "Filesystem"
            },
            "status": {"phase": "Bound"}
        }),
        json!(["v", "1Gi", "RWO,RWX", "Retain", "Bound", "n/c", "fast", "<unset>", "", "60m", "Filesystem"]),
    );
    check(
        "PersistentVolumeClaim",
        json!({"metadata": {"name": "c", "creationTimestamp": CREATED}, "spec": {}, "status": {"phase": "Pending"}}),
        json!(["c", "Pending", "", "", "", "", "<unset>", "60m", "<unset>"]),
    );
    check(
        "StorageClass",
        json!({
            "metadata": {"name": "s", "creationTimestamp": CREATED, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "a/b", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"
        }),
        json!(["s (default)", "a/b", "Delete", "Immediate", false, "60m"]),
    );
}

#[test]
fn quotas() {
    check(
        "ResourceQuota",
        json!({
            "metadata": {"name": "q", "creationTimestamp": CREATED}, "spec": {"hard": {"pods": "3", "limits.cpu": "2"}},
            "status": {"hard": {"pods": "3"}, "used": {"pods": "1"}}
        }),
        json!(["q", "pods: 1/3", "limits.cpu: 0/0", "60m"]),
    );
}

#[test]
fn events_look_the_same_in_both_groups() {
    let core = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
        "reason": "Pulled", "message": " text\n", "type": "Normal", "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2026-01-01T00:50:00Z", "lastTimestamp": "2026-01-01T00:59:00Z", "count": 4,
        "reportingComponent": "kubelet", "reportingInstance": "n1"
    });
    let kind = KINDS.iter().find(|kind| kind.group == "events.k8s.io").expect("served");
    let convert = kind.convert.as_ref().expect("another form is stored");
    let served = (convert.from_storage)(core.clone());
    assert_eq!(served["apiVersion"], "events.k8s.io/v1");
    assert_eq!(served["regarding"]["name"], "p");
    assert_eq!(served["deprecatedCount"], 4);
    assert_eq!((convert.to_storage)(served.clone()), core);
    let row = json!(["60s", "Normal", "Pulled", "pod/p", "spec.containers{c}", "kubelet, n1", "text", "10m", 4, "e"]);
    check("Event", core, row.clone());
    check("Event", served, row);
}

#[test]
fn names_of_events_are_for_wide_output() {
    let kinds: Vec<_> = KINDS.iter().filter(|kind| kind.kind == "Event").collect();
    assert_eq!(kinds.len(), 2);
    for kind in kinds {
        let name = kind.columns.iter().find(|column| column.name == "Name").expect("a name");
        assert_eq!((name.format, name.priority), ("name", 1), "{}", kind.group);
    }
}
