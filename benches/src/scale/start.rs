//! How long pods take to start in the full cluster: some at a time, as upstream's objective has it, each from its creation until
//! a watch tells that it is Ready.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use testkit::Watch;

use super::{Sizes, world::World};
use crate::report::{self, Latencies};

const PODS: usize = 500;
const EVERY: Duration = Duration::from_millis(50);
const NAMESPACE: &str = "scale-start";

pub async fn run(world: &World, sizes: &Sizes) -> anyhow::Result<()> {
    world.cluster.namespace(NAMESPACE).await?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let client = world.cluster.server.client()?;
    let mut watch = client.watch(&format!("{path}?watch=true")).await?;
    let sent = parking_lot::Mutex::new(HashMap::new());
    let creating = async {
        let mut tick = tokio::time::interval(EVERY);
        for number in 0..PODS {
            tick.tick().await;
            let name = format!("start-{number}");
            let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}});
            let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
            sent.lock().insert(name, Instant::now());
            world.cluster.send("POST", &path, &pod).await.context("create a pod")?;
        }
        anyhow::Ok(())
    };
    let mut latencies = Vec::new();
    let watching = async {
        while latencies.len() < PODS {
            if let Some(name) = next_ready(&mut watch).await?
                && let Some(began) = sent.lock().remove(&name)
            {
                latencies.push(began.elapsed());
            }
        }
        anyhow::Ok(())
    };
    let both = async { futures::future::try_join(creating, watching).await };
    let outcome = tokio::time::timeout(sizes.stage_max().min(Duration::from_secs(300)), both).await;
    let started = latencies.len();
    let latencies = Latencies::new(latencies);
    report::line("scale: pod start p50", latencies.ms(0.5), "ms");
    report::line("scale: pod start p99", latencies.ms(0.99), "ms");
    match outcome {
        Ok(outcome) => outcome.map(|_| ()),
        Err(_) => bail!("{started} of {PODS} pods started in time"),
    }
}

/// The name of a pod that the next event tells to be Ready.
async fn next_ready(watch: &mut Watch) -> anyhow::Result<Option<String>> {
    let event = watch.next().await?.context("the watch ended")?;
    let pod: &Value = &event["object"];
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True");
    Ok(ready.then(|| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()))
}
