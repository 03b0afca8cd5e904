//! Objects that no reasonable user would make, in a namespace of their own that has no service account.

use serde_json::{Value, json};

use crate::world::World;

pub async fn create(world: &World) {
    let namespace = "hostile";
    let everything = json!({"matchExpressions": [{"key": "nothing", "operator": "DoesNotExist"}]});
    let template = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let workload = |kind: &str, name: &str, replicas: i64| {
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": replicas, "selector": everything, "template": template, "serviceName": "none"}})
    };
    let objects = [
        workload("ReplicaSet", "two-billion", 2_000_000_000),
        workload("ReplicaSet", "all-of-them", 1),
        workload("Deployment", "two-billion", 2_000_000_000),
        workload("StatefulSet", "two-billion", 2_000_000_000),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "wide", "namespace": namespace},
            "spec": {"selector": {"x": "y"}, "ports": [{"port": 65535, "targetPort": "a-name-nobody-has"}]}}),
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "alone", "namespace": namespace},
            "subsets": [{"addresses": [{"ip": "192.0.2.1"}]}]}),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "huge", "namespace": namespace},
            "spec": {"parallelism": 2_000_000_000, "completions": 2_000_000_000, "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "never", "namespace": namespace},
            "spec": {"schedule": "0 0 31 2 *", "jobTemplate": {"spec": {"template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all", "namespace": namespace},
            "spec": {"minAvailable": "100%", "selector": {}}}),
    ];
    for object in &objects {
        // What validation refuses can do no harm; what it accepts is what this is about.
        let _ = world.create(object).await;
    }
    owner_cycle(world, namespace).await;
}

/// Two objects that own each other, and one that owns itself.
async fn owner_cycle(world: &World, namespace: &str) {
    let mut made: Vec<Value> = Vec::new();
    for name in ["one", "other", "itself"] {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
        made.push(world.create(&object).await.expect("a config map"));
    }
    for (index, owner) in [(0, 1), (1, 0), (2, 2)] {
        let name = made[index]["metadata"]["name"].as_str().unwrap_or_default();
        let metadata = &made[owner]["metadata"];
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": true});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let patch = json!({"metadata": {"ownerReferences": [reference], "finalizers": ["hostile.example.com/never"]}});
        let _ = world.send("PATCH", &path, "application/merge-patch+json", &patch).await;
    }
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/one");
    let _ = world.send("DELETE", &path, "application/json", &json!({"propagationPolicy": "Foreground"})).await;
}
