//! What the controllers take for large objects: a Deployment from nothing to all its pods, a namespace from full to gone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{process, report};

const REPLICAS: [usize; 3] = [50, 500, 5_000];
const OBJECTS: [usize; 3] = [100, 1_000, 10_000];
const TIME_MAX: Duration = Duration::from_secs(180);

pub async fn run() -> anyhow::Result<()> {
    println!("\ncontrollers, in one process with the API server");
    let (mut deployments, mut namespaces) = (Vec::new(), Vec::new());
    for replicas in REPLICAS {
        deployments.push((replicas as f64, deployment(&Cluster::start().await?, replicas).await?));
    }
    for objects in OBJECTS {
        namespaces.push((objects as f64, namespace(&Cluster::start().await?, objects).await?));
    }
    report::curve("controllers: processor time of a Deployment", "replicas", "s", &deployments);
    report::curve("controllers: processor time of a namespace's end", "objects", "s", &namespaces);
    Ok(())
}

/// Answers the processor time that it took.
async fn deployment(cluster: &Cluster, replicas: usize) -> anyhow::Result<f64> {
    cluster.namespace("many").await?;
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let cost = Cost::begin(cluster)?;
    cluster.send("POST", "/apis/apps/v1/namespaces/many/deployments", &deployment).await?;
    let path = "/apis/apps/v1/namespaces/many/replicasets";
    let all = async || {
        let list = cluster.send("GET", path, &Value::Null).await.unwrap_or_default();
        list["items"][0]["status"]["replicas"] == json!(replicas)
    };
    cluster.until("all pods", TIME_MAX, all).await?;
    cost.end(cluster, &format!("a Deployment of {replicas} replicas, from 0 to all created"), replicas)
}

/// Answers the processor time that it took.
async fn namespace(cluster: &Cluster, count: usize) -> anyhow::Result<f64> {
    cluster.namespace("full").await?;
    let objects =
        (0..count).map(|number| json!({"metadata": {"name": format!("c{number}")}, "data": {"key": "value"}}));
    cluster.create_all("/api/v1/namespaces/full/configmaps", objects).await?;
    let cost = Cost::begin(cluster)?;
    cluster.send("DELETE", "/api/v1/namespaces/full", &json!({})).await?;
    let gone = async || {
        let answer = cluster.send("GET", "/api/v1/namespaces/full", &Value::Null).await;
        matches!(answer, Err(kube::Error::Api(status)) if status.code == 404)
    };
    cluster.until("the end of the namespace", TIME_MAX, gone).await?;
    cost.end(cluster, &format!("a namespace with {count} objects, until it is gone"), count)
}

struct Cost {
    began: Instant,
    cpu_before: f64,
}

impl Cost {
    fn begin(cluster: &Cluster) -> anyhow::Result<Cost> {
        Ok(Cost { cpu_before: process::cpu_seconds(cluster.server.pid())?, began: Instant::now() })
    }

    fn end(self, cluster: &Cluster, what: &str, count: usize) -> anyhow::Result<f64> {
        let (elapsed, pid) = (self.began.elapsed().as_secs_f64(), cluster.server.pid());
        report::line(what, elapsed, "s");
        report::line("    objects per second", count as f64 / elapsed, "/s");
        let cpu_seconds = process::cpu_seconds(pid)? - self.cpu_before;
        report::line("    processor time of the server", cpu_seconds, "s");
        report::line("    most memory that was resident", process::peak_mib(pid)?, "MiB");
        Ok(cpu_seconds)
    }
}
