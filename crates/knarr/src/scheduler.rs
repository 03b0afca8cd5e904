//! `knarr kube-scheduler`: the scheduler by itself.

use std::path::PathBuf;

use reconcile::{Cluster, Shutdown};

pub const AGENT: &str = concat!("kube-scheduler/v", env!("CARGO_PKG_VERSION"), " (knarr)");

/// The name of its lease.
pub const COMPONENT: &str = "kube-scheduler";

#[derive(clap::Args)]
pub struct Flags {
    /// How to reach the cluster.
    #[arg(long, env = "KNARR_KUBECONFIG")]
    kubeconfig: PathBuf,
    #[command(flatten)]
    leader: crate::leader::Flags,
}

/// Until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        let cluster = crate::alone::cluster(&flags.kubeconfig, AGENT, &shutdown).await?;
        crate::alone::cancel_on_signal(&shutdown)?;
        let election = flags.leader.election(COMPONENT)?;
        election.run(cluster.client().clone(), shutdown, move |stop| work(cluster.clone(), stop)).await;
        Ok(())
    })
}

/// Schedules until told to stop.
pub async fn work(cluster: Cluster, stop: Shutdown) {
    if let Err(error) = kube_scheduler::run(kube_scheduler::Config::default(), cluster, stop).await {
        tracing::error!(%error, "the scheduler does not run");
    }
}
