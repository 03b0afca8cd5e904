//! The controllers: in the server's own process, or alone against any Kubernetes API.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use kube_apiserver::app::App;
use kube_apiserver::loopback::Loopback;
use kube_controller_manager::Config;
use reconcile::{Caches, Cluster, Connect, Identity, Shutdown};

const COMPONENT: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";
const AGENT: &str = concat!("kube-controller-manager/v", env!("CARGO_PKG_VERSION"), " (knarr)");

const KUBELET_AGENT: &str = concat!("kubelet/v", env!("CARGO_PKG_VERSION"), " (knarr)");

#[derive(clap::Args)]
pub struct Flags {
    /// How to reach the cluster.
    #[arg(long, env = "KNARR_KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Which controllers run: `*` for all, a name for one, `-name` for all but that one.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// The authority of the API server's certificate, which is published to every namespace.
    #[arg(long)]
    root_ca_file: Option<PathBuf>,
}

/// `knarr kube-controller-manager`, until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(alone(flags))
}

async fn alone(flags: Flags) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    let cluster = crate::alone::cluster(&flags.kubeconfig, AGENT, &shutdown).await?;
    let root_ca = flags.root_ca_file.as_ref().map(std::fs::read_to_string).transpose().context("read the root CA")?;
    let config = Config { controllers: flags.controllers, root_ca, ..Config::default() };
    crate::alone::cancel_on_signal(&shutdown)?;
    Ok(kube_controller_manager::run(config, cluster, shutdown).await?)
}

/// What the components of the server's process share: clients that need no socket, and one copy of each kind.
pub struct Local {
    app: Arc<App>,
    connect: Connect,
    caches: Arc<Caches>,
}

impl Local {
    pub fn new(app: Arc<App>, shutdown: Shutdown) -> Local {
        let shared = app.clone();
        let connect: Connect = Arc::new(move |identity| {
            let service = match identity {
                Identity::Component(user) => Loopback::component(shared.clone(), user, AGENT),
                Identity::Account(name) => Loopback::service_account(shared.clone(), "kube-system", name, AGENT),
            };
            kube::Client::new(service, "default")
        });
        // The controller manager's role may read everything, so its identity fills the caches.
        let caches = Caches::new(connect(&Identity::Component(COMPONENT)), shutdown);
        Local { app, connect, caches }
    }

    /// How the kubelet of that node asks.
    pub fn node_client(&self, name: &str) -> kube::Client {
        kube::Client::new(Loopback::node(self.app.clone(), name, KUBELET_AGENT), "default")
    }

    /// Starts the scheduler; the handle ends when it has stopped.
    pub fn start_scheduler(&self, config: kube_scheduler::Config, shutdown: Shutdown) -> tokio::task::JoinHandle<()> {
        let app = self.app.clone();
        let connect: Connect = Arc::new(move |_| {
            kube::Client::new(Loopback::component(app.clone(), SCHEDULER, crate::scheduler::AGENT), "default")
        });
        let cluster = Cluster::new(SCHEDULER, connect, self.caches.clone());
        tokio::spawn(async move {
            if let Err(error) = kube_scheduler::run(config, cluster, shutdown).await {
                tracing::error!(%error, "the scheduler does not run");
            }
        })
    }

    /// Starts the controllers; the handle ends when they have stopped.
    pub fn start_controllers(&self, config: Config, shutdown: Shutdown) -> tokio::task::JoinHandle<()> {
        let cluster = Cluster::new(COMPONENT, self.connect.clone(), self.caches.clone());
        tokio::spawn(async move {
            if let Err(error) = kube_controller_manager::run(config, cluster, shutdown).await {
                tracing::error!(%error, "the controllers do not run");
            }
        })
    }
}
