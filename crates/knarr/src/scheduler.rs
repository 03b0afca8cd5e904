//! `knarr kube-scheduler`: the scheduler by itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use kube_scheduler::metrics::Metrics;
use reconcile::{Cluster, Shutdown};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub const AGENT: &str = concat!("kube-scheduler/v", env!("CARGO_PKG_VERSION"), " (knarr)");

/// The name of its lease.
pub const COMPONENT: &str = "kube-scheduler";

#[derive(clap::Args)]
pub struct Flags {
    /// How to reach the cluster.
    #[arg(long, env = "KNARR_KUBECONFIG")]
    kubeconfig: PathBuf,
    /// A KubeSchedulerConfiguration: profiles, plugins and their weights.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Answer /healthz, /livez, /readyz and /metrics here, without TLS, such as 127.0.0.1:10259.
    #[arg(long)]
    health_address: Option<SocketAddr>,
    #[command(flatten)]
    leader: crate::leader::Flags,
}

/// Until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let config = config(flags.config.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        let cluster = crate::alone::cluster(&flags.kubeconfig, AGENT).await?;
        crate::alone::cancel_on_signal(&shutdown)?;
        if let Some(address) = flags.health_address {
            let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
            tokio::spawn(answer_all(listener, config.metrics.subscribe()));
        }
        let election = flags.leader.election(COMPONENT)?;
        let client = cluster.client().clone();
        election.run(client, shutdown, move |stop| work(config.clone(), cluster.clone(), stop)).await;
        Ok(())
    })
}

/// Schedules until told to stop.
pub async fn work(config: kube_scheduler::Config, cluster: Cluster, stop: Shutdown) {
    if let Err(error) = kube_scheduler::run(config, cluster, stop).await {
        tracing::error!(%error, "the scheduler does not run");
    }
}

/// What the file says, or what upstream does without one.
pub fn config(file: Option<&Path>) -> anyhow::Result<kube_scheduler::Config> {
    let Some(file) = file else { return Ok(kube_scheduler::Config::default()) };
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    kube_scheduler::configuration::read(&text).with_context(|| format!("use {}", file.display()))
}

async fn answer_all(listener: TcpListener, metrics: watch::Receiver<Metrics>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => _ = tokio::spawn(answer(stream, metrics.clone())),
            // The next one may be taken; a pause keeps a lasting fault from using up a processor.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

const ACCEPT_AGAIN: std::time::Duration = std::time::Duration::from_millis(100);
/// A request that is not complete by then is not waited for.
const REQUEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// One request a connection: monitoring asks so seldom that this is enough.
async fn answer(mut stream: TcpStream, metrics: watch::Receiver<Metrics>) {
    let mut first = String::new();
    let request = async {
        let mut reader = BufReader::new(&mut stream);
        reader.read_line(&mut first).await?;
        let mut line = String::new();
        while reader.read_line(&mut line).await? > 2 {
            line.clear();
        }
        std::io::Result::Ok(())
    };
    if !matches!(tokio::time::timeout(REQUEST_TIMEOUT, request).await, Ok(Ok(()))) {
        return;
    }
    let path = first.split_whitespace().nth(1).unwrap_or_default();
    let (status, body) = match path.split('?').next().unwrap_or_default() {
        "/healthz" | "/livez" | "/readyz" => ("200 OK", "ok".to_owned()),
        "/metrics" => ("200 OK", kube_scheduler::metrics::text(&metrics.borrow())),
        _ => ("404 Not Found", "404 page not found\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // Whoever asked may be gone.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}
