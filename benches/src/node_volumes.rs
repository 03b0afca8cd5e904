//! Pods with volumes of a CSI driver: from the claim to a pod that has it mounted, and many pods with volumes on one node beside the
//! same pods without. The driver is the one of the tests, so what is measured is the way to it and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use testkit::csi::Options as DriverOptions;
use testkit::{Client, CsiDriver, Machine, Options, Server};

use crate::report::{self, Better, Latencies};
use crate::{node, pods, process};

/// Pods with a volume each, and without.
pub const MANY: usize = 200;
const ONE_BY_ONE: usize = 20;
const DRIVER: &str = "bench.test";
const BOUND_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

pub async fn run(many: usize) -> anyhow::Result<()> {
    report::head("Pods with a volume of a CSI driver on one node", "without a volume");
    let machine = Arc::new(Machine::start()?);
    let arguments = vec!["--max-pods".to_owned(), (many + ONE_BY_ONE + 10).to_string()];
    let server = Server::start_with(Options { arguments, machine: Some(machine.clone()) })?;
    server.default_account(pods::NAMESPACE)?;
    let client = server.client()?;
    let driver = CsiDriver::start(machine.pid(), &server.data_dir().join("kubelet"), DriverOptions::new(DRIVER))?;
    driver.until_registered()?;
    let described = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    made(&client, "/apis/storage.k8s.io/v1/csidrivers", &described).await?;

    // The first pod pays for what is made once.
    node::create(&client, &["first".to_owned()]).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for n in 0..ONE_BY_ONE {
        let (plain, name) = (format!("plain-{n}"), format!("single-{n}"));
        without.push(node::create(&client, &[plain]).await?.0);
        let began = Instant::now();
        claim(&client, &name).await?;
        node::create_with(&client, &[name], with_volume).await?;
        with.push(began.elapsed());
    }
    let (with, without) = (Latencies::new(with), Latencies::new(without));
    report::compare("claim to Ready, one at a time, p50", with.ms(0.5), without.ms(0.5), "ms", Better::Less);
    report::line("claim to Ready, one at a time, p99", with.ms(0.99), "ms");
    node::delete_all(&client).await?;

    let plain: Vec<String> = (0..many).map(|n| format!("plain-{n}")).collect();
    let (plain_took, plain_cpu) = measured(&server, node::create(&client, &plain)).await?;
    node::delete_all(&client).await?;
    let names: Vec<String> = (0..many).map(|n| format!("many-{n}")).collect();
    for name in &names {
        claim(&client, name).await?;
    }
    bound(&client).await?;
    let (took, cpu) = measured(&server, node::create_with(&client, &names, with_volume)).await?;
    let what = format!("{many} pods at once, until all are Ready");
    report::compare(&what, took.as_secs_f64(), plain_took.as_secs_f64(), "s", Better::Less);
    report::compare("processor time of knarr for them", cpu, plain_cpu, "s", Better::Less);
    let published = driver.calls().iter().filter(|call| call.starts_with("NodePublishVolume ")).count();
    let began = Instant::now();
    node::delete_all(&client).await?;
    report::line("until all of them are gone", began.elapsed().as_secs_f64(), "s");
    if published < many {
        bail!("only {published} volumes were published");
    }
    Ok(())
}

/// How long it took, and what it cost the server in processor time.
async fn measured(
    server: &Server,
    work: impl Future<Output = anyhow::Result<(Duration, Vec<Duration>)>>,
) -> anyhow::Result<(Duration, f64)> {
    let before = process::cpu_seconds(server.pid())?;
    let (took, _) = work.await?;
    Ok((took, process::cpu_seconds(server.pid())? - before))
}

fn with_volume(name: &str) -> Value {
    let mut pod = node::pod(name);
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}

/// A volume, and a claim that has it.
async fn claim(client: &Client, name: &str) -> anyhow::Result<()> {
    let volume = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
        "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": pods::NAMESPACE, "name": name},
        "csi": {"driver": DRIVER, "volumeHandle": format!("{name}-h")},
    }});
    made(client, "/api/v1/persistentvolumes", &volume).await?;
    let claim = json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand", "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    made(client, CLAIMS, &claim).await
}

async fn made(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let reply = client.post(path, object).await?;
    if reply.code != 201 {
        bail!("{path}: {}", reply.text());
    }
    Ok(())
}

async fn bound(client: &Client) -> anyhow::Result<()> {
    let all_bound = async {
        loop {
            let list = client.get(CLAIMS).await?.json();
            let claims = list["items"].as_array().cloned().unwrap_or_default();
            if claims.iter().all(|claim| claim["status"]["phase"] == "Bound") {
                return anyhow::Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(BOUND_WITHIN, all_bound).await.context("claims are not bound")?
}
