//! `knarr server`: the control plane, until it is told to stop.

mod controllers;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use component_base::tasks;
use reconcile::Cluster;
use store::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const AGENT: &str = concat!("knarr/v", env!("CARGO_PKG_VERSION"));

#[derive(clap::Args)]
pub struct Flags {
    /// Everything knarr keeps on disk.
    #[arg(long, short, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// The address to listen on.
    #[arg(long, env = "KNARR_BIND_ADDRESS", default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// The port of the Kubernetes API; 0 picks a free one.
    #[arg(long, visible_alias = "https-listen-port", env = "KNARR_HTTPS_PORT", default_value_t = 6443)]
    https_port: u16,
    /// The address that other machines and pods reach this server by.
    #[arg(long, env = "KNARR_ADVERTISE_ADDRESS")]
    advertise_address: Option<IpAddr>,
    /// More names and addresses for the server's certificate.
    #[arg(long, env = "KNARR_TLS_SAN", value_delimiter = ',')]
    tls_san: Vec<String>,
    /// Addresses of Services.
    #[arg(long, env = "KNARR_SERVICE_CIDR", default_value = "10.43.0.0/16")]
    service_cidr: ipnet::IpNet,
    /// A server of the cluster that this one joins, such as https://10.0.0.1:6443; both keep their objects in one etcd.
    #[arg(long, short, env = "KNARR_URL")]
    server: Option<String>,
    /// With what servers join: what <data-dir>/server/token holds on another, or a text of one's own for the first.
    #[arg(long, short, env = "KNARR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A file that holds the token.
    #[arg(long, env = "KNARR_TOKEN_FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Run the control plane only, no node.
    #[arg(long, env = "KNARR_DISABLE_AGENT")]
    disable_agent: bool,
    #[command(flatten)]
    etcd: crate::etcd::access::Access,
    /// Run the host's own etcd as the first member of a cluster of servers; the next join with --server and --token.
    #[arg(long, env = "KNARR_CLUSTER_INIT", conflicts_with = "etcd_servers")]
    cluster_init: bool,
    /// Make the etcd of this server a cluster of one member, and end. The other servers join again afterwards.
    #[arg(long, env = "KNARR_CLUSTER_RESET", conflicts_with = "etcd_servers")]
    cluster_reset: bool,
    /// With --cluster-reset: go back to what this snapshot holds.
    #[arg(long, env = "KNARR_CLUSTER_RESET_RESTORE_PATH", requires = "cluster_reset")]
    cluster_reset_restore_path: Option<PathBuf>,
    #[command(flatten)]
    snapshots: crate::etcd::snapshots::Flags,
    /// Static tokens: lines of token,user,uid,"group1,group2".
    #[arg(long, env = "KNARR_TOKEN_AUTH_FILE")]
    token_auth_file: Option<PathBuf>,
    /// Believe whatever certificate a kubelet shows, not only those of the cluster's own authority.
    #[arg(long, env = "KNARR_KUBELET_INSECURE_TLS")]
    kubelet_insecure_tls: bool,
    /// How long an Event is kept: seconds, or a time such as 1h.
    #[arg(long, env = "KNARR_EVENT_TTL", default_value = "1h", value_parser = crate::options::seconds_or_duration)]
    event_ttl: Duration,
    /// Parts that do not run here: kube-controller-manager, kube-scheduler, cloud-controller-manager (servicelb),
    /// local-storage, kube-proxy, dns (coredns), ingress (traefik), metrics-server, network-policy, dashboard; or a file
    /// of manifests.
    /// What an earlier start made for them is removed.
    #[arg(long, env = "KNARR_DISABLE", value_delimiter = ',')]
    disable: Vec<String>,
    /// Which controllers run: `*` for all, a name for one, `-name` for all but that one.
    #[arg(long, env = "KNARR_CONTROLLERS", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// A KubeSchedulerConfiguration: profiles, plugins and their weights.
    #[arg(long, env = "KNARR_KUBE_SCHEDULER_CONFIG")]
    kube_scheduler_config: Option<PathBuf>,
    #[command(flatten)]
    api: crate::api_flags::Flags,
    #[command(flatten)]
    identity: crate::identity::Flags,
    #[command(flatten)]
    admission: crate::admission::Flags,
    #[command(flatten)]
    options: crate::options::Flags,
    #[command(flatten)]
    tuning: crate::tuning::Flags,
    #[command(flatten)]
    parts: crate::parts::Flags,
    #[command(flatten)]
    node: crate::node::Flags,
    #[command(flatten)]
    ingress: crate::ingress::Flags,
    /// Whether every server runs a member of etcd, as the first one's --cluster-init decided.
    #[arg(skip)]
    runs_etcd: bool,
}

impl Flags {
    /// What all servers of a cluster must have alike is as the cluster has it.
    fn follow(&mut self, settings: crate::join::cluster::Settings) -> anyhow::Result<()> {
        self.service_cidr = settings.service_cidr;
        self.node.cluster_cidr = settings.cluster_cidr;
        self.node.cluster_dns = settings.cluster_dns;
        self.node.cluster_domain = settings.cluster_domain;
        if self.etcd.servers.is_empty() {
            self.etcd.servers = settings.etcd_servers;
            self.runs_etcd = settings.runs_etcd;
        }
        anyhow::ensure!(
            !self.etcd.servers.is_empty(),
            "that server keeps its objects on its own disk, which two servers cannot share: start it with --cluster-init or --etcd-servers first"
        );
        Ok(())
    }

    /// Refuses what cannot be used, before anything is started.
    fn check(&self) -> anyhow::Result<()> {
        if !self.disable_agent {
            self.node.check()?;
            self.parts.check(&self.node)?;
        }
        for token in self.token.iter().chain(&self.options.agent_token()?) {
            token.parse::<crate::join::token::Token>()?;
        }
        let controllers = self.controllers.clone();
        Ok(kube_controller_manager::Config { controllers, ..Default::default() }.check()?)
    }

    /// Who is believed and what is allowed: as most clusters have it, unless the operator says otherwise.
    fn api_options(&self) -> anyhow::Result<kube_apiserver::Options> {
        use kube_apiserver::authz::Mode;
        let defaults = crate::identity::Defaults { modes: &[Mode::Node, Mode::Rbac] };
        self.identity.options(defaults, self.admission.options(kube_apiserver::Options::default())?)
    }

    /// Puts our own names of parts in the place of those that were given, and leaves the rest.
    fn settle_disabled(&mut self) -> anyhow::Result<crate::disable::Disabled> {
        let mut names = std::mem::take(&mut self.disable);
        names.extend(self.options.disabled());
        names.extend(self.parts.disabled());
        let disabled = crate::disable::read(&names, false, &crate::manifests::names(&self.data_dir))?;
        self.disable = disabled.parts.clone();
        self.node.network.disable_network_policy |= self.disables(crate::disable::NETWORK_POLICY);
        Ok(disabled)
    }

    /// What is left on the machine when the server is gone.
    pub fn installed(self) -> crate::install::Node {
        crate::install::Node { data_dir: self.data_dir, flags: self.node }
    }

    /// The folder of everything, for root alone; unless its kubeconfig is for others too, who must then pass through to it.
    fn make_data_dir(&self) -> anyhow::Result<()> {
        let shared = self.options.write_kubeconfig.is_none() && self.options.write_kubeconfig_mode & 0o077 != 0;
        let made = match shared {
            true => linux::file::make_passable_folder(&self.data_dir),
            false => linux::file::make_private_folder(&self.data_dir),
        };
        made.with_context(|| format!("create {}", self.data_dir.display()))
    }

    /// Where objects are kept and what controllers of this process are told, as `/flagz` shows it.
    fn shown(&self, runs_etcd: bool) -> kube_apiserver::flagz::Flags {
        let mut flags = match runs_etcd {
            true => crate::etcd::flags(&self.data_dir, &self.etcd.servers),
            false => self.etcd.flags(),
        };
        flags.insert("terminated-pod-gc-threshold".into(), self.tuning.terminated_pods_max().to_string());
        flags
    }

    /// By which clients reach this server.
    fn addresses(&self) -> Vec<IpAddr> {
        let named = self.tls_san.iter().filter_map(|name| name.parse().ok());
        named
            .chain(self.advertise_address)
            .chain(self.node.node_ip.clone())
            .chain(self.node.node_external_ip.clone())
            .collect()
    }

    /// The one that was given, or that the machine has; none where it has none but its own.
    fn node_address(&self) -> Option<IpAddr> {
        let found = || kubelet::node::addresses::find(&[self.node.cluster_cidr, self.service_cidr]).first().copied();
        let given = self.node.node_ip.first().copied();
        given.or_else(|| found().filter(|address| !address.is_loopback()))
    }

    fn disables(&self, part: &str) -> bool {
        self.disable.iter().any(|one| one == part)
    }
}

pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(serve(flags))
}

async fn serve(mut flags: Flags) -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    if let Some(file) = &flags.token_file {
        flags.token = Some(std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?);
    }
    if flags.cluster_reset {
        return reset(&flags).await;
    }
    let disabled = flags.settle_disabled()?;
    flags.check()?;
    crate::check::before_start(crate::check::Start {
        data_dir: &flags.data_dir,
        api: Some(SocketAddr::new(flags.bind_address, flags.https_port)),
        node: (!flags.disable_agent).then_some(&flags.node),
        service_cidr: Some(flags.service_cidr),
    })
    .await?;
    if let Some(other) = flags.server.clone() {
        let settings = crate::join::server::join(&other, flags.token.as_deref(), &flags.data_dir).await?;
        flags.follow(settings)?;
    }
    if flags.advertise_address.is_none() {
        flags.node.wait_for_address(flags.service_cidr).await;
    }
    let scheduling = crate::scheduler::config(flags.kube_scheduler_config.as_deref())?;
    flags.make_data_dir()?;
    let options = flags.api_options()?;
    let (shutdown, stop_etcd) = (CancellationToken::new(), CancellationToken::new());
    let etcd = start_etcd(&mut flags, stop_etcd.clone()).await?;
    let store = open_store(&flags, etcd.as_ref(), &shutdown).await?;
    if let Some(token) = &flags.token {
        crate::join::server::recover(&*store, token, &flags.data_dir).await.context("recover the cluster's keys")?;
    }
    let far = |what: &str| tracing::info!(after_ms = began.elapsed().as_millis() as u64, "{what}");
    far("the store is open");
    let config = kube_apiserver::Config {
        data_dir: flags.data_dir.clone(),
        bind_address: flags.bind_address,
        https_port: flags.https_port,
        // A node's pods reach the server where they reach the node, unless it listens elsewhere.
        advertise_address: flags
            .advertise_address
            .or_else(|| flags.node_address().filter(|_| flags.bind_address.is_unspecified())),
        service_cidr: flags.service_cidr,
        tls_sans: flags
            .tls_san
            .iter()
            .cloned()
            .chain(flags.node.node_external_ip.iter().map(IpAddr::to_string))
            .collect(),
        cluster_domain: flags.node.cluster_domain.clone(),
        node_ports: flags.options.service_node_port_range.clone(),
        kubeconfig_copy: flags.options.write_kubeconfig.clone(),
        kubeconfig_mode: flags.options.write_kubeconfig_mode,
        host_name: host_name(),
        token_auth_file: flags.token_auth_file.clone(),
        event_ttl: flags.event_ttl,
        shared_store: !flags.etcd.servers.is_empty(),
        kubelet_insecure_tls: flags.kubelet_insecure_tls,
        attached: match flags.disables("metrics-server") {
            true => Vec::new(),
            false => vec![metrics_server::API_SERVICE.into()],
        },
        flow: flags.api.flow(),
        audit: flags.api.audit_of_server(&flags.data_dir)?,
        flags: flags.shown(etcd.is_some()),
    };
    let server = kube_apiserver::start_with(config, options, store, shutdown.clone()).await;
    let server = server.context("start the API server")?;
    far("the API server answers");
    if !flags.disables("local-storage") {
        let class = crate::local_storage::class();
        let made = kube_apiserver::bootstrap::ensure(&server.app, class).await;
        made.map_err(|status| anyhow::anyhow!("make the class of local storage: {}", status.message))?;
    }
    if !crate::parts::is_disabled(&flags.disable, crate::parts::Part::Dns) {
        make_dns(&flags, &server).await;
    }
    let stop_components = CancellationToken::new();
    if !flags.disables("metrics-server") {
        crate::metrics::start(&server.app, stop_components.clone()).await?;
    }
    // The copies outlive the components: what these have begun ends when it has seen its own last write.
    let local = crate::controllers::Local::new(server.app.clone(), !flags.etcd.servers.is_empty(), shutdown.clone());
    if !flags.disables(crate::disable::DASHBOARD) {
        let config = crate::dashboard::LocalConfig {
            data_dir: &flags.data_dir,
            name: host_name(),
            hosts: flags.tls_san.clone(),
            cluster_domain: &flags.node.cluster_domain,
            profiles: scheduling.profiles.clone(),
            caches: local.caches(),
        };
        crate::dashboard::start(&server.app, config, stop_components.clone()).await.context("start the dashboard")?;
    }
    crate::disable::remove(&local.administrator(AGENT), &flags.disable).await;
    let controllers_config = match flags.disables("kube-controller-manager") {
        true => None,
        false => Some(controllers::config(&flags)?),
    };
    if let Some(config) = &controllers_config {
        config.check()?;
    }
    let gives_ranges = controllers_config.as_ref().is_some_and(|config| config.gives_ranges());
    let controllers = controllers_config.map(|config| local.start_controllers(config, stop_components.clone()));
    let scheduler = match flags.disables("kube-scheduler") {
        true => None,
        false => Some(local.start_scheduler(scheduling, stop_components.clone())),
    };
    let cloud = match flags.disables("cloud-controller-manager") {
        true => None,
        false => Some(local.start_cloud(stop_components.clone())),
    };
    publish(&flags, &disabled, &server).await.context("say how nodes can join")?;
    if flags.options.agent_token()?.is_none() {
        let authority = server.cluster_authority.certificate_pem.clone();
        let (client, data_dir) = (local.administrator(AGENT), flags.data_dir.clone());
        tasks::spawn(crate::join::tokens::keep_node_token(client, authority, data_dir, stop_components.clone()));
    }
    if let Some(etcd) = &etcd {
        local.start_members(etcd.config.clone(), stop_components.clone());
    }
    let node = match flags.disable_agent {
        true => None,
        false => {
            let node = flags.node.clone();
            let addresses = node.addresses(flags.service_cidr, &stop_components).await;
            let advertised = flags.advertise_address.is_none() && flags.bind_address.is_unspecified();
            if advertised {
                tasks::spawn(follow_address(server.app.settings.advertise_address.clone(), addresses.clone()));
            }
            let authority = &server.cluster_authority;
            let membership = crate::node::Membership {
                client: local.node_client(&node.name()),
                network: Some(Cluster::with_client(local.node_client(&node.name()), local.caches())),
                client_authority: authority.certificate_pem.clone(),
                client_authority_file: flags.data_dir.join("tls/ca.crt"),
                certificate: crate::node::own_certificate(&node, &addresses, authority, stop_components.clone())?,
                service_cidr: flags.service_cidr,
                addresses,
                gives_ranges,
                dns_port: flags.parts.dns_port(&flags.disable),
            };
            let roles =
                crate::roles::keep(local.administrator(AGENT), node.name(), flags.runs_etcd, stop_components.clone());
            tasks::spawn(roles);
            let started = crate::node::start(node, &flags.data_dir, membership, stop_components.clone());
            let started = started.await.context("start the node")?;
            far("the node runs");
            Some(started)
        }
    };
    let parts = match flags.disable_agent {
        true => Vec::new(),
        false => {
            let node = crate::parts::Node {
                flags: &flags.node,
                data_dir: &flags.data_dir,
                service_cidr: flags.service_cidr,
                disabled: &flags.disable,
                api_port: Some(flags.https_port),
            };
            let parts = flags.parts.start(node, |part| local.cluster_of(part), stop_components.clone());
            parts.context("start the parts of the node")?
        }
    };
    // Like the node it belongs to this machine: a server without a node has no requests from outside. Agents have none,
    // because it reads every certificate's key; their ports lead here.
    let ingress = match flags.disable_agent || flags.disables("ingress") {
        true => None,
        false => {
            for object in crate::ingress::permissions() {
                let made = kube_apiserver::bootstrap::ensure(&server.app, object).await;
                made.map_err(|status| anyhow::anyhow!("make the role of the ingress: {}", status.message))?;
            }
            let cluster = local.ingress_cluster();
            Some(crate::ingress::start(&flags.ingress, flags.node.name(), cluster, stop_components.clone()))
        }
    };
    let manifests = crate::manifests::Config {
        folder: crate::manifests::folder(&flags.data_dir),
        server: flags.node.name(),
        disabled: disabled.manifests,
    };
    let manifests =
        crate::manifests::start(manifests, local.administrator(crate::manifests::AGENT), stop_components.clone());
    // Nobody can connect to "all addresses"; here it is reached by this one.
    let mut address = server.address;
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::from([127, 0, 0, 1]));
    }
    println!(
        "knarr is ready on https://{address} after {} ms; export KUBECONFIG={}",
        began.elapsed().as_millis(),
        server.kubeconfig.display()
    );
    crate::memory::give_back_later();
    crate::notify::ready(&format!("answering on https://{address}"));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let removed = etcd.as_ref().map(|etcd| etcd.removed.clone()).unwrap_or_default();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = removed.cancelled() => {}
    }
    tracing::info!("stopping");
    crate::notify::stopping();
    // Components first: what they have begun to write, they can end.
    stop_components.cancel();
    for running in [controllers, scheduler, cloud, node, ingress, Some(manifests)].into_iter().flatten().chain(parts) {
        // A panic there has been logged.
        let _ = tokio::time::timeout(STOP_TIMEOUT, running).await;
    }
    shutdown.cancel();
    server.ended().await;
    stop_etcd.cancel();
    let Some(etcd) = etcd else { return Ok(()) };
    let message = removed.is_cancelled().then(|| etcd.config.removed_message());
    etcd.ended().await;
    match message {
        Some(message) => bail!(message),
        None => Ok(()),
    }
}

/// A server without an address of its own is reached where its node is.
async fn follow_address(advertised: kube_apiserver::app::Advertised, addresses: kubelet::node::addresses::Addresses) {
    let mut changes = addresses.changes();
    while changes.changed().await.is_ok() {
        if let Some(address) = addresses.get().first() {
            advertised.set(*address);
        }
    }
}

/// What --cluster-reset asks for.
async fn reset(flags: &Flags) -> anyhow::Result<()> {
    if let Some(file) = &flags.cluster_reset_restore_path
        && crate::snapshot::is_embedded(file)?
    {
        anyhow::ensure!(
            !flags.cluster_init && !crate::etcd::is_member(&flags.data_dir),
            "{} is a snapshot of an embedded store, and this server keeps its objects in etcd",
            file.display()
        );
        let folder = flags.data_dir.join("store");
        crate::etcd::reset::put_aside(&folder)?;
        let revision = store::embedded::snapshot::restore(file, &folder).context("restore")?;
        println!("restored revision {revision}; start this server without --cluster-reset");
        return Ok(());
    }
    let config = etcd_config(flags)?;
    match &flags.cluster_reset_restore_path {
        Some(file) => crate::etcd::reset::restore(&config, &std::path::absolute(file)?).await?,
        None => crate::etcd::reset::alone(&config).await?,
    }
    println!("{}", crate::etcd::reset::done_message(&config));
    Ok(())
}

/// Which member of etcd this machine is, where servers run them.
fn etcd_config(flags: &Flags) -> anyhow::Result<crate::etcd::Config> {
    let node = &flags.node;
    let address = flags.advertise_address.or_else(|| flags.node_address());
    Ok(crate::etcd::Config {
        data_dir: flags.data_dir.clone(),
        name: node.name(),
        address: address
            .context("etcd needs an address that other servers reach: give --advertise-address or --node-ip")?,
        others: flags.etcd.servers.clone(),
    })
}

/// The member of etcd that this server runs, where servers do.
async fn start_etcd(flags: &mut Flags, shutdown: CancellationToken) -> anyhow::Result<Option<crate::etcd::Etcd>> {
    // Once begun, it goes on without the flag.
    if !flags.cluster_init && !flags.runs_etcd && !crate::etcd::is_member(&flags.data_dir) {
        return Ok(None);
    }
    flags.runs_etcd = true;
    let config = etcd_config(flags)?;
    let name = config.name.clone();
    let etcd = crate::etcd::Etcd::start(config, shutdown.clone()).await.context("start etcd")?;
    // For those who join; the members know it better than what an earlier start was told.
    flags.etcd.servers = etcd.store.endpoints.clone();
    let source = crate::etcd::snapshots::Source::Etcd(etcd.store.clone());
    let (flags, data_dir) = (flags.snapshots.clone(), flags.data_dir.clone());
    tasks::spawn(crate::etcd::snapshots::keep(flags, source, data_dir, name, shutdown));
    Ok(Some(etcd))
}

/// The Service and the roles of the cluster's DNS. Without them it cannot be reached, but everything else works.
async fn make_dns(flags: &Flags, server: &kube_apiserver::Running) {
    for object in crate::dns::objects(&flags.node.cluster_dns(&flags.service_cidr)) {
        let kind = object["kind"].clone();
        if let Err(status) = kube_apiserver::bootstrap::ensure(&server.app, object).await {
            tracing::error!(%kind, message = status.message, "an object of the cluster's DNS is not made");
        }
    }
}

/// Tells machines that join what they must know.
async fn publish(
    flags: &Flags,
    disabled: &crate::disable::Disabled,
    server: &kube_apiserver::Running,
) -> anyhow::Result<()> {
    let settings = crate::join::cluster::Settings {
        cluster_cidr: flags.node.cluster_cidr,
        service_cidr: flags.service_cidr,
        cluster_dns: flags.node.cluster_dns(&flags.service_cidr),
        cluster_domain: flags.node.cluster_domain.clone(),
        etcd_servers: flags.etcd.servers.clone(),
        runs_etcd: flags.runs_etcd,
        disabled: disabled.on_all_nodes(),
    };
    let agent_token = flags.options.agent_token()?;
    let url = format!(
        "https://{}",
        std::net::SocketAddr::new(server.app.settings.advertise_address.get(), server.address.port())
    );
    let publication = crate::join::cluster::Publication {
        authority: &server.cluster_authority.certificate_pem,
        url: &url,
        settings: &settings,
        token: flags.token.as_deref(),
        agent_token: agent_token.as_deref(),
        data_dir: &flags.data_dir,
    };
    crate::join::cluster::publish(&server.app, publication).await?;
    if !flags.disable_agent {
        // A token must not take over the node of a server either.
        let key = crate::join::node_key::NodeKey::of(&flags.data_dir.join("agent"))?;
        crate::join::cluster::bind_own_node(&server.app, &flags.node.name(), &key).await?;
    }
    Ok(())
}

/// How long components get to end what they have begun.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

async fn open_store(
    flags: &Flags,
    etcd: Option<&crate::etcd::Etcd>,
    shutdown: &CancellationToken,
) -> anyhow::Result<Arc<dyn Store>> {
    if let Some(etcd) = etcd {
        let opened = store::etcd::EtcdStore::connect(etcd.store.clone()).await.context("reach etcd")?;
        crate::etcd::migrate::migrate(&flags.data_dir.join("store"), &opened).await.context("move to etcd")?;
        let opened = Arc::new(opened);
        etcd.follow(opened.clone(), shutdown.clone());
        return Ok(opened);
    }
    if flags.etcd.servers.is_empty() {
        let config = store::embedded::Config::new(flags.data_dir.join("store"));
        let opened = tokio::task::spawn_blocking(move || store::embedded::EmbeddedStore::open(config)).await?;
        let opened = opened.context("open the store")?;
        for damage in opened.damaged() {
            tracing::error!(?damage, "a record of the store is damaged");
        }
        let control = crate::control::listen(&flags.data_dir, opened.clone())?;
        tasks::spawn(control);
        let source = crate::etcd::snapshots::Source::Embedded(opened.clone());
        let (data_dir, name) = (flags.data_dir.clone(), flags.node.name());
        tasks::spawn(crate::etcd::snapshots::keep(flags.snapshots.clone(), source, data_dir, name, shutdown.clone()));
        return Ok(opened);
    }
    let config = flags.etcd.config()?;
    Ok(Arc::new(store::etcd::EtcdStore::connect(config).await.context("reach etcd")?))
}

pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_ascii_lowercase()
}
