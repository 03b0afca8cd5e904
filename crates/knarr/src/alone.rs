//! A component by itself, against any Kubernetes API that a kubeconfig leads to.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use reconcile::{Caches, Cluster, Metrics, Shutdown};

/// How to reach the cluster; inside of a pod nothing need be said.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Connect to the cluster with this kubeconfig.
    #[arg(long, env = "KNARR_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Use this address of the API server instead of the kubeconfig's.
    #[arg(long)]
    pub master: Option<String>,
}

impl Flags {
    pub async fn config(&self) -> anyhow::Result<kube::Config> {
        let mut config = match (&self.kubeconfig, &self.master) {
            (Some(file), _) => from_file(file).await?,
            (None, Some(master)) => kube::Config::new(master.parse().with_context(|| format!("--master {master:?}"))?),
            (None, None) => match kube::Config::incluster() {
                Ok(config) => config,
                Err(_) => bail!("not running in a pod: set --kubeconfig"),
            },
        };
        if let Some(master) = &self.master {
            config.cluster_url = master.parse().with_context(|| format!("--master {master:?}"))?;
        }
        Ok(config)
    }

    pub async fn cluster(&self, agent: &'static str) -> anyhow::Result<Cluster> {
        cluster(self.config().await?, agent)
    }
}

/// The copies it keeps live as long as the process: what is at work when it is told to stop waits until they have seen its
/// last write.
pub fn cluster(config: kube::Config, agent: &'static str) -> anyhow::Result<Cluster> {
    let metrics = Arc::new(Metrics::default());
    let client = counted_client(config, agent, metrics.clone())?;
    Ok(Cluster::with_client(client.clone(), Caches::new(client, Shutdown::new())).counting_in(metrics))
}

pub async fn from_file(kubeconfig: &Path) -> anyhow::Result<kube::Config> {
    let read = kube::config::Kubeconfig::read_from(kubeconfig);
    let read = read.with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await;
    config.with_context(|| format!("use {}", kubeconfig.display()))
}

/// A client that says by which program it asks.
pub fn client(config: kube::Config, agent: &'static str) -> anyhow::Result<kube::Client> {
    let agent = http::HeaderValue::from_static(agent);
    let named = tower::util::MapRequestLayer::new(move |mut request: http::Request<_>| {
        request.headers_mut().insert(http::header::USER_AGENT, agent.clone());
        request
    });
    Ok(kube::client::ClientBuilder::try_from(config).context("create client")?.with_layer(&named).build())
}

/// The same, and its requests are counted.
pub fn counted_client(
    config: kube::Config,
    agent: &'static str,
    metrics: Arc<Metrics>,
) -> anyhow::Result<kube::Client> {
    let counting = crate::counting::Counting::new(metrics, &config);
    let agent = http::HeaderValue::from_static(agent);
    let named = tower::util::MapRequestLayer::new(move |mut request: http::Request<_>| {
        request.headers_mut().insert(http::header::USER_AGENT, agent.clone());
        request
    });
    let builder = kube::client::ClientBuilder::try_from(config).context("create client")?;
    Ok(builder.with_layer(&named).with_layer(&counting).build())
}

/// How long a component that is told to stop may take for what is under way, unless it is told. An API server that does not
/// answer must not keep the process.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Runs a component until it is told to stop by SIGTERM or SIGINT, or fails.
pub fn run<F>(component: impl FnOnce(Shutdown) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    run_within(STOP_MAX, component)
}

/// The same, with so much time to stop.
pub fn run_within<F>(stop_max: Duration, component: impl FnOnce(Shutdown) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    run_on(tokio::runtime::Builder::new_multi_thread(), stop_max, component)
}

/// The same on one thread besides the first.
pub fn run_small<F>(component: impl FnOnce(Shutdown) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.worker_threads(1);
    run_on(threads, STOP_MAX, component)
}

fn run_on<F>(
    mut threads: tokio::runtime::Builder,
    stop_max: Duration,
    component: impl FnOnce(Shutdown) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = threads.enable_all().thread_name("knarr").build()?;
    let outcome = runtime.block_on(async {
        let shutdown = Shutdown::new();
        component_base::shutdown::cancel_on_signal(&shutdown)?;
        tokio::select! {
            outcome = component(shutdown.clone()) => outcome,
            () = overdue(&shutdown, stop_max) => {
                tracing::warn!(seconds = stop_max.as_secs(), "shutdown timeout exceeded; exiting with tasks still running");
                Ok(())
            }
        }
    });
    // Threads that wait for a name server or a disk end with the process.
    runtime.shutdown_background();
    outcome
}

async fn overdue(shutdown: &Shutdown, stop_max: Duration) {
    shutdown.cancelled().await;
    tokio::time::sleep(stop_max).await;
}
