//! Pods are created through the API, and a watch tells when they are bound.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};

use super::shapes::Shape;
use crate::cluster::Cluster;
use crate::report::Latencies;

const TIME_MAX: Duration = Duration::from_secs(120);
const CREATORS: usize = 16;

pub struct Outcome {
    pub per_second: f64,
    pub latencies: Latencies,
}

pub async fn run(shape: &Shape, nodes: usize) -> anyhow::Result<Outcome> {
    let cluster = Cluster::start().await?;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster.send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
    cluster.namespace("bench").await?;
    let _hollow = cluster.hollow_nodes(nodes).await?;
    let path = "/api/v1/namespaces/bench/pods";
    if let Some(before) = shape.before {
        let count = (shape.before_count)(nodes);
        cluster.create_all(path, (0..count).map(|number| without_priority(before(number)))).await?;
        if shape.before_bound {
            let waiting = format!("{path}?fieldSelector=spec.nodeName%3D&limit=1");
            let bound = async || {
                let list = cluster.send("GET", &waiting, &Value::Null).await.unwrap_or_default();
                list["items"].as_array().is_some_and(Vec::is_empty)
            };
            cluster.until("the pods before", TIME_MAX, bound).await?;
        }
    }
    measure(&cluster, shape, path).await
}

/// The API fills in the number of a priority class; only the decisions alone need it told.
fn without_priority(mut pod: Value) -> Value {
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("priority");
    }
    pod
}

async fn measure(cluster: &Cluster, shape: &Shape, path: &str) -> anyhow::Result<Outcome> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "bench");
    let mut events = pin!(watcher(pods, watcher::Config::default().fields("spec.nodeName!=")));
    let mut ready = false;
    while !ready {
        let event = events.next().await.context("the watch ended")?;
        ready = matches!(event.context("watch the pods")?, Event::InitDone);
    }
    let began = Instant::now();
    let numbers = std::sync::atomic::AtomicUsize::new(0);
    let created = parking_lot::Mutex::new(HashMap::new());
    let create = async || -> anyhow::Result<()> {
        loop {
            let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if number >= shape.measured_count {
                return Ok(());
            }
            let pod = without_priority((shape.measured)(number));
            created.lock().insert(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), Instant::now());
            cluster.send("POST", path, &pod).await.context("create a pod")?;
        }
    };
    let creating = futures::future::try_join_all((0..CREATORS).map(|_| create()));
    let mut bound: HashMap<String, Instant> = HashMap::new();
    let watching = async {
        while bound.len() < shape.measured_count {
            let event = events.next().await.context("the watch ended")?;
            if let Event::Apply(pod) | Event::InitApply(pod) = event.context("watch the pods")? {
                let name = pod.metadata.name.unwrap_or_default();
                if created.lock().contains_key(&name) {
                    bound.entry(name).or_insert_with(Instant::now);
                }
            }
        }
        anyhow::Ok(())
    };
    let both = async { futures::future::try_join(creating, watching).await };
    match tokio::time::timeout(TIME_MAX, both).await {
        Ok(outcome) => _ = outcome?,
        Err(_) => bail!("{}: only {} of {} pods were bound in time", shape.name, bound.len(), shape.measured_count),
    }
    let last = bound.values().max().copied().unwrap_or(began);
    let created = created.lock();
    let latencies = bound.iter().filter_map(|(name, at)| Some(at.duration_since(*created.get(name)?))).collect();
    Ok(Outcome {
        per_second: shape.measured_count as f64 / last.duration_since(began).as_secs_f64(),
        latencies: Latencies::new(latencies),
    })
}
