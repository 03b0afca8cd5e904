//! `knarr cloud-controller-manager`: what a cloud does, with the provider that is built in, by itself.

use std::num::NonZeroUsize;
use std::sync::Arc;

use cloud_controller_manager::Config;

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
    pub secure: crate::secure::Flags,
    /// Cloud provider: built-in gives LoadBalancer Services the addresses of nodes.
    #[arg(long, default_value = "built-in", value_parser = ["built-in"])]
    cloud_provider: String,
    /// Run each controller with its own service account.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    use_service_account_credentials: bool,
    #[command(flatten)]
    controllers: Controllers,
    #[command(flatten)]
    leader: crate::leader::Flags,
}

#[derive(clap::Args, Clone)]
#[group(skip)]
struct Controllers {
    /// Controllers to run: `*` for all, `name` for one, `-name` for all but that one.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Number of Services to sync concurrently.
    #[arg(long, value_name = "COUNT")]
    concurrent_service_syncs: Option<NonZeroUsize>,
}

impl Controllers {
    fn config(&self) -> Config {
        Config {
            controllers: self.controllers.clone(),
            service_workers: self.concurrent_service_syncs,
            ..Config::new(Arc::new(cloud_controller_manager::Builtin))
        }
    }
}

/// Until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    crate::alone::run(async move |shutdown| {
        let cluster = if flags.use_service_account_credentials {
            crate::accounts::cluster(flags.cluster.config().await?, COMPONENT, AGENT)?
        } else {
            flags.cluster.cluster(AGENT).await?
        };
        let election = flags.leader.election(LEASE)?;
        let leads = election.leads();
        let page = crate::health::page(LEASE, leads, cluster.metrics().clone(), Default::default());
        flags.secure.serve(PORT, LEASE, AGENT, page).await?;
        tracing::info!(provider = flags.cloud_provider, "waiting for leader lease to start cloud controllers");
        let client = cluster.client().clone();
        let config = flags.controllers.config();
        config.check()?;
        let work = move |stop| cloud_controller_manager::run(flags.controllers.config(), cluster.clone(), stop);
        election.run(client, shutdown, work).await;
        Ok(())
    })
}
