//! Services in the kernel's rules: one more among many, from the write to the API until the kernel has it, and all of them at
//! once, beside the same rules loaded by `nft`. Needs root.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_proxy::Family;
use kube_proxy::model::Ledger;
use kube_proxy::nftables::{Kernel, Watch};
use kube_proxy::rules;
use reconcile::Key;
use serde_json::{Value, json};
use testkit::{Client, Machine, Server};

use crate::process;
use crate::report::{self, Better, Latencies};

pub const SERVICES: usize = 10_000;
const ONE_BY_ONE: usize = 200;
const ENDPOINTS: usize = 3;
const TABLE: &str = "knarr-proxy";
const PATIENCE: Duration = Duration::from_secs(300);

pub async fn run(services: usize) -> anyhow::Result<()> {
    report::head(&format!("{services} Services of {ENDPOINTS} endpoints in the kernel's rules"), "nft");
    let (mut all, mut more) = (Vec::new(), Vec::new());
    for count in [services / 100, services / 10, services].into_iter().filter(|count| *count > 0) {
        println!("{count} Services:");
        let (written, one) = alone(count).await?;
        all.push((count as f64, written.as_secs_f64()));
        more.push((count as f64, one));
    }
    report::curve("proxy: all Services into an empty kernel", "Services", "s", &all);
    report::growth("proxy: one Service more", "Services there", "ms", &more);
    whole_way(services).await
}

/// The rules without a cluster: a pure function and one writer, beside what `nft` does with the same text.
/// Answers how long all of them took, and the milliseconds of one more.
async fn alone(services: usize) -> anyhow::Result<(Duration, f64)> {
    let machine = Machine::start()?;
    let network = machine.network();
    let node = rules::Node {
        name: "n".into(),
        pod_ranges: vec!["10.42.0.0/16".parse()?],
        families: vec![Family::V4],
        ..rules::Node::default()
    };
    let objects: Vec<(Key, Service, Arc<EndpointSlice>)> = (0..=services).map(typed).collect::<anyhow::Result<_>>()?;
    let mut ledger = Ledger::default();
    let began = Instant::now();
    ledger.replace(&Key::default(), rules::node_elements(&node));
    let outcome = |(key, service, slice): &(Key, Service, Arc<EndpointSlice>)| {
        rules::outcome(key, service, std::slice::from_ref(slice), &node).elements
    };
    for one in &objects[..services] {
        ledger.replace(&one.0, outcome(one));
    }
    let decided = began.elapsed();
    let kernel = Kernel::open(TABLE, Some(&network), &[Family::V4])?;
    let began = Instant::now();
    kernel.reconcile(&ledger).await?;
    let written = began.elapsed();
    let began = Instant::now();
    let found = kernel.reconcile(&ledger).await?;
    let taken_over = began.elapsed();
    anyhow::ensure!(found.is_nothing(), "the kernel has what was written");

    // One more, again and again.
    let one = &objects[services];
    let mut latencies = Vec::new();
    for _ in 0..ONE_BY_ONE {
        let began = Instant::now();
        let changes = ledger.replace(&one.0, outcome(one));
        kernel.apply(&changes).await?;
        latencies.push(began.elapsed());
        let changes = ledger.replace(&one.0, Default::default());
        kernel.apply(&changes).await?;
    }
    let latencies = Latencies::new(latencies);

    let listed = machine.shell(&format!("nft list table ip {TABLE}"))?;
    kernel.remove().await?;
    let (loaded, added) = by_nft(&machine, &listed)?;
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    report::compare("all Services into an empty kernel", ms(written), ms(loaded), "ms", Better::Less);
    report::line("    deciding what they need", ms(decided), "ms");
    report::line("all of them read back and compared at a new start", ms(taken_over), "ms");
    report::compare("one Service more, p50", latencies.ms(0.5), ms(added), "ms", Better::Less);
    report::line("one Service more, p99", latencies.ms(0.99), "ms");
    Ok((decided + written, latencies.ms(0.5)))
}

/// How long `nft` takes for all of it, and for one Service more.
fn by_nft(machine: &Machine, listed: &str) -> anyhow::Result<(Duration, Duration)> {
    let folder = tempfile::tempdir()?;
    // What `nft` prints of this map's type, it does not read.
    let text = listed.replace(
        "type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service",
        "typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport",
    );
    let all = folder.path().join("all.nft");
    std::fs::write(&all, text)?;
    let load = |file: &Path| -> anyhow::Result<Duration> {
        let began = Instant::now();
        let output = machine.command("nft").arg("-f").arg(file).output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(began.elapsed())
    };
    let loaded = load(&all)?;
    let one = folder.path().join("one.nft");
    let address = "10.43.250.1 . tcp . 80";
    let chains = listed.lines().filter_map(|line| line.trim().strip_prefix("chain ")?.strip_suffix(" {"));
    let chain = chains.into_iter().find(|name| name.starts_with("endpoints-")).context("a chain of endpoints")?;
    let mut latencies = Vec::new();
    for number in 0..20 {
        let what = if number % 2 == 0 { "add" } else { "delete" };
        let endpoints: Vec<String> =
            (0..ENDPOINTS).map(|index| format!("{address} . {index} : 10.42.9.{index} . 8080")).collect();
        std::fs::write(
            &one,
            format!(
                "{what} element ip {TABLE} addresses {{ {address} : goto {chain} }}
                 {what} element ip {TABLE} cluster-addresses {{ 10.43.250.1 }}
                 {what} element ip {TABLE} endpoints {{ {} }}\n",
                endpoints.join(", ")
            ),
        )?;
        latencies.push(load(&one)?);
    }
    Ok((loaded, Duration::from_secs_f64(Latencies::new(latencies).ms(0.5) / 1000.0)))
}

/// A cluster with as many Services, and one more from the API to the kernel.
async fn whole_way(services: usize) -> anyhow::Result<()> {
    let server = Server::start_node(&[])?;
    let client = server.client()?;
    let began = Instant::now();
    let making = (0..services).map(|number| {
        let client = &client;
        async move { create(client, number).await }
    });
    use futures::StreamExt;
    let mut making = futures::stream::iter(making).buffer_unordered(16);
    while let Some(made) = making.next().await {
        made?;
    }
    drop(making);
    let network = server.machine().network();
    let mut watch = Watch::open(TABLE, Some(&network), Arc::new(AtomicU32::new(0)))?;
    quiet(&mut watch).await?;
    report::line("all Services created over the API, until the kernel has them", began.elapsed().as_secs_f64(), "s");
    report::line("    memory of the whole server", process::resident_mib(server.pid())?, "MiB");
    let cpu_before = process::cpu_seconds(server.pid())?;
    let mut latencies = Vec::new();
    let mut connection = client.connection().await?;
    for number in services..services + ONE_BY_ONE {
        // Its endpoints are there already; nothing happens to them without a Service.
        send(&client, SLICES, &slice(number)).await?;
        watch.drain();
        let body = service(number).to_string();
        let began = Instant::now();
        let (reply, touched) = tokio::join!(
            connection.send("POST", SERVICES_PATH, "application/json", body),
            tokio::time::timeout(PATIENCE, watch.touched())
        );
        touched.context("the kernel hears nothing")??;
        latencies.push(began.elapsed());
        let reply = reply?;
        if reply.code != 201 {
            bail!("a Service is refused: {}", reply.text());
        }
    }
    let latencies = Latencies::new(latencies);
    let cpu = (process::cpu_seconds(server.pid())? - cpu_before) / ONE_BY_ONE as f64;
    report::line("one more, from the write to the API to the kernel, p50", latencies.ms(0.5), "ms");
    report::line("one more, from the write to the API to the kernel, p99", latencies.ms(0.99), "ms");
    report::line("    processor time of the whole server for each", cpu * 1000.0, "ms");
    Ok(())
}

const SERVICES_PATH: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

async fn create(client: &Client, number: usize) -> anyhow::Result<()> {
    send(client, SERVICES_PATH, &service(number)).await?;
    send(client, SLICES, &slice(number)).await
}

async fn send(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let reply = client.send("POST", path, "application/json", object.to_string()).await?;
    anyhow::ensure!(reply.code == 201, "{path}: {}", reply.text());
    Ok(())
}

/// Until nothing has changed for a while.
async fn quiet(watch: &mut Watch) -> anyhow::Result<()> {
    while let Ok(touched) = tokio::time::timeout(Duration::from_secs(1), watch.touched()).await {
        touched?;
        watch.drain();
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("s{number}")
}

fn service(number: usize) -> Value {
    json!({"metadata": {"name": name(number)}, "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}})
}

fn slice(number: usize) -> Value {
    let address = |index: usize| {
        format!("10.42.{}.{}", 1 + (number * ENDPOINTS + index) / 250 % 250, (number * ENDPOINTS + index) % 250 + 1)
    };
    let endpoints: Vec<Value> =
        (0..ENDPOINTS).map(|index| json!({"addresses": [address(index)], "nodeName": format!("n{index}")})).collect();
    json!({
        "metadata": {"name": name(number), "labels": {"kubernetes.io/service-name": name(number)}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    })
}

fn typed(number: usize) -> anyhow::Result<(Key, Service, Arc<EndpointSlice>)> {
    let mut object = service(number);
    object["spec"]["clusterIPs"] = json!([format!("10.43.{}.{}", number / 250, number % 250 + 1)]);
    let slice: EndpointSlice = serde_json::from_value(slice(number))?;
    Ok((Key::new("default", name(number)), serde_json::from_value(object)?, Arc::new(slice)))
}
