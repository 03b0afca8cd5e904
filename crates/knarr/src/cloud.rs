//! `knarr cloud-controller-manager`: what a cloud does, with the provider that is built in, by itself.

use std::sync::Arc;

use reconcile::Shutdown;

const COMPONENT: &str = "system:cloud-controller-manager";
const LEASE: &str = "cloud-controller-manager";
const AGENT: &str = concat!("cloud-controller-manager/v", env!("CARGO_PKG_VERSION"), " (knarr)");
/// Where upstream's answers.
const PORT: u16 = 10258;

#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    #[command(flatten)]
    secure: crate::secure::Flags,
    /// The provider: built-in gives Services of type LoadBalancer the addresses of nodes.
    #[arg(long, default_value = "built-in", value_parser = ["built-in"])]
    cloud_provider: String,
    /// Let each controller ask with a service account of its own.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    use_service_account_credentials: bool,
    #[command(flatten)]
    leader: crate::leader::Flags,
}

/// Until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        let cluster = match flags.use_service_account_credentials {
            true => crate::accounts::cluster(flags.cluster.config().await?, COMPONENT, AGENT)?,
            false => flags.cluster.cluster(AGENT).await?,
        };
        crate::alone::cancel_on_signal(&shutdown)?;
        let election = flags.leader.election(LEASE)?;
        let leads = election.leads();
        flags.secure.serve(PORT, AGENT, Arc::new(move || crate::health::leadership(LEASE, &leads))).await?;
        tracing::info!(provider = flags.cloud_provider, "the cloud's controllers begin when it is their turn");
        let client = cluster.client().clone();
        let work = move |stop| {
            let config = cloud_controller_manager::Config { cloud: Arc::new(cloud_controller_manager::Builtin) };
            cloud_controller_manager::run(config, cluster.clone(), stop)
        };
        election.run(client, shutdown, work).await;
        Ok(())
    })
}
