//! A cluster of three nodes on this machine, from nothing to pods that answer on every node, beside the figures that
//! minikube's authors published for tools of this kind.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use testkit::LocalCluster;
use testkit::local_cluster::who_answers;

use crate::report::{self, Better};

/// Seconds until a cluster works: minikube's published comparison.
const OTHERS: [(&str, f64); 3] = [("k3d", 20.0), ("kind", 33.0), ("minikube", 51.0)];
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);

pub async fn run() -> anyhow::Result<()> {
    report::head("A cluster of three nodes on this machine", "published");
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        all.push(round().await?);
    }
    all.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (ready, answering) = all[ROUNDS / 2];
    report::line(&format!("create to three nodes Ready, median of {ROUNDS}"), ready, "s");
    for (name, seconds) in OTHERS {
        let what = format!("and 3 pods answering on all nodes, beside {name}");
        report::compare(&what, answering, seconds, "s", Better::Less);
    }
    Ok(())
}

/// Seconds until the nodes are Ready, and until all pods answer.
async fn round() -> anyhow::Result<(f64, f64)> {
    let began = Instant::now();
    let cluster = LocalCluster::create(&["--nodes", "3"]);
    let ready = began.elapsed();
    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.folder().join("kubeconfig"))?;
    let client = kube::Client::try_from(kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)?;
    let labels = json!({"app": "web"});
    let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                         "labelSelector": {"matchLabels": labels}}]);
    let container = json!({"name": "web", "image": "knarr.dev/demo:latest", "imagePullPolicy": "Never",
                           "command": ["serve"], "ports": [{"containerPort": 8080}]});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels},
                     "spec": {"containers": [container], "topologySpreadConstraints": spread}}}});
    let service = json!({"metadata": {"name": "web"},
                         "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}});
    post(&client, "/apis/apps/v1/namespaces/default/deployments", &deployment).await?;
    let service = post(&client, "/api/v1/namespaces/default/services", &service).await?;
    let address = service["spec"]["clusterIP"].as_str().context("the Service's address")?.to_owned();
    for node in NODES {
        let network = cluster.network(node);
        let mut seen = BTreeSet::new();
        while seen.len() < NODES.len() {
            if began.elapsed() > PATIENCE {
                bail!("the pods do not answer on {node}");
            }
            let (network, address) = (network.clone(), address.clone());
            let answer = tokio::task::spawn_blocking(move || who_answers(&network, &address)).await?;
            match answer {
                Some(pod) => _ = seen.insert(pod),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
    Ok((ready.as_secs_f64(), began.elapsed().as_secs_f64()))
}

async fn post(client: &kube::Client, path: &str, body: &Value) -> anyhow::Result<Value> {
    let request = http::Request::post(path).header("content-type", "application/json");
    Ok(client.request(request.body(body.to_string().into_bytes())?).await?)
}
