//! The whole way of pods, from a Deployment's creation to all of them Ready on hollow nodes, at several sizes: what a pod costs
//! the server must stay the same whatever the number of pods, so the exponents of its costs are printed.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{process, report};

pub const PODS: [usize; 3] = [1_000, 10_000, 50_000];
pub const NODES: usize = 1_000;
pub const DEPLOYMENTS: usize = 20;

const TIME_MAX: Duration = Duration::from_secs(3_600);
/// What the server does after the last pod is Ready is watched for this long, once it has had as long to come to rest.
const AFTERWARDS: Duration = Duration::from_secs(10);

const NAMESPACE: &str = "size";

struct Outcome {
    pods: usize,
    seconds: f64,
    cpu_seconds: f64,
    idle_cores: f64,
    resident_mib: f64,
    list_seconds: f64,
    table_seconds: f64,
    end_seconds: f64,
}

pub async fn run(pods: &[usize], nodes: usize, deployments: usize) -> anyhow::Result<()> {
    println!(
        "\nDeployments to all pods Ready: {nodes} hollow nodes, {deployments} Deployments, all in one process but the nodes"
    );
    let mut outcomes = Vec::new();
    for count in pods {
        let outcome = measure(*count, nodes, deployments).await.with_context(|| format!("{count} pods"))?;
        print(&outcome);
        outcomes.push(outcome);
    }
    let curve = |what: &str, unit: &str, cost: fn(&Outcome) -> f64| {
        let points: Vec<(f64, f64)> = outcomes.iter().map(|one| (one.pods as f64, cost(one))).collect();
        report::curve(&format!("cluster size: {what}"), "pods", unit, &points);
    };
    curve("processor time of the server", "s", |one| one.cpu_seconds);
    curve("time to all Ready", "s", |one| one.seconds);
    curve("resident memory", "MiB", |one| one.resident_mib);
    curve("LIST of all in JSON", "s", |one| one.list_seconds);
    curve("Table of all", "s", |one| one.table_seconds);
    curve("deletecollection", "s", |one| one.end_seconds);
    Ok(())
}

async fn measure(pods: usize, nodes: usize, deployments: usize) -> anyhow::Result<Outcome> {
    let cluster = Cluster::start().await?;
    cluster.namespace(NAMESPACE).await?;
    let hollow = cluster.hollow_nodes(nodes).await?;
    let pid = cluster.server.pid();
    let (began, cpu_before) = (Instant::now(), process::cpu_seconds(pid)?);
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let share = |number: usize| pods / deployments + usize::from(number < pods % deployments);
    cluster.create_all(&path, (0..deployments).map(|number| deployment(number, share(number)))).await?;
    let all_ready = async || {
        // Often enough for the answer, seldom enough to be no load.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let list = cluster.send("GET", &path, &Value::Null).await.unwrap_or_default();
        let ready = |one: &Value| one["status"]["readyReplicas"].as_u64().unwrap_or(0);
        list["items"].as_array().into_iter().flatten().map(ready).sum::<u64>() >= pods as u64
    };
    cluster.until("all pods Ready", TIME_MAX, all_ready).await?;
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), process::cpu_seconds(pid)? - cpu_before);
    tokio::time::sleep(AFTERWARDS).await;
    let (began, cpu_before) = (Instant::now(), process::cpu_seconds(pid)?);
    tokio::time::sleep(AFTERWARDS).await;
    let idle_cores = (process::cpu_seconds(pid)? - cpu_before) / began.elapsed().as_secs_f64();
    let resident_mib = process::resident_mib(pid)?;
    let list = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let list_seconds = read(&cluster, &list, "application/json").await?;
    let table_seconds = read(&cluster, &list, "application/json;as=Table;v=v1;g=meta.k8s.io").await?;
    let end_seconds = end_all(&cluster, hollow, &path, &list).await?;
    Ok(Outcome { pods, seconds, cpu_seconds, idle_cores, resident_mib, list_seconds, table_seconds, end_seconds })
}

fn deployment(number: usize, replicas: usize) -> Value {
    let labels = json!({"app": format!("web-{number}")});
    json!({"metadata": {"name": format!("web-{number}")}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// Seconds until a whole list has arrived.
async fn read(cluster: &Cluster, path: &str, accept: &str) -> anyhow::Result<f64> {
    let began = Instant::now();
    let request = http::Request::get(path).header("accept", accept).body(Vec::new())?;
    let text = cluster.client.request_text(request).await?;
    anyhow::ensure!(text.len() > path.len(), "an empty answer");
    Ok(began.elapsed().as_secs_f64())
}

/// Seconds that one deletecollection of all pods takes. Nobody makes new ones or ends them: there are no nodes and no owners.
async fn end_all(
    cluster: &Cluster,
    hollow: crate::cluster::HollowNodes,
    deployments: &str,
    pods: &str,
) -> anyhow::Result<f64> {
    drop(hollow);
    let orphans = json!({"propagationPolicy": "Orphan"});
    cluster.send("DELETE", deployments, &orphans).await?;
    cluster.send("DELETE", &format!("/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"), &orphans).await?;
    let gone = async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/replicasets?limit=1");
        let list = cluster.send("GET", &path, &Value::Null).await.unwrap_or_default();
        list["items"].as_array().is_some_and(Vec::is_empty)
    };
    cluster.until("the ReplicaSets' end", TIME_MAX, gone).await?;
    let began = Instant::now();
    cluster.send("DELETE", pods, &json!({"gracePeriodSeconds": 0})).await?;
    Ok(began.elapsed().as_secs_f64())
}

fn print(outcome: &Outcome) {
    let pods = outcome.pods as f64;
    println!("{} pods (load average {})", outcome.pods, report::load_average());
    report::line("    create to all Ready", outcome.seconds, "s");
    report::line("    pods per second", pods / outcome.seconds, "/s");
    report::line("    processor time of the server", outcome.cpu_seconds, "s");
    report::line("    processor time of the server per pod", outcome.cpu_seconds * 1000.0 / pods, "ms");
    report::line("    processors busy afterwards", outcome.idle_cores, "");
    report::line("    resident memory", outcome.resident_mib, "MiB");
    report::line("    LIST of all in JSON", outcome.list_seconds, "s");
    report::line("    Table of all, as `kubectl get pods` asks for", outcome.table_seconds, "s");
    report::line("    deletecollection of all", outcome.end_seconds, "s");
}
