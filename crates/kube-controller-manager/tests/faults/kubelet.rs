//! Plays scheduler and kubelet: pods get a node, an address, and become ready; what is ending ends. It looks whenever the
//! store has changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use store::Revision;

use crate::world::World;

/// Where pods are looked after; those of floods and hostile users stay as they are.
const PODS: [&str; 2] = ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/kube-system/pods"];
/// What changes within this time is looked at once.
const GATHERED: Duration = Duration::from_millis(10);
const RENEWED: Duration = Duration::from_secs(10);

/// Until it is dropped.
pub async fn play(world: Arc<World>) {
    let mut newest = world.store.newest();
    let mut addresses: HashMap<String, usize> = HashMap::new();
    let mut tended: HashMap<Arc<str>, Revision> = HashMap::new();
    loop {
        newest.borrow_and_update();
        for entry in PODS.iter().flat_map(|path| world.stored(path)) {
            if tended.get(&entry.key) == Some(&entry.revision) {
                continue;
            }
            let pod: Value = serde_json::from_slice(&entry.value).expect("objects are stored as text");
            let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
            let next = addresses.len();
            let address = *addresses.entry(uid).or_insert(next);
            // Whatever fails is tried again at the next look.
            if tend(&world, &pod, address).await.is_ok() {
                tended.insert(entry.key, entry.revision);
            }
        }
        let changed = if renew(&world).await {
            tokio::time::timeout(RENEWED, newest.changed()).await.unwrap_or(Ok(()))
        } else {
            newest.changed().await
        };
        if changed.is_err() {
            return;
        }
        tokio::time::sleep(GATHERED).await;
    }
}

/// The node says that it lives, where it has a Lease to say so.
async fn renew(world: &World) -> bool {
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    let leases = world.stored("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    let Some(there) = leases.iter().find(|entry| entry.key.ends_with("/n1")) else { return false };
    let there: Value = serde_json::from_slice(&there.value).expect("objects are stored as text");
    let renewed = there.pointer("/spec/renewTime").and_then(Value::as_str).and_then(|text| text.parse().ok());
    let now = world.time.now();
    if renewed.is_some_and(|renewed: jiff::Timestamp| now.duration_since(renewed) < jiff::SignedDuration::from_secs(9))
    {
        return true;
    }
    let patch = json!({"spec": {"renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()}});
    // The next look tries again.
    let _ = world.send("PATCH", lease, "application/merge-patch+json", &patch).await;
    let Ok(node) = world.send("GET", "/api/v1/nodes/n1", "", &Value::Null).await else { return true };
    if node.pointer("/status/conditions/0/status").and_then(Value::as_str) != Some("True") {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": world.time.stamp(),
            "lastTransitionTime": world.time.stamp()}]}});
        let _ = world.send("PATCH", "/api/v1/nodes/n1/status", "application/merge-patch+json", &status).await;
    }
    true
}

async fn tend(world: &World, pod: &Value, address: usize) -> Result<(), kube::Error> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
    let (namespace, name) =
        (text("/metadata/namespace").unwrap_or_default(), text("/metadata/name").unwrap_or_default());
    let usual = if text("/spec/restartPolicy") == Some("Never") { "Succeeded" } else { "Running" };
    let wanted = text("/metadata/annotations/ends").unwrap_or(usual);
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
    let ready = if wanted == "Running" { "True" } else { "False" };
    // Whatever others say of a pod on a node that lives, its kubelet knows better.
    let lives = text("/spec/nodeName") == Some("n1");
    if text("/status/phase") == Some(wanted) && (text("/status/conditions/0/status") == Some(ready) || !lives) {
        return Ok(());
    }
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
