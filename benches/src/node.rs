//! A node with real pods: how long from their creation to Ready, what they cost while they sleep, beside containerd with
//! runc in the same run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cri::{Remote, Runtime, v1};
use serde_json::{Value, json};
use testkit::{Client, Machine, Options, Server, Watch, containerd};

use crate::report::{self, Better, Latencies};
use crate::{pods, process, upstream};

const ONE_BY_ONE: usize = 30;
const IDLE_PODS: usize = 50;
const IDLE_SECONDS: u64 = 30;
/// Who creates many pods at once does so over several connections, as controllers do.
const CONNECTIONS: usize = 8;
const SETTLE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(300);

pub async fn run(at_once: usize) -> anyhow::Result<()> {
    report::head("A node, pods of one sleeping container, image present", "upstream");
    let pods_max = (at_once + ONE_BY_ONE + IDLE_PODS + 10).to_string();
    let machine = Arc::new(Machine::start()?);
    let arguments = vec!["--max-pods".to_owned(), pods_max];
    let server = Server::start_with(Options { arguments, machine: Some(machine.clone()) })?;
    server.default_account(pods::NAMESPACE)?;
    let client = server.client()?;

    // The first pod pays for what is made once.
    create(&client, &["first".to_owned()]).await?;
    let mut latencies = Vec::new();
    for n in 0..ONE_BY_ONE {
        let (took, _) = create(&client, &[format!("single-{n}")]).await?;
        latencies.push(took);
    }
    let ours = Latencies::new(latencies);
    report::compare(
        "create to Ready, one at a time, p50",
        ours.ms(0.5),
        upstream::POD_READY_P50_MS,
        "ms",
        Better::Less,
    );
    report::line("create to Ready, one at a time, p99", ours.ms(0.99), "ms");
    delete_all(&client).await?;

    let before_mib = process::resident_mib(server.pid())?;
    let sleepers: Vec<String> = (0..IDLE_PODS).map(|n| format!("idle-{n}")).collect();
    create(&client, &sleepers).await?;
    tokio::time::sleep(SETTLE).await;
    memory(&server, before_mib)?;
    idle(&server).await?;
    delete_all(&client).await?;

    let names: Vec<String> = (0..at_once).map(|n| format!("many-{n}")).collect();
    let (took, latencies) = create(&client, &names).await?;
    let upstream_seconds = at_once as f64 / upstream::PODS_AT_ONCE_PER_SECOND;
    let what = format!("{at_once} pods at once, until all are Ready");
    report::compare(&what, took.as_secs_f64(), upstream_seconds, "s", Better::Less);
    let latencies = Latencies::new(latencies);
    report::line("create to Ready among them, p50", latencies.ms(0.5), "ms");
    report::line("create to Ready among them, p99", latencies.ms(0.99), "ms");
    drop(server);
    println!("upstream: {}", upstream::NODE_SOURCE);

    report::head("The same sandbox and container through CRI only", "containerd+runc");
    let theirs = containerd_pods(&machine).await?;
    report::compare("run sandbox, create and start, p50", ours.ms(0.5), theirs.ms(0.5), "ms", Better::Less);
    println!("knarr's figure is the whole way through API server and kubelet, theirs is the runtime alone");
    Ok(())
}

pub fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node-1", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": demo_image::NAME, "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "infinity"],
            }],
        },
    })
}

/// Creates them all at once: how long until the last is Ready, and for each from its creation.
pub async fn create(client: &Client, names: &[String]) -> anyhow::Result<(Duration, Vec<Duration>)> {
    create_with(client, names, pod).await
}

/// The same with pods of another kind.
pub async fn create_with(
    client: &Client,
    names: &[String],
    pod: impl Fn(&str) -> Value,
) -> anyhow::Result<(Duration, Vec<Duration>)> {
    let mut watch = client.watch(&format!("{}?watch=true", pods::PATH)).await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS.min(names.len()) {
        connections.push(client.connection().await?);
    }
    let began = Instant::now();
    let sent = parking_lot::Mutex::new(std::collections::HashMap::new());
    let each = names.len().div_ceil(connections.len().max(1)).max(1);
    let sending = connections.iter_mut().zip(names.chunks(each)).map(|(connection, names)| {
        let (sent, pod) = (&sent, &pod);
        async move {
            for name in names {
                sent.lock().insert(name.clone(), Instant::now());
                let reply = connection.send("POST", pods::PATH, "application/json", pod(name).to_string()).await?;
                if reply.code != 201 {
                    bail!("a pod is refused: {}", reply.text());
                }
            }
            anyhow::Ok(())
        }
    });
    let sending = futures::future::try_join_all(sending);
    let wanted: BTreeSet<String> = names.iter().cloned().collect();
    let (sending, ready) = tokio::join!(sending, tokio::time::timeout(PATIENCE, all_ready(&mut watch, wanted)));
    sending?;
    let ready = ready.context("pods do not become ready")??;
    let sent = sent.lock();
    let latencies = ready.iter().filter_map(|(name, at)| Some(at.duration_since(*sent.get(name)?))).collect();
    let last = ready.iter().map(|(_, at)| *at).max().unwrap_or(began);
    Ok((last - began, latencies))
}

async fn all_ready(watch: &mut Watch, mut wanted: BTreeSet<String>) -> anyhow::Result<Vec<(String, Instant)>> {
    let mut ready = Vec::new();
    while !wanted.is_empty() {
        let event = watch.next().await?.context("the watch ended")?;
        let (name, conditions) = (&event["object"]["metadata"]["name"], &event["object"]["status"]["conditions"]);
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        if conditions.as_array().is_some_and(|all| all.iter().any(is_ready))
            && let Some(name) = name.as_str().filter(|name| wanted.remove(*name))
        {
            ready.push((name.to_owned(), Instant::now()));
        }
    }
    Ok(ready)
}

pub async fn delete_all(client: &Client) -> anyhow::Result<()> {
    client.delete(pods::PATH).await?;
    let until = Instant::now() + PATIENCE;
    loop {
        let list = client.get(pods::PATH).await?.json();
        if list["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("pods do not go away");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The shims of this node's pods: their arguments name its state folder's sandboxes, and no other node runs here.
pub fn shims(server: &Server) -> Vec<u32> {
    let machine = std::fs::read_link(format!("/proc/{}/ns/pid", server.pid())).ok();
    let of_machine = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok() == machine;
    process::called("knarr shim ").into_iter().filter(of_machine).collect()
}

fn memory(server: &Server, before_mib: f64) -> anyhow::Result<()> {
    let shims = shims(server);
    let private: f64 = shims.iter().filter_map(|pid| process::private_kib(*pid).ok()).sum::<f64>() / 1024.0;
    let growth = (process::resident_mib(server.pid())? - before_mib).max(0.0);
    let per_pod = |mib: f64| mib / IDLE_PODS as f64;
    let all = per_pod(private + growth);
    report::compare("memory per idle pod beyond its processes", all, upstream::MIB_PER_POD, "MiB", Better::Less);
    report::line(&format!("of which shims ({} of them), private", shims.len()), per_pod(private), "MiB");
    report::line("of which growth of knarr", per_pod(growth), "MiB");
    Ok(())
}

async fn idle(server: &Server) -> anyhow::Result<()> {
    let mut all = shims(server);
    all.push(server.pid());
    let count = || -> (f64, BTreeMap<u32, f64>) {
        let cpu = all.iter().filter_map(|pid| process::cpu_seconds(*pid).ok()).sum();
        (cpu, all.iter().filter_map(|pid| process::context_switches(*pid).ok()).flatten().collect())
    };
    let (cpu, switches) = count();
    tokio::time::sleep(Duration::from_secs(IDLE_SECONDS)).await;
    let (cpu_after, switches_after) = count();
    let seconds = IDLE_SECONDS as f64;
    let percent = ((cpu_after - cpu) / seconds * 100.0).max(0.01);
    let theirs = upstream::IDLE_CORE_PERCENT_PER_POD * IDLE_PODS as f64;
    report::compare(&format!("idle with {IDLE_PODS} pods, of a core"), percent, theirs, "%", Better::Less);
    // A thread that has ended meanwhile is not counted.
    let more = switches_after.iter().map(|(thread, count)| count - switches.get(thread).unwrap_or(&0.0));
    report::line("context switches a second", more.sum::<f64>() / seconds, "");
    Ok(())
}

/// What containerd takes for a sandbox and a container of the same kind.
async fn containerd_pods(machine: &Machine) -> anyhow::Result<Latencies> {
    let folder = tempfile::Builder::new().prefix("knarr-bench-").tempdir()?;
    let _containerd = containerd::start(machine, folder.path(), &demo_image::archive(), demo_image::NAME)?;
    let remote = Remote::connect(&containerd::endpoint(folder.path())).await?;
    let image = loop {
        match remote.image_status(demo_image::NAME).await? {
            Some(image) => break image.id,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let mut latencies = Vec::new();
    for n in 0..ONE_BY_ONE {
        let sandbox = sandbox(machine, folder.path(), n);
        let container = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: image.clone(), ..Default::default() }),
            command: ["sleep", "infinity"].map(str::to_owned).to_vec(),
            log_path: "main.log".to_owned(),
            linux: Some(v1::LinuxContainerConfig::default()),
            ..Default::default()
        };
        let began = Instant::now();
        let id = remote.run_pod_sandbox(sandbox.clone(), "").await?;
        let container = remote.create_container(&id, container, sandbox).await?;
        remote.start_container(&container).await?;
        latencies.push(began.elapsed());
    }
    Ok(Latencies::new(latencies))
}

fn sandbox(machine: &Machine, folder: &Path, n: usize) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: format!("pod-{n}"),
            namespace: "default".to_owned(),
            uid: format!("uid-{n}"),
            attempt: 0,
        }),
        hostname: format!("pod-{n}"),
        log_directory: folder.join(format!("logs-{n}")).display().to_string(),
        linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: format!("/{}", machine.name()), ..Default::default() }),
        ..Default::default()
    }
}
