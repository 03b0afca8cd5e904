//! Pods are created through the API, and a watch tells when they are bound.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::shapes::Shape;
use crate::cluster::Cluster;
use crate::load::{Connection, Protocol};
use crate::process;
use crate::report::Latencies;

const TIME_MAX: Duration = Duration::from_secs(120);
const CREATORS: usize = 16;
const CHURN_EVERY: Duration = Duration::from_millis(100);

pub struct Outcome {
    pub per_second: f64,
    pub latencies: Latencies,
    /// Processor time of the server for each pod.
    pub cpu_ms: f64,
}

pub async fn run(shape: &Shape, nodes: usize) -> anyhow::Result<Outcome> {
    let cluster = Cluster::start().await?;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster.send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
    cluster.namespace("bench").await?;
    // Nobody starts the pods, as in scheduler_perf: what kubelets cost is measured by `cluster-size`.
    let _hollow = cluster.hollow("hollow-", nodes, &["--ignore-pods"])?;
    cluster.nodes_settled("hollow-", nodes, TIME_MAX).await?;
    cluster.patch_each((shape.patches)(nodes).into_iter()).await?;
    cluster.create_each((shape.objects)(nodes, shape.measured_count(nodes)).into_iter()).await?;
    claims_bound(&cluster).await?;
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
    if shape.churn {
        // Ends with the measuring: whichever ends first drops the other.
        let churning = async { Err(churn(&cluster).await) };
        let measuring = async { measure(&cluster, shape, nodes, path).await };
        return futures::future::select(Box::pin(measuring), Box::pin(churning)).await.factor_first().0;
    }
    measure(&cluster, shape, nodes, path).await
}

/// Until every claim of a shape that has any has its volume.
async fn claims_bound(cluster: &Cluster) -> anyhow::Result<()> {
    let bound = async || {
        let path = "/api/v1/namespaces/bench/persistentvolumeclaims";
        let list = cluster.send("GET", path, &Value::Null).await.unwrap_or_default();
        let claims = list["items"].as_array();
        claims.is_some_and(|claims| claims.iter().all(|claim| claim["status"]["phase"] == "Bound"))
    };
    cluster.until("the claims", TIME_MAX, bound).await
}

/// A node, a pod that fits nowhere and a Service come and go. Answers why it could not go on.
async fn churn(cluster: &Cluster) -> anyhow::Error {
    let pod = json!({"metadata": {"name": "churn"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "900"}}}]}});
    let service = json!({"metadata": {"name": "churn"}, "spec": {"ports": [{"port": 80}]}});
    let objects = [
        ("/api/v1/nodes", json!({"metadata": {"name": "churn"}})),
        ("/api/v1/namespaces/bench/pods", pod),
        ("/api/v1/namespaces/bench/services", service),
    ];
    loop {
        for (path, object) in &objects {
            if let Err(error) = cluster.send("POST", path, object).await {
                return anyhow::Error::new(error).context(format!("create an object at {path}"));
            }
        }
        tokio::time::sleep(CHURN_EVERY).await;
        for (path, _) in &objects {
            let now = json!({"gracePeriodSeconds": 0});
            if let Err(error) = cluster.send("DELETE", &format!("{path}/churn"), &now).await {
                return anyhow::Error::new(error).context(format!("delete an object at {path}"));
            }
        }
    }
}

/// The API fills in the number of a priority class; only the decisions alone need it told.
fn without_priority(mut pod: Value) -> Value {
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("priority");
    }
    pod
}

async fn measure(cluster: &Cluster, shape: &Shape, nodes: usize, path: &str) -> anyhow::Result<Outcome> {
    let measured = shape.measured_count(nodes);
    let client = cluster.server.client()?;
    let mut watching = Connection::open(&client, Protocol::Http1).await?;
    let watched = format!("{path}?watch=true&fieldSelector=spec.nodeName%21%3D");
    let answer = watching.open_answer("GET", &watched, "", Bytes::new()).await?;
    anyhow::ensure!(answer.status() == 200, "the watch is refused with {}", answer.status());
    let mut events = Events { body: answer.into_body(), open: Vec::new() };
    let connections = Connection::open_all(&client, Protocol::Http1, CREATORS).await?;
    let pods: Vec<Bytes> =
        (0..measured).map(|number| without_priority((shape.measured)(number)).to_string().into()).collect();
    let names: HashMap<String, usize> = (0..measured).map(|number| (name(shape, number), number)).collect();
    let created = parking_lot::Mutex::new(vec![None; pods.len()]);
    let next = AtomicUsize::new(0);
    let (began, cpu_before) = (Instant::now(), process::cpu_seconds(cluster.server.pid())?);
    let create = async |mut connection: Connection| -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(pod) = pods.get(number) else { return Ok(()) };
            created.lock()[number] = Some(Instant::now());
            let (code, _) = connection.send("POST", path, "application/json", pod.clone()).await?;
            anyhow::ensure!(code == 201, "a pod is refused with {code}");
        }
    };
    let creating = futures::future::try_join_all(connections.into_iter().map(create));
    let mut bound: Vec<Option<Instant>> = vec![None; pods.len()];
    let mut count = 0;
    let following = async {
        while count < pods.len() {
            let seen = events.names().await?;
            let now = Instant::now();
            for number in seen.iter().filter_map(|name| names.get(name)) {
                count += usize::from(bound[*number].is_none());
                bound[*number].get_or_insert(now);
            }
        }
        anyhow::Ok(())
    };
    let both = async { futures::future::try_join(creating, following).await };
    match tokio::time::timeout(TIME_MAX, both).await {
        Ok(outcome) => _ = outcome?,
        Err(_) => bail!("{}: only {count} of {measured} pods were bound in time", shape.name),
    }
    let cpu = process::cpu_seconds(cluster.server.pid())? - cpu_before;
    let last = bound.iter().flatten().max().copied().unwrap_or(began);
    let created = created.into_inner();
    let waits =
        created.iter().zip(&bound).filter_map(|(created, bound)| Some(bound.as_ref()?.duration_since((*created)?)));
    Ok(Outcome {
        per_second: measured as f64 / last.duration_since(began).as_secs_f64(),
        latencies: Latencies::new(waits.collect()),
        cpu_ms: cpu * 1000.0 / measured as f64,
    })
}

fn name(shape: &Shape, number: usize) -> String {
    (shape.measured)(number)["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// The events of a watch, of which only names are read: the machine's time is for the server.
struct Events {
    body: Incoming,
    open: Vec<u8>,
}

#[derive(serde::Deserialize)]
struct Event {
    object: Object,
}

#[derive(serde::Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(serde::Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

impl Events {
    /// The names in the events that came next.
    async fn names(&mut self) -> anyhow::Result<Vec<String>> {
        let frame = self.body.frame().await.context("the watch ended")??;
        self.open.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
        let Some(end) = self.open.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let lines = self.open.drain(..=end).collect::<Vec<u8>>();
        let events = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        events.map(|line| Ok(serde_json::from_slice::<Event>(line)?.object.metadata.name)).collect()
    }
}
