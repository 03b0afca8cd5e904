//! Requests through our ingress and through nginx, to the same backend on the same route, one after the other. What counts
//! is what a request costs in processor time: the load, the backend and the proxy share this machine's processors.
//!
//! Everything runs on the network of a machine of its own, which leads nowhere.

mod load;
mod nginx;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;
use testkit::Server;
use testkit::machine::{ADDRESS, Inside, within};

use crate::process;
use crate::report::{self, Better};
use load::{Measured, Shape};

const HOST: &str = "bench.test";
const HTTP_PORT: u16 = 8080;
const BACKEND_PORT: u16 = 9000;
const READY_TIMEOUT: Duration = Duration::from_secs(60);

const SHAPES: [Shape; 4] = [
    Shape { what: "small answers, 64 connections kept", path: "/", connections: 64, keep: true, seconds: 6 },
    Shape { what: "small answers, 4 connections kept", path: "/", connections: 4, keep: true, seconds: 4 },
    Shape { what: "a new connection for every request", path: "/", connections: 32, keep: false, seconds: 4 },
    Shape { what: "answers of 256 KiB", path: "/large", connections: 16, keep: true, seconds: 5 },
];

pub async fn run() -> anyhow::Result<()> {
    tokio::task::spawn_blocking(measure).await?
}

fn measure() -> anyhow::Result<()> {
    let server = Server::start_node(&["--disable=ingress"])?;
    let machine = server.machine().clone();
    let network = machine.network();
    let _backend = load::Backend::start(network.clone(), BACKEND_PORT)?;
    objects(&server)?;
    let ours = Proxy::knarr(&server)?;
    until_served(&network, HTTP_PORT)?;
    let nginx = nginx::Nginx::start(&machine, BACKEND_PORT)?;
    if nginx.is_some() {
        until_served(&network, nginx::PORT)?;
    }
    report::head("Ingress: requests to one backend", "nginx");
    for shape in SHAPES {
        let mine = measured(&network, shape, HTTP_PORT, &|| ours.cpu_seconds())?;
        match &nginx {
            None => {
                report::line(&format!("{}: requests", shape.what), mine.per_second(), "/s");
                report::line(&format!("{}: processor time", shape.what), mine.cpu_us_each(), "us");
            }
            Some(nginx) => {
                let theirs = measured(&network, shape, nginx::PORT, &|| nginx.cpu_seconds())?;
                let line = |what: &str| format!("{}: {what}", shape.what);
                report::compare(&line("requests"), mine.per_second(), theirs.per_second(), "/s", Better::More);
                report::compare(&line("processor time"), mine.cpu_us_each(), theirs.cpu_us_each(), "us", Better::Less);
                report::compare(&line("p99"), mine.latencies.ms(0.99), theirs.latencies.ms(0.99), "ms", Better::Less);
            }
        }
    }
    let resident = process::resident_mib(ours.pid())?;
    match &nginx {
        Some(nginx) => report::compare("memory after it", resident, nginx.resident_mib()?, "MiB", Better::Less),
        None => report::line("memory after it", resident, "MiB"),
    }
    Ok(())
}

fn measured(
    network: &std::path::Path,
    shape: Shape,
    port: u16,
    cpu: &dyn Fn() -> anyhow::Result<f64>,
) -> anyhow::Result<Measured> {
    // A short first run, so that connections and memory are as they will be.
    load::run(network, Shape { seconds: 1, ..shape }, port)?;
    let before = cpu()?;
    let mut measured = load::run(network, shape, port)?;
    measured.cpu_seconds = cpu()? - before;
    if measured.latencies.count() == 0 {
        bail!("no request was answered");
    }
    Ok(measured)
}

/// The Service, its endpoint and the Ingress.
fn objects(server: &Server) -> anyhow::Result<()> {
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bench", "namespace": "default"},
            "spec": {"ports": [{"name": "web", "port": 80}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "bench-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "bench"}},
            "addressType": "IPv4", "ports": [{"name": "web", "port": BACKEND_PORT, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": true}}]},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "bench", "namespace": "default"},
            "spec": {"ingressClassName": "knarr", "rules": [{"host": HOST, "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "bench", "port": {"name": "web"}}}},
            ]}}]}},
    ]});
    let output = server.kubectl().run_with(&["create", "-f", "-"], &objects.to_string())?;
    if !output.status.success() {
        bail!("make the objects: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// A proxy as a process of its own.
struct Proxy(Inside);

impl Proxy {
    fn knarr(server: &Server) -> anyhow::Result<Proxy> {
        let mut command = server.machine().command(testkit::server::binary()?);
        command.args(["ingress", "--ingress-bind-address", ADDRESS, "--kubeconfig"]).arg(server.kubeconfig());
        command.args(["--ingress-http-port", &HTTP_PORT.to_string(), "--ingress-https-port", "8443"]);
        command.args(["--ingress-publish", ADDRESS]);
        let log: PathBuf = server.data_dir().join("ingress.log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(log)?);
        Ok(Proxy(Inside::new(command.spawn().context("start the ingress")?)?))
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        process::cpu_seconds(self.pid())
    }
}

fn until_served(network: &std::path::Path, port: u16) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let answered = within(network, move || load::answers(ADDRESS, port));
        if answered.unwrap_or(false) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("nobody answers on port {port}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
