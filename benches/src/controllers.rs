//! What the controllers take for large objects: a Deployment from nothing to all its pods, a namespace from full to gone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{process, report};

const REPLICAS: usize = 5_000;
const OBJECTS: usize = 10_000;
const TIME_MAX: Duration = Duration::from_secs(180);

pub async fn run() -> anyhow::Result<()> {
    println!("\ncontrollers, in one process with the API server");
    deployment(&Cluster::start().await?).await?;
    namespace(&Cluster::start().await?).await
}

async fn deployment(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.namespace("many").await?;
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let cost = Cost::begin(cluster)?;
    cluster.send("POST", "/apis/apps/v1/namespaces/many/deployments", &deployment).await?;
    let path = "/apis/apps/v1/namespaces/many/replicasets";
    let all = async || {
        let list = cluster.send("GET", path, &Value::Null).await.unwrap_or_default();
        list["items"][0]["status"]["replicas"] == json!(REPLICAS)
    };
    cluster.until("all pods", TIME_MAX, all).await?;
    cost.end(cluster, "a Deployment of 5,000 replicas, from 0 to all created", REPLICAS)
}

async fn namespace(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.namespace("full").await?;
    let objects =
        (0..OBJECTS).map(|number| json!({"metadata": {"name": format!("c{number}")}, "data": {"key": "value"}}));
    cluster.create_all("/api/v1/namespaces/full/configmaps", objects).await?;
    let cost = Cost::begin(cluster)?;
    cluster.send("DELETE", "/api/v1/namespaces/full", &json!({})).await?;
    let gone = async || {
        let answer = cluster.send("GET", "/api/v1/namespaces/full", &Value::Null).await;
        matches!(answer, Err(kube::Error::Api(status)) if status.code == 404)
    };
    cluster.until("the end of the namespace", TIME_MAX, gone).await?;
    cost.end(cluster, "a namespace with 10,000 objects, until it is gone", OBJECTS)
}

struct Cost {
    began: Instant,
    cpu_before: f64,
}

impl Cost {
    fn begin(cluster: &Cluster) -> anyhow::Result<Cost> {
        Ok(Cost { cpu_before: process::cpu_seconds(cluster.server.pid())?, began: Instant::now() })
    }

    fn end(self, cluster: &Cluster, what: &str, count: usize) -> anyhow::Result<()> {
        let (elapsed, pid) = (self.began.elapsed().as_secs_f64(), cluster.server.pid());
        report::line(what, elapsed, "s");
        report::line("    objects per second", count as f64 / elapsed, "/s");
        report::line("    processor time of the server", process::cpu_seconds(pid)? - self.cpu_before, "s");
        report::line("    most memory that was resident", process::peak_mib(pid)?, "MiB");
        Ok(())
    }
}
