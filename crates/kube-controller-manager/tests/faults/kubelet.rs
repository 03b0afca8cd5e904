//! Plays scheduler and kubelet: pods get the one node, an address, and become ready; what is ending ends.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::World;

const PODS: &str = "/api/v1/pods";

/// Until it is dropped.
pub async fn play(world: Arc<World>) {
    let mut address = 0;
    loop {
        for pod in world.list(PODS).await {
            address += 1;
            // Whatever fails is tried again at the next look.
            let _ = tend(&world, &pod, address).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn tend(world: &World, pod: &Value, address: usize) -> Result<(), kube::Error> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
    let (namespace, name) =
        (text("/metadata/namespace").unwrap_or_default(), text("/metadata/name").unwrap_or_default());
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    if text("/metadata/deletionTimestamp").is_some() {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": text("/metadata/uid")}});
        world.send("DELETE", &path, "application/json", &options).await?;
        return Ok(());
    }
    if text("/spec/nodeName").is_none() {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
        world.send("POST", &format!("{path}/binding"), "application/json", &binding).await?;
    }
    let wanted = text("/metadata/annotations/ends").unwrap_or("Running");
    if text("/status/phase") == Some(wanted) {
        return Ok(());
    }
    let ready = if wanted == "Running" { "True" } else { "False" };
    let ip = format!("10.{}.{}.{}", 1 + address / 62_500, (address / 250) % 250, 1 + address % 250);
    let now = jiff::Timestamp::now();
    let seconds = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let status = json!({"status": {"phase": wanted, "podIP": ip, "podIPs": [{"ip": ip}], "startTime": seconds,
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": seconds}]}});
    world.send("PATCH", &format!("{path}/status"), "application/merge-patch+json", &status).await?;
    Ok(())
}
