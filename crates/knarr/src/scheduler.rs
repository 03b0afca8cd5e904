//! `knarr kube-scheduler`: the scheduler by itself.

use std::path::PathBuf;

use reconcile::Shutdown;

pub const AGENT: &str = concat!("kube-scheduler/v", env!("CARGO_PKG_VERSION"), " (knarr)");

#[derive(clap::Args)]
pub struct Flags {
    /// How to reach the cluster.
    #[arg(long, env = "KNARR_KUBECONFIG")]
    kubeconfig: PathBuf,
}

/// Until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        let cluster = crate::alone::cluster(&flags.kubeconfig, AGENT, &shutdown).await?;
        crate::alone::cancel_on_signal(&shutdown)?;
        Ok(kube_scheduler::run(kube_scheduler::Config::default(), cluster, shutdown).await?)
    })
}
