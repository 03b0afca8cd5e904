//! A component by itself, against any Kubernetes API that a kubeconfig leads to.

use std::path::Path;

use anyhow::Context;
use reconcile::{Caches, Cluster, Shutdown};
use tokio::signal::unix::{SignalKind, signal};

/// The copies it keeps live as long as the process: what is at work when it is told to stop waits until they have seen its
/// last write.
pub async fn cluster(kubeconfig: &Path, agent: &'static str) -> anyhow::Result<Cluster> {
    let read = kube::config::Kubeconfig::read_from(kubeconfig);
    let read = read.with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await.context("use the kubeconfig")?;
    let agent = http::HeaderValue::from_static(agent);
    let named = tower::util::MapRequestLayer::new(move |mut request: http::Request<_>| {
        request.headers_mut().insert(http::header::USER_AGENT, agent.clone());
        request
    });
    let client = kube::client::ClientBuilder::try_from(config).context("make a client")?.with_layer(&named).build();
    Ok(Cluster::with_client(client.clone(), Caches::new(client, Shutdown::new())))
}

/// SIGTERM and SIGINT stop the component.
pub fn cancel_on_signal(shutdown: &Shutdown) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}
