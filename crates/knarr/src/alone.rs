//! A component by itself, against any Kubernetes API that a kubeconfig leads to.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use reconcile::{Caches, Cluster, Shutdown};
use tokio::signal::unix::{SignalKind, signal};

/// How to reach the cluster; inside of a pod nothing need be said.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// How to reach the cluster.
    #[arg(long, env = "KNARR_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// The address of the API server, instead of the kubeconfig's.
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
                Err(_) => bail!("this is no pod of a cluster: give --kubeconfig"),
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
    let client = client(config, agent)?;
    Ok(Cluster::with_client(client.clone(), Caches::new(client, Shutdown::new())))
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
    Ok(kube::client::ClientBuilder::try_from(config).context("make a client")?.with_layer(&named).build())
}

/// SIGTERM and SIGINT stop the component.
pub fn cancel_on_signal(shutdown: &Shutdown) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = shutdown.clone();
    tasks::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}
