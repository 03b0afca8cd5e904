//! `knarr agent`: this machine as a node of a cluster whose servers are elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use component_base::tasks;
use kube_apiserver::pki::{Pair, ServingCertificate};
use kubelet::node::addresses::Addresses;
use reconcile::{Caches, Cluster, Shutdown};

use crate::join::certificates;
use crate::join::{self, Joined};
use crate::node::Membership;

const AGENT: &str = concat!("kubelet/v", env!("CARGO_PKG_VERSION"), " (knarr)");
const SERVING: &str = "serving-kubelet";

#[derive(clap::Args)]
pub struct Flags {
    /// Join the cluster through this server, such as https://10.0.0.1:6443. Needed the first time only.
    #[arg(long, short, env = "KNARR_URL")]
    server: Option<String>,
    /// Join with this token: from `knarr token create`, or `<data-dir>/server/node-token` of a server.
    #[arg(long, short, env = "KNARR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Read the token from this file.
    #[arg(long, env = "KNARR_TOKEN_FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Keep all data of knarr in this directory.
    #[arg(long, short, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Disable these components: dns (coredns), kube-proxy, network-policy.
    #[arg(long, env = "KNARR_DISABLE", value_delimiter = ',')]
    disable: Vec<String>,
    #[command(flatten)]
    parts: crate::parts::Flags,
    #[command(flatten)]
    node: crate::node::Flags,
}

impl Flags {
    /// Tells the parts what their `/flagz` shows.
    pub fn show(&mut self, shown: &crate::shown::Shown) {
        self.node.shown = shown.of_part("kubelet");
        self.parts.show(shown);
    }

    /// What is left on the machine when the agent is gone.
    pub fn installed(self) -> crate::install::Node {
        crate::install::Node { data_dir: self.data_dir, flags: self.node }
    }
}

pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(serve(flags))
}

async fn serve(flags: Flags) -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    let mut disabled = crate::disable::read(&flags.disable, true, &[])?.parts;
    disabled.extend(flags.parts.disabled());
    flags.node.check()?;
    flags.parts.check(&flags.node)?;
    crate::check::before_start(crate::check::Start {
        data_dir: &flags.data_dir,
        api: None,
        node: Some(&flags.node),
        service_cidr: None,
    })
    .await?;
    let shutdown = Shutdown::new();
    component_base::shutdown::cancel_on_signal(&shutdown)?;
    let token = match &flags.token_file {
        Some(file) => Some(std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?),
        None => flags.token.clone(),
    };
    let name = flags.node.name();
    linux::file::make_private_folder(&flags.data_dir)
        .with_context(|| format!("create {}", flags.data_dir.display()))?;
    let dir = flags.data_dir.join("agent");
    let joined = join::join(flags.server.as_deref(), token.as_deref(), dir, &name, AGENT).await?;
    joined.keep(&name, shutdown.clone());
    let mut node = flags.node;
    node.cluster_cidr = joined.settings.cluster_cidr;
    let addresses = node.addresses(joined.settings.service_cidr, &shutdown).await;
    node.cluster_domain = joined.settings.cluster_domain.clone();
    node.cluster_dns = joined.settings.cluster_dns.clone();
    disabled.extend(joined.settings.disabled.iter().cloned());
    node.network.disable_network_policy |= disabled.iter().any(|part| part == crate::disable::NETWORK_POLICY);
    let certificate = serving_certificate(&joined, &node.name(), &addresses, &shutdown).await?;
    // A node sees the pods and nodes of others as far as the network needs it.
    let caches = Caches::reading(joined.client.clone(), shutdown.clone(), kube_apiserver::local::REDUCED_PATHS);
    let membership = Membership {
        client: joined.client.clone(),
        network: Some(Cluster::with_client(joined.client.clone(), caches.clone())),
        client_authority: joined.authority.clone(),
        client_authority_file: joined.authority_file(),
        certificate,
        service_cidr: joined.settings.service_cidr,
        addresses,
        gives_ranges: true,
        dns_port: flags.parts.dns_port(&disabled),
    };
    let parts = crate::parts::Node {
        flags: &node,
        data_dir: &flags.data_dir,
        service_cidr: joined.settings.service_cidr,
        disabled: &disabled,
        api_port: None,
    };
    // They all ask as the node, and share one copy of each kind.
    let cluster = Cluster::with_client(joined.client.clone(), caches);
    flags.parts.start(parts, |_| cluster.clone(), shutdown.clone())?;
    let mut running = crate::node::start(node, &flags.data_dir, membership, shutdown.clone()).await?;
    println!(
        "knarr is a node of the cluster at {} after {} ms",
        joined.servers.list().join(", "),
        began.elapsed().as_millis()
    );
    crate::memory::give_back_later();
    crate::notify::ready(&format!("a node of {}", joined.servers.list().join(", ")));
    tokio::select! {
        ended = &mut running => return ended.context("kubelet failed"),
        () = shutdown.cancelled() => crate::notify::stopping(),
    }
    running.await.context("kubelet failed")
}

/// The certificate of the kubelet's server: what an earlier start got, or a new one from the cluster.
async fn serving_certificate(
    joined: &Joined,
    name: &str,
    addresses: &Addresses,
    shutdown: &Shutdown,
) -> anyhow::Result<Arc<ServingCertificate>> {
    let (client, dir, servers) = (joined.client.clone(), joined.dir.clone(), joined.servers.clone());
    let (own, announced) = (name.to_owned(), addresses.clone());
    let obtain = move || {
        let (client, name) = (client.clone(), own.clone());
        let addresses = certificates::asked_from(&announced.get(), &servers.list());
        async move { certificates::obtain_serving(&client, &name, &addresses).await }
    };
    let kept = Pair::read(&dir, SERVING);
    let still_good = |pair: &Pair| {
        pair.renew_at() > jiff::Timestamp::now()
            && pair.common_name() == certificates::subject(name)
            && pair.addresses().iter().all(|address| addresses.get().contains(address))
    };
    let pair = match kept.filter(still_good) {
        Some(pair) => pair,
        None => {
            let pair = obtain().await.context("get kubelet serving certificate")?;
            pair.write(&dir, SERVING)?;
            pair
        }
    };
    let serving = Arc::new(ServingCertificate::new(&pair)?);
    let replaced = serving.clone();
    let renewed = move |pair: &Pair| {
        pair.write(&dir, SERVING)?;
        Ok(replaced.replace(pair)?)
    };
    tasks::spawn(certificates::keep(pair.renew_at(), addresses.changes(), obtain, renewed, shutdown.clone()));
    Ok(serving)
}
