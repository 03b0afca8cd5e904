//! Plays scheduler and kubelet: pods get a node, an address, and become ready; what is ending ends. It looks whenever the
//! store has changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::World;

/// Where pods are looked after; those of floods and hostile users stay as they are.
const PODS: [&str; 2] = ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/kube-system/pods"];
/// What changes within this time is looked at once.
const GATHERED: Duration = Duration::from_millis(10);

/// Until it is dropped.
pub async fn play(world: Arc<World>) {
    let mut newest = world.store.newest();
    let mut addresses: HashMap<String, usize> = HashMap::new();
    loop {
        newest.borrow_and_update();
        let mut pods = world.list(PODS[0]).await;
        pods.extend(world.list(PODS[1]).await);
        for pod in pods {
            let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
            let next = addresses.len();
            let address = *addresses.entry(uid).or_insert(next);
            // Whatever fails is tried again at the next look.
            let _ = tend(&world, &pod, address).await;
        }
        if newest.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(GATHERED).await;
    }
}

async fn tend(world: &World, pod: &Value, address: usize) -> Result<(), kube::Error> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
    let (namespace, name) =
        (text("/metadata/namespace").unwrap_or_default(), text("/metadata/name").unwrap_or_default());
    let wanted = text("/metadata/annotations/ends").unwrap_or("Running");
    if wanted == "Never" {
        return Ok(());
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    if text("/metadata/deletionTimestamp").is_some() {
        if !matches!(text("/status/phase"), Some("Succeeded" | "Failed")) {
            let status = json!({"status": {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]}});
            world.send("PATCH", &format!("{path}/status"), "application/merge-patch+json", &status).await?;
        }
        // With finalizers it stays for those who have to let go of it.
        if pod.pointer("/metadata/deletionGracePeriodSeconds") != Some(&json!(0)) {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": text("/metadata/uid")}});
            world.send("DELETE", &path, "application/json", &options).await?;
        }
        return Ok(());
    }
    if text("/spec/nodeName").is_none() {
        if pod.pointer("/spec/schedulingGates").is_some() {
            return Ok(());
        }
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node(pod)}});
        world.send("POST", &format!("{path}/binding"), "application/json", &binding).await?;
    }
    if text("/status/phase") == Some(wanted) {
        return Ok(());
    }
    let ready = if wanted == "Running" { "True" } else { "False" };
    let ip = format!("10.{}.{}.{}", 1 + address / 62_500, (address / 250) % 250, 1 + address % 250);
    let now = world.time.stamp();
    let status = json!({"status": {"phase": wanted, "podIP": ip, "podIPs": [{"ip": ip}], "startTime": now,
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now}]}});
    world.send("PATCH", &format!("{path}/status"), "application/merge-patch+json", &status).await?;
    Ok(())
}

/// The one that the pod's affinity names, as those of DaemonSets do, or the first.
fn node(pod: &Value) -> &str {
    let named = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    pod.pointer(named).and_then(Value::as_str).unwrap_or("n1")
}
