//! `knarr server`: the control plane, until it is told to stop. `server/parts.rs` lists what it starts.

mod parts;
mod storage;
mod api;
mod controllers;
mod join;
mod node;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const AGENT: &str = concat!("knarr/v", env!("CARGO_PKG_VERSION"));

#[derive(clap::Args)]
pub struct Flags {
    /// Keep all data of knarr in this directory.
    #[arg(long, short, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Address to listen on.
    #[arg(long, env = "KNARR_BIND_ADDRESS", default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Port of the Kubernetes API; 0 picks a free one.
    #[arg(long, visible_alias = "https-listen-port", env = "KNARR_HTTPS_PORT", default_value_t = 6443)]
    https_port: u16,
    /// Address by which other machines and pods reach this server.
    #[arg(long, env = "KNARR_ADVERTISE_ADDRESS")]
    advertise_address: Option<IpAddr>,
    /// Additional names and addresses in the serving certificate.
    #[arg(long, env = "KNARR_TLS_SAN", value_delimiter = ',')]
    tls_san: Vec<String>,
    /// CIDR of Service addresses.
    #[arg(long, env = "KNARR_SERVICE_CIDR", default_value = "10.43.0.0/16")]
    service_cidr: ipnet::IpNet,
    /// Join the cluster of this server, such as https://10.0.0.1:6443; both use the same etcd.
    #[arg(long, short, env = "KNARR_URL")]
    server: Option<String>,
    /// Token with which servers join: <data-dir>/server/token of another server, or any text for the first server.
    #[arg(long, short, env = "KNARR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Read the token from this file.
    #[arg(long, env = "KNARR_TOKEN_FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Run the control plane without a node.
    #[arg(long, env = "KNARR_DISABLE_AGENT")]
    disable_agent: bool,
    #[command(flatten)]
    etcd: crate::etcd::access::Access,
    /// Start the first server of several, with the host's etcd; the others join with --server and --token.
    #[arg(long, env = "KNARR_CLUSTER_INIT", conflicts_with = "etcd_servers")]
    cluster_init: bool,
    /// Reset etcd to a cluster of this one member, and exit. The other servers join again afterwards.
    #[arg(long, env = "KNARR_CLUSTER_RESET", conflicts_with = "etcd_servers")]
    cluster_reset: bool,
    /// With --cluster-reset: restore this snapshot.
    #[arg(long, env = "KNARR_CLUSTER_RESET_RESTORE_PATH", requires = "cluster_reset")]
    cluster_reset_restore_path: Option<PathBuf>,
    #[command(flatten)]
    snapshots: crate::etcd::snapshots::Flags,
    /// Read static tokens from this file, with lines of token,user,uid,"group1,group2".
    #[arg(long, env = "KNARR_TOKEN_AUTH_FILE")]
    token_auth_file: Option<PathBuf>,
    /// Do not verify kubelet serving certificates.
    #[arg(long, env = "KNARR_KUBELET_INSECURE_TLS")]
    kubelet_insecure_tls: bool,
    /// Time to keep Events: seconds, or a duration such as 1h.
    #[arg(long, env = "KNARR_EVENT_TTL", default_value = "1h", value_parser = crate::options::seconds_or_duration)]
    event_ttl: Duration,
    /// Disable these components: kube-controller-manager, kube-scheduler, cloud-controller-manager (servicelb),
    /// local-storage, kube-proxy, dns (coredns), ingress (traefik), metrics-server, network-policy, dashboard; or a
    /// manifest file. Their objects are deleted.
    #[arg(long, env = "KNARR_DISABLE", value_delimiter = ',')]
    disable: Vec<String>,
    /// Controllers to run: `*` for all, `name` for one, `-name` for all but that one.
    #[arg(long, env = "KNARR_CONTROLLERS", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// KubeSchedulerConfiguration file: profiles, plugins and their weights.
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
            "that server uses the embedded store, which servers cannot share: restart it with --cluster-init or --etcd-servers first"
        );
        Ok(())
    }

    fn read_token_file(&mut self) -> anyhow::Result<()> {
        if let Some(file) = &self.token_file {
            self.token = Some(std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?);
        }
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
    fn api_options(&self) -> anyhow::Result<kube_apiserver::options::Options> {
        use kube_apiserver::authz::Mode;
        let defaults = crate::identity::Defaults { modes: &[Mode::Node, Mode::Rbac] };
        let options = self.identity.options(
            defaults,
            self.admission.options(self.api.serving(kube_apiserver::options::Options::default())?)?,
        )?;
        let (encryption, storage_media) = (self.encryption()?, self.api.storage_media());
        Ok(kube_apiserver::options::Options { encryption, storage_media, ..options })
    }

    /// What is encrypted: as a file says, or as `knarr secrets-encrypt` was told.
    fn encryption(&self) -> anyhow::Result<kube_apiserver::encryption::Settings> {
        Ok(kube_apiserver::encryption::Settings {
            own_file: Some(crate::secrets_encrypt::file(&self.data_dir)),
            is_shared: !self.etcd.servers.is_empty() || self.runs_etcd,
            ..self.api.encryption()?
        })
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
        let made = if shared {
            linux::file::make_passable_folder(&self.data_dir)
        } else {
            linux::file::make_private_folder(&self.data_dir)
        };
        made.with_context(|| format!("create {}", self.data_dir.display()))
    }

    /// Tells the parts what their `/flagz` shows.
    pub fn show(&mut self, shown: &crate::shown::Shown) {
        self.options.controllers_shown = shown.of_part("kube-controller-manager");
        self.options.scheduler_shown = shown.of_part("kube-scheduler");
        self.node.shown = shown.of_part("kubelet");
        self.parts.show(shown);
    }

    /// Where objects are kept and what controllers of this process are told, as `/flagz` shows it.
    fn shown(&self, runs_etcd: bool) -> kube_apiserver::options::Flags {
        let mut flags =
            if runs_etcd { crate::etcd::flags(&self.data_dir, &self.etcd.servers) } else { self.etcd.flags() };
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

    /// What the parts of this machine's node are told of it.
    fn node_of_parts(&self) -> crate::parts::Node<'_> {
        crate::parts::Node {
            flags: &self.node,
            data_dir: &self.data_dir,
            service_cidr: self.service_cidr,
            disabled: &self.disable,
            api_port: Some(self.https_port),
        }
    }

    fn disables(&self, part: &str) -> bool {
        self.disable.iter().any(|one| one == part)
    }
}

pub fn run(mut flags: Flags) -> anyhow::Result<()> {
    flags.read_token_file()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(serve(flags))
}

/// Until it is told to stop.
async fn serve(flags: Flags) -> anyhow::Result<()> {
    if flags.cluster_reset {
        return storage::reset(&flags).await;
    }
    let mut server = Server::start(flags).await?;
    for part in parts::PARTS {
        if part.runs(&server)? {
            tracing::debug!(part = part.name, needs = ?part.needs, "starting server component");
            (part.start)(&mut server).await?;
        }
    }
    server.tell_ready();
    server.told_to_stop().await?;
    server.stop().await
}

/// A server whose API answers, and the parts that have started so far.
struct Server {
    began: Instant,
    flags: Flags,
    disabled: crate::disable::Disabled,
    scheduling: kube_scheduler::Config,
    etcd: Option<crate::etcd::Etcd>,
    api: kube_apiserver::Running,
    issued: kube_apiserver::Issued,
    local: crate::controllers::Local,
    /// Whether a controller gives nodes their ranges of pod addresses.
    gives_ranges: bool,
    /// What is waited for when the server stops.
    running: Vec<JoinHandle<()>>,
    /// Stops the parts, then the API server, then etcd.
    stop: CancellationToken,
    stop_api: CancellationToken,
    stop_etcd: CancellationToken,
}

impl Server {
    /// Checks what was asked for, opens the store and starts the API server.
    async fn start(mut flags: Flags) -> anyhow::Result<Server> {
        let began = Instant::now();
        let disabled = prepare(&mut flags).await?;
        let scheduling = crate::scheduler::config(flags.kube_scheduler_config.as_deref())?;
        flags.make_data_dir()?;
        flags.api_options()?;
        let [stop, stop_api, stop_etcd] = std::array::from_fn(|_| CancellationToken::new());
        let etcd = storage::start_etcd(&mut flags, stop_etcd.clone()).await?;
        let storage::Opened { store, embedded } = storage::open_store(&flags, etcd.as_ref(), &stop_api).await?;
        let control = crate::control::Control::listen(&flags.data_dir, embedded)?;
        // Only now is it known whether other servers use the same store.
        let options = flags.api_options()?;
        if let Some(token) = &flags.token {
            let readable = kube_apiserver::encryption::readable(store.clone(), &options.encryption, &stop_api).await?;
            crate::join::server::recover(&*readable, token, &flags.data_dir)
                .await
                .context("restore the cluster's keys")?;
        }
        progress(began, "opened store");
        let config = api::config(&flags, options, etcd.is_some())?;
        let api = kube_apiserver::start(config, store, stop_api.clone()).await;
        let mut api = api.context("start API server")?;
        control.serve_encryption(api.app.encrypted.encryption().clone());
        let issued = api.issued.take().context("the API server has issued no certificates")?;
        progress(began, "API server is ready");
        // The copies outlive the parts: what these have begun ends when it has seen its own last write.
        let shared = !flags.etcd.servers.is_empty();
        let local = crate::controllers::Local::new(api.app.clone(), shared, stop_api.clone());
        Ok(Server {
            began,
            flags,
            disabled,
            scheduling,
            etcd,
            api,
            issued,
            local,
            gives_ranges: false,
            running: Vec::new(),
            stop,
            stop_api,
            stop_etcd,
        })
    }

    fn progress(&self, what: &str) {
        progress(self.began, what);
    }

    fn tell_ready(&self) {
        // Nobody can connect to "all addresses"; here it is reached by this one.
        let mut address = self.api.address;
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::from([127, 0, 0, 1]));
        }
        println!(
            "knarr is ready on https://{address} after {} ms; export KUBECONFIG={}",
            self.began.elapsed().as_millis(),
            self.issued.kubeconfig.display()
        );
        crate::memory::give_back_later();
        crate::notify::ready(&format!("answering on https://{address}"));
    }

    /// Until a signal comes, or the other members of etcd have removed this one.
    async fn told_to_stop(&self) -> anyhow::Result<()> {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let removed = self.etcd.as_ref().map(|etcd| etcd.removed.clone()).unwrap_or_default();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = removed.cancelled() => {}
        }
        Ok(())
    }

    async fn stop(self) -> anyhow::Result<()> {
        tracing::info!("stopping server");
        crate::notify::stopping();
        // Parts first: what they have begun to write, they can end.
        self.stop.cancel();
        for running in self.running {
            // A panic there has been logged.
            let _ = tokio::time::timeout(STOP_TIMEOUT, running).await;
        }
        self.stop_api.cancel();
        self.api.ended().await;
        self.stop_etcd.cancel();
        let Some(etcd) = self.etcd else { return Ok(()) };
        let message = etcd.removed.is_cancelled().then(|| etcd.config.removed_message());
        etcd.ended().await;
        match message {
            Some(message) => bail!(message),
            None => Ok(()),
        }
    }
}

/// Settles the flags before anything is started: refuses what cannot be used, and takes over what the cluster has decided.
async fn prepare(flags: &mut Flags) -> anyhow::Result<crate::disable::Disabled> {
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
    Ok(disabled)
}

fn progress(began: Instant, what: &str) {
    tracing::info!(after_ms = began.elapsed().as_millis() as u64, "{what}");
}

/// How long components get to end what they have begun.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_ascii_lowercase()
}
