//! From an empty cluster to all nodes, namespaces, Services and pods Ready.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Sizes, world::World};
use crate::report;

pub async fn run(world: &mut World, sizes: &Sizes) -> anyhow::Result<()> {
    let began = Instant::now();
    world.add_nodes(sizes).await?;
    report::line("scale: nodes registered and settled", sizes.nodes as f64 / began.elapsed().as_secs_f64(), "/s");
    let began = Instant::now();
    namespaces(world, sizes).await?;
    report::line("scale: namespaces made", sizes.namespaces as f64 / began.elapsed().as_secs_f64(), "/s");
    let began = Instant::now();
    let objects = |path: &'static str, object: fn(usize, usize) -> Value| {
        (0..sizes.services).map(move |number| {
            let path = format!("{path}/namespaces/{}", sizes.namespace(number));
            let kind = if path.starts_with("/apis") { "deployments" } else { "services" };
            (format!("{path}/{kind}"), object(number, sizes.replicas(number)))
        })
    };
    world.cluster.create_each(objects("/api/v1", service)).await?;
    report::line("scale: Services made", sizes.services as f64 / began.elapsed().as_secs_f64(), "/s");
    let (began, cpu_before) = (Instant::now(), world.cpu_seconds()?);
    let creating = world.cluster.create_each(objects("/apis/apps/v1", deployment));
    let ready = world.until_count("pods Ready", sizes.pods, sizes.stage_max(), async || world.pods_ready().await);
    let (created, looks) = tokio::join!(creating, ready);
    created?;
    let looks = looks?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), world.cpu_seconds()? - cpu_before);
    report::line("scale: pods from create to Ready", sizes.pods as f64 / seconds, "/s");
    report::line("scale: processor time of the servers per pod", cpu * 1000.0 / sizes.pods as f64, "ms");
    report::line(&format!("scale: resident memory with {} pods", sizes.pods), world.resident_mib()?, "MiB");
    curve(&looks, sizes.pods);
    Ok(())
}

/// What the pods cost up to a hundredth, a tenth and all of them.
fn curve(looks: &[(usize, f64)], pods: usize) {
    let until = |part: usize| looks.iter().find(|(count, _)| *count >= part && part > 0);
    let points: Vec<(f64, f64)> =
        [pods / 100, pods / 10, pods].into_iter().filter_map(until).map(|(count, cpu)| (*count as f64, *cpu)).collect();
    report::curve("scale: processor time of the servers by pods", "pods", "s", &points);
}

async fn namespaces(world: &World, sizes: &Sizes) -> anyhow::Result<()> {
    let names = (0..sizes.namespaces).map(|number| format!("scale-{number}"));
    let objects = names.map(|name| ("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": name}})));
    world.cluster.create_each(objects).await?;
    // Pods are refused until the account of their namespace is there.
    let accounts = async || {
        let path = "/api/v1/serviceaccounts?fieldSelector=metadata.name%3Ddefault";
        let list = world.cluster.send("GET", path, &Value::Null).await?;
        let ours = |one: &&Value| one["metadata"]["namespace"].as_str().is_some_and(|name| name.starts_with("scale-"));
        Ok(list["items"].as_array().into_iter().flatten().filter(ours).count())
    };
    world.until_count("namespaces with an account", sizes.namespaces, sizes.stage_max(), accounts).await?;
    Ok(())
}

fn service(number: usize, _: usize) -> Value {
    let name = format!("web-{number}");
    json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

/// Its pods leave a lost node after ten seconds and not after five minutes.
fn deployment(number: usize, replicas: usize) -> Value {
    let name = format!("web-{number}");
    let leaves = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10});
    let tolerations = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(leaves);
    let labels = json!({"app": name});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}});
    json!({"metadata": {"name": name, "labels": labels}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [container], "tolerations": tolerations, "terminationGracePeriodSeconds": 0}}}})
}
