//! kube-apiserver: the one door to the cluster's objects.
//!
//! `serve.rs` has the steps of a request in order. There is one server and one table of kinds; it runs no controllers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use component_base::tasks;
use jiff::Timestamp;
use store::Store;
use store::cache::Cache;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub mod serve;
pub mod connections;
pub mod mount;
pub mod loopback;
pub mod target;
pub mod query;
pub mod negotiate;
pub mod body;
pub mod call;
pub mod decode;
pub mod respond;
pub mod table;
mod transcode;
pub mod filter;
pub mod resources;
pub mod reduced;
mod stored;
pub mod describe;
pub mod custom;
pub mod verbs;
pub mod write;
pub mod offload;
pub mod subresources;
pub mod authn;
pub mod authz;
pub mod flowcontrol;
pub mod audit;
pub mod admission;
pub mod allocate;
pub mod webhooks;
pub mod configuration;
pub mod outgoing;
pub mod discovery;
pub mod flagz;
pub mod aggregate;
pub mod openapi;
pub mod health;
pub mod metrics;
pub mod bootstrap;
pub mod pki;
pub mod app;
pub mod options;
pub mod given;
pub mod views;
pub mod revisions;
pub mod key_locks;
pub mod names;

use app::{App, Clock, Settings};
pub use given::{Given, start_given};
pub use options::Options;

/// What the operator decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// Certificates are kept in `tls` below this folder, the administrator's kubeconfig beside it.
    pub data_dir: PathBuf,
    pub bind_address: IpAddr,
    pub https_port: u16,
    /// Where others reach this server; chosen from the host's addresses where it is not given.
    pub advertise_address: Option<IpAddr>,
    pub service_cidr: ipnet::IpNet,
    pub tls_sans: Vec<String>,
    /// The domain of the cluster's names.
    pub cluster_domain: String,
    /// What Services of type NodePort get.
    pub node_ports: std::ops::RangeInclusive<u16>,
    /// Where else the administrator's kubeconfig is written.
    pub kubeconfig_copy: Option<PathBuf>,
    /// Of that copy, or of the kubeconfig itself where there is none.
    pub kubeconfig_mode: u32,
    pub host_name: String,
    pub token_auth_file: Option<PathBuf>,
    pub event_ttl: Duration,
    /// Other API servers use the same store.
    pub shared_store: bool,
    /// Kubelets may show any certificate; otherwise only one of the cluster's own authority.
    pub kubelet_insecure_tls: bool,
    /// The APIServices that parts of this process serve; each is attached to the aggregator once it can.
    pub attached: Vec<String>,
    pub flow: flowcontrol::Config,
    pub audit: audit::Config,
    /// What `/flagz` shows beside the settings above: flags of the program under upstream's names, such as files.
    pub flags: flagz::Flags,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("certificates")]
    Pki(#[from] pki::Error),
    #[error("store")]
    Store(#[from] store::StoreError),
    #[error("listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("create the first objects: {0}")]
    Bootstrap(machinery::status::Status),
    #[error(transparent)]
    Authentication(#[from] authn::oidc::Error),
    #[error(transparent)]
    Authorization(#[from] authz::config::Error),
    #[error("read the token file: {0}")]
    Tokens(String),
    #[error("{0}")]
    Settings(String),
    #[error("cannot decode values in the store, so this server does not start; delete or repair these keys: {0}")]
    Unreadable(String),
}

/// A server that answers. Dropping it does not stop it; the shutdown token does.
pub struct Running {
    pub address: SocketAddr,
    pub kubeconfig: PathBuf,
    pub app: Arc<App>,
    /// Issues the certificates of this cluster's nodes.
    pub cluster_authority: Arc<pki::Authority>,
    accepting: tokio::task::JoinHandle<()>,
    announcing: Option<tokio::task::JoinHandle<()>>,
}

impl Running {
    /// Until the server has stopped and its connections have ended.
    pub async fn ended(self) {
        // A panic there has been logged by the runtime; there is nothing left to stop.
        let _ = self.accepting.await;
        if let Some(announcing) = self.announcing {
            let _ = announcing.await;
        }
    }
}

/// Starts to serve; answers when the first request can be sent.
pub async fn start(config: Config, store: Arc<dyn Store>, shutdown: CancellationToken) -> Result<Running, Error> {
    start_at(config, store, Clock::system(), shutdown).await
}

/// The same where the operator decides more than most do.
pub async fn start_with(
    config: Config,
    options: Options,
    store: Arc<dyn Store>,
    shutdown: CancellationToken,
) -> Result<Running, Error> {
    start_own(config, options, store, Clock::system(), shutdown).await
}

/// The same with a clock of the caller's.
pub async fn start_at(
    config: Config,
    store: Arc<dyn Store>,
    clock: Clock,
    shutdown: CancellationToken,
) -> Result<Running, Error> {
    start_own(config, Options { issuers: Vec::new(), ..Options::default() }, store, clock, shutdown).await
}

/// `options_given` names no issuer where the cluster's own domain is one.
async fn start_own(
    mut config: Config,
    options_given: Options,
    store: Arc<dyn Store>,
    clock: Clock,
    shutdown: CancellationToken,
) -> Result<Running, Error> {
    config.flow.check().map_err(Error::Settings)?;
    let advertise = config.advertise_address.unwrap_or_else(|| advertise_address(config.bind_address));
    let service_address = allocate::first_address(&config.service_cidr);
    let options = pki_options(&config, advertise, service_address);
    let material = pki::ensure(&config.data_dir.join("tls"), &options, clock.now())?;
    let credentials = material.credentials(!config.kubelet_insecure_tls);
    config.flags.extend(flagz::own_files(&material.dir, !config.kubelet_insecure_tls));
    let mut choices = Options { node_ports: config.node_ports.clone(), ..options_given };
    if choices.issuers.is_empty() {
        choices.issuers = vec![format!("https://kubernetes.default.svc.{}", config.cluster_domain)];
    }
    let serving = serve_with(&config, &choices, &credentials, store, clock, shutdown.clone()).await?;
    let kubeconfig = config.data_dir.join("admin.kubeconfig");
    let host = if config.bind_address.is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { config.bind_address };
    let url = format!("https://{}", SocketAddr::new(host, serving.address.port()));
    let kubeconfigs = kubeconfigs(&config, &kubeconfig);
    write_all(&kubeconfigs, &material.kubeconfig(pki::Leaf::Admin, &url))?;
    let cluster_authority = material.cluster_ca.clone();
    let renewed = Renewed { app: serving.app.clone(), verify_kubelets: !config.kubelet_insecure_tls, url, kubeconfigs };
    tasks::spawn(renew(renewed, material, options, serving.certificate, shutdown));
    let (accepting, announcing) = (serving.accepting, serving.announcing);
    Ok(Running { address: serving.address, kubeconfig, app: serving.app, cluster_authority, accepting, announcing })
}

/// A server that answers, whoever made its certificates.
struct Serving {
    address: SocketAddr,
    app: Arc<App>,
    certificate: Arc<pki::ServingCertificate>,
    accepting: tokio::task::JoinHandle<()>,
    announcing: Option<tokio::task::JoinHandle<()>>,
}

async fn serve_with(
    config: &Config,
    options: &Options,
    credentials: &pki::Credentials,
    store: Arc<dyn Store>,
    clock: Clock,
    shutdown: CancellationToken,
) -> Result<Serving, Error> {
    let advertise = config.advertise_address.unwrap_or_else(|| advertise_address(config.bind_address));
    let certificate = Arc::new(pki::ServingCertificate::new(&credentials.serving)?);
    let clients = Arc::new(credentials.client_authorities()?);
    let tls = Arc::new(pki::server_config(certificate.clone(), clients.clone())?);

    let wanted = SocketAddr::new(config.bind_address, config.https_port);
    let listener = TcpListener::bind(wanted).await.map_err(|source| Error::Listen { address: wanted, source })?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: wanted, source })?;

    let cache = Cache::start(stored::Readable::wrap(store)).await?;
    let table = resources::built_in(&cache).await?;
    refuse_unreadable(&table)?;
    let settings = Settings {
        advertise_address: app::Advertised::new(advertise),
        https_port: address.port(),
        service_cidr: config.service_cidr,
        node_ports: options.node_ports.clone(),
        issuer: options.issuers.first().cloned().unwrap_or_default(),
        jwks_uri: options.jwks_uri.clone(),
        external_hostname: options.external_hostname.clone(),
        identity_hash: configuration::hash(&config.host_name),
        event_ttl: config.event_ttl,
        kubelet_address_types: options.kubelet_address_types.clone(),
    };
    let (authorizer, authorization_text) = authz::Authorizer::new(&options.authorization)?;
    let (authenticator, authentication_text) = authenticator(config, options, credentials)?;
    let app = Arc::new(App {
        views: views(&table),
        table: ArcSwap::from_pointee(table),
        cache,
        flow: flowcontrol::FlowControl::new(config.flow.clone()),
        authenticator,
        authorizer,
        admission: admission::Admission::new(options),
        locks: Default::default(),
        health: health::Health { stopping: shutdown.clone(), ..Default::default() },
        metrics: Default::default(),
        openapi: Default::default(),
        audit: audit::Audit::start(&config.audit, shutdown.clone()).map_err(Error::Settings)?.map(Arc::new),
        nodes: subresources::kubelet::Nodes::new(
            credentials,
            advertise.is_loopback() || config.bind_address.is_loopback(),
        )?,
        aggregator: aggregate::Aggregator::new(credentials, &config.attached)?,
        webhooks: Default::default(),
        offload: Default::default(),
        mounts: Default::default(),
        settings,
        flags: flagz::flags(config, options),
        clock,
    });
    bootstrap::create(&app, credentials, &options.front_proxy).await.map_err(Error::Bootstrap)?;
    let announcing = match config.shared_store {
        true => Some(tasks::spawn(bootstrap::endpoints::keep(app.clone(), shutdown.clone()))),
        false => {
            bootstrap::endpoints::only_this(&app).await.map_err(Error::Bootstrap)?;
            tasks::spawn(bootstrap::endpoints::follow_this(app.clone(), shutdown.clone()));
            None
        }
    };
    tasks::spawn(authn::token_use::follow(app.clone(), shutdown.clone()));
    if let Some(path) = &options.authentication.file {
        let followed = configuration::Follow {
            path: path.clone(),
            text: authentication_text,
            what: "authentication configuration",
        };
        tasks::spawn(follow_authentication(app.clone(), followed, shutdown.clone()));
    }
    if let Some(path) = &options.authorization.file {
        let followed =
            configuration::Follow { path: path.clone(), text: authorization_text, what: "authorization configuration" };
        tasks::spawn(follow_authorization(app.clone(), followed, shutdown.clone()));
    }
    flowcontrol::start(&app, shutdown.clone()).await;
    allocate::repair(&app, &shutdown).await.map_err(Error::Bootstrap)?;
    custom::follow::start(&app, shutdown.clone()).await?;
    refuse_unreadable(&app.table.load())?;
    aggregate::start(&app, shutdown.clone());
    app.health.bootstrapped.store(true, Ordering::Release);

    let accepting = tasks::spawn(connections::accept(app.clone(), listener, tls, clients, shutdown));
    Ok(Serving { address, app, certificate, accepting, announcing })
}

/// Takes a changed AuthenticationConfiguration over.
async fn follow_authentication(app: Arc<App>, followed: configuration::Follow, shutdown: CancellationToken) {
    let dynamic = app.authenticator.dynamic();
    let path = followed.path.clone();
    let apply = |text: String| dynamic.reload(path.clone(), text);
    configuration::follow(followed, &dynamic.reloads, apply, shutdown).await;
}

/// Takes a changed AuthorizationConfiguration over.
async fn follow_authorization(app: Arc<App>, followed: configuration::Follow, shutdown: CancellationToken) {
    let path = followed.path.clone();
    let apply = |text: String| {
        let reloaded = app.authorizer.reload(&path, &text);
        async move {
            match reloaded {
                Ok(()) => configuration::Applied::Yes,
                Err(error) => configuration::Applied::Refused(error.to_string()),
            }
        }
    };
    configuration::follow(followed, &app.authorizer.reloads, apply, shutdown).await;
}

/// A server that leaves out what it cannot read would do harm with the rest.
fn refuse_unreadable(table: &resources::Table) -> Result<(), Error> {
    stored::unreadable(table).map_or(Ok(()), |keys| Err(Error::Unreadable(keys)))
}

/// The address others would reach this host by: the one it listens on, or the one its default route would use.
fn advertise_address(bind: IpAddr) -> IpAddr {
    if !bind.is_unspecified() && !bind.is_loopback() {
        return bind;
    }
    // Connecting a datagram socket sends nothing; it only asks the kernel for a route. The address is one of those
    // reserved for documentation.
    let route = || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    };
    route().map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

fn pki_options(config: &Config, advertise: IpAddr, service_address: IpAddr) -> pki::Options {
    let (addresses, names): (Vec<_>, Vec<_>) = config.tls_sans.iter().partition(|name| name.parse::<IpAddr>().is_ok());
    let mut extra_addresses: Vec<IpAddr> = addresses.iter().filter_map(|name| name.parse().ok()).collect();
    extra_addresses.push(advertise);
    if !config.bind_address.is_unspecified() {
        extra_addresses.push(config.bind_address);
    }
    pki::Options {
        host_name: config.host_name.clone(),
        cluster_domain: config.cluster_domain.clone(),
        service_addresses: vec![service_address],
        extra_names: names.into_iter().cloned().collect(),
        extra_addresses,
    }
}

/// The resources that the server itself reads, by plural name.
fn views(table: &resources::Table) -> views::Views {
    const READ: &[(&str, &str)] = &[
        ("", "namespaces"),
        ("", "serviceaccounts"),
        ("", "secrets"),
        ("", "configmaps"),
        ("", "pods"),
        ("", "nodes"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "limitranges"),
        ("", "resourcequotas"),
        ("", "services"),
        ("", "endpoints"),
        ("discovery.k8s.io", "endpointslices"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
        ("networking.k8s.io", "ingressclasses"),
        ("networking.k8s.io", "servicecidrs"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("node.k8s.io", "runtimeclasses"),
        ("policy", "poddisruptionbudgets"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceslices"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ];
    let mut views = views::Views::default();
    for (group, plural) in READ {
        let resource = table.get(group, "v1", plural).expect("a built-in kind is in the table");
        let state = resource.state.clone().expect("a kind that is read is stored");
        views.add(plural, &resource.kind, state);
    }
    views
}

fn authenticator(
    config: &Config,
    options: &Options,
    credentials: &pki::Credentials,
) -> Result<(authn::Authenticator, String), Error> {
    let (issuer, older) = options.issuers.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let audiences = match options.audiences.is_empty() {
        true => &options.issuers,
        false => &options.audiences,
    };
    let (key, keys) = (&credentials.service_account_key, &credentials.service_account_public_keys);
    let accounts = authn::ServiceAccounts::new(issuer, audiences, key, keys);
    let accounts = accounts.map_err(|error| Error::Tokens(error.to_string()))?.believing(older);
    let accounts = accounts.living(options.token_expiration_max, options.extend_tokens);
    let token_file = match &config.token_auth_file {
        None => Default::default(),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|error| Error::Tokens(format!("{}: {error}", path.display())))?;
            authn::TokenFile::parse(&text).map_err(|error| Error::Tokens(error.to_string()))?
        }
    };
    let loaded = options.authentication.load(&options.issuers, options.anonymous)?;
    let authenticator = authn::Authenticator::new(authn::Config {
        clock: Arc::new(Timestamp::now),
        service_accounts: Arc::new(accounts),
        token_file,
        bootstrap_tokens: options.bootstrap_tokens,
        front_proxy: options.front_proxy.clone(),
        anonymous: loaded.anonymous,
        dynamic: loaded.dynamic,
    });
    Ok((authenticator, loaded.text))
}

/// The files that hold the administrator's kubeconfig, and their modes.
fn kubeconfigs(config: &Config, own: &std::path::Path) -> Vec<(PathBuf, u32)> {
    match &config.kubeconfig_copy {
        Some(copy) => vec![(own.to_owned(), 0o600), (copy.clone(), config.kubeconfig_mode)],
        None => vec![(own.to_owned(), config.kubeconfig_mode)],
    }
}

fn write_all(files: &[(PathBuf, u32)], text: &str) -> Result<(), Error> {
    for (path, mode) in files {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| Error::Write { path: folder.to_owned(), source })?;
        }
        pki::write_file(path, text, *mode)?;
    }
    Ok(())
}

/// What gets the new certificates when they were renewed.
struct Renewed {
    app: Arc<App>,
    verify_kubelets: bool,
    url: String,
    kubeconfigs: Vec<(PathBuf, u32)>,
}

/// Keeps certificates fresh, and the administrator's kubeconfig with them.
async fn renew(
    to: Renewed,
    material: pki::Material,
    options: pki::Options,
    serving: Arc<pki::ServingCertificate>,
    shutdown: CancellationToken,
) {
    let (sender, mut renewed) = tokio::sync::watch::channel(Arc::new(material));
    let follow = async {
        while renewed.changed().await.is_ok() {
            let material = renewed.borrow_and_update().clone();
            hand_out(&to.app, &material.credentials(to.verify_kubelets));
            let text = material.kubeconfig(pki::Leaf::Admin, &to.url);
            if let Err(error) = write_all(&to.kubeconfigs, &text) {
                tracing::error!(%error, "the administrator's kubeconfig could not be renewed");
            }
        }
    };
    tokio::select! {
        () = pki::renewal_task(sender, options, to.app.settings.advertise_address.changes(), serving, Timestamp::now) => {}
        () = follow => {}
        () = shutdown.cancelled() => {}
    }
}

/// Gives new certificates to whoever shows them to others.
fn hand_out(app: &App, credentials: &pki::Credentials) {
    if let Err(error) = app.nodes.renew(credentials) {
        tracing::error!(%error, "the certificate for kubelets could not be renewed");
    }
    if let Err(error) = app.aggregator.renew(credentials) {
        tracing::error!(%error, "the certificate for foreign API servers could not be renewed");
    }
}
